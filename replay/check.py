"""Cases under splits, and what fails: the checks behind ``playhead check``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from replay.cases import Calls, Case, differences, read_cases, run_case, stage_of
from replay.errors import BadCase, BadSplit, NotAvailable, ParserNotFound
from replay.expected import Mismatch
from replay.resolve import Parser

Policies: TypeAlias = Literal["both", "incremental", "whole"]


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A case that does not hold: under these splits with this outcome. ``parser``: the stage's id."""

    id: str
    where: str
    parser: str
    calls: Calls
    splits: tuple[str, ...]
    differences: tuple[Mismatch, ...]


class Unread(msgspec.Struct, frozen=True):
    """What could not be read, or run for want of its parser. ``where``: the file, or FILE:LINE."""

    where: str
    error: str


class CheckReport(msgspec.Struct, kw_only=True):
    """All that was found. ``runs``: a case under a split and a policy; ``cases``: those that were run; ``failing``: of
    these, those that do not hold; ``notes``: what is odd, or was not compared."""

    cases: int = 0
    failing: int = 0
    runs: int = 0
    failed: list[Failed] = []
    unreadable: list[Unread] = []
    notes: list[str] = []


def check_files(
    paths: Iterable[str],
    splits: Sequence[str] | None = None,
    calls: Policies = "incremental",
    parser: str | None = None,
    *,
    trim: bool = False,
    on_failed: Callable[[Failed], None] | None = None,
) -> CheckReport:
    """Run every case of the files. ``splits``: None is all that apply to a case; ``calls``: for cases that do not say
    it themselves; ``parser``: instead of the cases' own; ``on_failed``: told at once."""
    run = _Run(splits, calls, parser, trim)
    report = run.report
    for path in paths:
        before = report.cases, len(report.unreadable)
        for case in read_cases(path, run.unreadable):
            for one in run.check(case):
                if on_failed is not None:
                    on_failed(one)
        if before == (report.cases, len(report.unreadable)):
            report.unreadable.append(Unread(path, "there is no case in it"))
    return report


class _Run:
    def __init__(self, splits: Sequence[str] | None, calls: Policies, parser: str | None, trim: bool) -> None:
        self.splits = splits
        self.calls: Policies = calls
        self.parser = parser
        self.trim = trim
        self.known: dict[str, Parser] = {}
        self.report = CheckReport()

    def unreadable(self, error: BadCase) -> None:
        self.report.unreadable.append(Unread(error.where, error.why))

    def check(self, case: Case) -> list[Failed]:
        self.report.cases += 1
        if case.note:
            self.report.notes.append(f"{case.where}: {case.note}")
        try:
            stage = stage_of(case, self.parser, self.known)
        except (ParserNotFound, NotAvailable) as error:
            self.report.unreadable.append(Unread(case.where, str(error)))
            return []
        wanted: Policies = case.calls or self.calls
        policies: tuple[Calls, ...] = ("incremental", "whole") if wanted == "both" else (wanted,)
        failed = [one for policy in policies for one in self._under(case, policy, stage)]
        self.report.failed += failed
        self.report.failing += bool(failed)
        return failed

    def _under(self, case: Case, policy: Calls, stage: Parser) -> list[Failed]:
        """The splits under which a case does not hold, by what came out."""
        found: dict[tuple[Mismatch, ...], list[str]] = {}
        for split in self.splits or case.splits:
            try:
                outcome = run_case(case, split, policy, stage)
            except BadSplit as error:
                self.report.notes.append(f"{case.where}: {case.id}: not compared: {error}")
                continue
            self.report.runs += 1
            wrong = tuple(differences(case, outcome, trim=self.trim))
            if wrong:
                found.setdefault(wrong, []).append(split)
        return [
            Failed(
                id=case.id, where=case.where, parser=stage.id, calls=policy, splits=tuple(splits), differences=wrong
            )
            for wrong, splits in found.items()
        ]  # fmt: skip


def exit_code(report: CheckReport) -> int:
    """0: all hold; 1: a case does not; 3: something could not be read, or its parser was not found, whatever else."""
    return 3 if report.unreadable else int(bool(report.failed))
