"""The generators' messages: all that a model may mean is drawn, within the limits, and the tools type it truly."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from replay.plain import is_list, is_map
from tests.support.generate.family import BREAK, plain, spelled, tokenize
from tests.support.generate.hermes import QWEN3
from tests.support.generate.message import Invocation, Limits, Meant, draw, kind_of, tools_for

DRAWN = [draw(random.Random(seed), Limits(), ("<tool_call>",)) for seed in range(400)]


def _values(value: Any, depth: int = 1) -> Iterator[tuple[Any, int]]:
    yield value, depth
    for item in value.values() if is_map(value) else value if is_list(value) else ():
        yield from _values(item, depth + 1)


ARGUMENTS = [argument for meant in DRAWN for call in meant.calls for argument in call.arguments.values()]
VALUES = [found for argument in ARGUMENTS for found in _values(argument)]
STRINGS = [value for value, _ in VALUES if isinstance(value, str)]


def test_every_kind_of_value_is_drawn_and_nested() -> None:
    for depth in (1, 2, 3):
        kinds = {kind_of(value) for value, at in VALUES if at == depth}
        assert kinds == {"string", "integer", "number", "boolean", "null", "array", "object"}, depth
    assert max(depth for _, depth in VALUES) == 3
    for empty in ("{}", "[]", '""', "null", "0", "false"):
        assert any(json.dumps(value) == empty for value, _ in VALUES), empty
    assert any(isinstance(value, int) and abs(value) > 2**64 for value, _ in VALUES)


def test_every_kind_of_text_is_drawn() -> None:
    for part in (
        "é", "e\u0301", "日本語", "😀", "👩\u200d👩\u200d👧", "\u2028", "\U0001d4b3", "\x00", "\x1b", "\x7f", '"', "\\",
        "'", "\t", "\r\n", "<tool_call>",
    ):  # fmt: skip
        assert any(part in text for text in STRINGS), part
    assert any(text.startswith("\n") and text.endswith("\n") and text.strip() for text in STRINGS)
    assert any(len(text) > 2000 for text in STRINGS)
    names = {call.name for meant in DRAWN for call in meant.calls}
    for char in "._-":
        assert any(char in name for name in names), char
    assert any(not call.arguments for meant in DRAWN for call in meant.calls)


def test_every_order_of_parts_is_drawn() -> None:
    shapes = {"".join("t" if isinstance(part, str) else "c" for part in meant.parts) for meant in DRAWN}
    assert {"", "t", "c", "tc", "ct", "tct", "ctc", "cc", "tcc", "ccc"} <= shapes
    assert all("tt" not in shape for shape in shapes)
    assert {meant.reasoning is None for meant in DRAWN} == {True, False}


def test_limits_hold() -> None:
    limits = Limits(
        reasoning=False, calls=2, before=False, between=False, after=False, prose_never=("[", "{"), names="abcdefghil_",
        keys="abcdefghijklmnopqrstuvwxyz_", kinds=("string", "array"), depth=2, empty=False, strings_never=("</", ">"),
        edges="no-space", controls=False, longest=50,
    )  # fmt: skip
    for seed in range(200):
        meant = draw(random.Random(seed), limits, ("</x>",))
        assert meant.reasoning is None
        assert len(meant.calls) <= 2
        assert not (meant.calls and meant.content)
        assert not any(char in (meant.content or "") for char in "[{")
        for call in meant.calls:
            assert set(call.name) <= set(limits.names)
            for key, argument in call.arguments.items():
                assert set(key) <= set("abcdefghijklmnopqrstuvwxyz_")
                for value, depth in _values(argument):
                    assert kind_of(value) in limits.kinds
                    assert depth <= 2
                    assert value
                    if isinstance(value, str):
                        assert value == value.strip()
                        assert "</" not in value
                        assert "\x00" not in value


def test_uniform_arguments_have_no_unions_but_null() -> None:
    for seed in range(200):
        meant = draw(random.Random(seed), Limits(uniform=True))
        assert "anyOf" not in json.dumps([tool.parameters for tool in tools_for(meant)])


def test_tools_type_every_argument() -> None:
    for seed, meant in enumerate(DRAWN):
        tools = {tool.name: tool.parameters or {} for tool in tools_for(meant, random.Random(seed))}
        for call in meant.calls:
            assert _allows(tools[call.name], call.arguments), (tools[call.name], call.arguments)


def _allows(schema: dict[str, Any], value: Any) -> bool:
    if "anyOf" in schema:
        return any(_allows(branch, value) for branch in schema["anyOf"])
    if kind_of(value) not in (schema["type"] if is_list(schema["type"]) else (schema["type"],)):
        return False
    if is_map(value):
        members = schema["properties"]
        return all(key in members and _allows(members[key], item) for key, item in value.items())
    return not is_list(value) or all("items" in schema and _allows(schema["items"], item) for item in value)


def test_special_tokens_inside_texts_are_spelled() -> None:
    meant = Meant("<|im_end|>", (Invocation("f", {"a<|im_end|>": ["x<|im_end|>y<think>"]}),))
    written = spelled(meant, tuple(QWEN3.special))
    assert written.reasoning == f"<{BREAK}|im_end|>"
    raw = f"{json.dumps(written.calls[0].arguments)}<|im_end|>"
    assert plain(raw) == '{"a<|im_end|>": ["x<|im_end|>y<think>"]}<|im_end|>'
    tokens = tokenize(raw, QWEN3)
    assert b"".join(piece for _, piece in tokens).decode() == plain(raw)
    assert [piece for number, piece in tokens if number >= 151643 and number in QWEN3.special.values()] == [
        b"<|im_end|>"
    ]
    assert [piece for number, piece in tokens if number == QWEN3.added["<think>"]] == [b"<think>"]
