"""Another server's message against a parser's, of the same tokens: what differs, and at which of its frames.

The kinds say what the server did: ``call_lost`` is a call that the parser finds and the server did not deliver. Not
compared is what cannot be equal: ids of calls; faults, which no server tells; whether a call is complete, beyond its
arguments. A finish is compared by its class: the model's own end, a limit, a filter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from replay.clock import Clock
from replay.custom import NONE, Custom
from replay.derive import Track
from replay.message_place import worst_of
from replay.style import arguments_as, text_as
from replay.text import describe, first_difference, plain_excerpt, tag
from replay.verdict import MESSAGE_KINDS, STYLE, Difference, Divergence, MessageKind, Side, Verdict
from replay.voice import Called, Voice, Words, voices
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    FinishReason,
    Input,
    Marker,
    Reasoning,
    Refusal,
)
from stages.opening import TokenizerFacts

_MOST_CALLS = 256
"""Calls that are paired by what they say; beyond them, by their order."""
_SHOWN = 48
_GOING_ON = frozenset((Reasoning, Content, Refusal, CallStart, CallArguments, CallEnd, Finish, Failure, End))
_ENDS: dict[FinishReason, str] = {
    "eos": "stop", "stop": "stop", "stop_token": "stop", "length": "length", "context": "length",
    "filter": "content_filter",
}  # fmt: skip


class Apart(msgspec.Struct, frozen=True):
    """A difference, and the seqs of the events at which the sides part; None where a side has none."""

    difference: Difference
    theirs: int | None
    ours: int | None


class Told(msgspec.Struct, frozen=True):
    """What a comparison found. ``first``: the first place, of what is no matter of style if there is such."""

    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    first: Divergence | None = None


class Sides(msgspec.Struct, frozen=True):
    """What is compared. ``theirs``: the server's events, their causes its frames; ``ours``: the parser's, by steps of
    ``inputs``; ``parser``: its name; ``open``: the record may stop anywhere, so that a side that only ends is equal;
    ``foreign``: ours is another engine's parser, whose byte ranges mean nothing."""

    theirs: Track
    ours: Track
    clock: Clock
    parser: str
    tokenizer: TokenizerFacts = TokenizerFacts()
    open: bool = False
    foreign: bool = False


def told_apart(sides: Sides, inputs: Sequence[Input], custom: Custom = NONE) -> Told:
    """Compare. Differences come choice by choice, most telling first. Linear, but in the number of calls. Raises
    ReplayError for what a custom rule raises; a comparer is not asked."""
    found = [apart for apart in _Comparison(sides).all() if not custom.ignores(apart.difference)]
    if not found:
        return Told("same")
    verdict: Verdict = "restyled" if all(apart.difference.kind in STYLE for apart in found) else "changed"
    return Told(verdict, tuple(apart.difference for apart in found), _first(sides, inputs, found))


def _first(sides: Sides, inputs: Sequence[Input], found: Sequence[Apart]) -> Divergence:
    telling = [apart for apart in found if apart.difference.kind not in STYLE] or found
    apart = min(telling, key=_when)
    item = apart.difference
    worst = worst_of([other.difference for other in telling]).kind
    one = other = None
    if apart.theirs is not None:
        step = sides.clock.step_at(sides.theirs.causes[apart.theirs])
        one = Side(
            apart.theirs, step, describe(sides.theirs.events[apart.theirs]), tag(sides.theirs.events[apart.theirs])
        )
    if apart.ours is not None:
        event = sides.ours.events[apart.ours]
        other = Side(apart.ours, sides.ours.steps[apart.ours], describe(event), tag(event))
    seqs = [seq for seq in (apart.theirs, apart.ours) if seq is not None]
    return Divergence(
        layer="semantic", kind=item.kind, seq=seqs[0] if seqs else -1, cause=item.step,
        input=describe(inputs[item.step]) if 0 <= item.step < len(inputs) else "", choice=item.choice,
        detail=item.place, recorded=one, replayed=other, worst=worst, track="upstream", frame=item.frame,
    )  # fmt: skip


def _when(apart: Apart) -> tuple[int, int]:
    item = apart.difference
    far = 1 << 62
    return (far if item.frame < 0 else item.frame, far if item.step < 0 else item.step)


