"""Server-sent events: chunks → frames, and bytes → events.

The framer writes what all clients can read: LF only, one ``data`` line of strict JSON per block, an ``event`` line
before it where the protocol names its events, no ``id`` or ``retry``, comments between blocks only, nothing after the
end. The decoder follows the WHATWG HTML Standard.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from stages.events import Block, Body, Comment, CommonChunk, Done, ErrorChunk, Frame, Head, Tick
from stages.opening import Opening
from stages.stage import Machine


class ProtocolChunk(Protocol):
    """What the framer needs of a protocol's chunk Structs; besides, ``event``: the name of the event, "" where the
    protocol's events have none. (It may be a property or belong to the class, which no Protocol can say.)

    A type that makes many lines faster than one by one may also have ``wires(chunks, before, after)``: for each chunk
    ``before + chunk.wire() + after``. It raises where a ``wire()`` does.
    """

    whole: ClassVar[bool]
    """It is a whole body, not an event of a stream."""

    def wire(self) -> bytes:
        """One line of strict JSON; UnicodeEncodeError where the text has unpaired surrogates."""
        ...


ChunkLayer: TypeAlias = ProtocolChunk | CommonChunk

_Wires: TypeAlias = Callable[[list[ChunkLayer], bytes, bytes], Iterable[bytes]]

_STREAM_HEADERS = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
_DONE = Block(b"data: [DONE]\n\n")
_KEEP_ALIVE = Comment(b": keep-alive\n\n")
_COMMON = frozenset((ErrorChunk, Done, Tick))
_Json: TypeAlias = "bool | int | float | str | list[_Json] | tuple[_Json, ...] | dict[str, _Json] | None"
_encode = msgspec.json.Encoder().encode


class Phase(IntEnum):
    """What was sent: nothing; the head of a stream; an error after it, so that only Done may follow; the end."""

    FRESH = 0
    STREAM = 1
    FAILED = 2
    CLOSED = 3


_STREAM = Phase.STREAM


class FramerSnapshot(msgspec.Struct, frozen=True):
    """The framer's state."""

    phase: Phase


def ids_of(protocol: str) -> tuple[str, ...]:
    """The headers that a response's id stands in."""
    # What clients of messages read is the second.
    return ("x-request-id", "request-id") if protocol == "messages" else ("x-request-id",)


