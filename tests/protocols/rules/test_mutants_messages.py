"""Faults of messages streams, by rule: each is told by its rule, and the stream without it is clean."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from stages.protocols.rules import EngineChoice, EngineFacts
from tests.protocols.rules.richer import (
    Edit,
    Fields,
    at,
    blocked,
    both,
    messaging,
    moved,
    nameless,
    of_type,
    out,
    put,
    stopping,
    texting,
    there,
    twice,
    using,
)
from tests.support.wire import ABSENT, Elements, Stream, breaks, golden


def engine(prompt: int, reason: str = "eos") -> EngineFacts:
    return EngineFacts({0: EngineChoice(tuple(range(12)), reason, cap=12)}, prompt=prompt)


def stream(*middle: Fields, prompt: int = 9, usage: Fields | None = None, **request: Any) -> Stream:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("get_tide", "get_wind", "web_search")]
    facts = {"request": {"stream": True, "max_tokens": 100, "tools": tools, **request}, "engine": engine(prompt)}
    return Stream("messages", messaging(*middle, usage=usage), facts)


PING: Fields = {"type": "ping"}
CACHED: Fields = {"input_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}
THOUGHT = blocked(
    0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Need "},
    {"type": "thinking_delta", "thinking": "tides."}, {"type": "signature_delta", "signature": "c2ln"},
)  # fmt: skip
CALLS = [*using(2, "toolu_1", "get_tide", "", '{"port":', '"Brest"}'), *using(3, "toolu_2", "get_wind", "")]
RICH = stream(
    PING, *THOUGHT, *texting(1, "Looking", " it up."), PING, *CALLS, stopping("tool_use", **CACHED),
    usage={**CACHED, "output_tokens": 1}, prompt=15,
)  # fmt: skip
STOPPED = stream(*texting(0, "Hm", "."), stopping("stop_sequence", "END"), stop_sequences=["END"])
CUT = stream(*texting(0, "Hm."), *using(1, "toolu_1", "get_tide", '{"po'), stopping("max_tokens")).known(
    engine=engine(9, "length")
)
REDACTED = stream(
    *blocked(0, {"type": "redacted_thinking", "data": "eA=="}), *texting(1, "Hm."), stopping("end_turn")
)  # fmt: skip
EMPTY = stream(*texting(0), stopping("end_turn", output_tokens=12))
ERROR = golden("G13").known(engine=EngineFacts({0: EngineChoice((1,), None)}, prompt=9))
HOSTED = stream(
    *using(0, "srvtoolu_1", "web_search", '{"q":', '"a"}', kind="server_tool_use"),
    *blocked(1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
    *texting(2, "Found."), stopping("end_turn"),
).known(own=False)  # fmt: skip
COUNTED = stream(*texting(0, "Hm."), stopping(None, output_tokens=4), stopping("end_turn")).known(own=False)
"""Somebody else's: counts on the way."""

BASES = {
    "RICH": RICH, "STOPPED": STOPPED, "CUT": CUT, "REDACTED": REDACTED, "EMPTY": EMPTY, "ERROR": ERROR,
    "HOSTED": HOSTED,
}  # fmt: skip

START, STOP, DELTA = "content_block_start", "content_block_stop", "content_block_delta"
END = of_type(RICH, "message_delta")


rich = partial(there, RICH)
stopped = partial(there, STOPPED)


def without_blocks(elements: Elements) -> Elements:
    return [one for one in elements if not one["type"].startswith("content_block")]


def literal(place: int, text: str) -> Edit:
    """Bytes before an element."""
    return put(place, text.encode())


