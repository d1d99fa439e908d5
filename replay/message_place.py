"""message_place: the events at which two sides part, found by what their messages say otherwise: for sides of which
nothing but the message is compared."""

from __future__ import annotations

from collections.abc import Sequence

from replay.derive import Track
from replay.text import describe, first_difference, tag
from replay.verdict import STYLE, Difference, Divergence, Side
from replay.voice import Called, Voice, Words, voices
from stages.events import Input


def words_of(item: Difference, voice: Voice) -> Words | None:
    """The text that a difference is in; None: it is in no text."""
    if item.field in voice.texts:
        return voice.texts[item.field]
    called = _called(item, voice)
    return called.arguments if called is not None and item.kind in ("call_arguments", "spelling") else None


def _called(item: Difference, voice: Voice) -> Called | None:
    """The call that a difference is in."""
    place = item.field.removeprefix("tool_calls[").partition("]")[0]
    return voice.calls[int(place)] if place.isdecimal() and int(place) < len(voice.calls) else None


def place(inputs: Sequence[Input], recorded: Track, replayed: Track, found: Sequence[Difference]) -> Divergence:
    """Where the first telling difference is: the events at which the sides part, where there are any."""
    item = next((item for item in found if item.kind not in STYLE), found[0])
    before, after = (voices(track.events).get(item.choice, Voice()) for track in (recorded, replayed))
    one, other = _seq(item, before, after), _seq(item, after, before)
    sides = [
        None if seq is None else Side(seq, track.steps[seq], describe(track.events[seq]), tag(track.events[seq]))
        for seq, track in ((one, recorded), (other, replayed))
    ]
    known = [side for side in sides if side is not None]
    cause = min((side.cause for side in known), default=-1)
    return Divergence(
        layer="semantic", kind=item.kind, seq=known[0].seq if known else -1, cause=cause,
        input=describe(inputs[cause]) if 0 <= cause < len(inputs) else "", choice=item.choice,
        detail=_detail(item, before, after), recorded=sides[0], replayed=sides[1], worst=item.kind,
    )  # fmt: skip


def _detail(item: Difference, before: Voice, after: Voice) -> str:
    """What differs: of a text the first character that does."""
    one, other = words_of(item, before), words_of(item, after)
    if one is None or other is None:
        return item.field
    return f"text at character {first_difference(one.text, other.text)}"


def _seq(item: Difference, mine: Voice, theirs: Voice) -> int | None:
    """The event of mine that brings what differs; None where nothing does."""
    words, others = words_of(item, mine), words_of(item, theirs)
    if words is not None:
        at = words.at(first_difference(words.text, others.text if others is not None else ""))
        return None if at is None else at[0]
    if item.field == "finish_reason":
        return None if mine.finish is None else mine.finish[1]
    if item.field == "tool_calls":
        # The first one that the other side has not, or calls otherwise.
        same = zip(mine.calls, theirs.calls, strict=False)
        place = next(
            (at for at, (a, b) in enumerate(same) if a.name != b.name), min(len(mine.calls), len(theirs.calls))
        )
        return mine.calls[place].seq if place < len(mine.calls) else None
    called = _called(item, mine)
    return None if called is None else called.seq
