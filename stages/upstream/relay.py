"""The stage RELAY: an upstream's frames → what the client of a relayed session gets.

    an event stream       as it comes
    any other body        once it is whole, so that one that breaks off can still become an error
    headers               all but those of the connection
    token ids             taken out, where we asked for them and the client did not (see ``taking_out``)
    a compressed body     as it comes, whatever is in it
    a cut, a time limit   the protocol's error (see ``refusal``); an unfinished last block is left out
    the client left       nothing more

An answer that is none of the protocol's becomes the protocol's error: a status from 400 on with a body that is no JSON,
and another one with a body that is neither JSON nor, by its media type, an event stream.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from stages.events import AbortInput, Block, Body, Comment, End, ErrorInput, Frame, Head
from stages.opening import Opening
from stages.protocols.lenient import value_of
from stages.stage import Machine
from stages.upstream.frames import is_complete, is_encoded, is_event_stream, media_type
from stages.upstream.refusal import answer, broken_off, content_block_after, error_of, refusal
from stages.upstream.taking_out import body_without_ids, without_ids

Relayed: TypeAlias = "Frame | End | ErrorInput | AbortInput"

_OF_CONNECTION: Final = frozenset(("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"))
_BODILESS: Final = frozenset((204, 205, 304))


class Phase(IntEnum):
    """No head came; a head came and waits for its body; a stream goes out; nothing more goes out."""

    FRESH = 0
    WHOLE = 1
    STREAM = 2
    CLOSED = 3


class RelaySnapshot(msgspec.Struct, frozen=True):
    """The relay's state. ``head``, ``body``: those that wait; ``encoded``: the stream is compressed; ``unfinished``: a
    block without its blank line; ``torn``: one was sent; ``last``: the last block sent, for what an error must know of
    it; ``content_block``: the index of the one that is open (messages protocol), or -1."""

    phase: Phase = Phase.FRESH
    head: Head | None = None
    body: tuple[bytes, ...] = ()
    encoded: bool = False
    unfinished: Block | None = None
    torn: bool = False
    last: bytes = b""
    content_block: int = -1


class _Relay:
    """The machine."""

    def __init__(self, opening: Opening, state: RelaySnapshot) -> None:
        self._opening = opening
        facts = opening.upstream
        self._taken_out: Literal["", "null", "absent"] = "" if facts is None else facts.taken_out
        self._of_messages = opening.protocol == "messages"
        self._phase = state.phase
        self._head = state.head
        self._body = list(state.body)
        self._encoded = state.encoded
        self._unfinished = state.unfinished
        self._torn = state.torn
        self._last = state.last
        self._content_block = state.content_block

    def snapshot(self) -> RelaySnapshot:
        """See Machine."""
        return RelaySnapshot(
            self._phase, self._head, tuple(self._body), self._encoded, self._unfinished, self._torn, self._last,
            self._content_block,
        )  # fmt: skip

    def step(self, event: Relayed, out: list[Frame]) -> None:
        """See Machine."""
        if self._phase is Phase.STREAM:
            if type(event) is Block and not self._encoded:
                self._block(event, out)
            elif isinstance(event, Comment | Body | Block):
                self._release(out)
                out.append(event)
            elif not isinstance(event, Head):
                self._end_stream(event, out)
        elif self._phase is Phase.CLOSED:
            return
        elif isinstance(event, Head):
            self._begin(event, out)
        elif isinstance(event, Block | Comment | Body):
            self._body.append(event.data)
        else:
            self._phase = Phase.CLOSED
            self._end_whole(event, out)

    # --- streams

    def _begin(self, head: Head, out: list[Frame]) -> None:
        self._encoded = is_encoded(head.headers)
        if not 200 <= head.status < 300 or not is_event_stream(head.headers):
            self._head = head
            self._phase = Phase.WHOLE
            return
        # What comes behind a cut, and what is taken out, no length has foreseen.
        out.append(_passed_on(head, "" if self._encoded else "content-length"))
        self._phase = Phase.STREAM

    def _block(self, event: Block, out: list[Frame]) -> None:
        data = event.data
        before = b"" if self._unfinished is None else self._unfinished.data[-2:]
        if before:
            self._release(out)
        if not is_complete(before + data):
            self._unfinished = event
            return
        if self._taken_out:
            made = without_ids(data, self._taken_out)
            if made is None:
                return
            if made is not data:
                event = Block(made)
        if self._of_messages:
            self._content_block = content_block_after(data, self._content_block)
        self._torn = False
        self._last = data
        out.append(event)

    def _release(self, out: list[Frame]) -> None:
        """Send the block without a blank line: the stream has gone on, or has come to its end."""
        block, self._unfinished = self._unfinished, None
        if block is not None:
            made = without_ids(block.data, self._taken_out) if self._taken_out else block.data
            if made is not None:
                self._torn = True
                out.append(block if made is block.data else Block(made))

    def _end_stream(self, event: End | ErrorInput | AbortInput, out: list[Frame]) -> None:
        self._phase = Phase.CLOSED
        if isinstance(event, End):
            self._release(out)
        elif isinstance(event, ErrorInput) and not self._encoded:
            blocks = broken_off(self._opening, event, self._last, self._content_block)
            if blocks and self._torn:
                out.append(Block(b"\n\n"))
            out += blocks

    # --- whole bodies

    def _end_whole(self, event: End | ErrorInput | AbortInput, out: list[Frame]) -> None:
        head, body = self._head, b"".join(self._body)
        if isinstance(event, AbortInput):
            return
        if head is None:
            if isinstance(event, End):
                event = ErrorInput("engine", "The upstream did not answer.", "upstream_protocol")
            out += answer(self._opening, event)
        elif isinstance(event, End):
            self._whole(head, body, out)
        elif head.status >= 400:
            out += refusal(self._opening, _passed_on(head), f"{_named(head)}, and broke off: {event.message}")
        else:
            out += answer(self._opening, event)

    def _whole(self, head: Head, body: bytes, out: list[Frame]) -> None:
        passed = _passed_on(head)
        if self._encoded or 300 <= head.status < 400 or head.status in _BODILESS:
            made: bytes | None = body
        elif 200 <= head.status < 300:
            made = body if _is_json(head) or _holds_json(body) else None
            if made is not None and self._taken_out:
                made = body_without_ids(body, self._taken_out)
        else:
            made = body if _holds_json(body) else error_of(body)
        if made is None:
            why = f"{_named(head)} with {media_type(head.headers) or 'no media type'} instead of the protocol's JSON."
            out += refusal(self._opening, passed, why)
        else:
            out.append(passed if made is body else _resized(passed, made))
            if made or self._body:
                out.append(Body(made))


class Relay:
    """The stage ``relay@1``."""

    id = "relay@1"

    def start(self, opening: Opening) -> Machine[Relayed, Frame]:
        """See Stage."""
        return _Relay(opening, RelaySnapshot())

    def resume(self, opening: Opening, snapshot: RelaySnapshot) -> Machine[Relayed, Frame]:
        """See Stage."""
        return _Relay(opening, snapshot)


RELAY = Relay()


# --- heads ------------------------------------------------------------------------------------------------------------


def _passed_on(head: Head, without: str = "") -> Head:
    """The head without the headers of the connection, and without one more."""
    named = {
        item.strip().lower() for name, value in head.headers if name == "connection" for item in value.split(",")
    }  # fmt: skip
    gone = _OF_CONNECTION | named | {without}
    kept = tuple(item for item in head.headers if item[0] not in gone and not item[0].startswith("proxy-"))
    return head if len(kept) == len(head.headers) else Head(head.status, kept)


def _resized(head: Head, body: bytes) -> Head:
    """The head of this body, which is JSON, in place of another."""
    told = {"content-length": str(len(body))}
    if is_event_stream(head.headers):
        told["content-type"] = "application/json"
    return Head(head.status, tuple((name, told.get(name, value)) for name, value in head.headers))


def _named(head: Head) -> str:
    return f"The upstream answered HTTP {head.status}"


def _is_json(head: Head) -> bool:
    kind = media_type(head.headers)
    return kind == "application/json" or kind.endswith("+json")


def _holds_json(body: bytes) -> bool:
    value = value_of(body.removeprefix(b"\xef\xbb\xbf")) if body.lstrip()[:1] in (b"{", b"[", b"\xef") else UNSET
    return isinstance(value, dict | list)
