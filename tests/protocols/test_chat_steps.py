"""Whole lists of events at once give what step by step gives: the chat encoder, and the framer behind it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stages import catalog
from stages.events import (
    AbortInput,
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Done,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Finish,
    Input,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.opening import Ask, Opening
from stages.protocols.openai_chat import ENCODER, ChatChunk, ChatCompletion, error_chunk
from stages.protocols.openai_chat.chunks import ChunkChoice, CompletionUsage, Delta, Metrics
from stages.sse import FRAMER
from stages.stage import Machine, Stage, fold, run_steps
from tests.support.chat import CASES, opening
from tests.support.generate import families
from tests.support.generate.family import Family, tokenize
from tests.support.parse import grouped, session
from tests.support.parse import opening as opened_for

Steps = tuple[list[Any], list[int]]
SRC = (0, 0)
STAGES: tuple[Stage[Any, Any], ...] = (ENCODER, FRAMER)
ASKS: tuple[dict[str, Any], ...] = (
    {},
    {"include_usage": True, "reasoning_field": "reasoning"},
    {"include_usage": True, "continuous_usage": True},
    {"logprobs": True, "end_token": False},
    {"return_token_ids": True, "reasoning_field": "reasoning_content"},
    {"include_reasoning": False, "logprobs": True},
    {"stream": False, "logprobs": True},
)


def by_step(machine: Machine[Any, Any], inputs: Iterable[Any]) -> Steps:
    """The definition."""
    out: list[Any] = []
    ends: list[int] = []
    for event in inputs:
        machine.step(event, out)
        ends.append(len(out))
    return out, ends


def alike(opened: Opening, semantic: Sequence[Semantic], cut: int = 0) -> list[Any]:
    """Both stages do at once, behind the first ``cut`` events, what they do step by step, and stand the same after it;
    returns the frames."""
    events: Sequence[Any] = semantic
    for stage in STAGES:
        one, other = stage.start(opened), stage.start(opened)
        out, ends = by_step(one, events[:cut])
        run_steps(one, iter(events[cut:]), out, ends)
        assert (out, ends) == by_step(other, events)
        assert one.snapshot() == other.snapshot()
        events = out
    return list(events)


# --- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden_streams(name: str) -> None:
    ask, events = CASES[name]
    for more in ASKS:
        opened = opening(replace(ask, **more))
        for cut in range(len(events)):
            alike(opened, events, cut)


def lane(family: Family, choice: int, dice: random.Random, kind: str) -> list[Input]:
    """One choice's steps, with logprobs, a token each, more than that, or a part of one."""
    pieces = tokenize(family.output(family.draw(dice, kind), dice, kind), family.tokenizer, dice)
    steps = grouped(pieces, [dice.choice((1, 1, 1, 1, 3)) for _ in pieces], choice)
    return [replace(step, logprobs=tuple(map(entry, step.ids, step.pieces))) for step in steps]


def entry(number: int, piece: bytes) -> TokenLogprob:
    return TokenLogprob(number, piece, -0.5)


def written(family: Family, seed: int) -> list[Input]:
    """Two choices that take turns, ticks among them; finished, failed, or left by the client."""
    dice = random.Random(seed)
    kind = dice.choice(sorted(family.tails))
    lanes = [lane(family, choice, dice, kind) for choice in (0, 1)]
    made: list[Input] = []
    while any(lanes):
        turn = dice.choice([one for one in lanes if one])
        size = dice.choice((1, 5, 40))
        made += turn[:size]
        del turn[:size]
        made += [Tick()] if dice.random() < 0.1 else []
    whole = session(made, tail=family.tails[kind], n=2)
    last: tuple[Input | None, ...] = (None, ErrorInput("engine", "lost"), AbortInput("client"), AbortInput("timeout"))
    end = last[seed % 4]
    return whole if end is None else [*whole[: dice.randrange(len(whole))], end]


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_generated_sessions(family: Family) -> None:
    for seed, more in enumerate(ASKS, families().index(family)):
        ask: dict[str, Any] = {"stream": True, "n": 2, "include_usage": seed % 2 == 0, **more}
        opened = opened_for(family.format.name, tokenizer=family.tokenizer, **ask)
        semantic = fold(catalog.layers(opened).semantic.start(opened), written(family, seed))
        alike(opened, semantic, seed % 5)


