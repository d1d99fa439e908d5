"""Events by name: the JSON objects of a trace file.

Every event class has a mirror with the same fields, written as an object whose ``type`` is the event's tag. Bytes are
text where they are UTF-8, else ``{"hex": …}``. A prompt's ids are the name of a blob in the file's header. A
protocol's chunks are what the protocol says.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from stages.events import CommonChunk, Frame, Input, Layer, PromptInput, Semantic, Sent, TokenLogprob, TopLogprob
from store import codec
from store.api import CorruptRecord


class Hex(msgspec.Struct, frozen=True):
    """Bytes that are not UTF-8."""

    hex: str


Text: TypeAlias = str | Hex
Convert: TypeAlias = Callable[[Any], Any]


def text(data: bytes) -> Text:
    """Bytes for people."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Hex(data.hex())


def untext(shown: Text) -> bytes:
    """Undoes ``text``. Raises ValueError."""
    return bytes.fromhex(shown.hex) if isinstance(shown, Hex) else shown.encode()


class Mirror:
    """The mirror of one Struct class, and the ways there and back."""

    def __init__(self, cls: type[msgspec.Struct], tag: str | None) -> None:
        hints = get_type_hints(cls)
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        self._ways: list[tuple[Convert, Convert] | None] = []
        for info in msgspec.structs.fields(cls):
            kind, way = _mirrored(hints[info.name])
            self._ways.append(way)
            fields.append((info.name, kind) if info.required else (info.name, kind, info.default))
        self.cls = cls
        self.shown = msgspec.defstruct(
            cls.__name__, fields, tag_field="type" if tag else None, tag=tag, omit_defaults=True, frozen=True
        )
        self._plain = not any(self._ways)

    def there(self, event: msgspec.Struct) -> msgspec.Struct:
        """The mirror's instance for an event."""
        values = msgspec.structs.astuple(event)
        if self._plain:
            return self.shown(*values)
        return self.shown(*(way[0](value) if way else value for way, value in zip(self._ways, values, strict=True)))

    def back(self, shown: msgspec.Struct) -> msgspec.Struct:
        """The event of a mirror's instance. Raises ValueError where bytes are not what they should be."""
        values = msgspec.structs.astuple(shown)
        if self._plain:
            return self.cls(*values)
        return self.cls(*(way[1](value) if way else value for way, value in zip(self._ways, values, strict=True)))


_parts: dict[type[msgspec.Struct], Mirror] = {}


def _mirrored(kind: Any) -> tuple[Any, tuple[Convert, Convert] | None]:
    """The type that stands for ``kind`` in a mirror, and the ways there and back if it is another one."""
    if kind is bytes:
        return Text, (text, untext)
    if kind in (TokenLogprob, TopLogprob):
        part = _parts.get(kind) or _parts.setdefault(kind, Mirror(kind, None))
        return part.shown, (part.there, part.back)
    if get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,):
        inner, way = _mirrored(get_args(kind)[0])
        if way is not None:
            there, back = way
            return types.GenericAlias(tuple, (inner, ...)), (
                lambda values: tuple(map(there, values)),
                lambda values: tuple(map(back, values)),
            )
    return kind, None


class _ShownPrompt(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="prompt"):
    ids: str
    tail: str
    count: int
    cached: int = 0


def _mirrors(union: Any) -> dict[type[msgspec.Struct], Mirror]:
    classes: tuple[type[msgspec.Struct], ...] = get_args(union)
    return {cls: Mirror(cls, str(cls.__struct_config__.tag)) for cls in classes if cls is not PromptInput}


_MIRRORS: dict[Layer, dict[type[msgspec.Struct], Mirror]] = {
    "engine": _mirrors(Input),
    "semantic": _mirrors(Semantic),
    "chunk": _mirrors(CommonChunk),
    "frame": _mirrors(Frame | Sent),
}
_BACK: dict[Layer, dict[type[msgspec.Struct], Mirror]] = {
    layer: {mirror.shown: mirror for mirror in mirrors.values()} for layer, mirrors in _MIRRORS.items()
}


