"""survey: what a report's sessions say together that its totals do not, in one pass over them and little memory."""

from __future__ import annotations

from collections import Counter

import msgspec

from replay.cut import CUT_SHORT
from replay.report import RunReport
from replay.reports.words import QUIET, not_same, severity, spaced
from replay.result import Breach, SessionResult, Signature
from replay.verdict import VERDICTS, Oracle

HANDFUL = 8
"""As many sessions that are not the same are kept to be shown one by one."""
_DISTINCT = 10_000
"""Different notes that are counted; some have numbers in them."""


class Weighed(msgspec.Struct):
    """Sessions that are not the same, by what is wrong with them on either side. ``better``: something went that was
    wrong, and nothing came; ``worse``: something came; ``neither``: the same is wrong, or nothing."""

    better: int = 0
    worse: int = 0
    neither: int = 0

    def add(self, result: SessionResult) -> None:
        """One more."""
        way = way_of(result)
        self.worse += way > 0
        self.better += way < 0
        self.neither += way == 0


def way_of(result: SessionResult) -> int:
    """1: something is wrong that was not; -1: something that was wrong is not, and nothing else is; 0: as before. Of a
    side whose parser failed nothing else is known: the other one is the better, whatever is wrong with it."""
    before, after = set(result.marks_before), set(result.marks)
    if ("failed" in before) != ("failed" in after):
        return 1 if "failed" in after else -1
    return 1 if after - before else -1 if before - after else 0


class Survey(msgspec.Struct):
    """``told``: what is said once a kind, not once a session, with how many say it, the most frequent first; ``other``:
    how often something else was said; ``appeared``, ``gone``: faults and rules of the protocol, by sessions;
    ``breached``: sessions in which an oracle is broken, ``broken``: the smallest of each; ``pair``: the session with
    the smallest pair of splits; ``cuts``: places at which sessions were cut short, ``cut``: those sessions,
    ``cut_broken``: those of them in which something is broken at such a place, or the parser fails; ``nowhere``: splits
    that no session allows; ``few``: the sessions that are not the same, the worst last; empty where there are more than
    HANDFUL; ``weighed``: how those fare that are not the same, ``kinds``: likewise, kind by kind."""

    told: list[tuple[str, int]] = []
    other: int = 0
    appeared: Counter[str] = msgspec.field(default_factory=Counter[str])
    gone: Counter[str] = msgspec.field(default_factory=Counter[str])
    breached: Counter[Oracle] = msgspec.field(default_factory=Counter[Oracle])
    broken: dict[Oracle, SessionResult] = {}
    pair: SessionResult | None = None
    cuts: int = 0
    cut: int = 0
    cut_broken: int = 0
    nowhere: tuple[str, ...] = ()
    few: list[SessionResult] = []
    weighed: Weighed = msgspec.field(default_factory=Weighed)
    kinds: dict[Signature, Weighed] = {}


def survey(report: RunReport) -> Survey:
    """Read the sessions once."""
    found = Survey()
    told: Counter[str] = Counter()
    nowhere = set(report.splits)
    few = not_same(report) <= HANDFUL
    for result in report.sessions:
        for text in _told(result):
            if text in told or len(told) < _DISTINCT:
                told[text] += 1
            else:
                found.other += 1
        found.appeared.update(_named(result.faults_appeared, result.rules_appeared))
        found.gone.update(_named(result.faults_gone, result.rules_gone))
        _oracles(found, result)
        if nowhere:
            nowhere.intersection_update(result.not_compared)
        if result.split_pair is not None and (found.pair is None or _size(result) < _size(found.pair)):
            found.pair = result
        if result.verdict not in QUIET:
            found.weighed.add(result)
            if result.signature is not None:
                found.kinds.setdefault(result.signature, Weighed()).add(result)
            if few:
                found.few.append(result)
    found.told = sorted(told.items(), key=lambda item: (-item[1], item[0]))
    found.nowhere = tuple(split for split in report.splits if split in nowhere) if report.summary.sessions else ()
    found.few.sort(key=_harm)
    return found


def _harm(result: SessionResult) -> tuple[bool, int, int, str]:
    """The most harmful last: what got worse, then by verdict, then by what it does to the message."""
    kind = "" if result.signature is None else result.signature.kind
    return way_of(result) > 0, VERDICTS.index(result.verdict), -severity(kind), result.session


def _oracles(found: Survey, result: SessionResult) -> None:
    oracles: set[Oracle] = {breach.oracle for breach in result.breaches}
    for oracle in oracles:
        found.breached[oracle] += 1
        known = found.broken.get(oracle)
        if known is None or _key(result) < _key(known):
            found.broken[oracle] = result
    if result.cuts:
        found.cuts += result.cuts
        found.cut += 1
        found.cut_broken += result.error is not None or any(is_cut(breach) for breach in result.breaches)


def is_cut(breach: Breach) -> bool:
    """It shows where a session was cut short."""
    return breach.split.startswith("cut:")


def breach_of(found: Survey, oracle: Oracle) -> tuple[SessionResult, Breach]:
    """The smallest session that breaks an oracle, and how."""
    result = found.broken[oracle]
    return result, next(breach for breach in result.breaches if breach.oracle == oracle)


def _key(result: SessionResult) -> tuple[int, str, str]:
    return result.tokens, result.session, result.source


def _told(result: SessionResult) -> list[str]:
    """What is to be known of a session that is not shown, and which of its stages are not those of the record."""
    told = [
        f"{name}: recorded with {recorded or 'none'}, replayed with {present or 'none'}"
        for name, (recorded, present) in result.stages.items()
    ]
    if result.verdict in QUIET:
        # Of the cuts, the oracles and their examples tell.
        told += [note for note in result.notes if not note.startswith(CUT_SHORT)]
    if result.unreplayed:
        told.append(f"not replayed: {result.unreplayed}")
    if result.uncompared:
        told.append(f"message not compared: {result.uncompared}")
    if result.verdict == "restyled":
        kinds = sorted({spaced(item.kind) for item in result.differences})
        told.append(f"restyled: the message differs in {' and '.join(kinds) or 'white space or spelling'} only")
    return told


def _named(faults: tuple[str, ...], rules: tuple[str, ...]) -> set[str]:
    return {*(f"fault {code}" for code in faults), *(f"rule {code}" for code in rules)}


def faults_and_rules(found: Counter[str]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What is new or gone, apart, the most frequent first: faults as they are, rules by their codes."""
    most = found.most_common()
    rules = [(name.removeprefix("rule "), count) for name, count in most if name.startswith("rule ")]
    return [(name, count) for name, count in most if not name.startswith("rule ")], rules


def _size(result: SessionResult) -> tuple[int, int, str, str]:
    """How much there is to a session's pair of splits."""
    pair = result.split_pair
    joined = 0 if pair is None else sum(end - start for start, end in (*pair.groups, *pair.other))
    return joined, *_key(result)
