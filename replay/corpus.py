"""Sources: stores, trace files and folders of them, and the run over all of their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from replay.errors import BadSplit
from replay.report import RunReport, Unreadable, make_report
from replay.resolve import Parser
from replay.result import SessionResult
from replay.run import Replayer, at_least
from replay.verdict import Depth
from store import open_store, trace
from store.api import StoreError, Trace

Found: TypeAlias = tuple[str, Trace | Unreadable]
"""Where a session comes from, and the session, or why it cannot be read."""

STORES = (".db", ".sqlite", ".sqlite3")
"""How the names of stores end, in a folder."""


def run_replay(
    sources: Sequence[str],
    parser: Parser | str | None = None,
    splits: Sequence[str] = ("recorded",),
    layer: Depth = "frame",
    *,
    track: str | None = None,
    sessions: Sequence[str] = (),
    fail_fast: bool = False,
    on_result: Callable[[SessionResult], None] | None = None,
) -> RunReport:
    """Replay every session of the sources.

    ``track``: what to compare with; see Replayer. ``sessions``: ids, or prefixes of ids, to keep to. ``on_result`` is
    called after each session. What cannot be read is in the report; so is a source without sessions, which would
    otherwise pass for unchanged. Raises ReplayError for a parser or split that cannot be had, and BadSplit where no
    split applies to any session.
    """
    replayer = Replayer(parser, splits=splits, layer=layer, track=track)
    results: list[SessionResult] = []
    unreadable: list[Unreadable] = []
    for source, found in read(sources, sessions):
        if isinstance(found, Unreadable):
            unreadable.append(found)
            continue
        result = replayer.replay(found, source)
        results.append(result)
        if on_result is not None:
            on_result(result)
        if fail_fast and at_least(result.verdict, "changed"):
            break
    if results and not unreadable and all(result.not_compared and not result.splits for result in results):
        why = results[0].notes[-1].removeprefix("not compared: ")
        raise BadSplit(f"nothing was compared: no session allows {', '.join(splits)} ({why})")
    name = parser if isinstance(parser, str) or parser is None else parser.id
    return make_report(results, unreadable, parser=name, sources=sources, splits=splits, layer=layer, track=track)


def read(sources: Sequence[str], sessions: Sequence[str] = ()) -> Iterator[Found]:
    """The sessions of the sources, in order: a store's newest first, a folder's files by name. Raises nothing."""
    for source in sources:
        empty = True
        for name, item in _source(source):
            if isinstance(item, Unreadable) or not sessions or item.opening.session.startswith(tuple(sessions)):
                empty = False
                yield name, item
        if empty:
            yield (
                source,
                Unreadable(source, f"no session {' or '.join(sessions)} in it" if sessions else "no session in it"),
            )


def _source(source: str) -> Iterator[Found]:
    path = Path(source)
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and (file.name.endswith(trace.SUFFIXES) or file.suffix in STORES):
                yield from _file(str(file))
    else:
        yield from _file(source)


def _file(source: str) -> Iterator[Found]:
    try:
        if source.endswith(trace.SUFFIXES):
            for item in trace.read_many(source):
                yield source, item
            return
        store = open_store(source, create=False)
    except (StoreError, OSError) as error:
        yield source, Unreadable(source, str(error))
        return
    try:
        for info in store.sessions():
            try:
                yield source, store.load(info.session)
            except StoreError as error:
                yield source, Unreadable(source, str(error), info.session)
    except StoreError as error:
        yield source, Unreadable(source, str(error))
    finally:
        store.close()
