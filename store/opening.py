"""The Opening as it is stored: its big parts, equal over many sessions, are blobs."""

from __future__ import annotations

import msgspec

from stages.opening import EngineFacts, Opening, TokenizerFacts, Tool
from store import codec
from store.api import CorruptRecord


class _Stored(msgspec.Struct, frozen=True):
    """``opening`` without its parts; a part is the hash of a blob, or nothing where it has its default."""

    opening: Opening
    tools: bytes = b""
    tokenizer: bytes = b""
    engine: bytes = b""


_NO_ENGINE = EngineFacts(kind="none", model="")
_NO_TOKENIZER = TokenizerFacts()
_encode = msgspec.msgpack.Encoder().encode
_STORED = msgspec.msgpack.Decoder(_Stored)
_TOOLS = msgspec.msgpack.Decoder(tuple[Tool, ...])
_TOKENIZER = msgspec.msgpack.Decoder(TokenizerFacts)
_ENGINE = msgspec.msgpack.Decoder(EngineFacts)


def pack(opening: Opening, blobs: dict[bytes, bytes]) -> bytes:
    """The stored bytes; the parts go to ``blobs``."""

    def put(part: object, default: object) -> bytes:
        if part == default:
            return b""
        data = _encode(part)
        name = codec.blob(data)
        blobs[name] = data
        return name

    rest = msgspec.structs.replace(
        opening,
        ask=msgspec.structs.replace(opening.ask, tools=()),
        tokenizer=_NO_TOKENIZER,
        engine=_NO_ENGINE,
    )
    return _encode(
        _Stored(
            rest,
            put(opening.ask.tools, ()),
            put(opening.tokenizer, _NO_TOKENIZER),
            put(opening.engine, _NO_ENGINE),
        )
    )


class Known:
    """What was read of the parts, which most sessions share: their bytes by hash, and tokenizers, one object for all
    sessions. Bounded."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._tokenizers: dict[bytes, TokenizerFacts] = {}

    def blobs(self, blobs: codec.Blobs) -> codec.Blobs:
        """The same, each read once."""

        def load(name: bytes) -> bytes:
            data = self._data.get(name)
            if data is None:
                data = blobs(name)
                if len(data) <= _LARGE:
                    if len(self._data) >= _MOST:
                        self._data.clear()
                    self._data[name] = data
            return data

        return load

    def tokenizer(self, name: bytes, blobs: codec.Blobs) -> TokenizerFacts:
        """Decoded once. Nobody changes it."""
        found = self._tokenizers.get(name)
        if found is None:
            found = _TOKENIZER.decode(blobs(name))
            if len(self._tokenizers) >= _MOST:
                self._tokenizers.clear()
            self._tokenizers[name] = found
        return found


_MOST = 64
_LARGE = 1 << 18


def unpack(
    session: str,
    data: bytes,
    blobs: codec.Blobs,
    schema: int = codec.SCHEMA,
    upcasts: codec.Upcasts = codec.UPCASTS,
    known: Known | None = None,
) -> Opening:
    """Undoes ``pack``. ``known``: what was read of openings before. Raises CorruptRecord, UnknownSchema."""
    known = known or Known()
    read = known.blobs(blobs)
    where = f"session {session}, opening"
    steps = upcasts.since(schema, where)
    try:
        if steps:
            value = msgspec.msgpack.decode(data)
            for step in steps:
                value["opening"] = step.opening(value["opening"])
            data = _encode(value)
        stored = _STORED.decode(data)
        opening = stored.opening
        return msgspec.structs.replace(
            opening,
            ask=msgspec.structs.replace(
                opening.ask, tools=_TOOLS.decode(read(stored.tools)) if stored.tools else opening.ask.tools
            ),
            tokenizer=known.tokenizer(stored.tokenizer, blobs) if stored.tokenizer else opening.tokenizer,
            engine=_ENGINE.decode(read(stored.engine)) if stored.engine else opening.engine,
        )
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"{where}: the stored bytes do not decode ({error}).") from error
