"""pytest_plugin: recorded sessions as pytest's tests, and the fixture ``replayed``. ``pytest_playhead`` loads it.

A store or trace file is a collector, a session an item. An item fails with what the report of ``playhead replay`` says
of the session, and with the command that replays it alone.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import pytest

from pytest_playhead import folder
from replay import arguments, foreign, pytest_options
from replay.against_file import Earlier
from replay.corpus import read
from replay.custom import Comparer, Ignore
from replay.errors import ReplayError
from replay.mass.load import Loader
from replay.mass.plan import Given, Plan
from replay.mass.units import STORES, Unit, files, holds_results, slices
from replay.report import RunReport, make_report
from replay.reports import examples, words
from replay.resolve import Parser
from replay.result import SessionResult
from replay.run import RECORDED, Replayer, at_least
from replay.signature import in_words
from replay.terminal import print_session
from replay.text import printable
from replay.totals import Unreadable
from replay.verdict import Depth, Verdict
from stages.errors import StagesError
from store import open_store, trace
from store.api import StoreError, Trace

_Node = TypeVar("_Node", bound=pytest.Collector | pytest.Item)

_ROWS = 10
"""Rows of both sides of a session."""
_KINDS = 20
"""Kinds of failures that the summary has."""


class Lab:
    """What replays the items of a run. ``sources``: absolute paths. Raises UsageError for what cannot be had."""

    fail_on: Verdict

    def __init__(self, config: pytest.Config, sources: Sequence[str]) -> None:
        self.here = config.invocation_params.dir
        self._sources = [os.path.realpath(source) for source in sources]
        self._left: dict[str, None] = {}
        self._unpacked: tuple[str, bytes] = ("", b"")
        self._loader = Loader()
        for source in sources:
            if not os.path.exists(source):
                raise pytest.UsageError(f"playhead: there is no file or folder {source}")
            if next(files(source), None) is None:
                raise pytest.UsageError(f"playhead: {source}: no store or trace file in it")
        try:
            self.plan, self.fail_on = pytest_options.plan(config)
            self.replay = _Replay(self.plan)
        except (ReplayError, StagesError) as error:
            raise pytest.UsageError(f"playhead: {error}") from error

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Sessions | None:
        """A file of the sources."""
        path = os.path.realpath(file_path)
        known = path.endswith((*trace.SUFFIXES, *STORES))
        within = known and any(path.startswith(f"{source}{os.sep}") for source in self._sources)
        if path not in self._sources and within and holds_results(path):
            self._left[self.shown(path)] = None
        elif path in self._sources or within:
            outside = not file_path.is_relative_to(parent.config.rootpath)
            # pytest has no name for a file elsewhere.
            named = {"nodeid": Path(os.path.relpath(path, parent.config.rootpath)).as_posix()} if outside else {}
            return _made(Sessions, parent, path=file_path, lab=self, **named)
        return None

    def pytest_report_collectionfinish(self) -> list[str]:
        """Which files in the folders are no recordings."""
        return [printable(f"playhead: left out, as it holds results of a replay: {file}") for file in self._left]

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Which verdict a session has that passes without being the same; why it fails, before a name that is long."""
        verdict, kind = _property(report, "verdict"), _property(report, "kind")
        if kind is not None and report.when == "call" and report.failed:
            return "failed", "F", f"FAILED ({kind.partition(' · ')[0]})"
        if verdict in (None, "same") or report.when != "call" or not report.passed:
            return None
        return "passed", ".", f"PASSED ({verdict})"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The kinds of what failed, the largest first."""
        kinds: Counter[str] = Counter()
        first: dict[str, str] = {}
        for report in terminalreporter.stats.get("failed", ()):
            kind = _property(report, "kind")
            if kind is not None:
                kinds[kind] += 1
                first.setdefault(kind, str(report.nodeid))
        if sum(kinds.values()) < 2:
            return
        terminalreporter.section(f"{words.counted(sum(kinds.values()), 'session')} in {len(kinds)} kinds")
        for kind, count in kinds.most_common(_KINDS):
            terminalreporter.line(f"{count:7,}  {kind}")
            terminalreporter.line(f"{'':9}{first[kind]}")
        if len(kinds) > _KINDS:
            terminalreporter.line(f"{'':9}and {words.counted(len(kinds) - _KINDS, 'more kind')}")

    def pytest_unconfigure(self) -> None:
        """Let go of stores, files and the processes of other engines."""
        self._loader.close()
        foreign.close()

    def load(self, file: str, place: Place) -> Trace | Unreadable:
        """A session of a file."""
        if place.kind != "packed":
            unit = Unit(0, 0, place.kind, file, place.place, length=place.length, line=place.line)
            return next(found for _, found in self._loader.load(unit))
        try:
            # One file at a time: its sessions mostly come one after the other.
            if self._unpacked[0] != file:
                self._unpacked = file, trace.unpacked(Path(file), Path(file).read_bytes())
            at = int(place.place)
            return next(trace.loads(self._unpacked[1][at : at + place.length], file, first=place.line))
        except (StoreError, OSError) as error:
            return Unreadable(file, str(error))

    def shown(self, file: str) -> str:
        """A path as the user would type it."""
        path = os.path.relpath(file, self.here)
        return file if path.startswith(os.pardir) else path

    def in_full(self, result: SessionResult, found: Trace) -> str:
        """What the terminal report says of a session, and the command that replays it."""
        out = io.StringIO()
        replayer = self.replay.replayer

        def load(source: str, session: str) -> Trace:
            return found

        aligned = partial(examples.aligned, load=load, replayer=replayer, limit=_ROWS)

        print_session(self._report, result, out, aligned=aligned)
        return f"{_headline(result)}\n\n{out.getvalue().rstrip()}\n\n{printable(words.example(self._report, result))}"

    @property
    def _report(self) -> RunReport:
        """The run, without its sessions: what names things in words."""
        plan = self.plan
        empty = make_report(
            [], [], parser=plan.parser, sources=(), splits=plan.splits, layer=plan.layer, track=plan.track
        )
        base = plan.against or plan.baseline
        return msgspec.structs.replace(
            empty, baseline=msgspec.UNSET if base is None else base, cut=plan.cut, compare=plan.compare,
            ignore=plan.ignore, peer_python=plan.peer_python, tokenizer=plan.tokenizer,
        )  # fmt: skip


class Place(msgspec.Struct, frozen=True):
    """Where a session is in its file: its id in a store; in the text of a trace file the offset, the length in bytes,
    and the number of its first line. ``parser``: that it was recorded with."""

    kind: Literal["store", "trace", "packed"]
    session: str
    place: str
    parser: str
    length: int = 0
    line: int = 1


class Sessions(pytest.File):
    """A store or trace file."""

    def __init__(self, *, lab: Lab, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._lab = lab

    def collect(self) -> Iterator[Session]:
        """Its sessions, in the order of ``playhead replay``."""
        names = _Names()
        try:
            for place in _places(str(self.path)):
                name = names.unique(printable(place.session) or f"line {place.line}")
                yield _made(Session, self, name=name, lab=self._lab, place=place)
        except StoreError as error:
            raise self.CollectError(printable(str(error))) from error
        except OSError as error:
            raise self.CollectError(f"{self.path} cannot be read ({error.strerror}).") from error
        if not names.taken:
            raise self.CollectError(f"{self.path}: no session in it")


class _Names:
    """Names, each once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._times: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """The name, with a number where it is taken."""
        found = name
        while found in self.taken:
            self._times[name] += 1
            found = f"{name}#{self._times[name] + 1}"
        self.taken.add(found)
        return found


