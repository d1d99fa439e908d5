"""Reading what a responses server sends: its events, or its whole body → semantic events.

    response.created …         Start
    output_text, refusal       Content, Refusal; before it Tokens, where it has logprobs
    reasoning_text             Reasoning; a summary where the reasoning itself is not told before it
    function_call              CallStart, once the name is known; CallArguments; CallEnd (complete exactly if the item
                               is not incomplete, and they are one JSON object; nothing stands for an empty one)
    custom_tool_call           the same; its input is free text
    completed, incomplete      Finish, Usage, End
    failed, error              Failure

A text that came in no delta is taken from what says it first: the text's, the part's or the item's done event, or the
final response. Nothing is refused: other events and items (of hosted tools) are passed over. What an event is, the type
in it tells; its ``event`` line counts only where there is none.

Of our own streams (``own``) more is known: what a call that is not incomplete is called with is what the model meant,
and what a response that failed had not ended is not ended.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from stages.events import (
    Content,
    ErrorChunk,
    Failure,
    FailureKind,
    FinishReason,
    Reasoning,
    Refusal,
    Semantic,
    Tokens,
    Usage,
)
from stages.protocols.lenient import as_count, as_int, as_object, as_objects, as_text
from stages.protocols.openai_chat import chunk_of
from stages.protocols.openai_chat import failure_of as chat_failure_of
from stages.protocols.openai_responses.tokens import tokens_of
from stages.protocols.telling import TRUNCATED, Teller, TellerState, Text

_TEXTS: Final[dict[str, tuple[Text, str]]] = {
    "output_text": (Content, "text"), "refusal": (Refusal, "refusal"), "reasoning_text": (Reasoning, "text"),
    "summary_text": (Reasoning, "text"),
}  # fmt: skip
"""Kinds of parts: what they say, and the key of it in a part and in a done event."""
_EVENTS: Final[dict[str, str]] = {
    **{f"response.{kind}": kind for kind in ("output_text", "refusal", "reasoning_text")},
    "response.reasoning_summary_text": "summary_text",
}
"""Events of texts, without their ending."""
_CALLS: Final[dict[str, str]] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that are calls, and the key of what they are called with."""
_ARGUMENTS: Final[dict[str, str]] = {
    "response.function_call_arguments": "arguments", "response.custom_tool_call_input": "input",
}  # fmt: skip
_REASONS: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "filter"}
_CUT: Final = ("failed", "cancelled")
_TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")
_LIFE: Final = ("response.created", "response.queued", "response.in_progress")
_KINDS: Final[dict[str, FailureKind]] = {"rate_limit_exceeded": "rate_limited", "invalid_prompt": "bad_request"}
"""Codes that a response's own error has, and other protocols have not."""


class ResponsesState(msgspec.Struct):
    """All that the reader knows; plain data. ``calls``: item → place of the call; ``said``: the items and parts of
    which something was told; ``thought``: the reasoning itself was."""

    teller: TellerState = msgspec.field(default_factory=TellerState)
    calls: dict[str, int] = {}
    said: set[str] = set()
    thought: bool = False


