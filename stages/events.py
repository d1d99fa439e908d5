"""Every event of the four layers, and the layer unions. (The Opening is in ``stages.opening``.)

A session is one request and all that it caused. Its facts flow through four layers:

* ``engine``: inputs, in arrival order: what the engine said and everything else that is not a function of what came
  before (time, aborts). Only this layer is a fact; the others are derived from it and the Opening.
* ``semantic``: what the text means: reasoning, content, calls, markers, faults.
* ``chunk``: the protocol's objects (defined beside their encoder, in ``stages.protocols``), plus ``CommonChunk``.
* ``frame``: what is written to the socket.

Struct tags are recorded. A tag is never renamed or reused; a field is only ever appended, with a default. ``src`` is a
half-open byte range ``(start, end)`` in what that choice wrote (the concatenated token bytes). The ranges of the events
that own bytes partition it: Reasoning, Content, Refusal, CallStart, CallArguments, Marker, Dropped, and a Fault with a
``text``. One may be empty where the model wrote no such event (``{}`` for no arguments).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

Src: TypeAlias = tuple[int, int]


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Base of all events: immutable, compared by value, encoded as a tagged array."""


# --- engine layer: inputs, in arrival order -------------------------------------------------------------------------


class TopLogprob(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One alternative token: its id, its bytes, its natural-log probability (never -inf: clamped to -9999.0)."""

    id: int
    piece: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The sampled token's entry; ``top`` is sorted by falling logprob."""

    id: int
    piece: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()


class PromptInput(Event, frozen=True, gc=False, array_like=True, tag="prompt"):
    """Always the first input of an admitted session: rendered, tokenised, length checked.

    ``ids``: the full prompt (empty where the engine does not tell); ``tail``: the end of the rendered prompt text,
    at least from the last turn opener on; ``count``: prompt tokens; ``cached``: of these, served from a prefix cache.
    A request may have several prompts (``Ask.prompts``), each with choices of its own: then there is one event for
    each, in order, before anything else.
    """

    ids: tuple[int, ...]
    tail: str
    count: int
    cached: int = 0


class ScheduledInput(Event, frozen=True, gc=False, array_like=True, tag="scheduled"):
    """The engine began to work on the request."""


class PrefillInput(Event, frozen=True, gc=False, array_like=True, tag="prefill"):
    """Prompt tokens [start, end) were computed in one iteration."""

    start: int
    end: int


class TokensInput(Event, frozen=True, gc=False, array_like=True, tag="tokens"):
    """One engine step's output for one choice.

    ``ids``: token ids (empty for an engine that only releases text); ``pieces``: the bytes of each id, parallel to
    ``ids``, or empty where unknown; ``text``: what the engine released in this step (may lag the ids; with ``pieces``
    it is informative only); ``logprobs``: parallel to ``ids``, or empty.
    """

    choice: int
    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


FinishReason: TypeAlias = Literal["eos", "stop", "stop_token", "length", "context", "filter"]


class FinishInput(Event, frozen=True, gc=False, array_like=True, tag="finish"):
    """A choice ended. ``stop``: the stop string (``stop``) or the token id (``eos``, ``stop_token``) that matched."""

    choice: int
    reason: FinishReason
    stop: str | int | None = None


class Echo(Event, frozen=True, gc=False, array_like=True, tag="echo"):
    """A prompt, told back; where the Ask has ``echo``, once a prompt, in order, before the first tokens of its choices.
    Like a Tick it travels through the semantic layer unchanged. ``prompt``: its number; ``text``: all of it; ``first``:
    where the Ask has ``logprobs``, the bytes of its first token, of which nothing tells how likely it was;
    ``logprobs``: of the tokens behind that one."""

    prompt: int
    text: str
    first: bytes = b""
    logprobs: tuple[TokenLogprob, ...] = ()


class UsageInput(Event, frozen=True, gc=False, array_like=True, tag="usage"):
    """Terminal. All choices have finished. ``completion``: generated tokens over all choices, end tokens included."""

    prompt: int
    completion: int
    cached: int = 0


class TimingInput(Event, frozen=True, gc=False, array_like=True, tag="timing"):
    """A measured duration that may appear in bytes. Like a Tick it travels through the semantic layer unchanged.

    ``name``: ``queue`` (from admission to the engine's first work), ``ttft`` (from the opening to the first token),
    ``max_gap``, ``mean_gap`` (between steps of a choice that brought tokens); ``ns``: nanoseconds. They come before the
    usage, where the Ask has ``metrics``.
    """

    name: str
    ns: int


FailureKind: TypeAlias = Literal[
    "bad_request", "unauthorized", "not_found", "too_large", "rate_limited", "overloaded", "timeout", "engine",
    "cancelled", "client_closed",
]  # fmt: skip


class ErrorInput(Event, frozen=True, gc=False, array_like=True, tag="error"):
    """Terminal. The engine refused the request (before ``prompt``) or failed (after). ``message`` is for the client."""

    kind: FailureKind
    message: str
    code: str | None = None
    param: str | None = None


class AbortInput(Event, frozen=True, gc=False, array_like=True, tag="abort"):
    """Terminal. Somebody other than the engine ended the session."""

    by: Literal["client", "timeout", "cancel", "shutdown"]


class Tick(Event, frozen=True, gc=False, array_like=True, tag="tick"):
    """Time passed in silence. It travels through the semantic and chunk layers unchanged and becomes a comment."""


# --- semantic layer -------------------------------------------------------------------------------------------------


class Start(Event, frozen=True, gc=False, array_like=True, tag="start"):
    """A choice was admitted; one per choice, in choice order, before anything else. ``prompt_ids``: the prompt's token
    ids, on a prompt's first choice and only where the Ask has ``return_token_ids``."""

    choice: int
    prompt_tokens: int
    cached: int = 0
    prompt_ids: tuple[int, ...] = ()


class Tokens(Event, frozen=True, gc=False, array_like=True, tag="tok"):
    """The ids and logprobs of one engine step; precedes the events of the step's text. Never shown unless asked for."""

    choice: int
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


class Reasoning(Event, frozen=True, gc=False, array_like=True, tag="reasoning"):
    """Reasoning text; never empty, whole characters."""

    choice: int
    text: str
    src: Src


class Content(Event, frozen=True, gc=False, array_like=True, tag="content"):
    """Answer text; never empty, whole characters."""

    choice: int
    text: str
    src: Src


class Refusal(Event, frozen=True, gc=False, array_like=True, tag="refusal"):
    """Refusal text; never empty."""

    choice: int
    text: str
    src: Src


class CallStart(Event, frozen=True, gc=False, array_like=True, tag="call_start"):
    """A tool call's header. ``index`` counts from 0 over the whole choice; ``src`` covers the name as written."""

    choice: int
    index: int
    id: str
    name: str
    src: Src


class CallArguments(Event, frozen=True, gc=False, array_like=True, tag="call_arguments"):
    """A fragment of a call's arguments; the concatenation is the argument JSON text. Never empty."""

    choice: int
    index: int
    text: str
    src: Src


class CallEnd(Event, frozen=True, gc=False, array_like=True, tag="call_end"):
    """The call ended; ``complete`` tells whether it may be executed."""

    choice: int
    index: int
    complete: bool


class Marker(Event, frozen=True, gc=False, array_like=True, tag="marker"):
    """Consumed structure: marker literals, wrapper JSON, trimmed white space. Clients do not see it."""

    choice: int
    text: str
    src: Src


class Dropped(Event, frozen=True, gc=False, array_like=True, tag="dropped"):
    """Text withheld on purpose: a special token outside the format (end of turn, padding), a matched stop string and
    what follows it, text of a hidden kind."""

    choice: int
    text: str
    src: Src


class FaultCode(StrEnum):
    """The closed list of what a model can write wrong, each with what the client sees."""

    UNCLOSED_CALL = "unclosed_call"
    """Output ended inside a call. incremental: the honest prefix stays, never closed; whole: nothing."""
    MALFORMED_CALL = "malformed_call"
    """A call's header or wrapper broke the grammar. Restored as content if nothing was sent; else the prefix stays."""
    BAD_ARGUMENTS = "bad_arguments"
    """Arguments are not a JSON object. incremental: what was sent stays; whole: restored as content."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """Arguments do not satisfy the tool's schema. The call is delivered unchanged."""
    UNKNOWN_TOOL = "unknown_tool"
    """The called name is not among the request's tools. The call is delivered unchanged."""
    UNMET_TOOL_CHOICE = "unmet_tool_choice"
    """The request's tool_choice wants a call, or one function, and the choice has none, or calls another. Delivered as
    it is. A missing call has the empty range at 0."""
    UNCLOSED_REASONING = "unclosed_reasoning"
    """Output ended inside reasoning. Everything written is reasoning; content is absent."""
    STRAY_MARKER = "stray_marker"
    """A marker where the grammar has none. The text tells: restored as content, or swallowed."""
    MALFORMED_MESSAGE = "malformed_message"
    """A message has no header, or one without an end. Delivered as content; a header that was cut off is dropped."""
    HELD_OVERFLOW = "held_overflow"
    """Undecided text passed ``max_held``. It is delivered verbatim as content."""
    INVALID_UTF8 = "invalid_utf8"
    """Token bytes do not decode. Each bad byte sequence is delivered as U+FFFD."""


class Fault(Event, frozen=True, gc=False, array_like=True, tag="fault"):
    """The model wrote something malformed. ``src``: where. ``text`` is not empty exactly when these bytes are owned by
    the fault, that is, delivered nowhere else. ``detail``: for people, names what was open or wrong, never the text."""

    choice: int
    code: FaultCode
    src: Src
    text: str = ""
    detail: str = ""


class Finish(Event, frozen=True, gc=False, array_like=True, tag="fin"):
    """The choice ended; the last event of the choice. ``detail``: the stop string or token id that matched."""

    choice: int
    reason: FinishReason
    detail: str | int | None = None


class Usage(Event, frozen=True, gc=False, array_like=True, tag="use"):
    """Token counts. ``reasoning``: completion tokens whose step ended inside reasoning, summed over choices."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


class Failure(Event, frozen=True, gc=False, array_like=True, tag="failure"):
    """The session failed; End follows. Choices without a Finish have none."""

    kind: FailureKind
    message: str
    code: str | None = None
    param: str | None = None


class End(Event, frozen=True, gc=False, array_like=True, tag="end"):
    """Nothing follows."""


Semantic: TypeAlias = (
    Start | Tokens | Reasoning | Content | Refusal | CallStart | CallArguments | CallEnd | Marker | Dropped | Fault
    | Finish | Usage | Failure | End | Tick | TimingInput | Echo
)  # fmt: skip


# --- what another server says that its model meant ------------------------------------------------------------------

Meant: TypeAlias = Tokens | Reasoning | Content | Refusal | CallStart | CallArguments | CallEnd | Usage


class ToldInput(Event, frozen=True, gc=False, array_like=True, tag="told"):
    """An input, in the place of TokensInput: another server tells what its model meant, and not what it wrote. The
    parser ``told`` takes it for that; any other has nothing to parse. A Usage, which the UsageInput follows, tells how
    much of the completion is reasoning."""

    event: Meant


Input: TypeAlias = (
    PromptInput | ScheduledInput | PrefillInput | TokensInput | FinishInput | UsageInput | TimingInput | ErrorInput
    | AbortInput | Tick | Echo | ToldInput
)  # fmt: skip


# --- chunk layer: what is common to all protocols ------------------------------------------------------------------


class ErrorChunk(Event, frozen=True, gc=False, array_like=True, tag="error_chunk"):
    """A protocol's error object and the HTTP status it has where no byte was sent yet. ``body``: its JSON value."""

    status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


class Done(Event, frozen=True, gc=False, array_like=True, tag="done"):
    """The protocol's end of a stream (``data: [DONE]``)."""


CommonChunk: TypeAlias = ErrorChunk | Done | Tick


# --- frame layer ----------------------------------------------------------------------------------------------------


class Head(Event, frozen=True, gc=False, array_like=True, tag="head"):
    """The response head. ``headers``: lower-case names, in order."""

    status: int
    headers: tuple[tuple[str, str], ...]


class Block(Event, frozen=True, gc=False, array_like=True, tag="block"):
    """One SSE block, blank line included."""

    data: bytes


class Comment(Event, frozen=True, gc=False, array_like=True, tag="comment"):
    """One SSE comment, blank line included."""

    data: bytes


class Body(Event, frozen=True, gc=False, array_like=True, tag="body"):
    """A whole non-streaming body (also an error before the first byte)."""

    data: bytes


class Sent(Event, frozen=True, gc=False, array_like=True, tag="sent"):
    """Track ``socket``: frames below ``seq``, ``size`` body bytes in all, were handed to the socket. Not derived."""

    seq: int
    size: int


Frame: TypeAlias = Head | Block | Comment | Body

Layer: TypeAlias = Literal["engine", "semantic", "chunk", "frame"]
LAYERS: tuple[Layer, ...] = ("engine", "semantic", "chunk", "frame")
