"""units: the sessions of sources as pieces of work, found without loading them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from store import open_store, trace
from store.api import StoreError

Kind: TypeAlias = Literal["store", "trace", "packed", "unreadable"]

Again: TypeAlias = Callable[[int, str], None]
"""Is told of a file that comes once more, by whatever path, and of which source."""

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
    header does not tell it; whether another server generated it; the parser that it was recorded with."""

    offset: int
    length: int
    line: int
    session: str
    relayed: bool
    parser: str


class _Opening(msgspec.Struct, frozen=True):
    session: str = ""
    parser: str = ""
    upstream: Any = None


class _Header(msgspec.Struct, frozen=True):
    opening: _Opening = _Opening()


_HEADER = msgspec.json.Decoder(_Header)
_UNKNOWN = _Opening(upstream=True)


def find(sources: Sequence[str], sessions: Sequence[str] = (), again: Again | None = None) -> Iterator[Unit]:
    """The units of the sources, in order: a store's newest first, a folder's files by name. ``sessions``: ids, or
    prefixes of ids, to keep to; of compressed files, whoever loads them must look. ``again``: see files_once. Raises
    nothing: what cannot be read is a unit that says so."""
    at = 0
    for index, file in files_once(sources, again):
        for unit in _file(file, index, tuple(sessions)):
            yield msgspec.structs.replace(unit, at=at)
            at += WITHIN


def files_once(sources: Sequence[str], again: Again | None = None) -> Iterator[tuple[int, str]]:
    """The files of the sources, each by the first of its paths, with the source's number. ``again``: is told of the
    others."""
    met: set[tuple[int, int]] = set()
    for index, source in enumerate(sources):
        for file in files(source):
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


def files(source: str) -> Iterator[str]:
    """The stores and trace files of a source: itself, or what is in the folder, deeply, by name."""
    path = Path(source)
    # The empty path would be the folder that we are in.
    if not source or not path.is_dir():
        yield source
        return
    for file in sorted(path.rglob("*")):
        if file.name.endswith((*trace.SUFFIXES, *STORES)) and file.is_file():
            yield str(file)


def slices(lines: Iterable[bytes]) -> Iterator[Slice]:
    """The sessions of a trace file, line by line. Text before the first header is one without an id."""
    offset = begin = 0
    number = first = 1
    opening: _Opening | None = None
    for number, line in enumerate(lines, 1):
        head = trace.IS_HEADER.match(line) is not None
        if head and opening is not None:
            yield Slice(begin, offset - begin, first, opening.session, opening.upstream is not None, opening.parser)
        if head:
            begin, first, opening = offset, number, _opening(line)
        elif opening is None and line.strip():
            begin, first, opening = offset, number, _UNKNOWN
        offset += len(line)
    if opening is not None:
        yield Slice(begin, offset - begin, first, opening.session, opening.upstream is not None, opening.parser)


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
            if not sessions or not piece.session or piece.session.startswith(sessions):
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