TEXT = st.sampled_from(["", "a", "é\n", '"\\\r', "\U0001f600", "\ud800", "\x00\x7f"])
CHOICE = st.integers(0, 2)
INDEX = st.integers(-1, 1)
EVENT: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Tokens, CHOICE, st.just((1,))),
    st.builds(Content, CHOICE, TEXT, st.just(SRC)),
    st.builds(Reasoning, CHOICE, TEXT, st.just(SRC)),
    st.builds(Refusal, CHOICE, TEXT, st.just(SRC)),
    st.builds(CallStart, CHOICE, INDEX, st.just("c"), st.just("f"), st.just(SRC)),
    st.builds(CallArguments, CHOICE, INDEX, TEXT, st.just(SRC)),
    st.builds(CallEnd, CHOICE, INDEX, st.booleans()),
    st.builds(Start, CHOICE, st.just(9)),
    st.builds(Finish, CHOICE, st.just("eos")),
    st.sampled_from([Tick(), Usage(9, 4), Failure("engine", "lost"), End()]),
)
# The same event a few times in a row, so that there are runs.
EVENTS = st.lists(st.tuples(EVENT, st.integers(1, 4)), max_size=20).map(
    lambda drawn: [event for event, times in drawn for _ in range(times)]
)


@given(EVENTS, st.sampled_from(ASKS), st.integers(1, 2), st.integers(0, 20))
def test_any_events(events: list[Semantic], more: dict[str, Any], n: int, cut: int) -> None:
    ask: dict[str, Any] = {"stream": True, "n": n, **more}
    alike(opening(Ask(**ask)), events, cut)


def test_what_has_no_place_has_none_in_a_run() -> None:
    opened = opening(Ask(stream=True))
    start = CallStart(0, 0, "c", "f", SRC)
    lost = [CallArguments(0, 1, "x", SRC)] * 3
    for events in ([Content(0, "", SRC)] * 4, [start, *lost], [start, CallEnd(0, 0, True), *lost], [start, *lost * 2]):
        assert len(alike(opened, [Start(0, 3), Content(0, "a", SRC), *events])) == 3 + (start in events)
    alike(opened, [Start(0, 3), Content(0, "a", SRC), Content(0, "", SRC), Content(0, "b", SRC)])


def test_a_run_is_what_it_should_be() -> None:
    # By hand: not only the same as something else.
    events: list[Semantic] = [
        Start(0, 3), Tokens(0, (1,)), Reasoning(0, "hm", SRC), Tokens(0, (2,)), Reasoning(0, "so", SRC),
        Tokens(0, (3,)), Content(0, "é", SRC), Tokens(0, (4,)), Content(0, "\n", SRC), Tokens(0, (5,)),
        Tokens(0, (6,)), Content(0, '"', SRC), CallStart(0, 4, "c", "f", SRC), CallArguments(0, 4, "{", SRC),
        CallArguments(0, 4, "}", SRC), CallArguments(0, 5, "x", SRC), CallArguments(0, 4, " ", SRC),
    ]  # fmt: skip
    opened = opening(Ask(stream=True, reasoning_field="reasoning"))
    chunks: list[Any] = []
    ends: list[int] = []
    run_steps(ENCODER.start(opened), events, chunks, ends)
    assert ends == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 7, 8, 9, 9, 10]
    frames = fold(FRAMER.start(opened), chunks)
    texts = [frame.data.decode() for frame in frames if isinstance(frame, Block)]
    head = (
        'data: {"id":"chatcmpl-7a1","object":"chat.completion.chunk","created":1760000000,"model":"demo-1",'
        '"system_fingerprint":"fp_demo","choices":[{"index":0,"delta":{'
    )
    call = '"tool_calls":[{"index":0,"function":{"arguments":"'
    assert texts[1:6] == [
        f'{head}{said}}},"logprobs":null,"finish_reason":null}}]}}\n\n'
        for said in ('"reasoning":"hm"', '"reasoning":"so"', '"content":"é"', '"content":"\\n"', '"content":"\\""')
    ]
    assert [text.removeprefix(head).partition("}")[0] for text in texts[7:]] == [f'{call}{{"', f"{call}", f'{call} "']


