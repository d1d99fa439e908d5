"""Faults of responses streams, their events and items: each is told by its rule, and not without it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.protocols.rules.responding import (
    BASES,
    CUSTOM,
    CUT,
    ERROR,
    QUEUED,
    REFUSAL,
    RICH,
    SUMMARY,
    recounted,
    reindexed,
    renumbered,
    spelt,
)
from tests.protocols.rules.richer import Edit, at, both, moved, nameless, of_type, out, put, there, twice
from tests.support.wire import ABSENT, Stream, breaks

PART = "content_part.added"
TEXT = "output_text.delta"
DONE = "output_item.done"
ADDED = "output_item.added"
ARGS = "function_call_arguments"
LAST = len(RICH.elements) - 1

rich = partial(there, RICH)
cut = partial(there, CUT)
custom = partial(there, CUSTOM)
refusal = partial(there, REFUSAL)
summary = partial(there, SUMMARY)

MUTANTS: list[tuple[int, str, Stream, Edit]] = [
    (90, "type without its prefix in the name", RICH, at(3, b'event: content_part.added\ndata: {"type":"x"}\n\n')),
    (91, "numbers begin with 1", RICH, renumbered(1)),
    (91, "a number is left out", RICH, renumbered(0, jump=5, step=2)),
    (91, "a number comes twice", RICH, renumbered(0, jump=5, step=0)),
    (91, "no number at the end", RICH, at(LAST, "sequence_number", ABSENT)),
    (92, "created when it is done", RICH, at(0, "response", {"status": "completed"})),
    (92, "never in progress", RICH, out(1)),
    (92, "queued twice", QUEUED, twice(1)),
    (93, "completed twice", RICH, twice(LAST)),
    (93, "no terminal event", RICH, out(LAST)),
    (93, "an error behind the end", CUT, lambda ev: [*ev, ERROR.elements[-1]]),
    (94, "created at another time", RICH, at(1, "response", {"created_at": 1760000001})),
    (94, "completed by another model", RICH, at(LAST, "response", "model", "demo-2")),
    (95, "an index is left out", RICH, reindexed(3, 4)),
    (95, "an index is used again", RICH, reindexed(3, 2)),
    (95, "the first index is 1", CUSTOM, both(reindexed(1, 2), reindexed(0, 1))),
    (96, "a delta of an item that was never added", RICH, rich(TEXT, "output_index", 7)),
    (96, "done with the id of the call before", RICH, rich(f"{ARGS}.done", "item_id", "fc_1", nth=1)),
    (97, "a part is closed behind its item", RICH, moved(of_type(RICH, "content_part.done"), of_type(RICH, DONE) + 1)),
    (
        97,
        "the summary goes on behind its item",
        SUMMARY,
        moved(of_type(SUMMARY, "reasoning_summary_text.done", 1), of_type(SUMMARY, DONE) + 1),
    ),
    (98, "the second call opens inside the first", RICH, moved(of_type(RICH, ADDED, 3), of_type(RICH, DONE, 2))),
    (98, "reasoning closes behind the text", RICH, moved(of_type(RICH, DONE), of_type(RICH, DONE, 1))),
    (99, "done twice", RICH, twice(of_type(RICH, DONE, 1))),
    (99, "a message becomes reasoning", RICH, rich(DONE, "item", "type", "reasoning", nth=1)),
    (99, "a message's id changes", RICH, rich(DONE, "item", "id", "msg_2", nth=1)),
    (99, "an item of a cut response is left open", CUT, out(of_type(CUT, DONE))),
    (100, "added as completed", RICH, rich(ADDED, "item", "status", "completed", nth=1)),
    (100, "added with a part", RICH, rich(ADDED, "item", "content", [{"type": "output_text", "text": "L"}], nth=1)),
    (100, "added with arguments", RICH, rich(ADDED, "item", "arguments", '{"port":', nth=2)),
    (100, "added with input", CUSTOM, custom(ADDED, "item", "input", "ls")),
    (100, "added with a summary", SUMMARY, summary(ADDED, "item", "summary", [{"type": "summary_text"}])),
    (101, "incomplete in a completed response", RICH, rich(DONE, "item", "status", "incomplete", nth=3)),
    (101, "incomplete, and not the last", CUT, cut(DONE, "item", "status", "incomplete")),
    (101, "done as failed", RICH, rich(DONE, "item", "status", "failed", nth=2)),
    (102, "two parts with one index", REFUSAL, refusal(PART, "content_index", 0, nth=1)),
    (102, "a part's index is left out", REFUSAL, recounted(1, 2)),
    (102, "a delta of a part that is done", REFUSAL, refusal("refusal.delta", "content_index", 0)),
    (102, "a delta of a part that was never added", RICH, rich(TEXT, "content_index", 5)),
    (103, "refusal in a part of text", REFUSAL, refusal(TEXT, "type", "refusal.delta")),
    (103, "arguments in a call of plain text", CUSTOM, custom("custom_tool_call_input.delta", "type", f"{ARGS}.delta")),
    (103, "input in a call of a function", CUSTOM, custom(f"{ARGS}.done", "type", "custom_tool_call_input.done")),
    (103, "reasoning in a message", RICH, rich(TEXT, "type", "reasoning_text.delta")),
]

REWORKED: list[tuple[int, str, Stream, Callable[[Stream], Stream]]] = [
    (90, "an event without a name", RICH, lambda stream: nameless(stream, of_type(stream, TEXT))),
    (90, "no type inside", RICH, spelt('"type":"response.output_text.done",', "")),
]


@pytest.mark.parametrize("name", BASES)
def test_the_streams_are_clean(name: str) -> None:
    assert not BASES[name].report().violations


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
    assert {rule: rules.count(rule) for rule in range(90, 104) if rules.count(rule) < 2} == {}


def without(*kinds: str) -> Edit:
    """Take all elements of these types away that speak of the first item."""
    return lambda ev: [one for one in ev if one.get("output_index") != 0 or one["type"] not in kinds]


def searching(elements: list[Any]) -> list[Any]:
    """A hosted search before everything else."""
    action = {"type": "search", "query": "a"}
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action}
    place = {"output_index": 0, "item_id": "ws_1"}
    later = copy.deepcopy(elements[2:])
    for one in later:
        if "output_index" in one:
            one["output_index"] += 1
    later[-1]["response"]["output"].insert(0, searched)
    return [
        *elements[:2],
        {"type": ADDED, "output_index": 0, "item": {**searched, "status": "in_progress"}},
        {"type": "web_search_call.in_progress", **place}, {"type": "web_search_call.searching", **place},
        {"type": "web_search_call.completed", **place}, {"type": DONE, "output_index": 0, "item": searched}, *later,
    ]  # fmt: skip


NOTE: dict[str, Any] = {
    "type": "output_text.annotation.added", "output_index": 1, "item_id": "msg_1", "content_index": 0,
    "annotation_index": 0, "annotation": {"type": "url_citation", "url": "u", "title": "t"},
}  # fmt: skip

TOLERATED: list[tuple[str, Stream, Edit]] = [
    ("reasoning without parts", RICH, without(PART, "content_part.done")),
    ("numbers with gaps", RICH, renumbered(0, jump=5, step=3)),
    ("the end of other protocols", RICH, lambda ev: [*ev, "[DONE]"]),
    ("two items at a time", RICH, moved(of_type(RICH, ADDED, 3), of_type(RICH, DONE, 2))),
    ("names in the argument's end", RICH, rich(f"{ARGS}.done", "name", "get_tide")),
    ("obfuscation", RICH, rich(TEXT, "obfuscation", "x7")),
    ("a hosted search", RICH, searching),
    ("a note on the text", RICH, put(of_type(RICH, "output_text.done"), NOTE)),
    ("an event that nobody knows", RICH, put(3, {"type": "mood", "mood": "good"})),
]


@pytest.mark.parametrize("case", TOLERATED, ids=[name for name, *_ in TOLERATED])
def test_no_error_where_somebody_else_sends_it(case: tuple[str, Stream, Edit]) -> None:
    _, base, edit = case
    assert not base.edited(edit).known(own=False).report().errors
