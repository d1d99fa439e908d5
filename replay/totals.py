"""What a report says of all sessions together."""

from __future__ import annotations

import msgspec

from replay.result import SessionResult, Signature
from replay.verdict import Mark, Verdict


class Unreadable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source, or one session of it, that could not be read, and why."""

    source: str
    error: str
    session: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions per verdict (``uncompared``: with nothing to compare); ``sessions``: of all verdicts; ``unreadable``:
    sources and sessions that could not be read; ``unreplayed``: sessions of which no stage could be run; ``tokens``:
    recorded tokens of the sessions; ``missing``: sessions of an earlier report that were not met."""

    sessions: int
    same: int = 0
    uncompared: int = 0
    rechunked: int = 0
    moved: int = 0
    restyled: int = 0
    changed: int = 0
    failed: int = 0
    unreadable: int = 0
    unreplayed: int = 0
    tokens: int = 0
    missing: int = 0

    def count(self, verdict: Verdict) -> int:
        """Sessions with this verdict."""
        count: int = getattr(self, verdict)
        return count


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions that differ in the same way. ``example``: the one with the fewest tokens (then by id and source) of
    those in which it reaches the last layer compared, if there are such; ``sessions``: the first of them in that order,
    as (source, id), at most ``CLUSTER_SHOWN``; ``models``: sessions by model."""

    signature: Signature
    count: int
    tokens: int
    models: dict[str, int]
    example: SessionResult
    sessions: tuple[tuple[str, str], ...]


CLUSTER_SHOWN = 50


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions replayed with one parser. ``models``: sessions by model; ``verdicts``: by verdict; ``marks``: by
    what is wrong with the replay; ``lag``: see SessionResult; ``ns``: CPU time of the parser."""

    parser: str
    sessions: int
    tokens: int
    verdicts: dict[Verdict, int]
    marks: dict[Mark, int]
    lag: dict[int, int] = {}
    ns: int = 0
    models: dict[str, int] = {}


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """A mark on both sides of the same sessions: ``both`` have it, only the side ``before`` (the baseline), only the
    side ``after`` (the replay), ``neither``. ``p``: exact McNemar, two-sided; ``rate_before``, ``rate_after``: (rate,
    low, high), Wilson's interval at 95 %."""

    mark: Mark
    both: int
    before: int
    after: int
    neither: int
    p: float
    rate_before: tuple[float, float, float]
    rate_after: tuple[float, float, float]
