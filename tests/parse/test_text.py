"""Characters and special tokens: UTF-8 over token borders, bad bytes, ids against text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import catalog
from stages.events import Content, Dropped, Fault, Input, Marker, Reasoning, TokensInput
from stages.opening import TokenizerFacts
from stages.parse.text import Alphabet, decode, unfinished
from tests.support.parse import (
    QWEN,
    check_partition,
    check_resume,
    check_stream,
    grouped,
    message,
    opening,
    semantic,
    session,
    texts,
    tokens,
    wrote,
)


def _steps(*pieces: bytes) -> list[TokensInput]:
    return [TokensInput(0, (7,), (piece,), "") for piece in pieces]


def _said(events: list[object]) -> list[str]:
    return [event.text for event in events if isinstance(event, Content)]


@pytest.mark.parametrize("parser", ["plain", "hermes"])
def test_a_character_over_tokens_comes_out_whole_when_it_is(parser: str) -> None:
    inputs = session(_steps(b"a\xf0", b"\x9f", b"\x98", b"\x8ab"))
    events = semantic(opening(parser), inputs)
    assert _said(list(events)) == ["a", "\U0001f60ab"]
    assert [event.src for event in events if isinstance(event, Content)] == [(0, 1), (1, 6)]
    check_partition(inputs, events)


@pytest.mark.parametrize(
    "empty", [TokensInput(0, (), (), ""), TokensInput(0, (5,), (), ""), TokensInput(0, (5,), (b"",), "")]
)
def test_a_step_that_wrote_nothing_breaks_no_character(empty: TokensInput) -> None:
    begun, ended = _steps(b"a\xc3", b"\xa9b")
    inputs = session([begun, empty, ended])
    events = semantic(opening("plain"), inputs)
    assert (message(events).content, message(events).faults) == ("aéb", [])
    check_partition(inputs, events)


@pytest.mark.parametrize("pieces", [(b"hi<|im_end|>\xff",), (b"hi<|im_end|>", b"\xff")])
def test_bad_bytes_behind_the_end_are_no_fault_in_the_same_step_either(pieces: tuple[bytes, ...]) -> None:
    events = semantic(opening(tokenizer=TokenizerFacts()), session(_steps(*pieces)))
    assert (message(events).content, message(events).faults) == ("hi", [])


@pytest.mark.parametrize("pieces", [(b"hi STOP\xff",), (b"hi STOP", b"\xff")])
def test_bad_bytes_behind_a_stop_string_are_no_fault(pieces: tuple[bytes, ...]) -> None:
    events = semantic(opening("plain", stop=("STOP",)), session(_steps(*pieces)))
    assert (message(events).content, message(events).faults) == ("hi ", [])


@pytest.mark.parametrize("parser", ["plain", "hermes"])
@pytest.mark.parametrize(
    ("pieces", "text", "faults"),
    [
        ((b"ok", b"\xff", b"end"), "ok�end", [(2, 3)]),
        ((b"\xe2\x82", b"x"), "�x", [(0, 2)]),
        ((b"\xe2", b"\x82", b"\xe2\x82\xac"), "�€", [(0, 2)]),
        ((b"a\xf0\x9f\x98",), "a�", [(1, 4)]),
        ((b"\xff\xfe\xc0\xaf",), "����", [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ((b"\xed\xa0\x80",), "���", [(0, 1), (1, 2), (2, 3)]),
        ((b"\xc3\xa9\xff\xc3", b"\xa9"), "é�é", [(2, 3)]),
    ],
)
def test_bad_bytes(parser: str, pieces: tuple[bytes, ...], text: str, faults: list[tuple[int, int]]) -> None:
    """One U+FFFD per maximal bad sequence, each with a fault; ranges are of the bytes as written."""
    inputs = session(_steps(*pieces))
    events = semantic(opening(parser), inputs)
    check_stream(events)
    check_partition(inputs, events)
    got = message(events)
    assert got.content == text == b"".join(pieces).decode("utf-8", "replace")
    assert [event.src for event in events if isinstance(event, Fault)] == faults
    assert set(got.faults) <= {"invalid_utf8"}


def test_an_unfinished_character_ends_at_a_special_token() -> None:
    inputs = session([*_steps(b"a\xe2\x82"), TokensInput(0, (151648,), (b"<|box_start|>",), ""), *_steps(b"\xac!")])
    events = semantic(opening(), inputs)
    check_partition(inputs, events)
    assert message(events).content == "a��!"
    assert [event.text for event in events if isinstance(event, Dropped)] == ["<|box_start|>"]


@given(st.lists(st.binary(max_size=6), max_size=8), st.sampled_from(["plain", "hermes"]))
def test_any_bytes_decode_as_python_does(pieces: list[bytes], parser: str) -> None:
    inputs = session(_steps(*pieces))
    events = semantic(opening(parser, tools=()), inputs)
    check_stream(events)
    check_partition(inputs, events)
    if b"<" not in b"".join(pieces):
        assert (message(events).content or "") == b"".join(pieces).decode("utf-8", "replace")


@given(st.binary(max_size=40), st.integers(0, 40))
def test_decode_in_two_parts_is_decode(data: bytes, at: int) -> None:
    first, rest = decode(data[:at])
    second, tail = decode(rest + data[at:])
    letters = Alphabet()
    text = first + second + (unfinished(tail) if tail else "")
    assert letters.visible(text) == data.decode("utf-8", "replace")
    assert letters.size(text) == len(data)


def test_special_tokens_outside_the_format_are_dropped() -> None:
    inputs = session(tokens("a<|box_start|>b<|im_start|>c"))
    events = semantic(opening(), inputs)
    check_partition(inputs, events)
    assert message(events).content == "abc"
    assert [event.text for event in events if isinstance(event, Dropped)] == ["<|box_start|>", "<|im_start|>"]


def test_keep_special_keeps_them() -> None:
    inputs = session(tokens("a<|box_start|>b<|im_end|>"))
    events = semantic(opening(keep_special=True), inputs)
    check_partition(inputs, events)
    assert message(events).content == "a<|box_start|>b"


def test_the_letters_of_a_special_token_are_text_where_there_are_ids() -> None:
    pieces = _steps(b"a<|im", b"_end|>b<|box_start|>")
    assert message(semantic(opening(), session(pieces))).content == "a<|im_end|>b<|box_start|>"


def test_text_decides_where_there_are_no_ids() -> None:
    inputs = session(texts(["a<|box", "_start|>b<|", "im_e", "nd|>c"]))
    events = semantic(opening(), inputs)
    check_partition(inputs, events)
    assert message(events).content == "ab"
    assert [event.text for event in events if isinstance(event, Dropped)] == ["<|box_start|>", "<|im_end|>", "c"]


@pytest.mark.parametrize("parser", ["plain", "hermes"])
def test_an_end_of_turn_ends_the_output(parser: str) -> None:
    inputs = session(tokens("Hi<|im_end|>\nuser"))
    events = semantic(opening(parser), inputs)
    check_partition(inputs, events)
    assert message(events).content == "Hi"


def test_an_end_of_turn_that_is_ignored_does_not() -> None:
    inputs = session(tokens("Hi<|im_end|>\nuser"))
    events = semantic(opening(ignore_eos=True), inputs)
    check_partition(inputs, events)
    assert message(events).content == "Hi\nuser"


def test_an_end_of_turn_inside_a_call_cuts_it() -> None:
    inputs = session(tokens('<tool_call>{"name": "tide", "arguments": {"a<|im_end|>": 1}}</tool_call>'))
    events = semantic(opening(), inputs)
    check_partition(inputs, events)
    got = message(events)
    assert [(call.name, call.arguments, call.complete) for call in got.calls] == [("tide", '{"a', False)]
    assert got.faults == ["unclosed_call"]


SPECIAL = TokenizerFacts(
    special={"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4, "<|im_end|>": 5, "<x>": 6}, eos=(5,)
)


def _special(*parts: str) -> list[Input]:
    known = SPECIAL.special
    return session([TokensInput(0, (known.get(part, 9),), (part.encode(),), "") for part in parts])


def test_special_markers_match_by_id() -> None:
    inputs = _special(
        "<think>", "\n", "hm", "\n", "</think>", "\n\n", "A", "\n", "<tool_call>", "\n", '{"name": "tide", ',
        '"arguments": {"q": "', "</tool_call>", '"}}', "\n", "</tool_call>", "\n", "<|im_end|>",
    )  # fmt: skip
    opened = opening(tokenizer=SPECIAL)
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    got = message(events)
    assert (got.reasoning, got.content, got.faults) == ("hm", "A", [])
    assert [(call.name, call.value()) for call in got.calls] == [("tide", {"q": "</tool_call>"})]
    markers = [event.text for event in events if isinstance(event, Marker)]
    assert "<think>" in markers
    assert "</tool_call>" in markers
    check_resume(catalog.parser("hermes"), opened, inputs)


def test_the_letters_of_a_special_marker_are_text() -> None:
    inputs = _special("<thi", "nk>a", "</think> <tool_call>{", '"name": "tide"}', "</tool_call>", "<x>", "b")
    events = semantic(opening(tokenizer=SPECIAL), inputs)
    check_partition(inputs, events)
    got = message(events)
    assert got.calls == []
    assert got.content == '<think>a</think> <tool_call>{"name": "tide"}</tool_call>b'


def test_a_special_marker_without_its_role_is_text() -> None:
    inputs = _special("a", "<think>", "b", "</think>", "c", "</tool_call>", "d")
    events = semantic(opening(tokenizer=SPECIAL), inputs)
    check_partition(inputs, events)
    assert message(events).content == "a<think>b</think>c</tool_call>d"


def test_foreign_special_tokens_are_dropped_inside_calls_and_white_space() -> None:
    inputs = _special(
        "<x>", "\n", "<x>", "<think>", "<x>", "\n", "a", "<x>", "</think>", "<x>", "<tool_call>", "<x>", "\n", "<x>",
        '{"na', "<x>", 'me": "ti', "<x>", 'de",', "<x>", ' "arguments": ', '{"a', "<x>", '": ', "<x>", "1}", "<x>", "}",
        "<x>", "</tool_call>", "<x>", "<tool_call>", '{"arguments": {"b', "<x>", '": 2}, "name": "moon"}',
        "</tool_call>",
    )  # fmt: skip
    opened = opening(tokenizer=SPECIAL)
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    got = message(events)
    assert (got.reasoning, got.content, got.faults) == ("a", None, [])
    assert [(call.name, call.value()) for call in got.calls] == [("tide", {"a": 1}), ("moon", {"b": 2})]
    check_resume(catalog.parser("hermes"), opened, inputs)


def test_markers_that_the_vocabulary_lacks_match_by_text() -> None:
    none = TokenizerFacts(special={"<|end_of_text|>": 1}, added={}, eos=(1,))
    text = '<think>\nhm\n</think>\n\n<tool_call>{"name": "tide"}</tool_call>'
    inputs = session(_steps(*(text[i : i + 3].encode() for i in range(0, len(text), 3))))
    events = semantic(opening(tokenizer=none), inputs)
    got = message(events)
    assert (got.reasoning, got.content) == ("hm", None)
    assert [call.name for call in got.calls] == ["tide"]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\ud83d", "\ude00b"], "a\U0001f600b"),
        (["a\ud83d\ude00b"], "a\U0001f600b"),
        (["a\ud83d", "b"], "a�b"),
        (["a\ude00b"], "a�b"),
        (["a\ud83d"], "a�"),
        (["\ud83d", "\ud83d", "\ude00"], "�\U0001f600"),
        (["\ud83dé", "\ude00"], "�é�"),
        (["a\ud83d", "", "\ude00b"], "a\U0001f600b"),
    ],
)
def test_surrogates_of_an_engine_without_bytes(pieces: list[str], text: str) -> None:
    inputs = session(texts(pieces))
    for parser in ("plain", "hermes"):
        events = semantic(opening(parser), inputs)
        check_stream(events)
        check_partition(inputs, events)
        assert message(events).content == text


def test_bad_bytes_inside_markers_calls_and_reasoning() -> None:
    raw = [
        b"<think>", b"\xff", b"a\xf0\x9f", b"</think>", b"<tool_call>",
        b'{"name": "t\xffide", "arguments": {"a": "\xe2', b'"}}', b"</tool_call>",
        b"<tool_call>", b'{"name": \xff}', b"</tool_call>",
    ]  # fmt: skip
    known = {**QWEN.special, **QWEN.added}
    steps = [TokensInput(0, (known.get(piece.decode("latin-1"), 9),), (piece,), "") for piece in raw]
    inputs = session(steps)
    opened = opening()
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    assert [event.text for event in events if isinstance(event, Reasoning)] == ["�", "a", "�"]
    got = message(events)
    assert got.calls[0].name == "t�ide"
    assert got.calls[0].value() == {"a": "�"}
    assert got.content == '<tool_call>{"name": �}</tool_call>'
    assert len(wrote(inputs)) == len(b"".join(raw))
    check_resume(catalog.parser("hermes"), opened, inputs)


def test_an_end_of_turn_ends_the_output_behind_any_number_of_special_tokens() -> None:
    """There are as many characters for foreign tokens as there are; the next token is text, but an end is an end."""
    special = {f"<|s{i}|>": 1000 + i for i in range(900)} | {"<|im_end|>": 5000}
    facts = TokenizerFacts(special=special, eos=(5000,))
    said = [*((number, text.encode()) for text, number in special.items() if number < 5000), (5000, b"<|im_end|>"),
            (1, b"more")]  # fmt: skip
    inputs = session(grouped(said, [1] * len(said)))
    events = semantic(opening("plain", tokenizer=facts), inputs)
    check_partition(inputs, events)
    content = message(events).content or ""
    assert content == "".join(f"<|s{i}|>" for i in range(767, 900))