_SHOWN: dict[Layer, Any] = {
    layer: Union[(*back, _ShownPrompt) if layer == "engine" else tuple(back)]  # noqa: F821, UP007  (it is a value)
    for layer, back in _BACK.items()
}
_DECODERS: dict[Layer, msgspec.json.Decoder[Any]] = {
    layer: msgspec.json.Decoder(shown) for layer, shown in _SHOWN.items()
}
_TAGS: dict[Layer, frozenset[str]] = {layer: codec.tags(shown) for layer, shown in _SHOWN.items()}
_own: dict[str, tuple[Any, msgspec.json.Decoder[Any]]] = {}


class _Type(msgspec.Struct):
    type: str = ""


_TYPE = msgspec.json.Decoder(_Type)

PromptBlobs: TypeAlias = dict[str, tuple[int, ...]]
"""Name → prompt ids, in a trace file's header."""


def show(layer: Layer, event: Any, blobs: PromptBlobs) -> Any:
    """What to encode as JSON for an event."""
    if isinstance(event, PromptInput):
        name = codec.ids_blob(event.ids)[0].hex() if event.ids else ""
        if name:
            blobs[name] = event.ids
        return _ShownPrompt(name, event.tail, event.count, event.cached)
    mirror = _MIRRORS[layer].get(event.__class__)
    # What has no mirror is a protocol's own chunk.
    return event if mirror is None else mirror.there(event)


def read(layer: Layer, data: bytes | msgspec.Raw, protocol: str, blobs: PromptBlobs) -> Any:
    """The event of a JSON object. Raises CorruptRecord, UnknownSchema, msgspec.DecodeError."""
    if layer == "chunk" and _tag(data) not in _TAGS["chunk"]:
        return _own_decoder(protocol).decode(data)
    shown = _DECODERS[layer].decode(data)
    if isinstance(shown, _ShownPrompt):
        if shown.ids and shown.ids not in blobs:
            raise CorruptRecord(f"the header has no blob {shown.ids}")
        return PromptInput(blobs[shown.ids] if shown.ids else (), shown.tail, shown.count, shown.cached)
    try:
        return _BACK[layer][shown.__class__].back(shown)
    except ValueError as error:
        raise CorruptRecord(f"bytes in hexadecimal expected ({error})") from error


def unknown_tag(layer: Layer, data: bytes | msgspec.Raw) -> str | None:
    """The ``type`` of an object that did not decode, if this code does not know it."""
    if layer == "chunk":
        return None
    try:
        tag = _tag(data)
    except msgspec.DecodeError:
        return None
    return tag if tag and tag not in _TAGS[layer] else None


def _tag(data: bytes | msgspec.Raw) -> str:
    try:
        return _TYPE.decode(data).type
    except msgspec.ValidationError:
        return ""


def _own_decoder(protocol: str) -> msgspec.json.Decoder[Any]:
    union = codec.chunk_type(protocol)
    known = _own.get(protocol)
    if known is None or known[0] is not union:
        known = _own[protocol] = (union, msgspec.json.Decoder(union))
    return known[1]


def plain(value: Any) -> Any:
    """A Struct as an object without the fields that equal their defaults, deeply; for an opening or an info."""
    if isinstance(value, msgspec.Struct):
        fields = [(info, getattr(value, info.name)) for info in msgspec.structs.fields(value)]
        return {info.encode_name: plain(held) for info, held in fields if info.required or held != _default(info)}
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, dict):
        return {key: plain(held) for key, held in cast(dict[str, Any], value).items()}
    if isinstance(value, (tuple, list)):
        return [plain(held) for held in cast(list[Any], value)]
    return value


def _default(info: msgspec.structs.FieldInfo) -> Any:
    return info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
