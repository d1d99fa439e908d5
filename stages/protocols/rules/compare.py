"""What two bodies say, compared: in one protocol, or in two under the mapping of their words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import UNSET

from stages.protocols import anthropic
from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.evidence import Protocol
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.rule import Finding
from stages.protocols.rules.said import Said, SaidChoice
from stages.protocols.rules.values import array, integer, obj, same
from stages.strict import parse

_NUMBERS = ("prompt", "completion", "total", "cached", "reasoning")


def differences(case: Case, other: Said, protocol: Protocol, where: str) -> Iterator[Finding]:
    """What ``other``, said in ``protocol``, says otherwise than the case's body. ``where``: it is said, for people.

    Ids are not compared. A completion has the model's text as it was written, so it is only looked up whether an answer
    without reasoning and calls is in it. Usage is compared where both have it.
    """
    both = frozenset((case.evidence.protocol, protocol))
    for index in sorted({*case.said.choices, *other.choices}):
        mine = case.said.choices.get(index)
        theirs = other.choices.get(index)
        if mine is None or theirs is None:
            yield nowhere(f"choice {index} is {'not there' if mine is None else 'there'}", f"otherwise {where}")
            continue
        if len(both) == 1 or "completions" not in both:
            yield from _texts(mine, theirs, both, where)
            yield from _calls(mine, theirs, both, where)
        else:
            yield from _raw(case, mine, theirs, where)
        yield from _finishes(case, mine, theirs, both, where)
    # What is not parsed has no reasoning, and no count of it.
    names = _NUMBERS if len(both) == 1 or "completions" not in both else _NUMBERS[:-1]
    yield from _usages(case.said, other, names, where)


def _texts(mine: SaidChoice, theirs: SaidChoice, both: frozenset[Protocol], where: str) -> Iterator[Finding]:
    for kind, one, two in zip(("content", "reasoning", "refusal"), _said(mine, both), _said(theirs, both), strict=True):
        if one != two:
            pairs = enumerate(zip(one, two, strict=False))
            place = next((n for n, (here, there) in pairs if here != there), min(len(one), len(two)))
            begin = max(place - 10, 0)
            seen = f"choice {mine.index}: {kind} differs from character {place} on: {shown(one[begin : place + 60])}"
            yield nowhere(seen, f"{shown(two[begin : place + 60])} {where}")


def _raw(case: Case, mine: SaidChoice, theirs: SaidChoice, where: str) -> Iterator[Finding]:
    raw, parsed = (mine, theirs) if case.evidence.protocol == "completions" else (theirs, mine)
    plain = not parsed.calls and parsed.text("reasoning") is None and parsed.text("refusal") is None
    written = iter(raw.text("content") or "")
    # Between what was said, a format may have had blanks and markers.
    if plain and not all(char in written for char in parsed.text("content") or ""):
        yield nowhere(f"choice {mine.index}: {shown(mine.text('content'))}", f"{shown(theirs.text('content'))} {where}")


def _said(choice: SaidChoice, both: frozenset[Protocol]) -> tuple[str, str, str]:
    content = choice.text("content") or ""
    reasoning = choice.text("reasoning") or ""
    refusal = choice.text("refusal") or ""
    # In messages a refusal is text like other text.
    return (content + refusal, reasoning, "") if "messages" in both else (content, reasoning, refusal)


def _calls(mine: SaidChoice, theirs: SaidChoice, both: frozenset[Protocol], where: str) -> Iterator[Finding]:
    for number, (one, two) in enumerate(zip_longest(mine.calls, theirs.calls)):
        call = f"choice {mine.index}: call {number}"
        if one is None:
            yield nowhere(f"{call} is not there", f"a call of {shown(two.name)} {where}")
        elif two is None:
            yield at(one.event, f"{call} is of {shown(one.name)}", f"none {where}")
        elif one.name != two.name:
            yield at(one.event, f"{call} is of {shown(one.name)}", f"{shown(two.name)} {where}")
        elif not _equal(one.arguments or "", two.arguments or "", as_json="messages" in both):
            yield at(one.event, f"{call} has {shown(one.arguments)}", f"{shown(two.arguments)} {where}")


def _equal(one: str, two: str, *, as_json: bool) -> bool:
    """``as_json``: a protocol is there whose whole bodies have the arguments as a value, not as text."""
    if one == two or not as_json:
        return one == two
    value, _ = parse(one or "{}")
    other, _ = parse(two or "{}")
    if value is UNSET or other is UNSET:
        # A whole body has what can be read of arguments that were cut off.
        return anthropic.beginning(one) == anthropic.beginning(two)
    return same(value, other)


def _finishes(
    case: Case, mine: SaidChoice, theirs: SaidChoice, both: frozenset[Protocol], where: str
) -> Iterator[Finding]:
    one, two = mine.finish, theirs.finish
    if one is None or two is None:
        if one is not two:
            seen = "no finish" if one is None else f"finish {shown(one.reason)}"
            want = "no finish" if two is None else f"finish {shown(two.reason)}"
            yield nowhere(f"choice {mine.index}: {seen}", f"{want} {where}")
    elif len(both) == 1:
        if (one.reason, one.stop) != (two.reason, two.stop):
            # What stopped a choice is in the protocol of messages; elsewhere servers tell it in a field of their own.
            own = one.reason == two.reason and "messages" not in both
            yield at(
                one.event,
                f"choice {mine.index}: finish {shown(one.reason)}, stop {shown(one.stop)}",
                f"{shown(two.reason)}, {shown(two.stop)} {where}",
                "O" if own else None,
            )
    elif case.unfinished(mine.index) and not both.isdisjoint(("messages", "responses")):
        pass  # they have no answer that ends by itself with a call that is not whole
    elif _kind(case, mine, both) != _kind(case, theirs, both):
        yield at(one.event, f"choice {mine.index}: finish {shown(one.reason)}", f"{shown(two.reason)} {where}")


def _kind(case: Case, choice: SaidChoice, both: frozenset[Protocol]) -> str | None:
    """The class of a finish, as coarse as the coarser of two protocols has it."""
    kind = None if choice.finish is None else choice.finish.kind
    refused = kind == "filter" or (kind == "stop" and choice.text("refusal") is not None)
    if refused and "messages" in both:
        return "refusal"
    if kind not in ("stop", "calls"):
        return kind
    if "completions" in both:
        return "stop"
    # Responses have one word for both. In chat a call that the request named ends with stop.
    if choice.calls and ("responses" in both or _named(case)):
        return "calls"
    return kind


def _named(case: Case) -> bool:
    """The request names the function to call, or is not known."""
    return case.evidence.request is None or isinstance(case.request.get("tool_choice"), dict)


def _usages(said: Said, other: Said, names: Sequence[str], where: str) -> Iterator[Finding]:
    one, two = said.usage, other.usage
    if one is None or two is None:
        return
    for name in names:
        here: int | None = getattr(one, name)
        there: int | None = getattr(two, name)
        if here is not None and there is not None and here != there:
            yield at(one.event, f"usage: {name} {here}", f"{there} {where}")


# --- tokens -----------------------------------------------------------------------------------------------------------


def unequal_tokens(reading: Reading, whole: dict[str, Any], where: str) -> Iterator[Finding]:
    """Logprob entries and token ids of choices, joined over the stream, that the whole body has otherwise."""
    mine = _tokens(choice for _, chunk in reading.chunks for choice in array(chunk.get("choices")))
    theirs = _tokens(array(whole.get("choices")))
    for index, name in sorted({*mine, *theirs}):
        one, two = mine.get((index, name), []), theirs.get((index, name), [])
        if not same(one, two):
            place = next(
                (n for n, (here, there) in enumerate(zip(one, two, strict=False)) if not same(here, there)), -1
            )
            place = min(len(one), len(two)) if place < 0 else place
            seen = f"choice {index}: {name} {place} of {len(one)} is {shown(one[place : place + 1])}"
            yield nowhere(seen, f"{shown(two[place : place + 1])} of {len(two)} {where}")


def _tokens(choices: Iterable[Any]) -> dict[tuple[int, str], list[Any]]:
    """By choice and name of the array."""
    found: dict[tuple[int, str], list[Any]] = {}
    for choice in map(obj, choices):
        index = integer(choice.get("index"))
        if index is not None:
            for name, values in (*obj(choice.get("logprobs")).items(), ("token_ids", choice.get("token_ids"))):
                if array(values):
                    found.setdefault((index, name), []).extend(array(values))
    return found