class Session(pytest.Item):
    """A session."""

    def __init__(self, *, lab: Lab, place: Place, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # pyright: ignore[reportUnknownMemberType] # pytest leaves it untyped
        self._lab = lab
        self._place = place
        self.add_marker("playhead")
        self.extra_keyword_matches.add(place.parser)

    def runtest(self) -> None:
        """Replay it, and fail, skip or pass by its verdict."""
        lab, file = self._lab, self._lab.shown(str(self.path))
        found = lab.load(str(self.path), self._place)
        if isinstance(found, Unreadable):
            pytest.fail(printable(f"unreadable: {found.error}"), pytrace=False)
        try:
            result = lab.replay.result(found, file)
        except ReplayError as error:  # of a comparer or rule
            pytest.fail(str(error), pytrace=False)
        self.user_properties += [("verdict", result.verdict), ("parser", result.parser), ("tokens", result.tokens)]
        # What cannot be replayed for want of its parser must not pass for unchanged.
        if result.unreplayed or (result.verdict != "same" and at_least(result.verdict, lab.fail_on)):
            self.user_properties.append(("kind", _headline(result)))
            pytest.fail(lab.in_full(result, found), pytrace=False)
        if result.verdict == "uncompared":
            pytest.skip(_headline(result))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is."""
        return self.path, None, self.name


class _Replay:
    """A replay as the command line's: also against an earlier report."""

    def __init__(self, plan: Plan, given: Given | None = None) -> None:
        self.replayer: Replayer = plan.replayer(given)
        against = plan.against
        self._earlier = None if against is None else Earlier.read(against, layer=plan.layer, splits=plan.splits)

    def result(self, found: Trace, source: str) -> SessionResult:
        """The result of one session. Raises as ``Replayer.replay``."""
        result = self.replayer.replay(found, source)
        return result if self._earlier is None else self._earlier.compare(result)


class Replayed:
    """The fixture ``replayed``: what ``Replayer`` says of all sessions of these sources.

        def test_no_call_is_lost(replayed: Replayed) -> None:
            for result in replayed("traces", parser="my_parser.py:Parser", layer="message"):
                assert result.verdict in ("same", "moved"), result.differences

    Arguments as ``Replayer`` takes them; ``baseline`` may also be ``FILE.json``; ``sessions``: ids, or prefixes of ids,
    to keep to. Paths are relative to the folder of pytest's ini file. Of pytest's options those apply that say how
    other engines' parsers are run, and no other.
    """

    def __init__(self, config: pytest.Config) -> None:
        given = pytest_options.given(config)
        self._folder = folder(config)
        self._peers = {name: given[name] for name in ("peer_python", "tokenizer", "time_limit") if name in given}

    def __call__(
        self,
        *sources: str | os.PathLike[str],
        sessions: Sequence[str] = (),
        parser: Parser | str | None = None,
        splits: Sequence[str] = (RECORDED,),
        layer: Depth = "frame",
        track: str | None = None,
        baseline: Parser | str | None = None,
        compare: Comparer | str | None = None,
        ignore: Sequence[Ignore | str] = (),
        cut: bool = False,
    ) -> list[SessionResult]:
        """A result a session, in order. Raises ReplayError, also for what cannot be read."""
        one, other, comparer, *rules = (
            pytest_options.beside(self._folder, each)
            for each in (parser, baseline, compare, *arguments.rules(ignore, named=True))
        )
        against = other if isinstance(other, str) and other.endswith(".json") else None
        plan = Plan(
            splits=arguments.splits(splits), layer="message" if compare is not None or ignore else layer, track=track,
            cut=cut, against=against, **self._peers,
        )  # fmt: skip
        replay = _Replay(plan, Given(one, other if against is None else None, comparer, tuple(rules)))
        wanted = arguments.sessions(sessions)
        results: list[SessionResult] = []
        for source, found in read([os.path.join(self._folder, each) for each in sources], wanted):
            if isinstance(found, Unreadable):
                raise ReplayError(f"{source}: {found.error}")
            results.append(replay.result(found, source))
        return results

    def close(self) -> None:
        """End the processes of other engines' parsers."""
        foreign.close()


def _made(kind: type[_Node], parent: pytest.Collector, **fields: Any) -> _Node:
    """A node; the only way to make one, which pytest leaves untyped."""
    untyped: Any = kind
    node: _Node = untyped.from_parent(parent, **fields)
    return node


# --- sessions ---------------------------------------------------------------------------------------------------------


def _places(file: str) -> Iterator[Place]:
    """The sessions of a file. Raises StoreError, OSError."""
    if not file.endswith(trace.SUFFIXES):
        store = open_store(file, create=False)
        try:
            for info in store.sessions():
                yield Place("store", info.session, info.session, info.parser)
        finally:
            store.close()
    elif file.endswith(".zst"):
        yield from _sliced("packed", io.BytesIO(trace.unpacked(Path(file), Path(file).read_bytes())))
    else:
        with open(file, "rb") as opened:
            yield from _sliced("trace", opened)


def _sliced(kind: Literal["trace", "packed"], lines: Iterable[bytes]) -> Iterator[Place]:
    for piece in slices(lines):
        yield Place(kind, piece.session, str(piece.offset), piece.parser, piece.length, piece.line)


# --- in words ---------------------------------------------------------------------------------------------------------


def _headline(result: SessionResult) -> str:
    """What is to be known of it, on one line."""
    if result.unreplayed:
        return printable(f"not replayed: {result.unreplayed}")
    if result.verdict == "uncompared":
        return printable(result.uncompared or "; ".join(result.notes) or words.MEANS["uncompared"])
    kind = result.verdict if result.signature is None else in_words(result.signature)
    return printable(kind if kind.startswith(result.verdict) else f"{result.verdict}: {kind}")


def _property(report: Any, name: str) -> str | None:
    """Of a session's report, what its item said."""
    found = dict(report.user_properties).get(name) if "playhead" in getattr(report, "keywords", ()) else None
    return None if found is None else str(found)
