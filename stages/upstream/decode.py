"""What the upstream took a response for: frames → semantic events, one stage for each protocol.

    Head                   nothing; from status 400 on, what follows is an error
    Block                  an event, read by the protocol's own reader
    Comment                nothing
    Body                   the whole response: its message, or its error
    End                    End; before it Failure, if something is missing
    ErrorInput             Failure and End; what is open is closed as cut off
    AbortInput             End; the same

Blocks are read as clients do (``stages.sse``): the one that the end left unfinished delivers nothing. In an event that
is no JSON object something was lost; the others are read all the same, and a Failure (code ``malformed_event``) stands
before the End. Of a body that is compressed nothing is known. Nothing raises, and nothing follows the End.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    Done,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Frame,
    Head,
    Semantic,
)
from stages.opening import Opening
from stages.protocols import openai_completions
from stages.protocols.anthropic import MessagesReader
from stages.protocols.lenient import as_object, as_objects, value_of
from stages.protocols.openai_chat import ChatChunk, ChatDecoder, chunk_of
from stages.protocols.openai_responses import ResponsesReader
from stages.protocols.telling import TRUNCATED
from stages.sse import SseDecoder, SseEvent
from stages.stage import Machine, Stage
from stages.upstream.frames import is_complete, is_encoded, media_type
from stages.upstream.quick import chat_chunk, completion_chunk
from stages.upstream.wire import DONE, refusal

Upstream: TypeAlias = Frame | End | ErrorInput | AbortInput
_decode = msgspec.json.Decoder().decode
_MALFORMED: Final = Failure("engine", "The response has a part that is no JSON object.", "malformed_event")
_plain = re.compile(rb"(?:event: (.+)\n)?data: (\{.*\})\n\n").fullmatch
"""Nearly all blocks: one line of one JSON object, or that behind its name."""
_DECODER: Final = ChatDecoder(exact=True)
_LONGEST: Final = 64 << 20
"""Bytes of a block; what is longer is not read."""
_ENDS: Final = frozenset((Failure, End))


class Reader(Protocol):
    """Reads a protocol's events. Everything appends to ``out``, and nothing after an End."""

    def event(self, name: str, value: dict[str, Any], out: list[Semantic]) -> None:
        """An event of a stream. ``name``: of its ``event`` field, empty without one."""
        ...

    def whole(self, value: dict[str, Any], out: list[Semantic]) -> None:
        """A response that came in one piece; End follows."""
        ...

    def end(self, out: list[Semantic]) -> None:
        """The body has ended."""
        ...

    def fail(self, failure: Failure, out: list[Semantic]) -> None:
        """The body broke off, or cannot be read; End follows."""
        ...

    def leave(self, out: list[Semantic]) -> None:
        """The client left; End follows."""
        ...

    def snapshot(self) -> msgspec.Struct:
        """Its state."""
        ...


