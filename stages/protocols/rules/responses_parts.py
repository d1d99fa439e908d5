"""Rules 102 to 107 and 111: content parts, summaries, arguments and logprobs of a responses stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.reading import Event
from stages.protocols.rules.responses_view import ARGUMENTS, FIELD, RULES, Item, Part, View
from stages.protocols.rules.rule import Finding
from stages.protocols.rules.values import array, obj, same

_ABSENT = object()
_LOGPROBS = frozenset(("response.output_text.delta", "response.output_text.done"))


@RULES(102, "r_cindex", "E")
def r_cindex(case: Case) -> Iterator[Finding]:
    """Parts of an item are added with content_index 0, 1, 2 and so on; what refers to a part refers to one that was
    added and is not done."""
    view = case.reading.view(View)
    for event, index, count in view.misplaced:
        yield at(event, f"content_index {shown(index)}", str(count))
    for event, item, seen in view.unparted:
        if case.own or not _bare(item):
            yield at(event, seen)


def _bare(item: Item) -> bool:
    """Reasoning that comes without part events, as some servers send it."""
    return item.kind == "reasoning" and not item.begun


@RULES(103, "r_kind", "E")
def r_kind(case: Case) -> Iterator[Finding]:
    """An event is of the kind of its item and its part."""
    for event, what, home in case.reading.view(View).mixed:
        yield at(event, f"{what} in a {home}")


@RULES(104, "r_partdone", "E")
def r_partdone(case: Case) -> Iterator[Finding]:
    """Every part has its text done once, then is itself done once, before its item is; all that an item holds in the
    end was a part."""
    for item in case.reading.view(View).added:
        for event, done in item.dones[:1]:
            for part in item.parts.values():
                if part.added is not None:
                    yield from _closed(event, part)
            content = array(done.get("content")) if item.kind in ("message", "reasoning") else []
            if content and _bare(item):
                yield at(event, "reasoning without part events", severity="O")
            else:
                for place in range(len(content)):
                    if place not in item.parts:
                        yield at(event, f"content[{place}] without events")


def _closed(end: Event, part: Part) -> Iterator[Finding]:
    if part.kind in FIELD and len(part.wholes) != 1:
        yield at(end, f"part {part.index}: {len(part.wholes)} done events of its text")
    if len(part.closes) != 1:
        yield at(end, f"part {part.index}: {len(part.closes)} content_part.done")
    for close, _ in part.closes[:1]:
        if part.wholes and part.wholes[0][0].number > close.number:
            yield at(close, f"part {part.index} done before its text")
        if close.number > end.number:
            yield at(close, f"part {part.index} done after its item")


@RULES(105, "r_join", "E")
def r_join(case: Case) -> Iterator[Finding]:
    """The deltas of a part, joined, are its text: when it is done, in the part, in the item, in the response."""
    view = case.reading.view(View)
    for event, kind, text in view.textless:
        if kind in FIELD:
            yield at(event, f"delta {shown(text)}", "a text")
    for item in view.added:
        for part in item.parts.values():
            field = FIELD.get(part.kind or "")
            if field is not None:
                text = "".join(part.texts)
                yield from _told(part.wholes, text, "done text")
                yield from _told([(event, closed.get(field)) for event, closed in part.closes], text, "part's text")
                for event, holder in _holders(view, item):
                    yield from _kept(event, array(holder.get("content")), part.index, field, text)


def _told(said: list[tuple[Event, Any]], text: str, what: str) -> Iterator[Finding]:
    for event, value in said:
        if value != text:
            yield at(event, f"{what} {shown(value)}", f"the joined deltas: {shown(text)}")


def _holders(view: View, item: Item) -> Iterator[tuple[Event, dict[str, Any]]]:
    """The item when it is done, and in the terminal response."""
    yield from item.dones[:1]
    for event, kind, response in view.terminals[:1]:
        output = array(response.get("output"))
        if kind != "response.failed" and item.dones and item.listed and 0 <= item.index < len(output):
            yield event, obj(output[item.index])


def _kept(event: Event, content: list[Any], index: int, field: str, text: str) -> Iterator[Finding]:
    value = obj(content[index]).get(field) if 0 <= index < len(content) else _ABSENT
    if value is _ABSENT:
        # Nothing was said: some servers leave such a part out.
        yield at(event, f"no content[{index}]", f"the joined deltas: {shown(text)}", None if text else "O")
    elif value != text:
        yield at(event, f"content[{index}] {shown(value)}", f"the joined deltas: {shown(text)}")


@RULES(106, "r_argjoin", "E")
def r_argjoin(case: Case) -> Iterator[Finding]:
    """The argument deltas of a call, joined, are its arguments: when they are done, in the item, in the response."""
    view = case.reading.view(View)
    for event, kind, text in view.textless:
        if kind in ARGUMENTS:
            yield at(event, f"delta {shown(text)}", "a text")
    for item in view.added:
        field = ARGUMENTS.get(item.kind or "")
        ours = item.kind in ("function_call", "custom_tool_call")
        if field is None or not (ours or item.texts or item.wholes):
            continue
        text = "".join(item.texts)
        yield from _told(item.wholes, text, f"done {field}")
        yield from _told([(event, holder.get(field)) for event, holder in _holders(view, item)], text, field)
        for event, done in item.dones[:1]:
            # Whether a call that was cut is said to be done is nowhere written.
            if ours and len(item.wholes) != 1 and (item.wholes or done.get("status") != "incomplete"):
                yield at(event, f"{len(item.wholes)} done events of {field}")


@RULES(107, "r_summary", "E")
def r_summary(case: Case) -> Iterator[Finding]:
    """Summary parts come in order, each added, its text, the text done, the part done; the deltas, joined, are its text
    everywhere."""
    view = case.reading.view(View)
    for event, seen in view.unsummed:
        yield at(event, seen)
    for event, kind, text in view.textless:
        if kind == "summary_text":
            yield at(event, f"delta {shown(text)}", "a text")
    for item in view.added:
        for part in item.summary.values():
            text = "".join(part.texts)
            yield from _told(part.wholes, text, "done text")
            yield from _told([(event, closed.get("text")) for event, closed in part.closes], text, "part's text")
        for event, done in item.dones[:1]:
            yield from _summarised(event, item, array(done.get("summary")))


def _summarised(event: Event, item: Item, summary: list[Any]) -> Iterator[Finding]:
    if item.kind == "reasoning" and len(summary) != len(item.summary):
        yield at(event, f"{len(summary)} summary parts, {len(item.summary)} were sent")
    for part in item.summary.values():
        if len(part.wholes) != 1 or len(part.closes) != 1:
            yield at(event, f"summary part {part.index}: {len(part.wholes)} done texts, {len(part.closes)} done parts")
        if 0 <= part.index < len(summary) and obj(summary[part.index]).get("text") != "".join(part.texts):
            yield at(event, f"summary[{part.index}] {shown(obj(summary[part.index]).get('text'))}", shown(part.texts))


@RULES(111, "r_lp", "E")
def r_lp(case: Case) -> Iterator[Finding]:
    """Text deltas and done texts have a logprobs array, empty unless it was asked for; joined, they are the part's."""
    view = case.reading.view(View)
    asked = case.evidence.request is None or "message.output_text.logprobs" in array(case.request.get("include"))
    lacking: list[Finding] = []
    found = False
    for event, kind, value in view.events:
        if kind in _LOGPROBS:
            entries = value.get("logprobs")
            found = found or entries is not None
            if not isinstance(entries, list):
                lacking.append(at(event, f"logprobs {shown(entries)}", "an array"))
            elif entries and not asked:
                yield at(event, f"{len(array(entries))} logprobs that nobody asked for")
    if found or case.own:
        yield from lacking
    elif lacking:  # as all that a foreign server sends, it is its habit
        yield Finding(lacking[0].frame, lacking[0].byte, "no text event has logprobs", severity="O")
    for item in view.added:
        for part in item.parts.values():
            yield from _joined(part)


def _joined(part: Part) -> Iterator[Finding]:
    for event, closed in part.closes:
        entries = closed.get("logprobs")
        if part.kind == "output_text" and not same(entries or [], part.logprobs):
            yield at(event, f"{len(array(entries))} logprobs", f"the {len(part.logprobs)} of the deltas")
    for event, _ in part.wholes:
        entries = obj(event.value).get("logprobs")
        if part.kind == "output_text" and entries.__class__ is list and not same(entries, part.logprobs):
            # vLLM leaves them out here.
            yield at(event, f"{len(array(entries))} logprobs", f"the {len(part.logprobs)} of the deltas", "O")