class _Comparison:
    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        markers = {event.text.strip() for event in sides.ours.events if event.__class__ is Marker}
        markers.update(sides.tokenizer.special, sides.tokenizer.added)
        self._markers = sorted(marker for marker in markers if len(marker) > 1)
        self._choice = 0

    def all(self) -> list[Apart]:
        """All differences."""
        theirs, ours = voices(self._sides.theirs.events), voices(self._sides.ours.events)
        found: list[Apart] = []
        for choice in sorted({*theirs, *ours}):
            self._choice = choice
            one, other = theirs.get(choice, Voice()), ours.get(choice, Voice())
            made = [*self._calls(one, other), *self._texts(one, other), *self._finish(one, other)]
            found += sorted(made, key=lambda apart: MESSAGE_KINDS.index(apart.difference.kind))
        return found

    # --- calls

    def _calls(self, one: Voice, other: Voice) -> Iterator[Apart]:
        for mine, theirs in _paired(one.calls, other.calls):
            if theirs is None and mine is not None:
                yield self._invented(one.calls, mine)
            elif mine is None and theirs is not None:
                if not (self._sides.open and theirs >= len(one.calls)):
                    yield self._lost(one, other, theirs)
            elif mine is not None and theirs is not None:
                yield from self._call(mine, one.calls[mine], theirs, other.calls[theirs])

    def _invented(self, calls: list[Called], at: int) -> Apart:
        call = calls[at]
        shown = _called(call)
        words = f"call {at} of {_quoted(call.name)}", "no such call"
        return self._apart("call_added", f"tool_calls[{at}]", (shown, None), words, call.seq, None)

    def _lost(self, one: Voice, other: Voice, at: int) -> Apart:
        call = other.calls[at]
        words = "no call", f"call {at} of {_quoted(call.name)}"
        sides = None, _called(call)
        return self._apart(
            "call_lost", f"tool_calls[{at}]", sides, words, None, call.seq, after=_before(one, other, call.seq)
        )

    def _call(self, at: int, one: Called, place: int, other: Called) -> Iterator[Apart]:
        field = f"tool_calls[{place}]"
        if one.name != other.name:
            shown = plain_excerpt(one.name), plain_excerpt(other.name)
            words = f"call {at} of {_quoted(one.name)}", f"of {_quoted(other.name)}"
            yield self._apart("call_name", f"{field}.name", shown, words, one.seq, other.seq)
        yield from self._words(f"{field}.arguments", f"arguments of call {at}", one.arguments, other.arguments, one.seq)

    # --- texts

    def _texts(self, one: Voice, other: Voice) -> Iterator[Apart]:
        moved = one.texts["reasoning"].text != other.texts["reasoning"].text and _whole(one) == _whole(other)
        for field, mine in one.texts.items():
            kind: MessageKind = "boundary" if moved and field != "refusal" else "text"
            theirs = other.texts[field]
            after = _before(one, other, theirs.seqs[0]) if theirs.seqs else None
            yield from self._words(field, field, mine, theirs, after, kind)

    def _words(
        self, field: str, label: str, one: Words, other: Words, after: int | None, kind: MessageKind | None = None
    ) -> Iterator[Apart]:
        """``kind``: None for arguments."""
        if one.text == other.text:
            return
        mine, theirs, equal = (text_as if kind else arguments_as)(one, other)
        if equal:
            here = there = first_difference(one.text, other.text)
            kind = "white_space" if kind else "spelling"
        else:
            at = first_difference(mine.text, theirs.text)
            here, there = mine.offset(at), theirs.offset(at)
            # Behind the end of one, white space of the other says nothing yet.
            here = _skipped(one, here) if there >= other.size else here
            there = _skipped(other, there) if here >= one.size else there
            kind = self._kind(one, other, kind)
        if self._sides.open and (here >= one.size or there >= other.size):
            return
        left, right = one.at(here), other.at(there)
        yield self._apart(
            kind, field, (_shown(one, here), _shown(other, there)), (_said(label, one, here), _said("", other, there)),
            None if left is None else left[0], None if right is None else right[0],
            offset=0 if right is None else right[1], after=one.seqs[-1] if one.seqs else after,
        )  # fmt: skip

    def _kind(self, one: Words, other: Words, kind: MessageKind | None) -> MessageKind:
        """What it is to say something else."""
        if kind is None:
            return "call_arguments"
        leaks = any(marker in one.text and marker not in other.text for marker in self._markers)
        return "marker_leaked" if leaks and kind == "text" else kind

    def _finish(self, one: Voice, other: Voice) -> Iterator[Apart]:
        mine, theirs = (None if voice.finish is None else _ENDS.get(voice.finish[0]) for voice in (one, other))
        if mine != theirs and not (self._sides.open and (mine is None or theirs is None)):
            words = f"finish {mine or 'none'}", f"finish {theirs or 'none'}"
            left, right = (None if voice.finish is None else voice.finish[1] for voice in (one, other))
            after = _latest(one)
            yield self._apart("finish_reason", "finish_reason", (mine, theirs), words, left, right, after=after)

    # --- places

    def _apart(
        self, kind: MessageKind, field: str, shown: tuple[str | None, str | None], words: tuple[str, str],
        theirs: int | None, ours: int | None, offset: int = 0, after: int | None = None,
    ) -> Apart:  # fmt: skip
        """``offset``: of the character in our event; ``after``: their last event before what they do not have."""
        sides = self._sides
        step = -1
        if ours is not None:
            step = sides.ours.steps[ours] if sides.foreign else sides.clock.wrote(sides.ours, ours, offset)
        if theirs is not None:
            frame = sides.theirs.causes[theirs]
            step = sides.clock.step_at(frame) if step < 0 else step
        else:
            frame = sides.clock.frame_of(step)
            if frame < 0:
                # It is not known which frame brought the tokens: what is missing is missing where they go on.
                frame = self._next(-1 if after is None else after)
        where = f"upstream's frame {frame}" if frame >= 0 else "the upstream's stream"
        place = f"{where}: {words[0]}; parser {sides.parser}: {words[1]}"
        return Apart(Difference(self._choice, kind, field, *shown, frame=frame, step=step, place=place), theirs, ours)

    def _next(self, after: int) -> int:
        """The frame with which the server's message goes on behind an event."""
        theirs = self._sides.theirs
        for seq in range(after + 1, len(theirs.events)):
            if theirs.events[seq].__class__ in _GOING_ON:
                return theirs.causes[seq]
        return theirs.causes[-1] if theirs.causes else -1


