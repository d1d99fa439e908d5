"""weigh: which of two sides is the better one, session by session and kind by kind; the headline says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from replay.report import RunReport
from replay.reports.survey import Survey, Weighed
from replay.reports.words import QUIET, counted, not_same, severity
from replay.totals import Cluster
from replay.verdict import VERDICTS, Verdict

Sense: TypeAlias = Literal["better", "worse", "mixed", "neither", ""]
"""Of a kind: all that changed its marks did so for the better, for the worse, some each way, none. "": there is no
other parser or run to be better than."""
_ORDER: tuple[Sense, ...] = ("worse", "mixed", "", "neither", "better")
BETTER_MEANS = (
    "better: something that was wrong with the session is not wrong now, and nothing else is; worse: something is wrong"
    " that was not."
)


def sense_of(report: RunReport, seen: Survey, cluster: Cluster) -> Sense:
    """What its sessions have become."""
    if not report.baseline:
        return ""
    found = seen.kinds.get(cluster.signature, Weighed())
    if found.worse:
        return "mixed" if found.better else "worse"
    return "better" if found.better else "neither"


def ranked(report: RunReport, seen: Survey) -> list[Cluster]:
    """The kinds, the most harmful first: what got worse, then by verdict, by what it does to the message, by how
    often."""

    def harm(cluster: Cluster) -> tuple[int, int, int, int]:
        return _ORDER.index(sense_of(report, seen, cluster)), *_harm(cluster)

    return sorted(report.clusters, key=harm)


def _harm(cluster: Cluster) -> tuple[int, int, int]:
    signature = cluster.signature
    return -VERDICTS.index(signature.verdict), severity(signature.kind), -cluster.count


def worst_of(report: RunReport, seen: Survey) -> Cluster | None:
    """The kind that does the most harm; None where there is none: all that changed has become better, say."""
    first = next(iter(ranked(report, seen)), None)
    return None if first is None or sense_of(report, seen, first) in ("better", "neither") else first


def headline(report: RunReport, seen: Survey) -> str:
    """How many sessions are not the same, for better or worse, and in how many kinds."""
    summary, shown = report.summary, not_same(report)
    if not summary.sessions:
        return "No session was replayed"
    if not shown:
        alike = summary.sessions - summary.uncompared - summary.restyled
        left = f"; {counted(summary.uncompared, 'session')} could not be compared" if summary.uncompared else ""
        if summary.uncompared == summary.sessions:
            return f"Nothing could be compared in {counted(summary.sessions, 'session')}"
        return f"Nothing changed in {counted(alike, 'session')}{left}"
    kinds = f", in {counted(len(report.clusters), 'kind')}" if report.clusters else ""
    told = [f"{summary.count(verdict):,} {verdict}" for verdict in _present(report)]
    judged = f": {_judged(seen.weighed)}" if report.baseline else ""
    return f"{', '.join(told)} of {counted(summary.sessions, 'session')}{kinds}{judged}"


def _present(report: RunReport) -> Iterable[Verdict]:
    return [verdict for verdict in reversed(VERDICTS) if verdict not in QUIET and report.summary.count(verdict)]


def _judged(found: Weighed) -> str:
    neither = f", {found.neither:,} neither" if found.neither else ""
    return f"{found.better:,} better, {found.worse:,} worse{neither}"