class ChunkReader:
    """Reads chat completions, and what is like them. ``quick``: see ``stages.upstream.quick``; ``chunk_of``: the
    lenient reading; ``said``: a choice of a whole body as a chunk has it."""

    def __init__(
        self,
        machine: Machine[Any, Semantic],
        quick: Callable[[dict[str, Any]], ChatChunk | None],
        chunk_of: Callable[[Any], ChatChunk | ErrorChunk],
        said: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._step = machine.step
        self.snapshot = machine.snapshot
        self._quick = quick
        self._chunk_of = chunk_of
        self._said = said

    def event(self, name: str, value: dict[str, Any], out: list[Semantic]) -> None:
        """See Reader."""
        if name == "error" and not value.get("error"):
            value = {"error": value}
        self._step(self._chunk_of(value), out)

    def strict(self, value: dict[str, Any], out: list[Semantic]) -> None:
        """An event without a name, from strict JSON."""
        chunk = self._quick(value)
        self._step(self._chunk_of(value) if chunk is None else chunk, out)

    def done(self, out: list[Semantic]) -> None:
        """The stream says that it is whole."""
        self._step(Done(), out)

    def whole(self, value: dict[str, Any], out: list[Semantic]) -> None:
        """See Reader."""
        choices = [self._said(choice) for choice in as_objects(value.get("choices"))]
        # The usage in a chunk of its own: it is no running count.
        self._step(self._chunk_of({**value, "choices": choices, "usage": None}), out)
        self._step(self._chunk_of({"id": value.get("id"), "usage": value.get("usage"), "choices": []}), out)
        self._step(End(), out)

    def end(self, out: list[Semantic]) -> None:
        """See Reader."""
        self._step(End(), out)

    def fail(self, failure: Failure, out: list[Semantic]) -> None:
        """See Reader."""
        self._step(ErrorInput(failure.kind, failure.message, failure.code, failure.param), out)

    def leave(self, out: list[Semantic]) -> None:
        """See Reader."""
        self._step(AbortInput("client"), out)


def _message(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a whole chat completion, as a chunk has it: its calls have an index each."""
    message = as_object(choice.get("message"))
    calls = [{**call, "index": place} for place, call in enumerate(as_objects(message.get("tool_calls")))]
    return {**choice, "delta": {**message, "tool_calls": calls}}


def _chat(opening: Opening, state: Any) -> ChunkReader:
    machine = _DECODER.start(opening) if state is None else _DECODER.resume(opening, state)
    return ChunkReader(machine, chat_chunk, chunk_of, _message)


def _completions(opening: Opening, state: Any) -> ChunkReader:
    machine = _DECODER.start(opening) if state is None else _DECODER.resume(opening, state)
    return ChunkReader(machine, completion_chunk, openai_completions.chunk_of, dict)


def _responses(opening: Opening, state: Any) -> ResponsesReader:
    return ResponsesReader(state)


def _messages(opening: Opening, state: Any) -> MessagesReader:
    return MessagesReader(state)


class DecodeState(msgspec.Struct, frozen=True):
    """The stage's snapshot. ``status``, ``kind``, ``coded``: of the head (0: there was none), its media type, and that
    the body is compressed; ``held``: the beginning of a block, in pieces; ``begun``: a block came; ``bad``: an event
    was no JSON object; ``failed``, ``ended``: what was told; ``reader``: the state of the protocol's reader."""

    status: int = 0
    kind: str = ""
    coded: bool = False
    held: tuple[bytes, ...] = ()
    begun: bool = False
    bad: bool = False
    failed: bool = False
    ended: bool = False
    reader: Any = None


class _Machine:
    def __init__(self, reader: Reader, state: DecodeState) -> None:
        self._reader = reader
        self._strict = reader.strict if isinstance(reader, ChunkReader) else None
        self._done = reader.done if isinstance(reader, ChunkReader) else None
        self._status = state.status
        self._kind = state.kind
        self._coded = state.coded
        self._held = list(state.held)
        self._size = sum(map(len, state.held))
        self._begun = state.begun
        self._bad = state.bad
        self._failed = state.failed
        self._ended = state.ended

    def snapshot(self) -> DecodeState:
        """See Machine."""
        reader = self._reader.snapshot()
        return DecodeState(
            self._status, self._kind, self._coded, tuple(self._held), self._begun, self._bad, self._failed, self._ended,
            reader,
        )  # fmt: skip

    def step(self, event: Upstream, out: list[Semantic]) -> None:
        """See Machine."""
        if self._ended:
            return
        mark = len(out)
        if not isinstance(event, Block):
            self._rare(event, out)
        elif not self._coded:
            self._block(event.data, out)
        if len(out) > mark and out[-1].__class__ in _ENDS:
            self._over(mark, out)

    def _rare(self, event: Head | Comment | Body | End | ErrorInput | AbortInput, out: list[Semantic]) -> None:
        match event:
            case Head():
                self._status = event.status
                self._kind = media_type(event.headers)
                self._coded = is_encoded(event.headers)
            case Body():
                self._body(event.data, out)
            case End():
                self._end(out)
            case ErrorInput():
                self._reader.fail(Failure(event.kind, event.message, event.code, event.param), out)
            case AbortInput():
                self._reader.leave(out)
            case Comment():
                pass

    def _over(self, mark: int, out: list[Semantic]) -> None:
        """A Failure or the End was told: of several Failures the first one stands, but that something is missing says
        less than that something could not be read."""
        failure = next((place for place in range(mark, len(out)) if out[place].__class__ is Failure), None)
        if failure is not None:
            told: Any = out[failure]
            if self._bad and told.code == TRUNCATED:
                out[failure] = _MALFORMED
            self._failed = True
        if out[-1].__class__ is End:
            self._ended = True
            if self._bad and not self._failed:
                out.insert(-1, _MALFORMED)

    def _end(self, out: list[Semantic]) -> None:
        if not self._begun and (self._status >= 400 or (self._held and self._held[0].lstrip().startswith(b"{"))):
            # A bare object where events should be: servers answer so with an error. Clients see nothing.
            self._body(b"".join(self._held), out)
        elif self._coded:
            # Whether it said all cannot be told.
            self._reader.leave(out)
            return
        self._reader.end(out)

    # --- blocks

    def _block(self, data: bytes, out: list[Semantic]) -> None:
        plain = None if self._held else _plain(data)
        if plain is not None and b"\r" not in data:
            self._begun = True
            name = plain[1]
            self._event("" if name is None else name.decode("utf-8", "replace"), plain[2], out)
            return
        tail = self._held[-1][-3:] + data[-3:] if self._held else data
        self._held.append(data)
        self._size += len(data)
        if self._size > _LONGEST:
            self._bad = self._bad or not self._failed
            self._held, self._size = [b":"], 1  # the rest of its line is a comment
        if not is_complete(tail):
            return
        whole = b"".join(self._held)
        self._held, self._size = [], 0
        decoder = SseDecoder()
        if self._begun:
            decoder.feed(b"\n")  # a byte order mark counts at the beginning only
        self._begun = True
        self._events(decoder.feed(whole), out)

    def _events(self, events: Iterable[SseEvent], out: list[Semantic]) -> None:
        for event in events:
            self._event("" if event.name == "message" else event.name, event.data.encode(), out)

    def _event(self, name: str, data: bytes, out: list[Semantic]) -> None:
        value: Any
        try:
            value = _decode(data)
        except (ValueError, RecursionError):
            if data.strip() == DONE:
                if self._done is not None:
                    self._done(out)
                return
            value = value_of(data)
        else:
            if self._strict is not None and not name and value.__class__ is dict:
                self._strict(value, out)
                return
        if value.__class__ is dict:
            self._reader.event(name, value, out)
        elif not self._failed and (data or self._strict is not None):
            # An event without data, which clients of named events pass over, lost nothing.
            self._bad = True

    # --- bodies

    def _body(self, data: bytes, out: list[Semantic]) -> None:
        if self._status >= 400:
            self._reader.fail(self._refused(b"" if self._coded else data), out)
            return
        if self._coded:
            self._reader.leave(out)
            return
        value: Any = value_of(data)
        if value.__class__ is dict:
            self._reader.whole(value, out)
            return
        # Clients do not look at the content type.
        events = SseDecoder().feed(data)
        if data.strip() and not events:
            message = f"The response is neither JSON nor events, but {self._kind or 'of no content type'}."
            self._reader.fail(Failure("engine", message, _MALFORMED.code), out)
        self._events(events, out)

    def _refused(self, data: bytes) -> Failure:
        failure = refusal(self._status, data)
        if failure.kind == "engine" and self._status < 500:
            return msgspec.structs.replace(failure, kind="bad_request")
        return failure


class Decode:
    """A stage ``decode.PROTOCOL@N``. ``reader``: makes the protocol's reader, given the state of one or None."""

    def __init__(self, protocol: str, version: int, reader: Callable[[Opening, Any], Reader]) -> None:
        self.id = f"decode.{protocol}@{version}"
        self._reader = reader

    def start(self, opening: Opening) -> Machine[Upstream, Semantic]:
        """See Stage."""
        return _Machine(self._reader(opening, None), DecodeState())

    def resume(self, opening: Opening, snapshot: DecodeState) -> Machine[Upstream, Semantic]:
        """See Stage."""
        return _Machine(self._reader(opening, snapshot.reader), snapshot)


DECODERS: Final[dict[str, Stage[Upstream, Semantic]]] = {
    protocol: Decode(protocol, version, reader)
    for protocol, version, reader in (
        ("chat", 1, _chat), ("completions", 1, _completions), ("responses", 2, _responses), ("messages", 1, _messages),
    )
}  # fmt: skip
"""By the opening's protocol."""
