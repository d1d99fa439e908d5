"""run: one replay of many sessions, in this process or in several."""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import chain, islice

import msgspec
from msgspec import UNSET

from replay import split
from replay.against_file import Earlier
from replay.errors import BadSplit, ReplayError
from replay.foreign import current
from replay.mass import spool
from replay.mass.batches import Finder, batches
from replay.mass.interrupts import Interrupts
from replay.mass.load import Loader
from replay.mass.plan import Plan, hash_of
from replay.mass.pool import Pool
from replay.mass.spool import Spool
from replay.mass.tally import Tally
from replay.mass.units import Unit, find, stamp
from replay.mass.worker import Item, item
from replay.report import RunReport, concluded, playhead_version
from replay.result import SessionResult
from replay.run import Replayer, at_least
from replay.sizes import Histogram
from store.api import Trace

FEW = 32
"""So many sessions take no longer than it takes to start a worker."""
_NAMED = 3
"""Sources that a message names."""
_SAMPLE = 1000
"""Sessions whose steps stand for those of the corpus."""


class Run:
    """``plan``: what to do; ``make``: what replays, where that has no name; ``on_result``: is called with each result;
    ``on_progress``: with how many there are so far, and about how many there will be; ``again``: names of sources
    that are others of the plan's."""

    def __init__(
        self, plan: Plan, jobs: int, *, make: Callable[[], Replayer] | None = None, fail_fast: bool = False,
        on_result: Callable[[SessionResult], None] | None = None,
        on_progress: Callable[[int, int | None], None] | None = None, again: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Raises ReplayError for an earlier report that is none."""
        self._plan = plan
        self._jobs = jobs
        self._make = make
        self._fail_fast = fail_fast
        self._on_result = on_result
        self._on_progress = on_progress
        self._tally = Tally()
        for source in again:
            self._tally.again(source)
        self._interrupts = Interrupts()
        self._stop = False
        against = plan.against
        self._earlier = None if against is None else Earlier.read(against, layer=plan.layer, splits=plan.splits)

    def report(self, resume: str | None) -> RunReport:
        """Run, and report. ``resume``: the file of results to go on with. Raises ReplayError."""
        begun = time.monotonic()
        if any(name.startswith("histogram:") for name in self._plan.splits):
            self._plan = msgspec.structs.replace(self._plan, histogram=tuple(_drawn(self._plan)))
        header = spool.Header(spool.FORMAT, self._plan.fingerprint(playhead_version()), self._plan.histogram)
        if resume is None:
            results = spool.make(header)
        else:
            header, results = spool.resume(resume, header, _stands())
            self._plan = msgspec.structs.replace(self._plan, histogram=header.histogram)
        try:
            interrupted = self._all(results)
            if self._tally.nothing_applies and not interrupted:
                names, why = ", ".join(self._plan.splits), self._tally.nothing_compared
                raise BadSplit(f"nothing was compared: no session allows {names} ({why})")
            if self._plan.track is not None and self._tally.all_uncompared and not interrupted:
                raise ReplayError(f"nothing was compared with track {self._plan.track}: {self._tally.uncompared}")
            if self._tally.all_uncompared and self._none_met() and not interrupted:
                raise ReplayError(
                    f"no session of {_few(self._plan.sources)} is in {self._plan.against}: nothing was compared"
                )
            return self._report(results, time.monotonic() - begun, interrupted)
        except OSError as error:
            with suppress(OSError):  # what is still to be written cannot be
                results.discard()
            raise ReplayError(f"the results cannot be written to {results.path}: {error.strerror or error}") from error
        except BaseException:  # nothing is left behind, whatever was raised
            results.discard()
            raise

    def _all(self, results: Spool) -> bool:
        """Run; returns whether it was interrupted."""
        try:
            with results, self._interrupts:
                for place, result in results.held():
                    self._tally.add(result, place)
                    if self._earlier is not None:
                        self._earlier.see(result.session)
                finder = Finder(
                    self._plan.sources, self._plan.sessions, results.done, self._tally.unreadable, self._tally.again,
                    self._tally.left,
                )  # fmt: skip
                with closing(self._items(finder)) as items:  # no worker is left behind, and none is left to chance
                    for found in items:
                        with self._interrupts.whole():
                            self._take(found, finder, results)
                        if self._stop:
                            return False
                finder.empty()
                self._missing()
        except KeyboardInterrupt:
            return True
        return False

    def _missing(self) -> None:
        """Tell of the sessions of the earlier report that did not come: they would pass for unchanged."""
        wanted = self._plan.sessions
        for session in () if self._earlier is None else self._earlier.unseen():
            if not wanted or session.startswith(wanted):
                self._tally.missing(session)

    def _none_met(self) -> bool:
        """There is an earlier report, and no session of it came."""
        earlier = self._earlier
        return earlier is not None and sum(1 for _ in earlier.unseen()) == len(earlier)

    def _items(self, finder: Finder) -> Generator[Item]:
        units = finder.left()
        first: list[Unit] = []
        if self._jobs > 1 and self._make is None and self._plan.is_ours:
            first = list(islice(units, FEW + 1))
            if len(first) <= FEW and not any(unit.kind == "packed" or unit.parser for unit in first):
                self._jobs = 1
        units = chain(first, units)
        if self._jobs == 1 or self._make is not None:
            yield from self._here(units)
            return
        with Pool(self._plan, self._jobs, _limit(self._plan)) as pool:
            yield from pool.run(batches(units, self._jobs))

    def _here(self, units: Iterator[Unit]) -> Iterator[Item]:
        """Without worker processes."""
        replayer = self._plan.replayer() if self._make is None else self._make()
        with Loader(self._plan.sessions, self._plan.layers, lazy=True) as loader:
            for unit in units:
                for number, found in loader.load(unit):
                    yield item(replayer, unit, number, found)

    def _take(self, found: Item, finder: Finder, results: Spool) -> None:
        finder.see(found.index)
        if found.lost is not None:
            self._tally.unreadable(found.lost, found.at)
            return
        line = spool.decode(found.line)
        if spool.key(line.index, line.result.source, line.place) in results.done:
            return  # of a compressed file, of which all is done again from the first that is not done
        result, data = line.result, found.line
        if self._earlier is not None:
            result = self._earlier.compare(result)
            data = spool.encode(msgspec.structs.replace(line, result=result))
        self._tally.add(result, results.add(data, found.at))
        if self._on_result is not None:
            self._on_result(result)
        if self._on_progress is not None:
            self._on_progress(self._tally.sessions, finder.expected())
        self._stop = self._fail_fast and at_least(result.verdict, "changed")

    def _report(self, results: Spool, seconds: float, interrupted: bool) -> RunReport:
        plan = self._plan
        baseline = plan.against or plan.baseline
        return concluded(
            self._tally, results.results(), results.read, parser=plan.parser, sources=plan.sources, splits=plan.splits,
            layer=plan.layer, track=UNSET if plan.track is None else plan.track,
            baseline=UNSET if baseline is None else baseline, cut=plan.cut, compare=plan.compare,
            ignore=plan.ignore, peer_python=plan.peer_python, tokenizer=plan.tokenizer,
            seconds=round(seconds, 3), jobs=self._jobs, interrupted=interrupted,
        )  # fmt: skip


def _few(sources: Sequence[str]) -> str:
    more = f" and {len(sources) - _NAMED} more" if len(sources) > _NAMED else ""
    return ", ".join(sources[:_NAMED]) + more


def _limit(plan: Plan) -> float:
    """Seconds of silence until a worker is ended. Other engines' parsers have processes and a limit of their own, for
    each of the times that they run over a session, so that this is only the last resort."""
    if not plan.is_foreign:
        return plan.time_limit
    return 2 * current().start_limit + plan.time_limit * 4 * (1 + len(plan.splits))


def _stands() -> Callable[[int, str, str, str], bool]:
    """Whether the result of a unit still stands: its file is as it was, and so is that of the user's parser that it was
    recorded with. What a store has does not change."""

    @cache
    def now(file: str) -> str:
        try:
            return stamp(file)
        except OSError:
            return "gone"

    def stands(index: int, file: str, place: str, made: str) -> bool:
        of_file, hashed, parser = [*made.split(" ", 2), "", ""][:3]
        return (not of_file or of_file == now(file)) and (not parser or hashed == hash_of(parser))

    return stands


def _drawn(plan: Plan) -> Histogram:
    """The sizes of steps of the corpus: of all sessions of a small one, else of those whose names have the smallest
    hashes, which no order and no number of workers changes."""

    def hashed(unit: Unit) -> bytes:
        return hashlib.sha256(f"{unit.file} {unit.place}".encode("utf-8", "surrogatepass")).digest()

    chosen = heapq.nsmallest(_SAMPLE, find(plan.sources, plan.sessions), key=hashed)
    with Loader(plan.sessions, {("input", "engine")}) as loader:
        found = (each for unit in chosen for _, each in loader.load(unit))
        return split.histogram(each for each in found if isinstance(each, Trace))
