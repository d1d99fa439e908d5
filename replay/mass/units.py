"""units: the sessions of sources as pieces of work, found without loading them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from store import open_store, trace
from store.api import StoreError

Kind: TypeAlias = Literal["store", "trace", "packed", "unreadable"]

Again: TypeAlias = Callable[[int, str], None]
"""Is told of a file that comes once more, by whatever path, and of which source."""

Left: TypeAlias = Callable[[str], None]
"""Is told of a file that is left out of a folder."""

STORES = (".db", ".sqlite", ".sqlite3")
"""How the names of stores end, in a folder."""

WITHIN = 1 << 20
"""Sessions of one unit that have a place of their own in the order."""


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """One session of a store (its id is ``place``), one of a trace file (``place`` is the offset of its header, in
    bytes), or the sessions of a compressed file from number ``first`` on, ``count`` of them (0: all).

    ``at``: its place in the order of the run, in steps of WITHIN; ``index``: which of the sources it comes from;
    ``file``: where it is read; ``stamp``: changes when the file does; ``length``: in bytes, ``line``: number of its
    first line, both of a trace; ``relayed``: another server generated it, so that all of its layers are needed;
    ``parser``: the user's own that it was recorded with, "" for one of ours;
    ``error``: why it cannot be read, where it is ``unreadable``.
    """

    at: int
    index: int
    kind: Kind
    file: str
    place: str = ""
    stamp: str = ""
    length: int = 0
    line: int = 1
    first: int = 0
    count: int = 0
    relayed: bool = False
    parser: str = ""
    error: str = ""


class Slice(msgspec.Struct, frozen=True):
    """A session in the text of a trace file: offset and length in bytes, number of its first line; its id, "" where the
    header does not tell it, and then not ``told``; whether another server generated it; the parser that it was recorded
    with."""

    offset: int
    length: int
    line: int
    session: str
    told: bool
    relayed: bool
    parser: str

    def is_wanted(self, sessions: tuple[str, ...]) -> bool:
        """Whether it is one of these ids, or prefixes of ids, or may be. None: all are wanted."""
        return not sessions or not self.told or self.session.startswith(sessions)


class _Opening(msgspec.Struct, frozen=True):
    session: str | None = None
    parser: str = ""
    upstream: Any = None


class _Header(msgspec.Struct, frozen=True):
    opening: _Opening = _Opening()


_HEADER = msgspec.json.Decoder(_Header)
_UNKNOWN = _Opening(upstream=True)
_RESULTS = re.compile(rb'\s*\{\s*"playhead(_replay"\s*:|"\s*:\s*")')
"""How a results file of a replay, or its report, begins: the header of a trace has a number under ``playhead``."""
_HEAD = 512


def find(
    sources: Sequence[str], sessions: Sequence[str] = (), again: Again | None = None, left: Left | None = None
) -> Iterator[Unit]:
    """The units of the sources, in order: a store's newest first, a folder's files by name. ``sessions``: ids, or
    prefixes of ids, to keep to; of compressed files, whoever loads them must look. ``again``, ``left``: see files_once.
    Raises nothing: what cannot be read is a unit that says so."""
    at = 0
    for index, file in files_once(sources, again, left):
        for unit in _file(file, index, tuple(sessions)):
            yield msgspec.structs.replace(unit, at=at)
            at += WITHIN


def files_once(
    sources: Sequence[str], again: Again | None = None, left: Left | None = None
) -> Iterator[tuple[int, str]]:
    """The files of the sources, each by the first of its paths, with the source's number. ``again``: is told of the
    others; ``left``: see files."""
    met: set[tuple[int, int]] = set()
    for index, source in enumerate(sources):
        for file in files(source, left):
            try:
                stat = os.stat(file)
            except (OSError, ValueError):
                yield index, file  # whoever reads it tells
                continue
            if (stat.st_dev, stat.st_ino) not in met:
                met.add((stat.st_dev, stat.st_ino))
                yield index, file
            elif again is not None:
                again(index, file)


def files(source: str, left: Left | None = None) -> Iterator[str]:
    """The stores and trace files of a source: itself, or what is in the folder, deeply, by name. ``left``: is told of
    those in the folder that hold results of a replay, which are left out."""
    path = Path(source)
    # The empty path would be the folder that we are in.
    if not source or not path.is_dir():
        yield source
        return
    for file in sorted(path.rglob("*")):
        if not file.name.endswith((*trace.SUFFIXES, *STORES)) or not file.is_file():
            continue
        if not holds_results(str(file)):
            yield str(file)
        elif left is not None:
            left(str(file))


def holds_results(file: str) -> bool:
    """Whether a file that is named as a trace file holds the results of a replay, or its report. Raises nothing."""
    if not file.endswith(".jsonl"):  # a store is not opened here: closing it would free SQLite's locks
        return False
    try:
        with open(file, "rb") as opened:
            return _RESULTS.match(opened.read(_HEAD)) is not None
    except OSError:
        return False  # whoever reads it tells


def slices(lines: Iterable[bytes]) -> Iterator[Slice]:
    """The sessions of a trace file, line by line. Text before the first header is one without an id."""
    offset = begin = 0
    number = first = 1
    opening: _Opening | None = None
    for number, line in enumerate(lines, 1):
        head = trace.IS_HEADER.match(line) is not None
        if head and opening is not None:
            yield _slice(begin, offset, first, opening)
        if head:
            begin, first, opening = offset, number, _opening(line)
        elif opening is None and line.strip():
            begin, first, opening = offset, number, _UNKNOWN
        offset += len(line)
    if opening is not None:
        yield _slice(begin, offset, first, opening)


def _slice(begin: int, end: int, line: int, opening: _Opening) -> Slice:
    session, relayed = opening.session, opening.upstream is not None
    return Slice(begin, end - begin, line, session or "", session is not None, relayed, opening.parser)


def stamp(file: str) -> str:
    """Changes when the file does. Raises OSError."""
    stat = os.stat(file)
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def _file(file: str, index: int, sessions: tuple[str, ...]) -> Iterator[Unit]:
    if not file or (os.path.exists(file) and not os.path.isfile(file)):
        what = "is a pipe or a device: name a file" if file else "a source without a name: name a file or folder"
        yield Unit(0, index, "unreadable", file, error=f"{file} {what}".strip())
        return
    try:
        if file.endswith(trace.SUFFIXES):
            yield from _traces(file, index, sessions)
        else:
            yield from _store(file, index, sessions)
    except OSError as error:
        yield Unit(0, index, "unreadable", file, error=f"{file} cannot be read ({error.strerror}).")
    except StoreError as error:
        yield Unit(0, index, "unreadable", file, error=str(error))


def _traces(file: str, index: int, sessions: tuple[str, ...]) -> Iterator[Unit]:
    with open(file, "rb") as opened:
        made = stamp(file)
        if file.endswith(".zst"):
            yield Unit(0, index, "packed", file, "0", made)
            return
        found = False
        for piece in slices(opened):
            found = True
            if piece.is_wanted(sessions):
                yield Unit(
                    0, index, "trace", file, str(piece.offset), made, piece.length, piece.line, relayed=piece.relayed,
                    parser=_users(piece.parser),
                )  # fmt: skip
        if not found:
            # Loading it tells why.
            yield Unit(0, index, "trace", file, "0", made)


def _store(file: str, index: int, sessions: tuple[str, ...]) -> Iterator[Unit]:
    store = open_store(file, create=False)
    try:
        for info in store.sessions():
            if not sessions or info.session.startswith(sessions):
                yield Unit(
                    0, index, "store", file, info.session, relayed=bool(info.upstream), parser=_users(info.parser)
                )
    finally:
        store.close()


def _users(parser: str) -> str:
    """The name, if the parser is in a file or module of a user's."""
    return parser if ":" in parser else ""


def _opening(line: bytes) -> _Opening:
    try:
        return _HEADER.decode(line).opening
    except msgspec.DecodeError:
        return _UNKNOWN