class ResponsesReader:
    """The machine."""

    def __init__(self, state: ResponsesState | None = None, *, own: bool = False) -> None:
        self._own = own
        self._state = ResponsesState() if state is None else copy.deepcopy(state)
        self._teller = Teller(self._state.teller)

    @property
    def over(self) -> bool:
        """The response has ended; nothing more counts."""
        return self._teller.over

    def snapshot(self) -> ResponsesState:
        """Its state."""
        return msgspec.structs.replace(copy.deepcopy(self._state), teller=self._teller.snapshot())

    def event(self, name: str, value: dict[str, Any], out: list[Semantic]) -> None:
        """An event of a stream. ``name``: of its ``event`` field, empty without one."""
        if self._teller.over:
            return
        kind = as_text(value.get("type")) or name
        stem, _, phase = kind.rpartition(".")
        if stem in _EVENTS:
            self._text(_EVENTS[stem], phase, value, out)
        elif stem in _ARGUMENTS:
            self._argument(_ARGUMENTS[stem], phase, value, out)
        elif stem in ("response.content_part", "response.reasoning_summary_part"):
            self._part(as_object(value.get("part")), _key(value), value, out)
        elif stem == "response.output_item":
            self._item(phase, value, out)
        elif kind in _LIFE:
            self._begin(as_object(value.get("response")), out)
        elif kind in _TERMINAL:
            self._finish(as_object(value.get("response")), phase, out)
        elif kind == "error" or value.get("error"):
            self._teller.fail(failure_of(value), out)

    def whole(self, value: dict[str, Any], out: list[Semantic]) -> None:
        """A response that came in one piece, or an error."""
        if value.get("error") and "output" not in value:
            self._teller.fail(failure_of(value), out)
        else:
            self._finish(value, as_text(value.get("status")) or "", out)
        self._teller.end(out)

    def end(self, out: list[Semantic]) -> None:
        """The body has ended. Without a terminal event the response was cut off."""
        if not self._teller.over:
            self._teller.fail(Failure("engine", "The stream ended before its response.", TRUNCATED), out)
        self._teller.end(out)

    def fail(self, failure: Failure, out: list[Semantic]) -> None:
        """The body broke off, or cannot be read."""
        self._teller.fail(failure, out)
        self._teller.end(out)

    def leave(self, out: list[Semantic]) -> None:
        """The client left."""
        self._teller.end(out)

    # --- texts

    def _text(self, kind: str, phase: str, value: dict[str, Any], out: list[Semantic]) -> None:
        part = f"{_key(value)}/{kind}/{_place(value)}"
        if phase == "delta":
            self._say(kind, as_text(value.get("delta")), part, value, out)
        elif part not in self._state.said:
            self._say(kind, as_text(value.get(_TEXTS[kind][1])), part, value, out)

    def _part(self, part: dict[str, Any], item: str, value: dict[str, Any], out: list[Semantic]) -> None:
        kind = as_text(part.get("type")) or ""
        key = f"{item}/{kind}/{_place(value)}"
        if kind in _TEXTS and key not in self._state.said:
            self._say(kind, as_text(part.get(_TEXTS[kind][1])), key, value, out)

    def _say(self, kind: str, text: str | None, part: str, value: dict[str, Any], out: list[Semantic]) -> None:
        state = self._state
        self._tokens(value.get("logprobs") if kind == "output_text" else None, out)
        if not text or (kind == "summary_text" and state.thought):
            return
        if part not in state.said:
            state.thought = state.thought or kind == "reasoning_text"
            state.said |= {part, _key(value)}
        self._teller.text(_TEXTS[kind][0], text, out)

    def _tokens(self, entries: Any, out: list[Semantic]) -> None:
        tokens = tokens_of(entries)
        if tokens:
            self._teller.start(0, 0, out)
            out.append(Tokens(0, tuple(token.id for token in tokens), tokens))

    # --- calls

    def _argument(self, field: str, phase: str, value: dict[str, Any], out: list[Semantic]) -> None:
        place = self._state.calls.get(_key(value))
        if place is None:
            return
        if phase == "delta":
            self._teller.arguments(place, as_text(value.get("delta")) or "", out)
        else:
            self._teller.name(place, "", as_text(value.get("name")) or "")
            self._rest(place, as_text(value.get(field)), out)

    def _rest(self, place: int, text: str | None, out: list[Semantic]) -> None:
        """What a call is called with, where no delta told it."""
        if text and not self._teller.state.calls[place].some:
            self._teller.arguments(place, text, out)

    # --- items

    def _item(self, phase: str, value: dict[str, Any], out: list[Semantic]) -> None:
        item = as_object(value.get("item"))
        kind = as_text(item.get("type")) or ""
        key = _key(value, item)
        if kind in _CALLS:
            self._call(kind, phase, key, item, out)
        elif phase == "done" and key not in self._state.said:
            self._texts(item, value, out)

    def _call(self, kind: str, phase: str, key: str, item: dict[str, Any], out: list[Semantic]) -> None:
        number = as_text(item.get("call_id")) or as_text(item.get("id")) or ""
        name = as_text(item.get("name")) or ""
        free = kind == "custom_tool_call" or self._own
        place = self._state.calls.get(key)
        if place is None:
            place = self._state.calls[key] = self._teller.call(number, name, free, out)
        if phase == "done":
            self._teller.name(place, number, name)
            self._rest(place, as_text(item.get(_CALLS[kind])), out)
            self._teller.close(place, item.get("status") != "incomplete", out)

    def _texts(self, item: dict[str, Any], value: dict[str, Any], out: list[Semantic]) -> None:
        """An item's texts; of reasoning, the summary where there is nothing else."""
        parts = as_objects(item.get("content"))
        if not any(part.get("type") == "reasoning_text" for part in parts):
            parts += as_objects(item.get("summary"))
        for place, part in enumerate(parts):
            self._part(part, f"{_key(value, item)}/{place}", value, out)

    # --- responses

    def _begin(self, response: dict[str, Any], out: list[Semantic]) -> None:
        self._teller.state.response = self._teller.state.response or as_text(response.get("id")) or ""
        usage = _usage(response.get("usage")) or Usage(0, 0)
        self._teller.start(usage.prompt, usage.cached, out)

    def _finish(self, response: dict[str, Any], phase: str, out: list[Semantic]) -> None:
        self._begin(response, out)
        if not self._teller.state.told:
            for place, item in enumerate(as_objects(response.get("output"))):
                self._item("done", {"output_index": place, "item": item}, out)
        status = as_text(response.get("status")) or phase
        usage = _usage(response.get("usage"))
        if status in _CUT or response.get("error"):
            if self._own:
                self._teller.state.failed = True
                out += (*([] if usage is None else [usage]), failure_of(response))
            else:
                self._teller.fail(failure_of(response), out)
        elif status not in ("completed", "incomplete"):
            self._teller.fail(Failure("engine", f"The response is {status or 'of no status'}.", TRUNCATED), out)
        else:
            why = as_text(as_object(response.get("incomplete_details")).get("reason")) or ""
            reason = _REASONS.get(why, "eos") if status == "incomplete" else "eos"
            self._teller.finish(reason, None, usage, out)


