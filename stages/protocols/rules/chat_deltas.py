"""Rules 53-56 and 78: the deltas of a chat completion stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import array

RULES = Rules("chat")


@RULES(53, "c_types", "E")
def c_types(case: Case) -> Iterator[Finding]:
    """Content, refusal and both reasoning fields are strings or null, arguments are strings."""
    for index, choice in case.reading.view(view).choices.items():
        for seen in choice.odd:
            yield at(seen.event, f"choice {index}: {seen.key} {shown(seen.value)}")


@RULES(54, "c_both", "E")
def c_both(case: Case) -> Iterator[Finding]:
    """``reasoning`` and ``reasoning_content``, where both are used, carry the same text."""
    for index, choice in case.reading.view(view).choices.items():
        one, other = choice.names
        if one and other and one != other and "".join(one) != "".join(other):
            place = next((event for kind, event in choice.runs if kind == "reasoning"), choice.last)
            seen = f"choice {index}: reasoning {shown(''.join(one))}, reasoning_content {shown(''.join(other))}"
            yield at(place, seen)


@RULES(55, "c_order", "W")
def c_order(case: Case) -> Iterator[Finding]:
    """In a choice, reasoning comes before content, and content before calls; models that think between calls may not
    keep to it."""
    for index, choice in case.reading.view(view).choices.items():
        content = calls = False
        for kind, event in choice.runs:
            if kind == "reasoning" and content:
                yield at(event, f"choice {index}: reasoning after content")
            if kind == "content" and (calls or _called(choice.heads, event.number)):
                yield at(event, f"choice {index}: content after a call")
            content = content or kind == "content"
            calls = calls or kind == "arguments"


def _called(heads: list[tuple[Any, dict[str, Any]]], number: int) -> bool:
    """A call began before this event, perhaps without a word of arguments."""
    return bool(heads) and heads[0][0].number < number


@RULES(56, "c_refusal", "E")
def c_refusal(case: Case) -> Iterator[Finding]:
    """A choice has content or a refusal, not both."""
    for index, choice in case.reading.view(view).choices.items():
        kinds = dict(reversed(choice.runs))
        if "content" in kinds and "refusal" in kinds:
            later = max(kinds["content"], kinds["refusal"], key=lambda event: event.number)
            yield at(later, f"choice {index}: content and refusal")


@RULES(78, "c_extra", "E")
def c_extra(case: Case) -> Iterator[Finding]:
    """Unknown delta keys hold strings, null, objects, lists of scalars, or lists of objects with an integer index, and
    each keeps to one of these."""
    for index, choice in case.reading.view(view).choices.items():
        shapes: dict[str, str] = {}
        for seen in choice.extra:
            shape = _shape(seen.value)
            before = shapes.setdefault(seen.key, shape)
            text = f"choice {index}: {shown(seen.key)} holds {shown(seen.value)}"
            if shape not in ("string", "object", "scalars", "objects", "empty"):
                yield at(seen.event, text)
            elif shape != before and "empty" not in (shape, before):
                yield at(seen.event, text, f"{before} as in an earlier delta")
            elif before == "empty":
                shapes[seen.key] = shape


def _shape(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if value.__class__ is dict:
        return "object"
    if value.__class__ is not list:
        return "number or boolean"
    items = array(value)
    if not items:
        return "empty"
    if all(item.__class__ is dict and item.get("index").__class__ is int for item in items):
        return "objects"
    return "mixed" if any(item.__class__ in (dict, list) for item in items) else "scalars"
