"""A block: consecutive records of one (session, track, layer) as one string of bytes; what a store's rows hold.

Columns first, events last: ``[counts, ats, causes, events]``. ``counts`` and ``ats`` are run lengths: so many records
share a time, which is given as the difference to the one before. ``causes`` holds differences too, or nothing where
every cause is -1 (inputs). ``events`` is the array of the events' encodings.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Sequence
from itertools import accumulate, chain, groupby, repeat
from operator import attrgetter, sub
from typing import Any

import msgspec
import zstandard

from stages.events import Layer
from store import codec
from store.api import CorruptRecord, Record, Rows, UnknownSchema

PLAIN = 0
ZSTD = 1
"""Codec numbers of a body. Never reused."""

LEVEL = 3
"""zstd level of what is kept."""

SETTLED = 1
"""Flag: sealed by somebody else than its writer, after that died or failed."""


class Run(msgspec.Struct, gc=False):
    """Consecutive records, encoded: ``n`` from ``first`` on. ``times``: so many of them (in order) at such a time, in
    all ``n``; ``causes``: one each, or none where every cause is -1; ``data`` as ``codec.encode`` gives it."""

    first: int
    n: int
    times: Sequence[tuple[int, int]]
    causes: Sequence[int]
    data: bytes


def run(records: Sequence[Record], blobs: dict[bytes, bytes]) -> Run:
    """Records as a run again; what engine events stow away goes to ``blobs``."""
    events = codec.stow([record.event for record in records], blobs)
    causes = [record.cause for record in records]
    inputs = all(cause == -1 for cause in causes)
    times = [(len(list(group)), at) for at, group in groupby(records, key=attrgetter("at"))]
    return Run(records[0].seq, len(records), times, () if inputs else causes, codec.encode(events))


class _Body(msgspec.Struct, array_like=True, gc=False):
    counts: msgspec.Raw
    ats: msgspec.Raw
    causes: msgspec.Raw
    events: msgspec.Raw


_BODY = msgspec.msgpack.Decoder(_Body)
_INTS = msgspec.msgpack.Decoder(list[int])
_columns = msgspec.msgpack.Encoder().encode


def pack(runs: Sequence[Run]) -> bytes:
    """The body of consecutive runs."""
    n = runs[-1].first + runs[-1].n - runs[0].first
    causes: list[int] = []
    if any(run.causes for run in runs):
        flat = list(chain.from_iterable(run.causes or repeat(-1, run.n) for run in runs))
        causes = [flat[0], *map(sub, flat[1:], flat)]
    counts: list[int] = []
    ats: list[int] = []
    last = 0
    for n_at, at in chain.from_iterable(run.times for run in runs):
        if ats and at == last:
            counts[-1] += n_at
            continue
        counts.append(n_at)
        ats.append(at - last)
        last = at
    columns = (_columns(counts), _columns(ats), _columns(causes))
    return b"".join((b"\x94", *columns, codec.array(n, b""), *(run.data for run in runs)))


def unpack(
    where: codec.Where,
    n: int,
    body: bytes,
    protocol: str,
    blobs: codec.Blobs,
    schema: int = codec.SCHEMA,
    upcasts: codec.Upcasts = codec.UPCASTS,
    *,
    lazy: bool = False,
) -> Rows:
    """The records of a body of ``n``, the first with ``where.seq``. ``lazy``: columns are decoded when they are asked
    for. Raises CorruptRecord, UnknownSchema."""
    try:
        columns = _BODY.decode(body)
    except msgspec.DecodeError as error:
        raise _undecoded(where, error) from error
    part = _Part(where, n, columns, protocol, blobs, schema, upcasts)
    if lazy and part.fits():
        return Rows(first=where.seq, parts=[part])
    events, ats, causes = part.events(), part.ats(), part.causes()
    return Rows(causes, ats, events, where.seq)


class _Part:
    """A body as a part of Rows."""

    __slots__ = ("_blobs", "_body", "_protocol", "_schema", "_upcasts", "_where", "n")

    def __init__(
        self, where: codec.Where, n: int, body: _Body, protocol: str, blobs: codec.Blobs, schema: int,
        upcasts: codec.Upcasts,
    ) -> None:  # fmt: skip
        self.n = n
        self._where = where
        self._body = body
        self._protocol = protocol
        self._blobs = blobs
        self._schema = schema
        self._upcasts = upcasts

    def fits(self) -> bool:
        """The events are of this schema, and as many as there should be: then they are canonical bytes."""
        if self._schema != self._upcasts.schema or (self._where.layer == "chunk" and not codec.knows(self._protocol)):
            return False
        return codec.head(self._body.events) == codec.head(codec.array(self.n))

    def events(self) -> list[Any]:
        """See Part."""
        made = codec.decode(self._where, self._body.events, self._protocol, self._blobs, self._schema, self._upcasts)
        if self.n != len(made):
            raise self._misfit(f"{len(made)} found")
        return made

    def ats(self) -> list[int]:
        """See Part."""
        counts, ats = self._ints(self._body.counts), list(accumulate(self._ints(self._body.ats)))
        if self.n != sum(counts) or min(counts, default=0) < 0:
            raise self._misfit(f"{sum(counts)} with a time found")
        if len(ats) != self.n:
            ats = list(chain.from_iterable(map(repeat, ats, counts)))
        if self.n != len(ats):
            raise self._misfit(f"{len(ats)} times found")
        return ats

    def causes(self) -> list[int]:
        """See Part."""
        causes = list(accumulate(self._ints(self._body.causes))) or [-1] * self.n
        if self.n != len(causes):
            raise self._misfit(f"{len(causes)} causes found")
        return causes

    def data(self) -> memoryview:
        """See Part."""
        return memoryview(self._body.events)[len(codec.head(self._body.events)) :]

    def _ints(self, column: msgspec.Raw) -> list[int]:
        try:
            return _INTS.decode(column)
        except msgspec.DecodeError as error:
            raise _undecoded(self._where, error) from error

    def _misfit(self, found: str) -> CorruptRecord:
        return CorruptRecord(f"{self._where}: {self.n} records expected, {found}.")


def _undecoded(where: codec.Where, error: Exception) -> CorruptRecord:
    return CorruptRecord(f"{where}: the stored block does not decode ({error}).")


def crc(stored: bytes) -> int:
    """The checksum of a body as it is stored."""
    return zlib.crc32(stored)


def check(where: object, codec_id: int, crc32: int, stored: bytes) -> bytes:
    """The body in ``stored``. Raises CorruptRecord if the checksum differs, UnknownSchema for an unknown codec."""
    if zlib.crc32(stored) != crc32:
        raise CorruptRecord(f"{where}: the stored bytes fail their checksum. Restore the file from a backup.")
    if codec_id == PLAIN:
        return stored
    if codec_id != ZSTD:
        raise UnknownSchema(f"{where}: unknown codec {codec_id}; written by a newer Playhead? Install it.")
    try:
        return _unpacker().decompress(stored)
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"{where}: the stored bytes do not decompress ({error}).") from error


class _Local(threading.local):
    unpacker: zstandard.ZstdDecompressor | None = None


_local = _Local()


def _unpacker() -> zstandard.ZstdDecompressor:
    """This thread's: making one takes longer than most bodies do."""
    if _local.unpacker is None:
        _local.unpacker = zstandard.ZstdDecompressor()
    return _local.unpacker


class Packer:
    """Compresses bodies. Of use to one thread."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)

    def squeeze(self, body: bytes) -> tuple[int, bytes]:
        """(codec, stored bytes): compressed where that helps."""
        packed = self._compressor.compress(body)
        return (ZSTD, packed) if len(packed) < len(body) else (PLAIN, body)


def seed(session: str, track: str, layer: Layer) -> bytes:
    """What the hash chain of a layer begins with: it binds the blocks to their place."""
    return hashlib.sha256("\0".join((session, track, layer)).encode()).digest()


def link(previous: bytes, stored: bytes) -> bytes:
    """The next hash of the chain."""
    return hashlib.sha256(previous + stored).digest()
