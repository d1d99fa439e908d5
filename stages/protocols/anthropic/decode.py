"""Reading what a messages server sends: its events, or its whole body → semantic events.

    message_start             Start
    text, thinking            Content, Reasoning, of starts and of deltas
    tool_use                  CallStart; CallArguments of its partial JSON, or of the input that it starts with; CallEnd
                              (complete exactly if they are one JSON object, or nothing, which stands for an empty one)
    stop_reason               kept: the last one counts
    usage                     kept: counts are totals, and what is not told again stays
    message_stop              Finish, Usage, End
    error                     Failure

Nothing is refused: other events, other blocks (of hosted tools) and deltas that do not fit their block are passed over,
as the official clients do. Deltas of a block that never started are read all the same.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from stages.events import Content, Failure, FailureKind, FinishReason, Reasoning, Semantic, Usage
from stages.protocols.lenient import as_count, as_int, as_object, as_objects, as_text, written
from stages.protocols.telling import TRUNCATED, Teller, TellerState, Text

_DELTAS: Final[dict[str, tuple[str, str]]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""Of each kind of delta: the block it stands in, and the key of its text."""
_TEXTS: Final[dict[str, Text]] = {"text": Content, "thinking": Reasoning}
_REASONS: Final[dict[str, FinishReason]] = {
    "max_tokens": "length", "model_context_window_exceeded": "context", "refusal": "filter",
}  # fmt: skip
"""Other words count as the model's own end."""
_KINDS: Final[dict[str, FailureKind]] = {
    "invalid_request_error": "bad_request", "authentication_error": "unauthorized", "permission_error": "unauthorized",
    "billing_error": "rate_limited", "not_found_error": "not_found", "request_too_large": "too_large",
    "rate_limit_error": "rate_limited", "timeout_error": "timeout", "overloaded_error": "overloaded",
}  # fmt: skip
_COUNTS: Final = (
    "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "thinking_tokens",
)  # fmt: skip
_MOST: Final = (1 << 63) - 1


class MessagesState(msgspec.Struct):
    """All that the reader knows; plain data. ``blocks``: the open ones: their type, and the place of a call;
    ``inputs``: with which calls started; ``counts``: of the usage; ``reason``, ``stop``: as last told."""

    teller: TellerState = msgspec.field(default_factory=TellerState)
    blocks: dict[int, tuple[str, int]] = {}
    inputs: dict[int, str] = {}
    counts: dict[str, int] = {}
    reason: str | None = None
    stop: str | None = None


