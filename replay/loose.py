"""loose: a comparison in which a side is another engine's parser: what it says, and when, whatever its events are.

Its events have no markers, no byte ranges and call ids of their own, and it tells no faults. So ids, faults and whether
a call is complete are left out, and a finish is compared by its class. As with another server's message, white space at
the ends of texts and how the JSON of arguments is written are a matter of style (``restyled``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from replay.derive import Track
from replay.diff import Comparison, Session
from replay.message_diff import differences, shortened
from replay.style import arguments_as, text_as
from replay.text import describe, first_difference, tag
from replay.verdict import MESSAGE_KINDS, STYLE, Depth, Difference, Divergence, MessageKind, Side, Verdict, worst
from replay.visible import timing
from replay.voice import Called, Voice, Words, voices
from stages.message import Message


def is_foreign(stage: Any) -> bool:
    """The stage is another engine's parser."""
    return getattr(stage, "foreign", False) is True


def compare(session: Session, recorded: Track, replayed: Track, depth: Depth = "frame") -> Comparison:
    """Compare two tracks of one session by their messages; of the same messages, below the depth ``message``, by when
    they are sent. Raises ReplayError for what a custom function raises."""
    named, custom = session.opening.ask.named, session.custom
    before, after = (bare(track.messages(named=named)) for track in (recorded, replayed))
    if session.open:
        after = shortened(before, after)
    if custom.compare is not None:
        found = custom.compared(before, after)
    else:
        events = chain(recorded.events, replayed.events)
        said = differences(before, after, events, session.opening.tokenizer)
        found = custom.kept(_styled(said, recorded, replayed))
    verdict: Verdict = "same"
    if found:
        verdict = "restyled" if all(item.kind in STYLE for item in found) else "changed"
    layers: dict[str, Verdict] = {"message": verdict}
    first = place(session, recorded, replayed, found) if found else None
    if verdict == "same" and depth != "message" and not custom.given:
        layers["timing"], first = timing(recorded, replayed, session.inputs)
    return Comparison(layers, worst(*layers.values()), first, found)


def bare(messages: Sequence[Message]) -> list[Message]:
    """The messages without what cannot be equal."""
    return [
        msgspec.structs.replace(
            message,
            tool_calls=tuple(msgspec.structs.replace(call, id="", complete=True) for call in message.tool_calls),
            # That a choice ends for its calls depends on whether they are complete.
            finish_reason="stop" if message.finish_reason == "tool_calls" else message.finish_reason,
            faults=(),
        )
        for message in messages
    ]


def _styled(found: Sequence[Difference], recorded: Track, replayed: Track) -> tuple[Difference, ...]:
    """The differences, those that are a matter of style told as such."""
    if not found:
        return ()
    before, after = voices(recorded.events), voices(replayed.events)
    made: list[Difference] = []
    for item in found:
        one, other = before.get(item.choice, Voice()), after.get(item.choice, Voice())
        mine, theirs = _words(item, one), _words(item, other)
        kind: MessageKind = item.kind
        if mine is not None and theirs is not None:
            if item.field in one.texts and text_as(mine, theirs)[2]:
                kind = "white_space"
            elif item.field not in one.texts and arguments_as(mine, theirs)[2]:
                kind = "spelling"
        made.append(item if kind == item.kind else msgspec.structs.replace(item, kind=kind))
    return tuple(sorted(made, key=lambda item: (item.choice, MESSAGE_KINDS.index(item.kind))))


def _words(item: Difference, voice: Voice) -> Words | None:
    """The text that a difference is in; None: it is in no text."""
    if item.field in voice.texts:
        return voice.texts[item.field]
    called = _called(item, voice)
    return called.arguments if called is not None and item.kind in ("call_arguments", "spelling") else None


def _called(item: Difference, voice: Voice) -> Called | None:
    """The call that a difference is in."""
    place = item.field.removeprefix("tool_calls[").partition("]")[0]
    return voice.calls[int(place)] if place.isdecimal() and int(place) < len(voice.calls) else None


def place(session: Session, recorded: Track, replayed: Track, found: Sequence[Difference]) -> Divergence:
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
    inputs = session.inputs
    return Divergence(
        layer="semantic", kind=item.kind, seq=known[0].seq if known else -1, cause=cause,
        input=describe(inputs[cause]) if 0 <= cause < len(inputs) else "", choice=item.choice, detail=item.field,
        recorded=sides[0], replayed=sides[1], worst=item.kind,
    )  # fmt: skip


def _seq(item: Difference, mine: Voice, theirs: Voice) -> int | None:
    """The event of mine that brings what differs; None where nothing does."""
    words, others = _words(item, mine), _words(item, theirs)
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