def _key(value: dict[str, Any], item: dict[str, Any] | None = None) -> str:
    """What an event is about: the place of its item, or the item's id where the place is not told."""
    index = as_int(value.get("output_index"))
    if index is not None:
        return str(index)
    return f"id:{as_text(value.get('item_id')) or as_text((item or {}).get('id')) or ''}"


def _place(value: dict[str, Any]) -> int:
    index = as_int(value.get("content_index", value.get("summary_index")))
    return 0 if index is None else index


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    wire = as_object(value)
    return Usage(
        as_count(wire.get("input_tokens")),
        as_count(wire.get("output_tokens")),
        as_count(as_object(wire.get("input_tokens_details")).get("cached_tokens")),
        as_count(as_object(wire.get("output_tokens_details")).get("reasoning_tokens")),
    )


def failure_of(value: dict[str, Any]) -> Failure:
    """The failure that an error event, a response that failed, or an error object tells of."""
    told = value.get("error")
    if value.get("status") == "cancelled" and not told:
        return Failure("cancelled", "The response was cancelled.", "cancelled")
    error = {"message": told} if isinstance(told, str) else as_object(told) or {**value, "type": None}
    code = as_text(error.get("code"))
    chunk = chunk_of({"error": error})
    assert isinstance(chunk, ErrorChunk)
    failure = chat_failure_of(chunk)
    return msgspec.structs.replace(failure, kind=_KINDS[code]) if code in _KINDS else failure
