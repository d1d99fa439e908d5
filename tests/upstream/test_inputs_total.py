"""Reading what the model wrote: nothing raises, a machine can go on from any snapshot, time is linear."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    End,
    ErrorInput,
    FinishInput,
    Head,
    Input,
    PromptInput,
    TokensInput,
    UsageInput,
)
from stages.upstream.inputs import INPUTS
from stages.upstream.machine import Wire
from tests.support.captures import captures
from tests.support.cpu import seconds
from tests.support.inputs import event, opening, read, resumed, stream

WAYS = sorted(INPUTS)
TERMINAL = (UsageInput, ErrorInput, AbortInput)
_encode = msgspec.msgpack.Encoder().encode
OF = opening(n=2, logprobs=True, top_logprobs=2, stop_ids=(5,), eos=(9,))

# Values of the right type, and of every other.
Strategy: TypeAlias = st.SearchStrategy[Any]


def some(**fields: Strategy) -> Strategy:
    """An object that may have these, any value of any of them."""
    found: Strategy = st.fixed_dictionaries({}, optional=fields)
    return found


def either(*strategies: Strategy) -> Strategy:
    found: Strategy = st.one_of(*strategies)
    return found


def several(strategy: Strategy) -> Strategy:
    found: Strategy = st.lists(strategy, max_size=3)
    return found


NUMBERS: Strategy = st.sampled_from(
    [0, 1, 2, 5, 9, -1, 127, 128, 1 << 31, 1 << 62, 1 << 63, 1 << 64, -(1 << 70), 10**400, True]
)
FLOATS: Strategy = st.sampled_from([0.5, -0.5, -1e30, 1e308, float("nan"), float("inf"), float("-inf")])
TEXTS: Strategy = st.sampled_from(
    ["", "a", "é", "ab", "\ud800", "\x00", "stop", "length", "abort", "error", "5", "END", "\ufeff"]
)
SCALARS = either(st.none(), st.booleans(), NUMBERS, FLOATS, TEXTS)
ANYTHING: Strategy = st.recursive(
    SCALARS, lambda inner: either(several(inner), st.dictionaries(TEXTS, inner, max_size=3)), max_leaves=8
)
IDS = either(several(NUMBERS), several(st.integers(0, 9)), ANYTHING)
FINISH = either(st.none(), TEXTS, ANYTHING, some(type=TEXTS, matched=SCALARS, message=SCALARS, status_code=SCALARS))
TRIPLE: Strategy = st.tuples(FLOATS, NUMBERS, TEXTS)
TOP = several(either(ANYTHING, some(token=TEXTS, bytes=IDS, logprob=FLOATS, id=NUMBERS), TRIPLE))
ENTRY = some(token=TEXTS, bytes=IDS, logprob=FLOATS, id=NUMBERS, top_logprobs=TOP)
ENTRIES = several(either(ANYTHING, TRIPLE, TOP, st.dictionaries(TEXTS, FLOATS, max_size=2), ENTRY))
LOGPROBS = either(
    ANYTHING, some(content=ENTRIES, tokens=IDS, token_logprobs=several(FLOATS), top_logprobs=ENTRIES)
)  # fmt: skip
DETAILS = either(SCALARS, some(cached_tokens=SCALARS))
USAGE = either(ANYTHING, some(prompt_tokens=SCALARS, completion_tokens=SCALARS, prompt_tokens_details=DETAILS))
CHOICE = some(
    index=SCALARS, token_ids=IDS, text=SCALARS, finish_reason=FINISH, stop_reason=SCALARS, matched_stop=SCALARS,
    logprobs=LOGPROBS, prompt_token_ids=IDS,
)  # fmt: skip
META = some(
    prompt_tokens=SCALARS, completion_tokens=SCALARS, cached_tokens=SCALARS, finish_reason=FINISH,
    output_token_logprobs=ENTRIES, output_top_logprobs=several(ENTRIES),
)  # fmt: skip
CHUNK = some(
    choices=either(ANYTHING, several(either(CHOICE, SCALARS))), usage=USAGE, prompt_token_ids=IDS,
    error=either(st.none(), ANYTHING), object=TEXTS,
)  # fmt: skip
NATIVE = some(
    text=SCALARS, output_ids=IDS, meta_info=either(META, SCALARS), index=SCALARS, content=SCALARS, tokens=IDS,
    stop=SCALARS, stop_type=SCALARS, stopping_word=SCALARS, truncated=SCALARS, tokens_predicted=SCALARS,
    tokens_evaluated=SCALARS, timings=either(SCALARS, some(cache_n=SCALARS)),
    completion_probabilities=either(ENTRIES, SCALARS),
)  # fmt: skip
VALUE = either(ANYTHING, CHUNK, NATIVE)


@st.composite
def frames(draw: st.DrawFn) -> Wire:
    """A frame of JSON that may have anything, of bytes, or of neither."""
    text = json.dumps(draw(VALUE)).encode()
    if draw(st.integers(0, 9)) == 0:
        text = text[: draw(st.integers(0, len(text)))]
    usual = Block(b"data: " + text + b"\n\n")
    rare: list[Wire] = [
        Block(b"data: " + text), Block(text), Body(text), Comment(b":" + text), Block(b"data: [DONE]\n\n"),
        Head(503, ()), Block(draw(st.binary(max_size=30))), Body(draw(st.binary(max_size=30))),
    ]  # fmt: skip
    return draw(st.sampled_from([*[usual] * 3, *rare]))


LASTS: Strategy = st.sampled_from([End(), AbortInput("client"), ErrorInput("timeout", "x", "upstream_cut")])


@pytest.mark.parametrize("way", WAYS)
@given(events=st.lists(frames(), max_size=6), last=LASTS)
def test_total(way: str, events: list[Wire], last: Wire) -> None:
    """It ends in one terminal input; what it says can be stored; snapshots make no difference."""
    made = read(way, [*events, last, End()], OF)
    assert [isinstance(item, TERMINAL) for item in made] == [False] * (len(made) - 1) + [True]
    assert resumed(way, [*events, last, End()], OF) == made
    _encode(made)
    _consistent(made)


def _consistent(made: list[Input]) -> None:
    finished: set[int] = set()
    for place, item in enumerate(made):
        if isinstance(item, PromptInput):
            assert place == 0
            assert item.count >= 0
        elif isinstance(item, TokensInput):
            assert 0 <= item.choice < 128
            assert item.choice not in finished
            assert item.ids or item.text
            assert not item.pieces
            assert len(item.logprobs) in (0, len(item.ids))
            assert all(-9999 <= entry.logprob <= 0 for entry in item.logprobs)
        elif isinstance(item, FinishInput):
            assert item.choice not in finished
            finished.add(item.choice)
        elif isinstance(item, UsageInput):
            assert min(item.prompt, item.completion, item.cached) >= 0
            assert finished


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["vllm_plain-logprobs", "vllm_plain-n2", "vllm_plain-completions"])
def test_cut_anywhere(way: str, name: str) -> None:
    """A stream that breaks off at any byte is an error, and says what it said until then."""
    data = captures()[name].data
    cut = ErrorInput("engine", "cut", "upstream_cut")
    entire = read(way, stream(data))
    for size in range(0, len(data), 7):
        made = read(way, stream(data[:size], last=cut))
        assert isinstance(made[-1], TERMINAL)
        assert made[:-1] == entire[: len(made) - 1]


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"choices":' * 50_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000])
@pytest.mark.parametrize("way", WAYS)
def test_deep(way: str, text: bytes) -> None:
    made = read(way, [Block(b"data: " + text + b"\n\n"), End()])
    assert isinstance(made[-1], ErrorInput)


STEPS: dict[str, Any] = {
    "chat": {"choices": [{"index": 0, "token_ids": [5], "delta": {}}]},
    "completions": {"choices": [{"index": 0, "text": "ab"}]},
    "completion": {"content": "ab", "tokens": [5], "tokens_predicted": 1},
    "generate": {"text": "ab", "output_ids": [5], "meta_info": {}},
    "told": {"choices": [{"index": 0, "delta": {"content": "ab"}}]},
}


@pytest.mark.parametrize("way", WAYS)
def test_linear(way: str) -> None:
    """A step costs what it did at the beginning, and the state does not grow."""
    block = event(STEPS[way])

    def run(count: int) -> None:
        machine, out = INPUTS[way].start(opening()), list[Input]()
        for _ in range(count):
            machine.step(block, out)
        assert len(repr(machine.snapshot())) < 1000

    run(1000)
    assert seconds(lambda: run(20_000)) < 3 * 10 * seconds(lambda: run(2_000)) + 0.05


def test_a_cumulative_stream_costs_its_bytes() -> None:
    """Every event has all ids again: a step may cost what the event weighs, and no more than reading it twice."""
    count = 1500
    blocks = [
        event({"text": "a" * size, "output_ids": list(range(size)), "meta_info": {"completion_tokens": size}})
        for size in range(1, count)
    ]
    decode = msgspec.json.Decoder().decode
    reading = seconds(lambda: [decode(block.data[6:-2]) for block in blocks], 1)
    machine, out = INPUTS["generate"].start(opening()), list[Input]()

    def all_of_them() -> None:
        for block in blocks:
            machine.step(block, out)

    assert seconds(all_of_them, 1) < 5 * reading + 0.5
    assert [item.ids for item in out if isinstance(item, TokensInput)] == [(number,) for number in range(count - 1)]