# --- pairs ------------------------------------------------------------------------------------------------------------


def _paired(one: list[Called], other: list[Called]) -> Iterator[tuple[int | None, int | None]]:
    """Calls that belong together, in order: those that say the same first, then by their places."""
    if len(one) == len(other) or max(len(one), len(other)) > _MOST_CALLS:
        yield from _side_by_side(range(len(one)), range(len(other)))
        return
    mine, theirs = ([(call.name, call.arguments.text) for call in calls] for calls in (one, other))
    for _, start, end, begin, stop in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        # Within what differs, those of one name.
        left, right = [call.name for call in one[start:end]], [call.name for call in other[begin:stop]]
        for _, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            yield from _side_by_side(range(start + a, start + b), range(begin + c, begin + d))


def _side_by_side(one: range, other: range) -> Iterator[tuple[int | None, int | None]]:
    for place in range(max(len(one), len(other))):
        yield (one[place] if place < len(one) else None, other[place] if place < len(other) else None)


def _latest(voice: Voice) -> int | None:
    """The last event of a choice that says something."""
    seqs = [
        words.seqs[-1] for words in (*voice.texts.values(), *(call.arguments for call in voice.calls)) if words.seqs
    ]
    return max((*seqs, *(call.seq for call in voice.calls)), default=None)


def _before(one: Voice, other: Voice, seq: int) -> int | None:
    """Their last event of what we said before an event of ours; None where that is nothing."""
    seqs: list[int] = []
    for field, words in other.texts.items():
        place = bisect_left(words.seqs, seq)
        said = min(words.starts[place] if place < len(words.starts) else words.size, one.texts[field].size)
        last = one.texts[field].at(said - 1)
        seqs += [last[0]] if last is not None else []
    for mine, theirs in zip(one.calls, other.calls, strict=False):
        if theirs.seq < seq:
            seqs.append(mine.arguments.seqs[-1] if mine.arguments.seqs else mine.seq)
    return max(seqs, default=None)


# --- words ------------------------------------------------------------------------------------------------------------


def _whole(voice: Voice) -> str:
    # White space at the border is trimmed on either side of it.
    return "".join((voice.texts["reasoning"].text + voice.texts["content"].text).split())


def _skipped(words: Words, at: int) -> int:
    """The next offset that is no white space; the last one where there is none."""
    text = words.text
    while at < words.size - 1 and text[at].isspace():
        at += 1
    return at


def _shown(words: Words, at: int) -> str | None:
    return plain_excerpt(words.text, at) if words.size else None


def _called(call: Called) -> str:
    return f"{plain_excerpt(call.name)} {plain_excerpt(call.arguments.text)}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _said(label: str, words: Words, at: int) -> str:
    """What a side has at an offset."""
    before = f"{label} " if label else ""
    if at < words.size:
        return before + _quoted(words.text[at : at + _SHOWN + 1])
    if not words.size:
        return f"no {label}" if label else "none"
    start = max(0, words.size - _SHOWN // 2)
    return f"{before}{'end' if label.startswith('arg') else 'ends'} after {'…' * (start > 0)}{words.text[start:]!r}"
