"""What stands in for SGLang's detokenizer and chat template, beside its parsers; these are not installed here
(``tests.peers.foreign_sglang`` compares with its own server)."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from replay.errors import NotAvailable
from replay.foreign.peer.sglang_text import Text
from replay.foreign.peer.sglang_thinking import chat_template, forced
from replay.resolve import resolve

SPECIAL = {"<|im_end|>": 2, "<|call|>": 200012}
ADDED = {"<tool_call>": 3}
EOS = {"reason": "eos", "stop": 2}


def text(request: dict[str, Any] | None = None, **how: bool) -> Text:
    """A choice's text."""
    session = {"request": request or {}, "special": SPECIAL, "added": ADDED, "eos": [2]}
    return Text(session, **{"keep_special": False, "keep_call": False, "keep_stop": False, **how})


def step(*tokens: tuple[int, str]) -> dict[str, Any]:
    """A step; bytes as Latin-1, as the worker gets them."""
    return {"ids": [token for token, _ in tokens], "pieces": [piece for _, piece in tokens], "text": ""}


def test_special_tokens_are_skipped_or_kept_and_the_end_is_cut() -> None:
    tokens = step((5, "a"), (200012, "<|call|>"), (3, "<tool_call>"), (2, "<|im_end|>"))
    assert text().step(tokens, None) == "a<tool_call>"
    assert text(keep_special=True).step(tokens, None) == "a<|call|><tool_call><|im_end|>"
    assert text(keep_special=True).step(tokens, EOS) == "a<|call|><tool_call>"
    assert text(keep_special=True, keep_stop=True).step(tokens, EOS) == "a<|call|><tool_call><|im_end|>"


def test_gpt_oss_keeps_the_end_of_a_call_for_its_tool_parser() -> None:
    tokens, end = step((5, "{}"), (200012, "<|call|>")), {"reason": "eos", "stop": 200012}
    assert text(keep_special=True, keep_call=True).step(tokens, end) == "{}<|call|>"
    assert text(keep_special=True).step(tokens, end) == "{}"


def test_an_end_that_is_no_token_of_the_text_cuts_nothing() -> None:
    assert text(keep_special=True).step(step((5, "a")), EOS) == "a"
    assert text(keep_special=True).step(step((2, "<|im_end|>")), {"reason": "length", "stop": None}) == "<|im_end|>"
    assert text(keep_special=True).step(step((2, "<|im_end|>")), {"reason": "eos", "stop": None}) == ""


@pytest.mark.parametrize("stop", ["lo w", None])
def test_a_stop_string_ends_the_text_whether_the_server_told_it_or_not(stop: str | None) -> None:
    made = text({"stop": ["lo w"]})
    assert made.step(step((5, "hel"), (6, "l")), None) == "hell"
    assert made.step(step((7, "o worl"), (8, "d")), {"reason": "stop", "stop": stop}) == ""
    kept = text({"stop": "lo w"}, keep_stop=True)
    assert kept.step(step((5, "hello world")), {"reason": "stop", "stop": stop}) == "hello w"


def test_half_a_character_holds_back_the_word_that_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("sglang.utils")

    def printable(shown: str) -> str:
        return shown[: shown.rfind(" ") + 1]

    module.find_printable_text = printable
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    monkeypatch.setitem(sys.modules, "sglang.utils", module)
    made = text()
    assert made.step(step((5, "one caf\xc3")), None) == "one "
    assert made.step(step((6, "\xa9!")), None) == "café!"
    assert made.step(step((7, "\xf0\x9f")), None) == ""
    assert made.step(step(), EOS) == "\ufffd"


def test_text_without_ids_is_taken_as_it_is() -> None:
    released: dict[str, Any] = {"ids": [], "pieces": [], "text": "a<|im_end|>"}
    assert text().step(released, None) == "a"
    assert text(keep_special=True).step({**released, "ids": [2]}, EOS) == "a"


# --- does it think? ---------------------------------------------------------------------------------------------------


def thinks(
    mode: str | None = None, arguments: dict[str, Any] | None = None, tail: str = "", effort: str | None = None,
    name: str = "qwen3",
) -> bool:  # fmt: skip
    """As its reasoning parser is told, with no chat template."""
    detector = SimpleNamespace(think_start_token="<think>", think_end_token="</think>", reasoning_default=mode)
    request = SimpleNamespace(chat_template_kwargs=arguments, reasoning_effort=effort)
    return forced(name, detector, request, None, tail)


def test_the_end_of_the_prompt_says_what_the_template_wrote() -> None:
    assert thinks(None, tail="assistant\n<think>\n")
    assert not thinks("always", tail="assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("mode", "arguments", "expected"),
    [
        ("always", None, True), (None, {"thinking": True}, False), ("thinking", None, True),
        ("thinking", {"thinking": False}, False), ("enable_thinking", {"enable_thinking": None}, True),
        ("explicit_thinking", None, False), ("explicit_thinking", {"thinking": True}, True),
    ],
)  # fmt: skip
def test_else_the_parser_s_default_and_the_request_do(
    mode: str | None, arguments: dict[str, Any] | None, expected: bool
) -> None:
    assert thinks(mode, arguments, tail="assistant\n") is expected


def test_effort_turns_some_on() -> None:
    assert thinks("mistral", effort="high") and not thinks("mistral", effort="none")
    assert thinks(name="hunyuan", effort="low") and not thinks(name="hunyuan", effort="no_think")
    assert thinks(name="minimax-m3", arguments={"thinking_mode": "enabled"}) and not thinks(name="minimax-m3")


def test_a_tokenizer_s_folder_has_the_template(tmp_path: Any) -> None:
    assert chat_template(str(tmp_path)) is None
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ 1 }}"}')
    assert chat_template(str(tmp_path)) == "{{ 1 }}"
    (tmp_path / "chat_template.jinja").write_text("{{ 2 }}")
    assert chat_template(str(tmp_path)) == "{{ 2 }}"


def test_where_sglang_is_not_it_is_said_what_to_do() -> None:
    with pytest.raises(NotAvailable, match=r"sglang:qwen25.*pip install sglang.*--peer-python"):
        resolve("sglang:qwen25")
