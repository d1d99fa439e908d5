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
from replay.foreign.stage import is_foreign_name
from replay.message_diff import differences, shortened
from replay.message_place import place, words_of
from replay.style import arguments_as, text_as
from replay.verdict import MESSAGE_KINDS, STYLE, Depth, Difference, MessageKind, Verdict, worst
from replay.visible import timing
from replay.voice import Voice, voices
from stages.message import Message
from stages.opening import Opening
from store.api import SHADOW


def is_foreign(stage: Any) -> bool:
    """The stage is another engine's parser."""
    return getattr(stage, "foreign", False) is True


def is_foreign_track(track: str) -> bool:
    """What is recorded there is another engine's parser's: that of a shadow."""
    return track.startswith(SHADOW) and is_foreign_name(track.removeprefix(SHADOW))


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
        found = custom.kept(_said(session.opening, recorded, replayed, before, after))
    verdict = verdict_of(found)
    layers: dict[str, Verdict] = {"message": verdict}
    first = place(session.inputs, recorded, replayed, found) if found else None
    if verdict == "same" and depth != "message" and not custom.given:
        layers["timing"], first = timing(recorded, replayed, session.inputs)
    return Comparison(layers, worst(*layers.values()), first, found)


def verdict_of(found: Sequence[Difference]) -> Verdict:
    """That of messages with these differences."""
    if not found:
        return "same"
    return "restyled" if all(item.kind in STYLE for item in found) else "changed"


def said(opening: Opening, recorded: Track, replayed: Track) -> tuple[Difference, ...]:
    """What the messages of two tracks of one session say otherwise."""
    before, after = (bare(track.messages(named=opening.ask.named)) for track in (recorded, replayed))
    return _said(opening, recorded, replayed, before, after)


def _said(
    opening: Opening, recorded: Track, replayed: Track, before: Sequence[Message], after: Sequence[Message]
) -> tuple[Difference, ...]:
    events = chain(recorded.events, replayed.events)
    return _styled(differences(before, after, events, opening.tokenizer), recorded, replayed)


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
        mine, theirs = words_of(item, one), words_of(item, other)
        kind: MessageKind = item.kind
        if mine is not None and theirs is not None:
            if item.field in one.texts and text_as(mine, theirs)[2]:
                kind = "white_space"
            elif item.field not in one.texts and arguments_as(mine, theirs)[2]:
                kind = "spelling"
        made.append(item if kind == item.kind else msgspec.structs.replace(item, kind=kind))
    return tuple(sorted(made, key=lambda item: (item.choice, MESSAGE_KINDS.index(item.kind))))