# --- what raises ----------------------------------------------------------------------------------------------------


def torn(texts: Iterable[str]) -> Iterator[Semantic]:
    """A list that cannot be read to its end."""
    yield Start(0, 3)
    for text in texts:
        yield Content(0, text, SRC)
    raise ZeroDivisionError


def test_what_came_before_a_source_that_breaks_off_is_there() -> None:
    opened = opening(Ask(stream=True))
    out: list[Any] = []
    ends: list[int] = []
    with pytest.raises(ZeroDivisionError):
        run_steps(ENCODER.start(opened), torn("abc"), out, ends)
    assert (out, ends) == by_step(ENCODER.start(opened), [Start(0, 3), *(Content(0, text, SRC) for text in "abc")])


class Odd(msgspec.Struct, frozen=True):
    """A user's chunk, with nothing but what the framer needs."""

    text: str
    whole: ClassVar[bool] = False
    event: ClassVar[str] = ""

    def wire(self) -> bytes:
        """See ProtocolChunk."""
        if self.text == "!":
            raise ZeroDivisionError
        return self.text.encode()


def chunk(text: Any, **fields: Any) -> ChatChunk:
    made = ChatChunk("i", 1, "m", None, (ChunkChoice(0, Delta(content=text)),))
    return replace(made, **fields)


STRANGE: Any = object()
"""No JSON."""
MANY = [
    chunk("a"), chunk("b"), chunk("c", id="j"), chunk("d", id="i"), chunk("e", created=2), chunk("f", model='"'),
    chunk("f"), chunk("g", system_fingerprint="f"), chunk("g"), chunk("h", usage=None), chunk("i", usage=None),
    chunk("j", usage=CompletionUsage(1, 2, 3)), chunk("k", prompt_token_ids=(1, 2)), chunk("l", metrics=Metrics(1.5)),
    chunk("m"), chunk("n", choices=()),
]  # fmt: skip


@pytest.mark.parametrize(
    "chunks",
    [
        MANY,
        [*MANY, *MANY, Tick(), *MANY, Done(), *MANY],
        [Tick(), *MANY, error_chunk("engine", "lost"), *MANY, Done(), Tick()],
        [error_chunk("engine", "lost"), *MANY],
        [ErrorChunk(400, {"error": "\ud800"}), Done()],
        [ChatCompletion("i", 1, "m"), *MANY],
        [chunk("a"), chunk("b"), chunk("\ud800"), chunk("c"), Done()],
        [Odd("x"), Odd("y"), chunk("a"), chunk("b"), Odd("z"), Done()],
        [],
    ],
)  # fmt: skip
def test_frames_of_any_chunks(chunks: list[Any]) -> None:
    for cut in range(len(chunks) + 1):
        one, other = FRAMER.start(opening(Ask())), FRAMER.start(opening(Ask()))
        out, ends = by_step(one, chunks[:cut])
        run_steps(one, chunks[cut:], out, ends)
        assert (out, ends) == by_step(other, chunks)
        assert one.snapshot() == other.snapshot()


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        ([chunk("a"), chunk("b"), chunk(STRANGE), chunk("c")], TypeError),
        ([chunk("\ud800"), chunk("b"), chunk(STRANGE)], TypeError),
        ([Odd("x"), Odd("y"), Odd("!"), Odd("z")], ZeroDivisionError),
    ],
)
def test_a_chunk_that_cannot_be_written_raises_on_its_step(chunks: list[Any], error: type[Exception]) -> None:
    out: list[Any] = []
    ends: list[int] = []
    with pytest.raises(error):
        run_steps(FRAMER.start(opening(Ask())), chunks, out, ends)
    assert ends == [2, 3]
    assert (out[:3], ends) == by_step(FRAMER.start(opening(Ask())), chunks[:2])
