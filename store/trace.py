"""The trace file: sessions as JSON Lines, made to be read and compared line by line.

A header line (``{"playhead": 1, "opening": …, "info": …, "blobs": …}``), then one line a record
(``{"track", "layer", "seq", "cause", "at", "event"}``; inputs have no cause) in a fixed order: by layer, then track,
then seq. Writing what was read gives the same bytes. A name that ends in ``.zst`` is compressed. A file may hold
several sessions, one after the other; in a folder, every ``*.jsonl`` and ``*.jsonl.zst`` is a trace file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from stages.events import Layer
from stages.opening import Opening
from store import codec, named
from store.api import CorruptRecord, Record, SessionInfo, StoreError, StoreUnavailable, Trace, UnknownSchema
from store.rules import Key, Said, ordered

SUFFIXES = (".jsonl", ".jsonl.zst")

MAX_UNPACKED = 1 << 30
"""Bytes that a compressed file may unpack to: a small file must not fill the memory."""


class _Line(msgspec.Struct):
    track: str
    layer: Layer
    seq: int
    cause: int | msgspec.UnsetType
    at: int
    event: Any


class _RawLine(msgspec.Struct, forbid_unknown_fields=True):
    track: str
    layer: Layer
    seq: int
    event: msgspec.Raw
    cause: int = -1
    at: int = 0


class _Header(msgspec.Struct):
    playhead: int
    opening: dict[str, Any]
    info: dict[str, Any] = {}
    blobs: named.PromptBlobs = {}


_encoder = msgspec.json.Encoder()
_LINE = msgspec.json.Decoder(_RawLine)
_HEADER = msgspec.json.Decoder(_Header)
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
IS_HEADER = re.compile(rb'\s*\{\s*"playhead"')
"""How a line begins that begins a session."""


# --- writing --------------------------------------------------------------------------------------------------------


def dumps(trace: Trace) -> bytes:
    """One session as the text of a trace file."""
    blobs: named.PromptBlobs = {}
    lines: list[bytes] = []
    for (track, layer), records in ordered(trace.records).items():
        for record in records:
            cause = msgspec.UNSET if record.cause == -1 else record.cause
            event = named.show(layer, record.event, blobs)
            lines.append(_encoder.encode(_Line(track, layer, record.seq, cause, record.at, event)))
    header: dict[str, Any] = {
        "playhead": codec.SCHEMA,
        "opening": named.plain(trace.opening),
        "info": named.plain(trace.info),
        "blobs": blobs,
    }
    return b"\n".join([_encoder.encode(header), *lines, b""])


def file_name(session: str) -> str:
    """The name of a session's file. An id may come from anybody's file: raises StoreError for one that is not a plain
    name, which could lead out of the folder."""
    if not _PLAIN.fullmatch(session):
        raise StoreError(f"session {session[:200]!r}: its id cannot be the name of a file; it is not exported.")
    return f"{session}.jsonl"


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write one session to a file. Raises StoreUnavailable."""
    data = dumps(trace)
    if os.fspath(path).endswith(".zst"):
        data = zstandard.compress(data, 10)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise StoreUnavailable(f"{os.fspath(path)} cannot be written ({error.strerror}).") from error


# --- reading --------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Trace:
    """The one session of a file. Raises StoreUnavailable, CorruptRecord (naming file and line), UnknownSchema."""
    traces = list(_read_file(Path(path)))
    if len(traces) != 1:
        raise CorruptRecord(f"{os.fspath(path)}: one session expected, {len(traces)} found.")
    return traces[0]


def read_many(path: str | os.PathLike[str], layers: Collection[Key] | None = None) -> Iterator[Trace]:
    """The sessions of a file, or of all trace files in a folder, by name, deeply. ``layers``: see ``EventStore.load``.
    Raises as ``read``."""
    root = Path(path)
    if not root.is_dir():
        yield from _read_file(root, layers)
        return
    for file in sorted(file for file in root.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file()):
        yield from _read_file(file, layers)


def _read_file(path: Path, layers: Collection[Key] | None = None) -> Iterator[Trace]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read ({error.strerror}).") from error
    if path.name.endswith(".zst"):
        data = unpacked(path, data)
    return loads(data, str(path), layers=layers)


