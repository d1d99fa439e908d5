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
from stages.protocols.rules.said import Said, SaidChoice, SaidFinish
from stages.protocols.rules.values import array, integer, obj, same
from stages.strict import parse

_NUMBERS = ("prompt", "completion", "total", "cached", "reasoning")


def differences(case: Case, other: Said, protocol: Protocol, where: str, *, ends: bool = True) -> Iterator[Finding]:
    """What ``other``, said in ``protocol``, says otherwise than the case's body. ``where``: it is said, for people;
    ``ends``: finishes are compared.

    Ids are not compared. A completion has the model's text as it was written: what a parser made of it up to the first
    call is looked up there, piece by piece, and is all of it where there was no parser. Usage is compared where both
    have it.
    """
    both = frozenset((case.evidence.protocol, protocol))
    for index in sorted({*case.said.choices, *other.choices}):
        mine = case.said.choices.get(index)
        theirs = other.choices.get(index)
        if mine is None or theirs is None:
            yield nowhere(f"choice {index} is {'not there' if mine is None else 'there'}", f"otherwise {where}")
            continue
        if len(both) == 1 or "completions" not in both:
            yield from _texts(case, mine, theirs, both, where)
            yield from _calls(mine, theirs, both, where)
        else:
            yield from _raw(case, mine, theirs, where)
        if ends:
            yield from _finishes(case, mine, theirs, both, where)
    # What is not parsed has no reasoning, and no count of it.
    names = _NUMBERS if len(both) == 1 or "completions" not in both else _NUMBERS[:-1]
    yield from _usages(case.said, other, names, where)


def _texts(
    case: Case, mine: SaidChoice, theirs: SaidChoice, both: frozenset[Protocol], where: str
) -> Iterator[Finding]:
    for kind, one, two in zip(("content", "reasoning", "refusal"), _said(mine, both), _said(theirs, both), strict=True):
        if one != two and not (kind == "reasoning" and _omitted(case, one)):
            pairs = enumerate(zip(one, two, strict=False))
            place = next((n for n, (here, there) in pairs if here != there), min(len(one), len(two)))
            begin = max(place - 10, 0)
            seen = f"choice {mine.index}: {kind} differs from character {place} on: {shown(one[begin : place + 60])}"
            yield nowhere(seen, f"{shown(two[begin : place + 60])} {where}")


def _omitted(case: Case, reasoning: str) -> bool:
    """A message tells that its model thought, and not what: the request wants it so."""
    known = case.evidence.protocol == "messages" and case.evidence.request is not None
    return known and not reasoning and case.asked.hidden


def _raw(case: Case, mine: SaidChoice, theirs: SaidChoice, where: str) -> Iterator[Finding]:
    raw, parsed = (mine, theirs) if case.evidence.protocol == "completions" else (theirs, mine)
    written = raw.text("content") or ""
    seen, want = shown(mine.text("content")), f"{shown(theirs.text('content'))} {where}"
    if raw is mine and case.evidence.engine is not None and not case.evidence.engine.markers:
        echoed = case.asked.echoed(mine.index) if case.evidence.request is not None else 0
        content = parsed.text("content") or ""
        if not written.endswith(content) if echoed is None else written[echoed:] != content:
            yield nowhere(f"choice {mine.index}: {seen}", want)
        return
    end = 0
    # A call's own end may end a completion.
    first = parsed.calls[0].event.number if parsed.calls else None
    for piece in (delta.text.strip() for delta in parsed.deltas if first is None or delta.event.number < first):
        # Between what was said, formats drop, put and give back blanks and markers; broken characters are cut anywhere.
        if "\ufffd" in piece or (piece.startswith("<") and piece.endswith(">")):
            continue
        place = written.find(piece, end)
        if place < 0:
            yield nowhere(f"choice {mine.index}: {seen}, {shown(piece)} from character {end} on", want)
            return
        end = place + len(piece)


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
        elif not _equal(one.arguments or "", two.arguments or "", both):
            yield at(one.event, f"{call} has {shown(one.arguments)}", f"{shown(two.arguments)} {where}")


def _equal(one: str, two: str, both: frozenset[Protocol]) -> bool:
    if one == two or "messages" not in both:
        return one == two
    # Its whole bodies have the arguments as a value, not as text: of those that were cut off, what can be read.
    value, _ = parse(one or "{}")
    other, _ = parse(two or "{}")
    if value is UNSET and len(both) == 1:
        value, _ = parse(anthropic.beginning(one))
    return value is not UNSET and same(value, other)


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
    elif _kind(case, mine, both) != _kind(case, theirs, both) and not _half(case, one, two, both):
        yield at(one.event, f"choice {mine.index}: finish {shown(one.reason)}", f"{shown(two.reason)} {where}")


def _half(case: Case, one: SaidFinish, two: SaidFinish, both: frozenset[Protocol]) -> bool:
    """A message says ``max_tokens`` of a call that is not whole, which the model ended by itself (other servers of chat
    say ``tool_calls`` of it)."""
    told, meant = (one, two) if case.evidence.protocol == "messages" else (two, one)
    halved = "messages" in both and told.reason == "max_tokens" and meant.kind in ("stop", "calls")
    return halved and case.unfinished(0)


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