class MessagesReader:
    """The machine. ``exact``: a call that was sent without input has none, else ``{}``."""

    def __init__(self, state: MessagesState | None = None, *, exact: bool = False) -> None:
        self._exact = exact
        self._state = MessagesState() if state is None else copy.deepcopy(state)
        self._teller = Teller(self._state.teller)

    def snapshot(self) -> MessagesState:
        """Its state."""
        return msgspec.structs.replace(copy.deepcopy(self._state), teller=self._teller.snapshot())

    def event(self, name: str, value: dict[str, Any], out: list[Semantic]) -> None:
        """An event of a stream. ``name``: of its ``event`` field, empty without one."""
        if self._teller.over:
            return
        kind = as_text(value.get("type")) or name
        if kind == "content_block_delta":
            self._delta(value, out)
        elif kind == "content_block_start":
            self._start(as_int(value.get("index")), as_object(value.get("content_block")), out)
        elif kind == "content_block_stop":
            self._stop(as_int(value.get("index")), out)
        elif kind == "message_start":
            self._message(as_object(value.get("message")), out)
        elif kind == "message_delta":
            self._change(as_object(value.get("delta")))
            self._count(value.get("usage"))
        elif kind == "message_stop":
            self._finish(out)
        elif kind == "error" or value.get("error"):
            self._teller.fail(failure_of(value), out)

    def whole(self, value: dict[str, Any], out: list[Semantic]) -> None:
        """A message that came in one piece, or an error."""
        if value.get("type") == "error" or value.get("error"):
            self._teller.fail(failure_of(value), out)
        else:
            self._message(value, out)
            self._change(value)
            self._finish(out)
        self._teller.end(out)

    def end(self, out: list[Semantic]) -> None:
        """The body has ended. Without ``message_stop`` the message counts if it has a reason to stop."""
        if not self._teller.over:
            self._finish(out)
        self._teller.end(out)

    def fail(self, failure: Failure, out: list[Semantic]) -> None:
        """The body broke off, or cannot be read."""
        self._teller.fail(failure, out)
        self._teller.end(out)

    def leave(self, out: list[Semantic]) -> None:
        """The client left."""
        self._teller.end(out)

    # --- blocks

    def _message(self, message: dict[str, Any], out: list[Semantic]) -> None:
        self._teller.state.response = self._teller.state.response or as_text(message.get("id")) or ""
        self._count(message.get("usage"))
        self._teller.start(self._prompt(), self._state.counts.get("cache_read_input_tokens", 0), out)
        for block in as_objects(message.get("content")):
            self._start(None, block, out)

    def _start(self, index: int | None, block: dict[str, Any], out: list[Semantic]) -> None:
        """``index``: None for a block that is whole."""
        kind = as_text(block.get("type")) or ""
        place = -1
        if kind in _TEXTS:
            self._teller.text(_TEXTS[kind], as_text(block.get(kind)) or "", out)
        elif kind == "tool_use":
            place = self._teller.call(as_text(block.get("id")) or "", as_text(block.get("name")) or "", False, out)
        begun = as_object(block.get("input"))
        text = written(begun) if begun and place >= 0 else ""
        if index is None:
            self._close(place, text, out)
            return
        self._stop(index, out)  # an index that is used again
        self._state.blocks[index] = (kind, place)
        if text:
            self._state.inputs[index] = text

    def _delta(self, value: dict[str, Any], out: list[Semantic]) -> None:
        delta = as_object(value.get("delta"))
        home, key = _DELTAS.get(as_text(delta.get("type")) or "", ("", ""))
        index = as_int(value.get("index"))
        kind, place = self._state.blocks.get(-1 if index is None else index, (home, -1))
        text = as_text(delta.get(key))
        if text is None or kind != home:
            return
        if home in _TEXTS:
            self._teller.text(_TEXTS[home], text, out)
        elif place >= 0:
            self._teller.arguments(place, text, out)

    def _stop(self, index: int | None, out: list[Semantic]) -> None:
        if index is not None:
            _, place = self._state.blocks.pop(index, ("", -1))
            self._close(place, self._state.inputs.pop(index, ""), out)

    def _close(self, place: int, begun: str, out: list[Semantic]) -> None:
        """The end of a block. ``begun``: the input that its call started with, which counts if nothing followed it; by
        the protocol it is an empty object."""
        if place >= 0:
            if not self._teller.state.calls[place].some and not (self._exact and not begun):
                self._teller.arguments(place, begun or "{}", out)
            self._teller.close(place, True, out)

    # --- the end

    def _change(self, delta: dict[str, Any]) -> None:
        reason = as_text(delta.get("stop_reason"))
        if reason is not None:
            self._state.reason, self._state.stop = reason, as_text(delta.get("stop_sequence"))

    def _count(self, usage: Any) -> None:
        wire = as_object(usage)
        told = {**wire, "thinking_tokens": as_object(wire.get("output_tokens_details")).get("thinking_tokens")}
        for key in _COUNTS:
            if told.get(key) is not None:
                self._state.counts[key] = as_count(told[key])

    def _prompt(self) -> int:
        """All of the prompt: what the wire calls input is without what a cache had, or got."""
        return min(sum(self._state.counts.get(key, 0) for key in _COUNTS[:3]), _MOST)

    def _finish(self, out: list[Semantic]) -> None:
        state = self._state
        if state.reason is None:
            why = "The message ended without a reason." if self._teller.state.started else "The stream has no message."
            self._teller.fail(Failure("engine", why, TRUNCATED), out)
            return
        reason: FinishReason = _REASONS.get(state.reason, "eos")
        detail = state.stop or None
        if reason == "eos" and detail is not None:
            reason = "stop"
        counts = state.counts
        usage = Usage(
            self._prompt(), counts.get("output_tokens", 0), counts.get("cache_read_input_tokens", 0),
            counts.get("thinking_tokens", 0),
        )  # fmt: skip
        self._teller.finish(reason, detail, usage if counts else None, out)


def failure_of(value: dict[str, Any]) -> Failure:
    """The failure that an error object tells of. Its type is its code."""
    told = value.get("error")
    error = {"message": told} if isinstance(told, str) else as_object(told) or value
    kind = as_text(error.get("type"))
    return Failure(_KINDS.get(kind or "", "engine"), as_text(error.get("message")) or "The stream has an error.", kind)
