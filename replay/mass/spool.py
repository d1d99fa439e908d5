"""spool: the results of a run in a file, as JSON Lines: a header that says what decides them, then one session a line.

What is there when a run ends, however it ends, is not done again by the next (``--resume``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast, overload

import msgspec

from replay.errors import ReplayError
from replay.result import SessionResult

FORMAT = 1


class Header(msgspec.Struct, frozen=True):
    """``fingerprint``: what decides the results, by what it is called; ``histogram``: see Plan."""

    playhead_replay: int
    fingerprint: dict[str, Any]
    histogram: tuple[tuple[int, int], ...] = ()


class Line(msgspec.Struct, frozen=True):
    """A result. ``at``: its place in the order of the run; ``index``: of its source; ``place``: see Unit;
    ``stamp``: what it hangs on, as ``worker.line_of`` tells."""

    at: int
    index: int
    place: str
    stamp: str
    result: SessionResult


class _Place(msgspec.Struct, frozen=True):
    """A line without its result."""

    at: int
    index: int
    place: str
    stamp: str
    result: msgspec.Raw


class _Source(msgspec.Struct, frozen=True):
    source: str = ""
    state: str = ""


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Line).decode
_place = msgspec.json.Decoder(_Place).decode
_source = msgspec.json.Decoder(_Source).decode
_header = msgspec.json.Decoder(Header).decode


class Results(Sequence[SessionResult]):
    """The results in a file, read when they are asked for, in the order of the run. Equal to any sequence of the same
    results. The file is removed with it if it was made for it."""

    def __init__(self, path: str, ats: array[int], offsets: array[int], *, temporary: bool) -> None:
        self.path = path
        order = sorted(range(len(ats)), key=lambda number: (ats[number], number))
        self._offsets = array("q", (offsets[number] for number in order))
        self._remove = weakref.finalize(self, _remove, path) if temporary else None

    @property
    def temporary(self) -> bool:
        """The file goes when this does."""
        return self._remove is not None and self._remove.alive

    def keep(self, path: str) -> None:
        """Move the file to where it stays. Raises OSError."""
        shutil.move(self.path, path)
        if self._remove is not None:
            self._remove.detach()
        self.path = path

    def raw(self) -> Iterator[bytes]:
        """Each result as the JSON that it is in the file."""
        with open(self.path, "rb") as file:
            for offset in self._offsets:
                file.seek(offset)
                yield bytes(_place(file.readline()).result)

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[SessionResult]:
        with open(self.path, "rb") as file:
            for offset in self._offsets:
                yield self._at(file, offset)

    @overload
    def __getitem__(self, at: int) -> SessionResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[SessionResult]: ...
    def __getitem__(self, at: int | slice) -> SessionResult | list[SessionResult]:
        with open(self.path, "rb") as file:
            if isinstance(at, slice):
                return [self._at(file, offset) for offset in self._offsets[at]]
            return self._at(file, self._offsets[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Iterable[object]", other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"<{len(self)} results in {self.path}>"

    def _at(self, file: BinaryIO, offset: int) -> SessionResult:
        file.seek(offset)
        return decode(file.readline()).result


class Spool:
    """The file while results are added to it. Made by ``make`` or ``resume``; a context manager, which closes it."""

    def __init__(self, path: str, file: BinaryIO, *, temporary: bool) -> None:
        self.path = path
        self.done: set[int] = set()
        """Keys of what is there already; see ``key``."""
        self._file = file
        self._temporary = temporary
        self._ats = array("q")
        self._offsets = array("q")
        self._size = file.tell()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, line: bytes, at: int) -> int:
        """Write a line, which has no line end; returns where it is."""
        self._file.write(line + b"\n")
        if not self._temporary:
            self._file.flush()
        self._ats.append(at)
        self._offsets.append(self._size)
        self._size += len(line) + 1
        return self._offsets[-1]

    def held(self) -> Iterator[tuple[int, SessionResult]]:
        """Each result in it so far, and where it is."""
        self.flush()
        with open(self.path, "rb") as file:
            for offset in self._offsets[:]:
                file.seek(offset)
                yield offset, decode(file.readline()).result

    def read(self, offset: int) -> SessionResult:
        """The result of the line there."""
        self.flush()
        with open(self.path, "rb") as file:
            file.seek(offset)
            return decode(file.readline()).result

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def results(self) -> Results:
        """What is in it, once it is closed."""
        return Results(self.path, self._ats, self._offsets, temporary=self._temporary)

    def discard(self) -> None:
        """Close it; remove it if it is temporary."""
        try:
            self.close()
        finally:
            if self._temporary:
                _remove(self.path)


def key(index: int, file: str, place: str) -> int:
    """What tells a unit apart from every other, as good as surely."""
    return hash((index, file, place))


def make(header: Header, path: str | None = None) -> Spool:
    """A new file; temporary without a path. Raises ReplayError."""
    try:
        if path is None:
            handle, path = tempfile.mkstemp(prefix="playhead-replay-", suffix=".jsonl")
            file: BinaryIO = os.fdopen(handle, "wb")
            temporary = True
        else:
            file, temporary = _mine(path), False
        file.write(encode(header) + b"\n")
        file.flush()
    except OSError as error:
        raise ReplayError(f"the results cannot be written to {path}: {error.strerror}") from error
    return Spool(path, file, temporary=temporary)


def _mine(path: str) -> BinaryIO:
    """The file, empty. Raises OSError; ReplayError where another run writes into it."""
    file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "wb")
    try:
        _lock(file, path)
        file.truncate(0)
    except BaseException:  # undone whatever was raised, and raised on
        file.close()
        raise
    return file


def _lock(file: BinaryIO, path: str) -> None:
    """Until it is closed. Raises ReplayError where another run holds it; a file system without locks has none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = not os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        taken = True
    except OSError:
        return
    if taken:  # or replaced, by one that was quicker
        raise ReplayError(f"{path}: another run is writing its results there: wait for it, or name another")