class _Framer:
    """The first chunk decides what the response is: a stream, a body, or an error with its status."""

    def __init__(self, opening: Opening, phase: Phase = Phase.FRESH) -> None:
        self._named = tuple((name, opening.response_id) for name in ids_of(opening.protocol))
        self._phase = phase

    def snapshot(self) -> FramerSnapshot:
        """See Machine."""
        return FramerSnapshot(self._phase)

    def step(self, event: ChunkLayer, out: list[Frame]) -> None:
        """See Machine."""
        phase = self._phase
        if phase is _STREAM:
            if event.__class__ in _COMMON:
                self._common(event, out)
                return
            # Most chunks of most sessions are these.
            chunk: Any = event
            try:
                data: bytes = chunk.wire()
            except UnicodeEncodeError:
                data = _json(event)
            name = chunk.event
            out.append(
                Block(b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: " + data + b"\n\n")
            )
        elif phase is Phase.FRESH:
            self._first(event, out)
        elif phase is Phase.FAILED and isinstance(event, Done):
            self._common(event, out)

    def run_steps(self, inputs: Iterable[ChunkLayer], out: list[Frame], ends: list[int]) -> None:
        """See ``stages.stage.run_steps``."""
        for kind, group in groupby(inputs, type):
            wires: _Wires | None = getattr(kind, "wires", None)
            rest = iter(group)
            for event in rest:
                self.step(event, out)
                ends.append(len(out))
                if wires is not None and self._phase is _STREAM:
                    self._blocks(wires, list(rest), out, ends)

    def _blocks(self, wires: _Wires, chunks: list[ChunkLayer], out: list[Frame], ends: list[int]) -> None:
        before = len(out)
        try:
            out += map(Block, wires(chunks, b"data: ", b"\n\n"))
        except Exception:  # whatever one of them raises: by itself it is mended, or raises on its step
            del out[before:]
            for chunk in chunks:
                self.step(chunk, out)
                ends.append(len(out))
        else:
            ends += range(before + 1, len(out) + 1)

    def _first(self, event: ChunkLayer, out: list[Frame]) -> None:
        if isinstance(event, ErrorChunk):
            self._body(event.status, event.headers, event, out)
        elif not isinstance(event, Done | Tick) and event.whole:
            self._body(200, (), event, out)
        else:
            out.append(Head(200, (*_STREAM_HEADERS, *self._named)))
            self._phase = Phase.STREAM
            self.step(event, out)

    def _body(self, status: int, headers: tuple[tuple[str, str], ...], event: ChunkLayer, out: list[Frame]) -> None:
        data = _json(event)
        kind = (("content-type", "application/json"), ("content-length", str(len(data))))
        out += (Head(status, (*kind, *self._named, *headers)), Body(data))
        self._phase = Phase.CLOSED

    def _common(self, event: ChunkLayer, out: list[Frame]) -> None:
        if isinstance(event, Tick):
            out.append(_KEEP_ALIVE)
        elif isinstance(event, Done):
            out.append(_DONE)
            self._phase = Phase.CLOSED
        else:
            out.append(Block(b"data: %b\n\n" % _json(event)))
            self._phase = Phase.FAILED


class SseFramer:
    """The stage ``sse@1``. Unpaired surrogates, which no parser sends, become U+FFFD."""

    id = "sse@1"

    def start(self, opening: Opening) -> Machine[ChunkLayer, Frame]:
        """See Stage."""
        return _Framer(opening)

    def resume(self, opening: Opening, snapshot: FramerSnapshot) -> Machine[ChunkLayer, Frame]:
        """See Stage."""
        return _Framer(opening, snapshot.phase)


FRAMER = SseFramer()


def _json(chunk: ChunkLayer) -> bytes:
    try:
        return _wire(chunk)
    except UnicodeEncodeError:
        kind: Any = chunk.__class__
        return _wire(msgspec.convert(_paired(msgspec.to_builtins(chunk)), kind))


def _wire(chunk: Any) -> bytes:
    data: bytes = _encode(chunk.body) if chunk.__class__ is ErrorChunk else chunk.wire()
    return data


def _paired(value: _Json) -> _Json:
    """``value`` with U+FFFD in place of every unpaired surrogate, in keys too."""
    if isinstance(value, str):
        return _paired_text(value)
    if isinstance(value, dict):
        return {_paired_text(key): _paired(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_paired(item) for item in value]
    return value


def _paired_text(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- the decoder ----------------------------------------------------------------------------------------------------

_LINE_END = re.compile(r"\r\n|\r|\n")


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """A delivered event. ``name`` is ``message`` where the stream names none; ``id``: the last event id in force."""

    name: str
    data: str
    id: str = ""


class SseDecoder:
    """Bytes → events, whatever the cuts. An event comes out with the byte that ends its closing empty line; what the
    end of the stream leaves unfinished is never delivered (``pending`` tells)."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True
        self._skip_lf = False
        self._line: list[str] = []
        self._data: list[str] = []
        self._name = ""
        self._id = ""

    @property
    def pending(self) -> bool:
        """Something was read that no event carries yet: a part of a character, of a line, of a block."""
        return bool(self._line or self._data or self._name or self._utf8.getstate()[0])

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes. Raises nothing; malformed UTF-8 becomes U+FFFD."""
        text = self._utf8.decode(data)
        if text and self._at_start:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        if text and self._skip_lf:
            # A CR has ended the line already; its LF may come in a later read.
            self._skip_lf = False
            text = text.removeprefix("\n")
        if not text:
            return []
        self._skip_lf = text.endswith("\r")
        events: list[SseEvent] = []
        first, *rest = _LINE_END.split(text)
        self._line.append(first)
        for piece in rest:
            self._take("".join(self._line), events)
            self._line = [piece] if piece else []
        return events

    def _take(self, line: str, events: list[SseEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdecimal():
            self.retry_ms = _number(value)

    def _dispatch(self, events: list[SseEvent]) -> None:
        self.last_id = self._id
        if self._data:
            events.append(SseEvent(self._name or "message", "\n".join(self._data), self._id))
        self._data = []
        self._name = ""


def _number(digits: str) -> int:
    # int() refuses thousands of digits; no clock counts that far.
    return int(digits) if len(digits) < 20 else (1 << 63) - 1
