"""How events become bytes and come back: schema version, MessagePack, digests, upcasts.

An event is stored as msgspec encodes it: an array that begins with its tag; a protocol's own chunks as maps. The
encodings of a layer's events, concatenated, are its canonical bytes: digests are taken over them. Nothing stored is
rewritten: an older schema is raised to this one while it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import GenericAlias
from typing import Any, NamedTuple, TypeAlias, cast, get_args

import msgspec

import stages.catalog as catalog
from stages.events import CommonChunk, Event, Frame, Input, Layer, PromptInput, Semantic, Sent
from store.api import CorruptRecord, Digest, StoreError, UnknownSchema

SCHEMA = 1
"""The version of everything that is stored: events, opening, columns."""

Blobs: TypeAlias = Callable[[bytes], bytes]
"""Hash (32 bytes, SHA-256) → stored bytes. Raises CorruptRecord if there are none."""


class Where(NamedTuple):
    """A place in a store, for messages."""

    session: str
    track: str
    layer: str
    seq: int

    def __str__(self) -> str:
        return f"session {self.session}, track {self.track}, layer {self.layer}, seq {self.seq}"


class PromptRef(Event, frozen=True, gc=False, array_like=True, tag="prompt_ref"):
    """PromptInput as it is stored: ``ids`` is the hash of a blob."""

    ids: bytes
    tail: str
    count: int
    cached: int = 0


# --- upcasts --------------------------------------------------------------------------------------------------------


def _same_event(layer: Layer, value: Any) -> Any:
    return value


def _same_opening(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Upcast:
    """What changed from schema n to n+1. Pure functions on plain values, one event or opening at a time.

    ``packed``: an event as in a store (an array, or a protocol's map); ``named``: as in a trace file (an object);
    ``opening``: the opening's object, which has the same form in both but for bytes.
    """

    packed: Callable[[Layer, Any], Any] = _same_event
    named: Callable[[Layer, Any], Any] = _same_event
    opening: Callable[[Any], Any] = _same_opening


@dataclass(frozen=True)
class Upcasts:
    """The schema that this code reads into, and the steps from older ones. ``steps[n]`` leads to n+1."""

    schema: int = SCHEMA
    steps: Mapping[int, Upcast] = field(default_factory=dict[int, Upcast])

    def since(self, schema: int, where: object) -> list[Upcast]:
        """The steps from ``schema`` to this one. Raises UnknownSchema if it is newer, or older than the steps reach."""
        if schema > self.schema:
            raise UnknownSchema(
                f"{where}: written with schema {schema}; this Playhead reads up to {self.schema}. Install a newer one."
            )
        missing = [n for n in range(schema, self.schema) if n not in self.steps]
        if missing:
            raise UnknownSchema(f"{where}: no way from schema {missing[0]} to {missing[0] + 1} is known.")
        return [self.steps[n] for n in range(schema, self.schema)]


UPCASTS = Upcasts()
"""The released steps. Append only."""


# --- encoding -------------------------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode


def encode(events: Sequence[Any]) -> bytes:
    """The canonical bytes: the concatenated encodings. Raises what msgspec raises where one cannot be encoded."""
    n = len(events)
    if not n:
        return b""
    data = _encode(events if isinstance(events, (list, tuple)) else list(events))
    return data[1 if n < 16 else 3 if n < 65536 else 5 :]


def array(n: int, data: bytes = b"") -> bytes:
    """The MessagePack array whose ``n`` elements are ``data``: undoes ``encode``."""
    if n < 16:
        return bytes((0x90 | n,)) + data
    return (b"\xdc" + n.to_bytes(2, "big") if n < 65536 else b"\xdd" + n.to_bytes(4, "big")) + data


def head(data: bytes | msgspec.Raw) -> bytes:
    """What a MessagePack array begins with, which tells how many elements it has; "" of anything else."""
    view = memoryview(data)
    first = view[0] if len(view) else 0
    size = 1 if 0x90 <= first <= 0x9F else {0xDC: 3, 0xDD: 5}.get(first, 0)
    return bytes(view[:size])


def blob(data: bytes) -> bytes:
    """The name of a blob."""
    return hashlib.sha256(data).digest()


def ids_blob(ids: Sequence[int]) -> tuple[bytes, bytes]:
    """(name, data) of the blob of a prompt's ids."""
    data = _encode(ids)
    return blob(data), data


def stow(events: Sequence[Any], blobs: dict[bytes, bytes]) -> Sequence[Any]:
    """Engine-layer events as they are stored: prompt ids go to ``blobs``."""
    if PromptInput not in map(type, events):
        return events
    stored: list[Any] = []
    for event in events:
        if isinstance(event, PromptInput):
            name, data = ids_blob(event.ids)
            blobs[name] = data
            event = PromptRef(name, event.tail, event.count, event.cached)
        stored.append(event)
    return stored


class RollingDigest:
    """``digest``, a batch at a time. ``n``: events so far."""

    def __init__(self) -> None:
        self.n = 0
        self._hash = hashlib.sha256()

    def update(self, events: Sequence[Any]) -> None:
        """Take in the next events."""
        self.add(len(events), encode(events))

    def add(self, n: int, data: bytes) -> None:
        """Take in the next ``n`` events, already encoded by ``encode``."""
        self.n += n
        self._hash.update(data)

    def value(self) -> Digest:
        """The digest of all that was taken in."""
        return Digest(self.n, self._hash.hexdigest())


def digest(events: Sequence[Any]) -> Digest:
    """SHA-256 over the canonical bytes of a layer's events."""
    rolling = RollingDigest()
    rolling.update(events)
    return rolling.value()


# --- decoding -------------------------------------------------------------------------------------------------------

_COMMON = msgspec.msgpack.Decoder(list[CommonChunk])
_RAWS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_LISTS: dict[Layer, msgspec.msgpack.Decoder[Any]] = {
    "engine": msgspec.msgpack.Decoder(list[Input | PromptRef]),
    "semantic": msgspec.msgpack.Decoder(list[Semantic]),
    "frame": msgspec.msgpack.Decoder(list[Frame | Sent]),
}
_ONES: dict[Layer, msgspec.msgpack.Decoder[Any]] = {
    "engine": msgspec.msgpack.Decoder(Input | PromptRef),
    "semantic": msgspec.msgpack.Decoder(Semantic),
    "frame": msgspec.msgpack.Decoder(Frame | Sent),
}
_IDS = msgspec.msgpack.Decoder(tuple[int, ...])


def tags(union: Any) -> frozenset[str]:
    """The tags of a union of Structs (or of one)."""
    return frozenset(str(cls.__struct_config__.tag) for cls in (get_args(union) or (union,)))


TAGS: dict[Layer, frozenset[str]] = {
    "engine": tags(Input | PromptRef),
    "semantic": tags(Semantic),
    "chunk": tags(CommonChunk),
    "frame": tags(Frame | Sent),
}
"""The tags of the array-like events of each layer."""


def chunk_type(protocol: str) -> Any:
    """The union of a protocol's own chunks. Raises UnknownSchema."""
    entry = catalog.PROTOCOLS.get(protocol)
    if entry is None:
        raise UnknownSchema(f"protocol {protocol!r} is not one that this Playhead knows; install a newer one.")
    return entry.chunk


def knows(protocol: str) -> bool:
    """A protocol's own chunks can be decoded."""
    return protocol in catalog.PROTOCOLS


_chunks: dict[str, tuple[Any, msgspec.msgpack.Decoder[Any]]] = {}


def _chunk_decoder(protocol: str) -> msgspec.msgpack.Decoder[Any]:
    union = chunk_type(protocol)
    known = _chunks.get(protocol)
    if known is None or known[0] is not union:
        known = _chunks[protocol] = (union, msgspec.msgpack.Decoder(GenericAlias(list, (union,))))
    return known[1]


def _is_map(data: msgspec.Raw) -> bool:
    first = memoryview(data)[0]
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _decode_chunks(data: bytes | msgspec.Raw, protocol: str) -> list[Any]:
    # msgspec takes no union of array-like and map-like Structs, so the first byte decides.
    events: list[Any] = []
    for own, group in groupby(_RAWS.decode(data), _is_map):
        raws = list(group)
        decoder = _chunk_decoder(protocol) if own else _COMMON
        events += decoder.decode(array(len(raws), b"".join(raws)))
    return events


def decode(
    where: Where,
    data: bytes | msgspec.Raw,
    protocol: str,
    blobs: Blobs,
    schema: int = SCHEMA,
    upcasts: Upcasts = UPCASTS,
) -> list[Any]:
    """The events of a MessagePack array.

    ``where``: what it is, with the first seq. Raises CorruptRecord (it does not decode), UnknownSchema (a newer
    schema, protocol or tag).
    """
    layer = cast("Layer", where.layer)
    steps = upcasts.since(schema, where)
    try:
        if steps:
            values = msgspec.msgpack.decode(data)
            for step in steps:
                values = [step.packed(layer, value) for value in values]
            data = _encode(values)
        if layer == "chunk":
            return _decode_chunks(data, protocol)
        events: list[Any] = _LISTS[layer].decode(data)
    except msgspec.DecodeError as error:
        raise _misfit(where, data, protocol, error) from error
    if layer == "engine" and PromptRef in map(type, events):
        for at, event in enumerate(events):
            if event.__class__ is PromptRef:
                events[at] = _unstow(where, event, blobs)
    return events


def _unstow(where: Where, event: PromptRef, blobs: Blobs) -> PromptInput:
    try:
        ids = _IDS.decode(blobs(event.ids))
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"{where}: the prompt ids do not decode ({error}).") from error
    return PromptInput(ids, event.tail, event.count, event.cached)


def _misfit(where: Where, data: bytes | msgspec.Raw, protocol: str, error: Exception) -> StoreError:
    """Why ``data`` did not decode, and at which seq."""
    layer = cast("Layer", where.layer)
    try:
        raws = _RAWS.decode(data)
    except msgspec.DecodeError:
        return CorruptRecord(f"{where}: the stored bytes do not decode ({error}).")
    for seq, raw in enumerate(raws, where.seq):
        at = where._replace(seq=seq)
        try:
            if layer == "chunk":
                _decode_chunks(array(1, bytes(raw)), protocol)
            else:
                _ONES[layer].decode(raw)
        except msgspec.DecodeError as mine:
            try:
                tag = next(iter(msgspec.msgpack.decode(raw, type=list[Any])), None)
            except msgspec.ValidationError:
                tag = None
            if isinstance(tag, str) and tag not in TAGS[layer]:
                return UnknownSchema(f"{at}: unknown event {tag!r}; written by a newer Playhead? Install it.")
            return CorruptRecord(f"{at}: the stored event does not decode ({mine}).")
    return CorruptRecord(f"{where}: the stored bytes do not decode ({error}).")
