"""Faults of responses streams, their text and their end: each is told by its rule, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.protocols.rules.responding import (
    CUSTOM,
    CUT,
    ERROR,
    FAILED,
    KEPT,
    REFUSAL,
    RICH,
    SCORED,
    SUMMARY,
    USAGE,
    Responding,
    entry,
    message,
    spelt,
)
from tests.protocols.rules.richer import Edit, at, both, moved, of_type, out, put, there, twice
from tests.support.wire import ABSENT, Stream, breaks

TEXT = "output_text.delta"
DONE = "output_item.done"
ARGS = "function_call_arguments"
LAST = len(RICH.elements) - 1
FINAL = (LAST, "response", "output")
OUTPUT = ("response", "output")
USED = (LAST, "response", "usage")

rich = partial(there, RICH)
custom = partial(there, CUSTOM)
refusal = partial(there, REFUSAL)
summary = partial(there, SUMMARY)
scored = partial(there, SCORED)

MUTANTS: list[tuple[int, str, Stream, Edit]] = [
    (104, "no done of a text", RICH, out(of_type(RICH, "output_text.done"))),
    (104, "two of a refusal", REFUSAL, twice(of_type(REFUSAL, "refusal.done"))),
    (104, "a part is done twice", RICH, twice(of_type(RICH, "content_part.done", 1))),
    (
        104,
        "a part is done before its text",
        RICH,
        moved(of_type(RICH, "content_part.done", 1), of_type(RICH, "output_text.done")),
    ),
    (105, "done text loses its end", RICH, rich("output_text.done", "text", "Looking it up")),
    (105, "the part has another text", RICH, rich("content_part.done", "part", "text", "Need tide.")),
    (105, "the item has another text", RICH, rich(DONE, "item", "content", 0, "text", "Looking", nth=1)),
    (105, "the end has another text", RICH, at(*FINAL, 1, "content", 0, "text", "Looking  it up.")),
    (105, "a delta of a refusal comes twice", REFUSAL, twice(of_type(REFUSAL, "refusal.delta"))),
    (105, "a delta of reasoning is lost", RICH, out(of_type(RICH, "reasoning_text.delta"))),
    (106, "the item has other arguments", RICH, rich(DONE, "item", "arguments", '{"port": "Brest"}', nth=2)),
    (106, "the end has other arguments", RICH, at(*FINAL, 2, "arguments", '{"port":"Brest "}')),
    (106, "a fragment comes twice", RICH, twice(of_type(RICH, f"{ARGS}.delta", 1))),
    (106, "done input loses its end", CUSTOM, custom("custom_tool_call_input.done", "input", "ls ")),
    (
        107,
        "the second part has the first one's index",
        SUMMARY,
        summary("reasoning_summary_part.added", "summary_index", 0, nth=1),
    ),
    (107, "done text is another", SUMMARY, summary("reasoning_summary_text.done", "text", "Tides first")),
    (107, "a part is not closed", SUMMARY, out(of_type(SUMMARY, "reasoning_summary_part.done"))),
    (
        107,
        "a part is closed before its text",
        SUMMARY,
        moved(of_type(SUMMARY, "reasoning_summary_part.done"), of_type(SUMMARY, "reasoning_summary_text.done")),
    ),
    (
        107,
        "the item has half the summary",
        SUMMARY,
        summary(DONE, "item", "summary", [{"type": "summary_text", "text": "Tides first."}]),
    ),
    (108, "items in another order", RICH, lambda ev: ev[LAST]["response"]["output"].reverse()),
    (108, "an item is missing at the end", RICH, lambda ev: ev[LAST]["response"]["output"].pop(2)),
    (108, "a call has another name at the end", RICH, at(*FINAL, 3, "name", "get_tide")),
    (
        108,
        "an item too many at the end",
        CUT,
        lambda ev: ev[-1]["response"]["output"].append({"type": "message", "id": "msg_2"}),
    ),
    (
        109,
        "completed with details of why not",
        RICH,
        at(LAST, "response", "incomplete_details", {"reason": "max_output_tokens"}),
    ),
    (109, "completed with an error", RICH, at(LAST, "response", "error", {"code": "server_error", "message": "x"})),
    (109, "an unknown reason", CUT, at(-1, "response", "incomplete_details", {"reason": "tired"})),
    (109, "failed without an error", FAILED, at(-1, "response", "error", None)),
    (109, "failed without a code", FAILED, at(-1, "response", "error", {"message": "lost"})),
    (109, "failed as completed", FAILED, at(-1, "response", "status", "completed")),
    (110, "no count of cache writes", RICH, at(*USED, "input_tokens_details", {"cached_tokens": 4})),
    (110, "no details of output", RICH, at(*USED, "output_tokens_details", ABSENT)),
    (110, "no total", CUT, at(-1, "response", "usage", "total_tokens", ABSENT)),
    (110, "usage while in progress", RICH, at(1, "response", {"usage": USAGE})),
    (111, "done text without logprobs", RICH, rich("output_text.done", "logprobs", ABSENT)),
    (111, "logprobs are null", RICH, rich(TEXT, "logprobs", None)),
    (111, "the part lacks an entry", SCORED, scored("content_part.done", "part", "logprobs", [entry("Hm", -0.5)])),
    (111, "a delta's entry is another", SCORED, scored(TEXT, "logprobs", [entry("Hm", -0.25)])),
    (113, "an error says nothing", ERROR, at(2, "message", ABSENT)),
    (113, "an error beside a delta", RICH, rich(TEXT, "error", "overloaded")),
    (113, "an error beside the end", RICH, at(LAST, "error", {"message": "late"})),
    (114, "one of a foreign server has no number", KEPT, at(4, "sequence_number", ABSENT)),
    (114, "one of a foreign server comes first", KEPT, moved(4, 0)),
    (115, "choices in an event", RICH, rich(TEXT, "choices", [{"index": 0, "delta": {"content": "L"}}])),
    (115, "choices in the response", RICH, at(LAST, "response", "choices", [])),
]

REWORKED: list[tuple[int, str, Stream, Callable[[Stream], Stream]]] = [
    (111, "entries that nobody asked for", SCORED, lambda stream: stream.asking(include=ABSENT, top_logprobs=ABSENT)),
    (112, "two items with one id", RICH, spelt('"fc_2"', '"fc_1"')),
    (112, "the id of a message is a response's", RICH, spelt('"msg_1"', '"resp_1"')),
    (112, "the id of a call is its call id", CUSTOM, spelt('"ctc_1"', '"call_k1"')),
    (114, "in a stream of our own", RICH, lambda stream: stream.edited(put(4, {"type": "keepalive"}))),
    (114, "by name only", RICH, lambda stream: stream.edited(put(4, {"type": "keepalive", "sequence_number": ABSENT}))),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{rule}-{name}" for rule, name, *_ in MUTANTS])
def test_fault(mutant: tuple[int, str, Stream, Edit]) -> None:
    rule, _, base, edit = mutant
    breaks(rule, base, base.edited(edit))


@pytest.mark.parametrize("mutant", REWORKED, ids=[f"{rule}-{name}" for rule, name, *_ in REWORKED])
def test_fault_in_the_bytes(mutant: tuple[int, str, Stream, Callable[[Stream], Stream]]) -> None:
    rule, _, base, rework = mutant
    breaks(rule, base, rework(base))


def test_every_rule_has_two() -> None:
    rules = [rule for rule, *_ in (*MUTANTS, *REWORKED)]
    assert {rule: rules.count(rule) for rule in range(104, 116) if rules.count(rule) < 2} == {}


FILTERED = (
    Responding()
    .parts(message("msg_1"), ("output_text", ["Hm"]), status="incomplete")
    .end("incomplete", incomplete_details={"reason": "content_filter"})
)
BROKEN = (
    Responding()
    .call("fc_1", "call_k1", "get_tide", '{"po', status="incomplete")
    .end("failed", usage=None, error={"code": "server_error", "message": "a stop string inside the call"})
)
RIGHT: list[tuple[str, Stream]] = [
    ("a filter", FILTERED),
    ("a call that is broken off", BROKEN),
    ("failed while an item is open", FAILED.edited(both(out(of_type(FAILED, DONE)), at(-1, *OUTPUT, [])))),
    ("failed with usage", FAILED.edited(at(-1, "response", "usage", USAGE))),
    ("no piece of a text", Responding().parts(message("msg_1"), ("output_text", [])).end("completed")),
    ("a message of nothing", Responding().parts(message("msg_1")).end("completed")),
    ("nothing at all", Responding().end("completed")),
    (
        "two texts",
        Responding().parts(message("msg_1"), ("output_text", ["a"]), ("output_text", ["b"])).end("completed"),
    ),
]


@pytest.mark.parametrize(("name", "stream"), RIGHT, ids=[name for name, _ in RIGHT])
def test_nothing_is_wrong_with_it(name: str, stream: Stream) -> None:
    assert not stream.report().violations
