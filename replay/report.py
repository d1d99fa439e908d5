"""The report of a run: a documented JSON object, a digest that no order changes, an exit code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec
from msgspec import UNSET, UnsetType

from replay.result import SessionResult, Signature
from replay.run import at_least
from replay.verdict import VERDICTS, Depth, Mark, Verdict


class Unreadable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source, or one session of it, that could not be read, and why."""

    source: str
    error: str
    session: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions per verdict (``uncompared``: with nothing to compare); ``sessions``: of all verdicts; ``unreadable``:
    sources and sessions that could not be read; ``tokens``: recorded tokens of the sessions."""

    sessions: int
    same: int = 0
    uncompared: int = 0
    rechunked: int = 0
    moved: int = 0
    restyled: int = 0
    changed: int = 0
    failed: int = 0
    unreadable: int = 0
    tokens: int = 0

    def count(self, verdict: Verdict) -> int:
        """Sessions with this verdict."""
        count: int = getattr(self, verdict)
        return count


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions that differ in the same way. ``example``: the one with the fewest tokens (then by id and source);
    ``sessions``: the first of them in that order, as (source, id), at most ``CLUSTER_SHOWN``; ``models``: sessions by
    model."""

    signature: Signature
    count: int
    tokens: int
    models: dict[str, int]
    example: SessionResult
    sessions: tuple[tuple[str, str], ...]


CLUSTER_SHOWN = 50


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions replayed with one parser. ``verdicts``: sessions by verdict; ``marks``: by what is wrong with the
    replay; ``lag``: see SessionResult; ``ns``: CPU time of the parser."""

    parser: str
    sessions: int
    tokens: int
    verdicts: dict[Verdict, int]
    marks: dict[Mark, int]
    lag: dict[int, int] = {}
    ns: int = 0


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


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run over sources. ``playhead``: the version that made it; ``parser``: as given, None for each session's own;
    ``layer``: how deep was compared; ``digest``: equal for two runs whose sessions replay the same, in any order;
    ``track``: what was compared with, where that was asked for."""

    playhead: str
    parser: str | None
    sources: tuple[str, ...]
    splits: tuple[str, ...]
    layer: Depth
    summary: Summary
    digest: str
    sessions: tuple[SessionResult, ...]
    unreadable: tuple[Unreadable, ...] = ()
    track: str | UnsetType = UNSET


def make_report(
    results: Sequence[SessionResult],
    unreadable: Sequence[Unreadable],
    *,
    parser: str | None,
    sources: Sequence[str],
    splits: Sequence[str],
    layer: Depth,
    track: str | None = None,
) -> RunReport:
    """The report of these results."""
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS}
    summary = Summary(
        sessions=len(results), unreadable=len(unreadable), tokens=sum(result.tokens for result in results), **counts
    )
    return RunReport(
        playhead=_version(), parser=parser, sources=tuple(sources), splits=tuple(splits), layer=layer, summary=summary,
        digest=run_digest(results), sessions=tuple(results), unreadable=tuple(unreadable),
        track=UNSET if track is None else track,
    )  # fmt: skip


def run_digest(results: Sequence[SessionResult]) -> str:
    """SHA-256 (hex) over the sorted (session, result digest) pairs."""
    hashed = hashlib.sha256()
    for session, digest in sorted((result.session, result.digest) for result in results):
        hashed.update(f"{session} {digest}\n".encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def exit_code(report: RunReport, fail_on: Verdict = "changed") -> int:
    """0: every session is nearer to ``same`` than ``fail_on``; 1: one is not; 3: something could not be read, or
    not replayed for want of its parser, whatever else was found. (2, wrong usage, raises ReplayError: no report.)"""
    if report.unreadable or any(result.unreplayed for result in report.sessions):
        return 3
    return int(any(at_least(result.verdict, fail_on) for result in report.sessions))


def to_json(report: RunReport) -> bytes:
    """The report as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def from_json(data: bytes) -> RunReport:
    """What ``to_json`` wrote. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return msgspec.json.decode(data, type=RunReport)


def _version() -> str:
    try:
        return version("playhead")
    except PackageNotFoundError:
        return "unknown"