MUTANTS: list[tuple[int, str, Stream, Edit]] = [
    (116, "a ping is named as an end", RICH, at(1, b'event: message_stop\ndata: {"type":"ping"}\n\n')),
    (116, "no type inside", RICH, rich(STOP, "type", ABSENT)),
    (117, "two starts", RICH, twice(0)),
    (117, "a message begins with content", RICH, at(0, "message", "content", [{"type": "text", "text": "Hi"}])),
    (117, "a user's message", RICH, at(0, "message", "role", "user")),
    (117, "stopped before it begins", RICH, at(0, "message", "stop_reason", "end_turn")),
    (117, "output tokens are null", RICH, at(0, "message", "usage", "output_tokens", None)),
    (117, "a block before the start", STOPPED, moved(0, 1)),
    (118, "the first block has index 1", STOPPED, both(*(at(place, "index", 1) for place in range(1, 5)))),
    (118, "two blocks with one index", RICH, rich(START, "index", 0, nth=1)),
    (118, "a delta of a block that is closed", RICH, rich(DELTA, "index", 0, nth=3)),
    (118, "another block is stopped", RICH, rich(STOP, "index", 1, nth=2)),
    (119, "the last block is open at the end", RICH, out(of_type(RICH, STOP, -1))),
    (119, "a block is open at the error", ERROR, out(of_type(ERROR, STOP))),
    (119, "a block inside a block", RICH, moved(of_type(RICH, STOP, 1), of_type(RICH, START, 2))),
    (120, "input in a text block", STOPPED, stopped(DELTA, "delta", {"type": "input_json_delta", "partial_json": "{"})),
    (120, "thought in a text block", STOPPED, stopped(DELTA, "delta", {"type": "thinking_delta", "thinking": "Hm"})),
    (120, "text in a call", RICH, rich(DELTA, "delta", {"type": "text_delta", "text": "x"}, nth=-1)),
    (120, "a signature in a call", RICH, rich(DELTA, "delta", {"type": "signature_delta", "signature": "x"}, nth=-1)),
    (
        120,
        "a delta of what is redacted",
        REDACTED,
        put(2, {"type": DELTA, "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}}),
    ),
    (121, "text begins with text", STOPPED, stopped(START, "content_block", "text", "H")),
    (121, "a thought begins with a thought", RICH, rich(START, "content_block", "thinking", "N")),
    (121, "a call without id", RICH, rich(START, "content_block", "id", ABSENT, nth=2)),
    (121, "a call without name", RICH, rich(START, "content_block", "name", ABSENT, nth=3)),
    (121, "a call begins with input", RICH, rich(START, "content_block", "input", {"port": "Brest"}, nth=2)),
    (121, "our own thought without signature", RICH, rich(START, "content_block", "signature", ABSENT)),
    (122, "two signatures", RICH, twice(of_type(RICH, DELTA, 2))),
    (122, "our own thought is not signed", RICH, out(of_type(RICH, DELTA, 2))),
    (123, "input is an array", RICH, rich(DELTA, "delta", "partial_json", "[]", nth=-1)),
    (123, "input is two objects", RICH, rich(DELTA, "delta", "partial_json", "{}{}", nth=-1)),
    (123, "the first piece is lost", RICH, out(of_type(RICH, DELTA, 6))),
    (123, "cut, and said to be whole", CUT, there(CUT, "message_delta", "delta", "stop_reason", "tool_use")),
    (124, "before the last block", RICH, moved(END, of_type(RICH, START, 3))),
    (124, "twice in a stream of our own", RICH, twice(END)),
    (124, "no key for the stop sequence", RICH, at(END, "delta", "stop_sequence", ABSENT)),
    (124, "no count", RICH, at(END, "usage", "output_tokens", ABSENT)),
    (124, "no usage", RICH, at(END, "usage", ABSENT)),
    (125, "stopped twice", RICH, twice(END + 1)),
    (125, "stopped before it is told why", RICH, moved(END + 1, END)),
    (126, "a reason of another protocol", STOPPED, stopped("message_delta", "delta", "stop_reason", "stop")),
    (
        126,
        "a tool is used, and no block calls one",
        EMPTY,
        there(EMPTY, "message_delta", "delta", "stop_reason", "tool_use"),
    ),
    (126, "the turn ends on a call", RICH, at(END, "delta", "stop_reason", "end_turn")),
    (
        126,
        "a stop sequence beside an end of turn",
        STOPPED,
        stopped("message_delta", "delta", "stop_reason", "end_turn"),
    ),
    (
        126,
        "a stop sequence behind whole calls",
        RICH,
        at(END, "delta", {"stop_reason": "stop_sequence", "stop_sequence": "E"}),
    ),
    (127, "input tokens change", RICH, at(END, "usage", "input_tokens", 10)),
    (
        127,
        "cached tokens are in the input too",
        RICH,
        both(at(0, "message", "usage", "input_tokens", 15), at(END, "usage", "input_tokens", 15)),
    ),
    (127, "fewer tokens than before", COUNTED, there(COUNTED, "message_delta", "usage", "output_tokens", 13)),
    (127, "fewer tokens than at the start", STOPPED, at(0, "message", "usage", "output_tokens", 13)),
    (128, "an unknown type", ERROR, at(-1, "error", "type", "engine_error")),
    (128, "an empty message", ERROR, at(-1, "error", "message", "")),
    (128, "the block is closed behind it", ERROR, moved(of_type(ERROR, STOP), 4)),
    (128, "nothing in it", ERROR, at(-1, "error", ABSENT)),
    (129, "a ping of nothing", RICH, literal(3, "event: ping\ndata: {}\n\n")),
    (129, "a ping of another type", RICH, literal(3, 'event: ping\ndata: {"type":"keepalive"}\n\n')),
    (130, "in the middle", RICH, put(5, "[DONE]")),
    (130, "with a name", RICH, lambda ev: [*ev, b"event: done\ndata: [DONE]\n\n"]),
    (131, "an end of turn without a block", EMPTY, without_blocks),
    (131, "a stop sequence without a block", STOPPED, without_blocks),
]


@pytest.mark.parametrize("name", BASES)
def test_the_streams_are_clean(name: str) -> None:
    assert not BASES[name].report().violations


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{rule}-{name}" for rule, name, *_ in MUTANTS])
def test_fault(mutant: tuple[int, str, Stream, Edit]) -> None:
    rule, _, base, edit = mutant
    breaks(rule, base, base.edited(edit))


def test_an_event_without_a_name() -> None:
    breaks(116, RICH, nameless(RICH, of_type(RICH, DELTA, 3)))


def test_every_rule_has_two() -> None:
    rules = [rule for rule, *_ in MUTANTS]
    assert {rule: rules.count(rule) for rule in range(116, 132) if rules.count(rule) < 2} == {}


CONTEXT = "model_context_window_exceeded"
RIGHT: list[tuple[str, Stream]] = [
    ("no tokens left behind a whole call", CUT.edited(there(CUT, DELTA, "delta", "partial_json", "{}", nth=1))),
    ("counts that do not come again", RICH.edited(at(END, "usage", {"output_tokens": 12}))),
    ("counts that come as null", RICH.edited(at(END, "usage", {"output_tokens": 12, "input_tokens": None}))),
    ("the context ends inside a call", CUT.edited(there(CUT, "message_delta", "delta", "stop_reason", CONTEXT))),
    ("an error before any block", ERROR.edited(lambda ev: [ev[0], ev[-1]])),
    ("pings all over", RICH.edited(lambda ev: [one for pair in ev[:-1] for one in (pair, PING)] + ev[-1:])),
]


@pytest.mark.parametrize(("name", "stream"), RIGHT, ids=[name for name, _ in RIGHT])
def test_nothing_is_wrong_with_it(name: str, stream: Stream) -> None:
    assert not stream.report().violations


CITED = {"type": DELTA, "index": 0, "delta": {"type": "citations_delta", "citation": {"type": "page_location"}}}
TOLERATED: list[tuple[str, Stream, Edit]] = [
    ("stopped behind an error", ERROR, lambda ev: [*ev, {"type": "message_stop"}]),
    ("a thought without signature", RICH, rich(START, "content_block", "signature", ABSENT)),
    ("a thought that is not signed", RICH, out(of_type(RICH, DELTA, 2))),
    ("counts on the way", COUNTED, lambda _: None),
    ("no block", EMPTY, without_blocks),
    ("a ping before the start", RICH, moved(1, 0)),
    ("a citation", STOPPED, put(2, CITED)),
    ("an event that nobody knows", RICH, put(2, {"type": "mood", "mood": "good"})),
    ("a thought that is kept back", RICH, lambda ev: [*ev[:3], *ev[5:]]),
    ("a reason why not", STOPPED, at(-2, "delta", {
        "stop_reason": "refusal", "stop_sequence": None, "stop_details": {"type": "refusal", "category": "x"},
    })),
    ("counts of what the server used", RICH, at(END, "usage", "server_tool_use", {"web_search_requests": 0})),
]  # fmt: skip


@pytest.mark.parametrize("case", TOLERATED, ids=[name for name, *_ in TOLERATED])
def test_no_error_where_somebody_else_sends_it(case: tuple[str, Stream, Edit]) -> None:
    _, base, edit = case
    assert not base.edited(edit).known(own=False).report().errors
