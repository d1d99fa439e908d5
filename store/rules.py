"""What all stores do alike."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias, TypedDict, TypeVar

import msgspec

from stages.events import LAYERS, Layer
from stages.opening import Opening
from store.api import (
    SHADOW,
    Batch,
    Digest,
    Mode,
    Overtaken,
    Record,
    SequenceConflict,
    SessionInfo,
    SessionNotFound,
    ShadowVerdict,
    StillOpen,
    Trace,
)

Key: TypeAlias = tuple[str, Layer]
"""(track, layer)."""

T = TypeVar("T")


class Call(TypedDict):
    """A tool call of a final message."""

    id: str
    name: str
    arguments: str


class Said(TypedDict, total=False):
    """A final message, as SessionInfo has it."""

    reasoning: str | None
    content: str | None
    refusal: str | None
    tool_calls: list[Call]


def ordered(layers: Mapping[Key, T]) -> dict[Key, T]:
    """By layer, then by track: the order of every trace."""
    return dict(sorted(layers.items(), key=lambda item: (LAYERS.index(item[0][1]), item[0][0])))


def kept(layers: Mapping[Key, T], only: Collection[Key] | None) -> dict[Key, T]:
    """Those that were asked for; None: all."""
    return {key: held for key, held in layers.items() if only is None or key in only}


class Counters:
    """The numbers of ``stats()``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = dict.fromkeys(
            ("batches", "records", "commits", "bytes", "lost_records", "failures"), 0
        )

    def add(self, **counts: int) -> None:
        """Add to some."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def get(self) -> dict[str, int]:
        """A copy."""
        with self._lock:
            return dict(self._counts)


def check_batch(batch: Batch, following: int) -> None:
    """Raises ValueError where the batch would leave a hole, or its columns differ in length."""
    n = len(batch.events)
    if not 0 <= batch.first_seq <= following or (batch.causes and len(batch.causes) != n):
        raise ValueError(
            f"{batch.track}/{batch.layer}: seq {batch.first_seq} with {n} events and {len(batch.causes)} causes "
            f"cannot follow {following} records"
        )


def stored_in(mode: Mode, track: str, layer: Layer) -> bool:
    """Whether the records are kept. ``lean`` keeps facts: the engine layer, what another server sent, and what the
    socket took."""
    return mode == "full" or layer == "engine" or track == "socket" or (track == "upstream" and layer == "frame")


def saved_info(trace: Trace) -> SessionInfo:
    """The projection of an imported session. An open one has no writer here, and never will have."""
    counts = {f"{track}/{layer}": len(records) for (track, layer), records in trace.records.items() if records}
    state = "torn" if trace.info.state == "open" else trace.info.state
    return msgspec.structs.replace(trace.info, session=trace.opening.session, state=state, events=counts)


def check_ended(info: SessionInfo) -> None:
    """Raises StillOpen."""
    if info.state == "open":
        raise StillOpen(f"session {info.session} is still being recorded; wait for its end.")


def check_known(opening: Opening, known: Collection[str], there: Collection[str]) -> None:
    """See ``EventStore.writer``. ``there``: the sessions of its conversation. Raises Overtaken."""
    if {*known} != {*there} - {opening.session}:
        raise Overtaken(f"session {opening.session}: its conversation {opening.conversation} went on meanwhile.")


def noted(info: SessionInfo, rules: Mapping[str, int], errors: int) -> SessionInfo:
    """The projection with what the protocol rules found. Raises StillOpen."""
    check_ended(info)
    return msgspec.structs.replace(info, validated=True, rules=dict(sorted(rules.items())), rule_errors=errors)


LIVE = frozenset(("input", "served", "upstream", "socket"))
"""The tracks that a recording writes to."""


def check_attached(
    track: str, records: Mapping[Layer, Sequence[Record]], verdict: ShadowVerdict | None
) -> dict[Key, list[Record]]:
    """What ``attach`` was given, by track and layer, without empty layers. Raises ValueError."""
    if not track or track in LIVE:
        raise ValueError(f"nothing is attached to track {track!r}: name one that no recording writes to")
    if (verdict is None) == track.startswith(SHADOW):
        raise ValueError(f"track {track!r}, verdict {verdict}: a track {SHADOW}P has one, and no other track")
    for layer, held in records.items():
        if any(record.seq != seq for seq, record in enumerate(held)):
            raise ValueError(f"{track}/{layer}: the records are not numbered from 0 without gaps")
    return {(track, layer): list(held) for layer, held in records.items() if held}


def attached(
    info: SessionInfo,
    track: str,
    verdict: ShadowVerdict | None,
    counts: Mapping[Key, int],
    digests: Mapping[Key, Digest],
) -> SessionInfo:
    """The projection with layers that were added, of which these are the counts or digests, and their verdict."""
    return msgspec.structs.replace(
        info,
        events={**info.events, **{"/".join(key): n for key, n in counts.items()}},
        digests={**info.digests, **{"/".join(key): digest for key, digest in digests.items()}},
        shadows=shadowed(info.shadows, track, verdict),
    )


def shadowed(
    shadows: Mapping[str, ShadowVerdict], track: str, verdict: ShadowVerdict | None
) -> dict[str, ShadowVerdict]:
    """The verdicts of other parsers with that of a track."""
    found = dict(shadows)
    if verdict is not None:
        found[track.removeprefix(SHADOW)] = verdict
    return {name: found[name] for name in sorted(found)}


def fresh(session: str, given: Mapping[Key, T], there: Mapping[Key, T]) -> dict[Key, T]:
    """Of the layers to attach, those that are not there. Raises SequenceConflict for one that is there with other
    records."""
    for (track, layer), held in given.items():
        if there.get((track, layer), held) != held:
            raise SequenceConflict(
                f"session {session}, {track}/{layer}: other records are stored there already; nothing was changed."
            )
    return {key: held for key, held in given.items() if key not in there}


def not_found(session: str, candidates: list[str]) -> SessionNotFound:
    """Why an id or prefix names no session. ``candidates``: some of the ids that begin so."""
    if len(candidates) > 1:
        return SessionNotFound(
            f"{session!r} begins several sessions ({', '.join(candidates[:3])}); give more of the id."
        )
    return SessionNotFound(f"no session {session!r}; `playhead sessions list` shows what there is.")