def unpacked(path: Path, data: bytes) -> bytes:
    """The text of a compressed trace file. Raises CorruptRecord."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = start = 0
    try:
        while start < len(data) and not unpacker.eof:
            parts.append(unpacker.decompress(data[start : start + 1024]))
            start += 1024
            size += len(parts[-1])
            if size > MAX_UNPACKED:
                raise CorruptRecord(f"{path}: it unpacks to more than {MAX_UNPACKED} bytes; split it.")
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"{path}: it does not decompress ({error}).") from error
    if not unpacker.eof:
        raise CorruptRecord(f"{path}: it is cut short.")
    return b"".join(parts)


def loads(
    data: bytes,
    name: str = "trace",
    upcasts: codec.Upcasts = codec.UPCASTS,
    layers: Collection[Key] | None = None,
    first: int = 1,
) -> Iterator[Trace]:
    """The sessions in the text of a trace file. ``name``, and ``first``, the number of its first line, are for
    messages; ``layers``: see ``EventStore.load``. Raises CorruptRecord, UnknownSchema."""
    held: _Reading | None = None
    number = first
    for number, line in enumerate(data.split(b"\n"), first):
        where = f"{name}, line {number}"
        if not line.strip():
            continue
        if IS_HEADER.match(line):
            if held is not None:
                yield held.trace(where)
            held = _Reading(line, where, upcasts, layers)
        elif held is None:
            raise CorruptRecord(f"{where}: the header of a trace expected.")
        else:
            held.add(line, where)
    if held is None:
        raise CorruptRecord(f"{name}, line {first}: the header of a trace expected.")
    yield held.trace(f"{name}, line {number}")


class _Reading:
    """A session while its lines come."""

    def __init__(self, line: bytes, where: str, upcasts: codec.Upcasts, layers: Collection[Key] | None) -> None:
        try:
            header = _HEADER.decode(line)
            self._steps = upcasts.since(header.playhead, where)
            opening: Any = header.opening
            for step in self._steps:
                opening = step.opening(opening)
            if "request" in opening:
                opening["request"] = named.untext(msgspec.convert(opening["request"], named.Text))
            self._opening = msgspec.convert(opening, Opening)
            self._info = msgspec.convert(
                {"session": self._opening.session, "opened": self._opening.opened, **header.info}, SessionInfo
            )
            msgspec.convert(self._info.message, tuple[Said, ...])
            codec.encode((self._opening, self._info))
        except (msgspec.DecodeError, ValueError, OverflowError) as error:
            raise CorruptRecord(f"{where}: not the header of a trace ({error}).") from error
        self._blobs = header.blobs
        self._layers = layers
        self._counts: dict[Key, int] = {}
        self._records: dict[Key, list[Record]] = {}

    def add(self, line: bytes, where: str) -> None:
        """The next record."""
        try:
            raw = _LINE.decode(line)
        except msgspec.DecodeError as error:
            raise CorruptRecord(f"{where}: not a record ({error}).") from error
        key = raw.track, raw.layer
        seq = self._counts.get(key, 0)
        if raw.seq != seq:
            raise CorruptRecord(f"{where}: {raw.track}/{raw.layer} seq {seq} expected, {raw.seq} found.")
        self._counts[key] = seq + 1
        if self._layers is None or key in self._layers:
            record = Record(seq, raw.cause, raw.at, self._event(raw, where))
            self._records.setdefault(key, []).append(record)

    def _event(self, raw: _RawLine, where: str) -> Any:
        data: bytes | msgspec.Raw = raw.event
        try:
            if self._steps:
                value: Any = msgspec.json.decode(data)
                for step in self._steps:
                    value = step.named(raw.layer, value)
                data = _encoder.encode(value)
            event = named.read(raw.layer, data, self._opening.protocol, self._blobs)
            codec.encode((raw.cause, raw.at, event))
            return event
        except OverflowError as error:
            raise CorruptRecord(f"{where}: a number in it cannot be stored ({error}).") from error
        except StoreError as error:
            raise type(error)(f"{where}: {error}") from error
        except msgspec.DecodeError as error:
            tag = named.unknown_tag(raw.layer, data)
            if tag is not None:
                raise UnknownSchema(
                    f"{where}: unknown event {tag!r}; written by a newer Playhead? Install it."
                ) from error
            raise CorruptRecord(f"{where}: not an event of layer {raw.layer} ({error}).") from error

    def trace(self, where: str) -> Trace:
        """The session, now that it is over."""
        counts = {f"{track}/{layer}": count for (track, layer), count in self._counts.items()}
        for key, count in self._info.events.items():
            found = counts.get(key, 0)
            if found != count:
                raise CorruptRecord(f"{where}: {key} has {found} of {count} records; the file is cut, or was edited.")
        return Trace(opening=self._opening, info=self._info, records=ordered(self._records))
