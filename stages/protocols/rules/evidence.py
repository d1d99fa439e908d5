"""Evidence: a stream, and whatever else is known about it, for the rules to judge. A rule reads only what it names."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from stages.message import Message

Protocol: TypeAlias = Literal["chat", "completions", "responses", "messages"]
PROTOCOLS: tuple[Protocol, ...] = ("chat", "completions", "responses", "messages")


class Need(StrEnum):
    """What a rule reads beside the body: names of fields of Evidence. One that is None there is absent."""

    REQUEST = "request"
    HTTP = "http"
    WRITES = "writes"
    ENGINE = "engine"
    MEANT = "meant"
    WHOLE = "whole"
    REPLAYED = "replayed"
    SENT = "sent"
    OTHER = "other"
    EFFORT = "effort"


class Http(msgspec.Struct, frozen=True):
    """The response's head. ``headers``: lower-case names; ``request_headers``: of the request, where they are known;
    ``version``: ``1.1``, ``2``; ``seen_ids``: request ids of other responses of the same recording."""

    status: int
    headers: tuple[tuple[str, str], ...]
    request_headers: tuple[tuple[str, str], ...] | None = None
    version: str = "1.1"
    seen_ids: frozenset[str] = frozenset()


class Write(msgspec.Struct, frozen=True, gc=False):
    """One write or read: ``at`` ns (any origin), and the body bytes that were out after it."""

    at: int
    end: int


class Writes(msgspec.Struct, frozen=True):
    """All writes in order, from the request on. ``begun``: when the request was accepted, ns on the same clock;
    ``ended``: when the body ended; ``keep_alive``: ns between comments, 0 for none promised."""

    items: Sequence[Write]
    begun: int | None = None
    ended: int | None = None
    keep_alive: int = 0


class EngineChoice(msgspec.Struct, frozen=True):
    """What the engine generated for one choice. ``reason``: as in ``stages.events.FinishReason``; None: it did not
    finish; ``cap``: the most tokens it might generate, where known; ``pieces``: bytes per token, or empty."""

    ids: tuple[int, ...]
    reason: str | None = None
    cap: int | None = None
    pieces: tuple[bytes, ...] = ()


class EngineFacts(msgspec.Struct, frozen=True):
    """What the engine was asked and generated. ``prompt``: tokens; ``prompt_ids``: empty where unknown; ``markers``:
    the literals of the parser's format, empty where none is active; ``constrained``: a grammar held the output."""

    choices: dict[int, EngineChoice]
    prompt: int | None = None
    prompt_ids: tuple[int, ...] = ()
    markers: tuple[str, ...] = ()
    constrained: bool = False


class Sent(msgspec.Struct, frozen=True):
    """What the socket took: body bytes, and their SHA-256 in hex (of the whole body handed over)."""

    size: int
    sha256: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A response body and its circumstances.

    ``body``: all bytes of the response's body, as one; ``own``: made by our encoders (rules of severity O are errors
    then); ``first``: number of the first frame; ``marked``: how whoever recorded it marked its end: None where nobody
    said anything. The other fields are what rules may need, None where it is not known:

    ``request``: the request's body as a JSON value; ``meant``: the messages that the parser sent to the encoder;
    ``whole``: the body of the same request without streaming, from the same tokens; ``replayed``: the body that
    encoding the recorded semantic events again gives; ``other``: a stream of the same semantic events in another
    protocol, with that protocol; ``effort``: rules may take a multiple of the time that reading the body takes (True),
    or not (None).
    """

    body: bytes
    protocol: Protocol = "chat"
    own: bool = False
    first: int = 0
    marked: Literal["complete", "truncated", "client_closed"] | None = None
    request: dict[str, Any] | None = None
    http: Http | None = None
    writes: Writes | None = None
    engine: EngineFacts | None = None
    meant: Sequence[Message] | None = None
    whole: bytes | None = None
    replayed: bytes | None = None
    sent: Sent | None = None
    other: tuple[Protocol, bytes] | None = None
    effort: Literal[True] | None = None
