"""The report of a run: a documented JSON object, a digest that no order changes, an exit code."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET, UnsetType

from replay import stats
from replay.mass.spool import Results
from replay.mass.tally import Digest, Tally
from replay.result import SessionResult
from replay.run import at_least
from replay.totals import CLUSTER_SHOWN, Cluster, Family, Paired, Summary, Unreadable
from replay.verdict import VERDICTS, Depth, Verdict


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run over sources. ``playhead``: the version that made it; ``parser``: as given, None for each session's own;
    ``layer``: how deep was compared; ``digest``: equal for two runs whose sessions replay the same, in any order;
    ``track``, ``baseline``: what was compared with, where that was asked for; ``cut``: sessions were also cut short;
    ``compare``, ``ignore``, ``peer_python``, ``tokenizer``: as given; ``seconds``: how long it took, with ``jobs``
    processes; ``interrupted``: it was ended before its end.

    ``clusters``: sessions that differ in the same way, the largest first; ``families``: sessions by parser; ``paired``:
    what is wrong on both sides; ``lag``: of all sessions; ``unreadable``: at most 1000 of them, ``summary`` counts all.
    ``missing``: sessions of the earlier report that is the baseline which this run did not meet, of those that it was
    to replay; at most 1000 ids, ``summary`` counts all. ``counted_once``: sources, and files in them, that were given
    more than once; at most 1000. ``left_out``: files in folders that hold results of a replay, or its report; at most
    1000. ``sessions``: read from a file as they are asked for, so ask
    once for all of them.
    """

    playhead: str
    parser: str | None
    sources: tuple[str, ...]
    splits: tuple[str, ...]
    layer: Depth
    summary: Summary
    digest: str
    track: str | UnsetType = UNSET
    baseline: str | UnsetType = UNSET
    cut: bool = False
    compare: str | None = None
    ignore: tuple[str, ...] = ()
    peer_python: tuple[str, ...] = ()
    tokenizer: str | None = None
    seconds: float = 0.0
    jobs: int = 1
    interrupted: bool = False
    clusters: tuple[Cluster, ...] = ()
    families: tuple[Family, ...] = ()
    paired: tuple[Paired, ...] = ()
    lag: dict[int, int] = {}
    unreadable: tuple[Unreadable, ...] = ()
    missing: tuple[str, ...] = ()
    counted_once: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    sessions: Sequence[SessionResult]


def make_report(
    results: Iterable[SessionResult],
    unreadable: Iterable[Unreadable],
    *,
    parser: str | None,
    sources: Sequence[str],
    splits: Sequence[str],
    layer: Depth,
    track: str | None = None,
) -> RunReport:
    """The report of these results, which it keeps in memory."""
    held = list(results)
    tally = Tally()
    for place, result in enumerate(held):
        tally.add(result, place)
    for at, item in enumerate(unreadable):
        tally.unreadable(item, at)
    return concluded(
        tally, held, held.__getitem__, parser=parser, sources=tuple(sources), splits=tuple(splits), layer=layer,
        track=UNSET if track is None else track,
    )  # fmt: skip


def concluded(tally: Tally, sessions: Sequence[SessionResult], read: Any, **fields: Any) -> RunReport:
    """The report of totals. ``read``: the result at a place, as the tally was told; ``fields``: what else it says."""
    return RunReport(
        playhead=playhead_version(), summary=tally.summary(), digest=tally.digest.hex(),
        clusters=tally.clusters(read), families=tally.families(), paired=tally.paired(stats.paired),
        lag=dict(sorted(tally.lag.items())), unreadable=tally.unreadables(), missing=tally.missed(),
        counted_once=tally.counted_once(), left_out=tally.left_out(), sessions=sessions, **fields,
    )  # fmt: skip


def run_digest(results: Iterable[SessionResult]) -> str:
    """The sum, modulo 2**256, of the SHA-256 of each ``session digest`` line, as 64 hexadecimal characters."""
    digest = Digest()
    for result in results:
        digest.add(result.session, result.digest)
    return digest.hex()


def exit_code(report: RunReport, fail_on: Verdict = "changed") -> int:
    """0: every session is nearer to ``same`` than ``fail_on``; 1: one is not; 3: something could not be read, or
    not replayed for want of its parser, whatever else was found; 130: it was interrupted. (2, wrong usage, raises
    ReplayError: no report.)"""
    if report.interrupted:
        return 130
    if report.summary.unreadable or report.summary.unreplayed:
        return 3
    return int(any(report.summary.count(verdict) for verdict in VERDICTS if at_least(verdict, fail_on)))


def write_json(report: RunReport, file: BinaryIO) -> None:
    """Write the report as one JSON object: a field a line, then ``sessions``, the last field, with each session on a
    line of its own that begins with ``{``, so that it can be read as a stream. Raises OSError."""
    file.write(b"{\n")
    for name in report.__struct_fields__:
        value: Any = getattr(report, name)
        if name != "sessions" and value is not UNSET:
            file.write(b'"%s": %s,\n' % (name.encode(), msgspec.json.encode(value)))
    file.write(b'"sessions": [')
    separator = b"\n"
    for line in _lines(report.sessions):
        file.write(separator + line)
        separator = b",\n"
    file.write(b"\n]\n}\n")


def _lines(sessions: Sequence[SessionResult]) -> Iterator[bytes]:
    if isinstance(sessions, Results):
        yield from sessions.raw()
    else:
        yield from map(msgspec.json.encode, sessions)


def to_json(report: RunReport) -> bytes:
    """What ``write_json`` writes."""
    out = io.BytesIO()
    write_json(report, out)
    return out.getvalue()


def from_json(data: bytes) -> RunReport:
    """What ``to_json`` wrote, all in memory. Raises msgspec.ValidationError, msgspec.DecodeError."""
    return msgspec.json.decode(data, type=RunReport)


def playhead_version() -> str:
    """The version that is installed."""
    try:
        return version("playhead")
    except PackageNotFoundError:
        return "unknown"


__all__ = [
    "CLUSTER_SHOWN", "Cluster", "Family", "Paired", "RunReport", "Summary", "Unreadable", "concluded", "exit_code",
    "from_json", "make_report", "playhead_version", "run_digest", "to_json", "write_json",
]  # fmt: skip
