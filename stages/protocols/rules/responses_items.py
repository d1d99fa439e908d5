"""Rules 95 to 101, 108 and 112: the output items of a responses stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.responses_view import ARGUMENTS, OURS, RULES, Item, View
from stages.protocols.rules.rule import Finding
from stages.protocols.rules.values import obj, same, string

_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}
_ENDED = ("response.completed", "response.incomplete")


@RULES(95, "r_oindex", "E")
def r_oindex(case: Case) -> Iterator[Finding]:
    """Items are added with output_index 0, 1, 2 and so on."""
    for count, item in enumerate(case.reading.view(View).added):
        if item.index != count or item.index.__class__ is not int:
            yield at(item.event, f"output_index {shown(item.index)}", str(count))


@RULES(96, "r_known", "E")
def r_known(case: Case) -> Iterator[Finding]:
    """What refers to an item refers to one that was added, and by its id."""
    view = case.reading.view(View)
    for event, index in view.lost:
        yield at(event, f"output_index {shown(index)}", "of an item that was added")
    for event, given, mine in view.alien:
        yield at(event, f"item_id {shown(given)}", shown(mine))


@RULES(97, "r_open", "E")
def r_open(case: Case) -> Iterator[Finding]:
    """Nothing refers to an item after its output_item.done."""
    for event, kind in case.reading.view(View).late:
        yield at(event, kind)


@RULES(98, "r_single", "O")
def r_single(case: Case) -> Iterator[Finding]:
    """An item is done before the next is added."""
    for event in case.reading.view(View).parallel:
        yield at(event, "an item while another is open")


@RULES(99, "r_done1", "E")
def r_done1(case: Case) -> Iterator[Finding]:
    """Every added item is done once before the response is completed or incomplete, with the type, id and call_id that
    it was added with."""
    view = case.reading.view(View)
    ended = bool(view.terminals) and view.terminals[0][1] in _ENDED
    for item in view.added:
        if not item.dones and ended:
            yield at(item.event, f"a {item.kind} that is never done")
        for event, _ in item.dones[1:]:
            yield at(event, "done again")
        for event, done in item.dones[:1]:
            for key in ("type", "id", "call_id"):
                added = item.value.get(key)
                if done.get(key) != added and not (key == "id" and added is None):
                    yield at(event, f"{key} {shown(done.get(key))}", shown(added))


@RULES(100, "r_addempty", "E")
def r_addempty(case: Case) -> Iterator[Finding]:
    """An item is added in progress and empty."""
    for item in case.reading.view(View).added:
        kind, value = item.kind, item.value
        if kind is None:
            yield at(item.event, f"an item of type {shown(value.get('type'))}")
        elif kind in OURS:
            yield from _status_added(item)
            if kind == "message" and value.get("content") != []:
                yield at(item.event, f"content {shown(value.get('content'))}", "[]")
            if kind == "reasoning":
                for key in ("content", "summary"):
                    if value.get(key):
                        yield at(item.event, f"{key} {shown(value[key])}", "[]")
            if kind in ARGUMENTS and value.get(ARGUMENTS[kind]) != "":
                yield at(item.event, f"{ARGUMENTS[kind]} {shown(value.get(ARGUMENTS[kind]))}", '""')


def _status_added(item: Item) -> Iterator[Finding]:
    status = item.value.get("status")
    if status != "in_progress" and not (status is None and item.kind == "custom_tool_call"):
        optional = status is None and item.kind == "reasoning"
        yield at(item.event, f"status {shown(status)}", "in_progress", "O" if optional else None)


@RULES(101, "r_donest", "E")
def r_donest(case: Case) -> Iterator[Finding]:
    """A done item is completed; the last one may be incomplete where the response is incomplete or failed."""
    view = case.reading.view(View)
    cut = not view.terminals or view.terminals[0][1] != "response.completed"
    for item in view.added:
        for event, done in item.dones[:1]:
            status = done.get("status")
            if status == "completed" or (status == "incomplete" and cut and item is view.added[-1]):
                continue
            if item.kind not in OURS and status not in ("in_progress", "incomplete"):
                continue  # hosted tools have words of their own
            if status is None and item.kind == "custom_tool_call":
                continue
            optional = status is None and item.kind == "reasoning"
            yield at(event, f"status {shown(status)}", severity="O" if optional else None)


@RULES(108, "r_output", "E")
def r_output(case: Case) -> Iterator[Finding]:
    """The terminal response's output is the done items, in the order of their output_index."""
    view = case.reading.view(View)
    if not view.terminals or view.terminals[0][1] == "error":
        return
    event, kind, response = view.terminals[0]
    wanted = [view.items[index].dones[0][1] for index in sorted(view.items) if view.items[index].dones]
    output = response.get("output")
    if not same(output, wanted):
        # A failed response is no result: who has none to show may leave it empty.
        yield at(event, _unlike(output, wanted), severity=None if kind in _ENDED else "O")


def _unlike(output: Any, wanted: list[dict[str, Any]]) -> str:
    if output.__class__ is not list or len(output) != len(wanted):
        count = len(output) if output.__class__ is list else shown(output)
        return f"output has {count} items, {len(wanted)} were done"
    place = next(place for place, one in enumerate(output) if not same(one, wanted[place]))
    one, other = obj(output[place]), wanted[place]
    keys = [key for key in {**one, **other} if key not in one or key not in other or not same(one[key], other[key])]
    return f"output[{place}] is not the item that was done: {shown(keys)}"


@RULES(112, "r_ids", "E")
def r_ids(case: Case) -> Iterator[Finding]:
    """Item ids are unique, and begin with msg_, rs_, fc_ or ctc_."""
    seen: set[str] = set()
    for item in case.reading.view(View).added:
        name = string(item.value.get("id"))
        if not name:
            yield at(item.event, f"id {shown(item.value.get('id'))}", "a text", "O")
        elif name in seen:
            yield at(item.event, f"id {shown(name)} again")
        elif not name.startswith(_PREFIXES.get(item.kind or "", "")):
            yield at(item.event, f"id {shown(name)}", f"{_PREFIXES[item.kind or '']}…", "O")
        seen.add(name or "")
