"""Nothing raises, no byte is lost, and no split changes the message: on whatever a model or an engine may say."""

from __future__ import annotations

from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from stages import catalog
from stages.events import (
    AbortInput,
    ErrorInput,
    FinishInput,
    Input,
    PromptInput,
    Semantic,
    Tick,
    TokenLogprob,
    TokensInput,
    UsageInput,
)
from stages.opening import TokenizerFacts, Tool
from stages.stage import fold
from tests.support.parse import (
    OFF,
    PROMPT,
    QWEN,
    THINKING,
    check_partition,
    check_resume,
    check_stream,
    grouped,
    merged,
    message,
    opening,
    owned,
    semantic,
    session,
    texts,
    vocabulary,
)

PARTS = st.sampled_from([
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|box_start|>", "<tool_response>",
    "<tool", "</thi", "<", ">", "\n", "\n\n", " ", "text", "é", "😀", "a b", "\\", '"', "{", "}", "[", "]", ",", ":",
    '{"name": "tide", "arguments": {"a": 1}}', '{"name": "tide"', '"name": "moon"', '"arguments": ', '"{\\"a\\": 1}"',
    '{"arguments": {"x": [true, null, -1.5e3]}, ', '"b\\n\\u00e9"', "null", "1", '"id": ', "{}", "\t", "\x00",
    "\\ud800",
])  # fmt: skip
OUTPUT = st.lists(PARTS, max_size=14).map("".join)
POLICY = st.sampled_from(["incremental", "whole"])
STOPS = st.lists(st.sampled_from(["a b", "ex", '"a', "}", "<", "tool", "é", "\n"]), min_size=1, max_size=2)
TAIL = st.sampled_from([PROMPT, THINKING, OFF, "", "</think>"])


@settings(max_examples=400)
@given(OUTPUT, POLICY, TAIL, st.lists(st.integers(1, 4), max_size=12), st.integers(1, 5), st.booleans())
def test_no_split_changes_anything(
    text: str, calls: Literal["incremental", "whole"], tail: str, sizes: list[int], width: int, tools: bool
) -> None:
    opened = opening(calls=calls, tools=(Tool("tide"),) if tools else ())
    pieces = vocabulary(text, QWEN, width)
    single = vocabulary(text, QWEN, 1)
    runs = [
        grouped(pieces, [len(pieces)]),
        grouped(pieces, [1] * len(pieces)),
        grouped(single, [1] * len(single)),
        grouped(single, sizes),
    ]
    if "<|" not in text:  # inside a call only ids tell a special token from its letters
        runs += texts([text]), texts(text)
    first: list[object] | None = None
    for steps in runs:
        inputs = session(steps, tail=tail)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        first = first or merged(events)
        assert merged(events) == first


@settings(max_examples=150)
@given(
    OUTPUT, TAIL, st.lists(st.sampled_from(["a b", "ex", '"a', "}", "<", "tool", "é", "\n"]), min_size=1, max_size=2)
)
def test_no_split_moves_a_stop(text: str, tail: str, stops: list[str]) -> None:
    opened = opening(stop=tuple(stops))
    pieces = vocabulary(text, QWEN, 2)
    first = None
    runs = [grouped(pieces, [len(pieces)]), grouped(pieces, [1] * len(pieces))]
    if "<|" not in text:
        runs += texts([text]), texts(text)
    for steps in runs:
        inputs = session(steps, tail=tail)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        # Faults behind the stop are not told, and those before it are the same.
        first = first or got
        assert got == first


@settings(max_examples=60)
@given(OUTPUT, POLICY, TAIL, st.integers(1, 3), st.booleans())
def test_resume_anywhere(text: str, calls: Literal["incremental", "whole"], tail: str, width: int, stops: bool) -> None:
    opened = opening(calls=calls, stop=("a b", "ex") if stops else (), max_held=64)
    pieces = vocabulary(text, QWEN, width)
    stage = catalog.layers(opened).semantic
    check_resume(stage, opened, session(grouped(pieces, [1] * len(pieces)), tail=tail))
    check_resume(stage, opened, session(texts(text), tail=tail))


CHOICES = st.integers(-1, 2)
IDS = st.lists(st.sampled_from([*QWEN.special.values(), *QWEN.added.values(), 7]), max_size=4).map(tuple)
ANY_TEXT = (
    st.text(st.characters(), max_size=8) | PARTS | st.text(st.sampled_from("\ud800\udc00\ud83d\ude00a<"), max_size=4)
)
PIECES = st.lists(st.binary(max_size=5) | PARTS.map(str.encode), max_size=4).map(tuple)
EVENTS = st.lists(
    st.one_of(
        st.builds(PromptInput, st.just(()), TAIL | ANY_TEXT, st.integers(0, 5)),
        st.builds(TokensInput, CHOICES, IDS, PIECES, ANY_TEXT, st.just(())),
        st.builds(TokensInput, CHOICES, IDS, PIECES, ANY_TEXT, st.just((TokenLogprob(1, b"", 0.0),))),
        st.builds(TokensInput, CHOICES, st.just(()), st.just(()), ANY_TEXT, st.just(())),
        st.builds(FinishInput, CHOICES, st.sampled_from(["eos", "stop", "length"]), st.none() | st.just("x")),
        st.builds(Tick),
        st.builds(UsageInput, st.integers(0, 9), st.integers(0, 9)),
        st.builds(AbortInput, st.sampled_from(["client", "timeout", "cancel", "shutdown"])),
        st.builds(ErrorInput, st.just("engine"), ANY_TEXT),
    ),
    max_size=10,
)


@settings(max_examples=400)
@given(
    EVENTS, st.sampled_from(["plain", "hermes"]), POLICY, st.sampled_from([0, 5, 1 << 20]), st.booleans(), st.booleans()
)
def test_step_never_raises(
    events: list[Input], parser: str, calls: Literal["incremental", "whole"], limit: int, odd: bool, first: bool
) -> None:
    special = TokenizerFacts(special={**QWEN.special, **QWEN.added, "": 3, " ": 7}, eos=(151645, 4))
    opened = opening(
        parser, calls=calls, max_held=limit, tokenizer=special if odd else QWEN, n=2, stop=("a", "ST"), parallel=odd,
        include_reasoning=not odd,
    )  # fmt: skip
    if first:
        events = [PromptInput((), PROMPT, 3), *events]
    stage = catalog.layers(opened).semantic
    out: list[Semantic] = fold(stage.start(opened), events)
    for event in out:
        text = getattr(event, "text", "")
        assert not any("\ud800" <= char <= "\udfff" for char in text)
    check_resume(stage, opened, events)


@settings(max_examples=100)
@given(st.lists(st.tuples(IDS, ANY_TEXT | PARTS), max_size=8), st.booleans())
def test_every_byte_is_owned_once_whatever_the_ids(steps: list[tuple[tuple[int, ...], str]], odd: bool) -> None:
    """Also where the ids and their bytes disagree."""
    special = TokenizerFacts(special={**QWEN.special, **QWEN.added}, eos=(151645,))
    opened = opening(tokenizer=special if odd else QWEN)
    inputs = session(
        TokensInput(0, ids, tuple(text.encode("utf-8", "replace") for _ in ids), "") for ids, text in steps if ids
    )
    events = semantic(opened, inputs)
    check_stream(events)
    data = sum(len(piece) for step in inputs if isinstance(step, TokensInput) for piece in step.pieces)
    at = 0
    for _, _, (start, end) in owned(events):
        assert start == at
        at = end
    assert at == data
