"""A block: consecutive records of one (session, track, layer) as one string of bytes; what a store's rows hold.

Columns first, events last: ``[counts, ats, causes, events]``. ``counts`` and ``ats`` are run lengths: so many records
share a time, which is given as the difference to the one before. ``causes`` holds differences too, or nothing where
every cause is -1 (inputs). ``events`` is the array of the events' encodings.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from itertools import accumulate, chain, groupby, repeat
from operator import attrgetter, sub

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


class _Body(msgspec.Struct, array_like=True):
    counts: list[int]
    ats: list[int]
    causes: list[int]
    events: msgspec.Raw


_BODY = msgspec.msgpack.Decoder(_Body)
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
) -> Rows:
    """The records of a body of ``n``, the first with ``where.seq``. Raises CorruptRecord, UnknownSchema."""
    try:
        columns = _BODY.decode(body)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"{where}: the stored block does not decode ({error}).") from error
    events = codec.decode(where, columns.events, protocol, blobs, schema, upcasts)
    if n != len(events) or n != sum(columns.counts):
        raise CorruptRecord(f"{where}: {n} records expected, {len(events)} found.")
    ats = list(accumulate(columns.ats))
    if len(ats) != n:
        ats = list(chain.from_iterable(map(repeat, ats, columns.counts)))
    causes = list(accumulate(columns.causes)) or [-1] * n
    if not n == len(ats) == len(causes):
        raise CorruptRecord(f"{where}: {n} records expected, {len(ats)} times and {len(causes)} causes found.")
    return Rows(causes, ats, events, where.seq)


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
        return zstandard.decompress(stored)
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"{where}: the stored bytes do not decompress ({error}).") from error


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
