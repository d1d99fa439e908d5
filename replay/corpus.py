"""Sources: stores, trace files and folders of them, and the run over all of their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import Any, TypeAlias

from replay import arguments
from replay.custom import Comparer, Ignore
from replay.errors import ReplayError
from replay.mass.batches import Finder
from replay.mass.load import Loader, example
from replay.mass.plan import Given, Plan
from replay.mass.run import Run
from replay.mass.units import STORES
from replay.report import RunReport
from replay.resolve import Parser, resolve
from replay.result import SessionResult
from replay.run import RECORDED, Replayer
from replay.totals import Unreadable
from replay.verdict import Depth
from store.api import Trace

Found: TypeAlias = tuple[str, Trace | Unreadable]
"""Where a session comes from, and the session, or why it cannot be read."""


def run_replay(
    sources: Sequence[str],
    parser: Parser | str | None = None,
    splits: Sequence[str] = (RECORDED,),
    layer: Depth = "frame",
    *,
    track: str | None = None,
    sessions: Sequence[str] = (),
    fail_fast: bool = False,
    on_result: Callable[[SessionResult], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    jobs: int = 1,
    resume: str | None = None,
    baseline: Parser | str | None = None,
    cut: bool = False,
    compare: Comparer | str | None = None,
    ignore: Sequence[Ignore | str] = (),
    time_limit: float = 60.0,
    peer_python: Sequence[str] = (),
    tokenizer: str | None = None,
) -> RunReport:
    """Replay every session of the sources.

    ``track``, ``cut``: see Replayer. ``sessions``: ids, or prefixes of ids, to keep to. ``on_result`` is called after
    each session, ``on_progress`` with how many are done, and about how many there are (None: not known).

    ``baseline``: what is compared with: ``recorded`` (None), another parser, or an earlier JSON report, whose name ends
    in ``.json``. ``compare``, ``ignore``: functions (``replay.custom``), or ``file.py:function``.

    ``jobs``: worker processes; with 1 all is done in this process, as few sessions of our own parsers always are. A
    session that takes longer than ``time_limit`` seconds, or ends its process, is ``failed`` then, and costs no other
    its result. What has no name (a stage, a function) does not get to workers. A script that uses several must be
    importable (``if __name__ == "__main__":``).

    ``resume``: a file for the results: made where it is not there, gone on with where it is. Ctrl-C ends the run, and
    the report says so. ``peer_python``, ``tokenizer``: see ``replay.foreign.configure``.

    What cannot be read is in the report; so is a source without sessions, which would otherwise pass for unchanged.
    Raises ReplayError for a parser or split that cannot be had, and for a file that cannot be resumed; BadSplit where
    no split applies to any session.
    """
    arguments.manner(jobs, time_limit)
    resume = arguments.path(resume, "resume")
    for name, told in (("on_result", on_result), ("on_progress", on_progress)):
        if told is not None:
            arguments.function(told, name)
    if compare is not None:
        arguments.function(compare, "comparer", named=True)
    ignore = arguments.rules(ignore, named=True)
    parser, baseline = _instance(parser), _instance(baseline)
    against = baseline if isinstance(baseline, str) and baseline.endswith(".json") else None
    other = None if against is not None or baseline == RECORDED else baseline
    unnamed = [each for each in (parser, other, compare, *ignore) if each is not None and not isinstance(each, str)]
    if unnamed and (jobs > 1 or resume is not None):
        raise ReplayError(
            f"{_name(unnamed[0])} is an object, which other processes and later runs cannot have: name it, as in "
            "file.py:Attr, or use one job, and nothing to resume"
        )
    once, others = _once(arguments.paths(sources))
    plan = Plan(
        sources=once, sessions=arguments.sessions(sessions), parser=_name(parser),
        splits=arguments.splits(splits), layer="message" if compare is not None or ignore else layer,
        track=arguments.track(track), baseline=_name(other),
        against=against, cut=cut, compare=_name(compare), ignore=tuple(_name(rule) or "" for rule in ignore),
        peer_python=arguments.pythons(peer_python), tokenizer=arguments.path(tokenizer, "tokenizer"),
        time_limit=time_limit,
    )  # fmt: skip
    make = partial(plan.replayer, Given(parser, other, compare, tuple(ignore))) if unnamed else None
    run = Run(plan, jobs, make=make, fail_fast=fail_fast, on_result=on_result, on_progress=on_progress, again=others)
    return run.report(resume)


def _once(sources: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Each source once, by the first of its names; the other names."""
    named: dict[str, str] = {}
    again: list[str] = []
    for source in sources:
        path = realpath(source) if source else ""
        if path in named:
            again.append(source)
        else:
            named[path] = source
    return tuple(named.values()), tuple(again)


def _instance(parser: Parser | str | None) -> Parser | str | None:
    """A class or function is called once for its stage."""
    return parser if parser is None or isinstance(parser, str) else resolve(parser)


def _name(each: Any) -> str | None:
    """What a parser or function is called in the report; None is none."""
    if each is None or isinstance(each, str):
        return each
    return str(getattr(each, "id", None) or getattr(each, "__qualname__", None) or type(each).__qualname__)


def read(sources: Sequence[str], sessions: Sequence[str] = ()) -> Iterator[Found]:
    """The sessions of the sources, in order: a store's newest first, a folder's files by name. Raises nothing."""
    lost: list[Found] = []

    def told(item: Unreadable, at: int) -> None:
        lost.append((item.source, item))

    finder = Finder(sources, sessions, set(), told)
    with Loader(sessions) as loader:
        for unit in finder.left():
            yield from lost
            lost.clear()
            for _, found in loader.load(unit):
                finder.see(unit.index)
                yield unit.file, found
    finder.empty()
    yield from lost


def traces(*sources: str | Path, sessions: Sequence[str] = ()) -> Iterator[Trace]:
    """The sessions of sources, one in memory at a time: stores, trace files, and folders of them. In the order of
    ``playhead replay``: a store's newest first, a folder's files by name. ``sessions``: ids, or prefixes of ids, to
    keep to. Raises ReplayError for what cannot be read."""
    for source, found in read(arguments.paths(sources), arguments.sessions(sessions)):
        if isinstance(found, Unreadable):
            raise ReplayError(found.error if source in found.error else f"{source}: {found.error}")
        yield found


def load(source: str, session: str) -> Trace:
    """One session, by its id, out of the store or trace file that a result names. Raises StoreError, OSError."""
    return example(source, session)


def again(
    *,
    parser: str | None,
    splits: Sequence[str],
    layer: Depth,
    track: str | None,
    baseline: str | None,
    compare: str | None,
    ignore: Sequence[str],
    time_limit: float,
    peer_python: Sequence[str],
    tokenizer: str | None,
    **_: Any,
) -> Replayer:
    """What replays single sessions as ``run_replay`` with the same arguments does; where they are compared with an
    earlier report, which has no events, then with the record. Raises ReplayError."""
    if baseline is not None and baseline.endswith(".json"):
        baseline = None
    plan = Plan(
        parser=parser, splits=tuple(splits), layer=layer, track=track,
        baseline=None if baseline == RECORDED else baseline, compare=compare, ignore=tuple(ignore),
        time_limit=time_limit, peer_python=tuple(peer_python), tokenizer=tokenizer,
    )  # fmt: skip
    return plan.replayer()


__all__ = ["STORES", "Found", "again", "load", "read", "run_replay", "traces"]