def resume(path: str, header: Header, current: Callable[[int, str, str, str], bool]) -> tuple[Header, Spool]:
    """Go on with a file; one that is not there, or is empty, is made. ``current``: whether the result of a source
    (index, file, place and stamp) still stands; if not, it is dropped. A last line that is torn is dropped, too.

    Raises ReplayError for a file of other results, which names what is different.
    """
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return header, make(header, path)
    new = f"{path}.new"
    try:
        with open(path, "rb") as old:
            _lock(old, path)
            found = _checked(path, old.readline(), header)
            spool = make(found, new)
            try:
                for line in old:
                    _again(spool, line, current, path)
            except BaseException:  # undone whatever was raised, and raised on
                spool.close()
                _remove(new)
                raise
            spool.flush()
            os.replace(new, path)  # while the old one is locked
    except OSError as error:
        raise ReplayError(f"{path} cannot be resumed: {error.strerror}") from error
    spool.path = path
    return found, spool


def _again(spool: Spool, line: bytes, current: Callable[[int, str, str, str], bool], path: str) -> None:
    if not line.endswith(b"\n"):
        return
    try:
        place = _place(line)
        told = _source(place.result)
        decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplayError(f"{path}: a line is no result ({error}): remove the file to begin anew") from error
    # A session that was open may have gone on.
    if told.state != "open" and current(place.index, told.source, place.place, place.stamp):
        spool.done.add(key(place.index, told.source, place.place))
        spool.add(line[:-1], place.at)


def _checked(path: str, line: bytes, header: Header) -> Header:
    try:
        found = _header(line)
    except msgspec.DecodeError:
        found = None
    if found is None or found.playhead_replay != FORMAT or not line.endswith(b"\n"):
        raise ReplayError(f"{path} holds no results of a replay: name another file, or remove it")
    names = {**found.fingerprint, **header.fingerprint}
    changed = [name for name in names if found.fingerprint.get(name) != header.fingerprint.get(name)]
    if changed:
        told = "; ".join(_change(name, found.fingerprint.get(name), header.fingerprint.get(name)) for name in changed)
        raise ReplayError(
            f"{path} holds the results of another replay, and both in one report would mislead. {told}. "
            "Undo that to go on, or name another file, or remove this one to begin anew"
        )
    return found


def _change(name: str, before: Any, now: Any) -> str:
    if name == "code":
        return "The code of Playhead has changed"
    if name in ("files", "engines"):
        earlier: dict[str, Any] = before or {}
        later: dict[str, Any] = now or {}
        files = [file for file in {**earlier, **later} if earlier.get(file) != later.get(file)]
        return f"Changed since: {', '.join(files)}"
    return f"{name} was {_shown(before)} and is {_shown(now)}"


def _shown(value: Any) -> str:
    if value in (None, [], ""):
        return "not given"
    return str(value) if isinstance(value, str | int | float) else ",".join(map(str, value))


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
