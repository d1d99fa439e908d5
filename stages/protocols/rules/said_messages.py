"""What a response of the messages protocol says: one choice."""

from __future__ import annotations

import json
from typing import Any

from stages.protocols.rules.messages_view import Block, View
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.said import Delta, FinishKind, Kind, Said, SaidCall, SaidChoice, SaidFinish, SaidUsage
from stages.protocols.rules.values import array, integer, obj, string

_TEXTS: dict[str, tuple[Kind, str]] = {
    "text_delta": ("content", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("arguments", "partial_json"),
}
_FINISHES: dict[str, FinishKind] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "calls",
    "refusal": "refusal",
}


def of_stream(reading: Reading) -> Said:
    """What a stream says, up to its end or its error."""
    view = reading.view(View)
    said = Said(errors=[event for event, _ in view.errors])
    ends = [event for event, kind, _ in view.events if kind in ("message_stop", "error")]
    said.terminals = ends
    if view.starts or view.blocks or view.changes:
        _message(said, view)
    usage: dict[str, Any] = {}
    for event, value in view.starts[:1]:
        raw = obj(value.get("message")).get("usage")
        if isinstance(raw, dict):
            usage = obj(raw)
            said.usages.append(_usage(event, usage, usage, final=False))
    for event, value in view.changes:
        raw = value.get("usage")
        if isinstance(raw, dict):
            usage = {**usage, **{key: one for key, one in obj(raw).items() if one is not None}}
            said.usages.append(_usage(event, obj(raw), usage, final=True))
    return said


def _message(said: Said, view: View) -> None:
    choice = said.choice(0)
    last: SaidFinish | None = None
    for event, value in view.changes:
        last = _finish(event, obj(value.get("delta"))) or last
    if last is not None:
        choice.finishes.append(last)
    end = next((event.number for event, value in view.changes if _finish(event, obj(value.get("delta")))), None)
    for block in view.blocks:
        place = len(choice.calls)
        if block.kind == "tool_use":
            choice.calls.append(_call(block))
        for count, (event, kind, delta) in enumerate(block.deltas):
            text = _piece(block, kind, delta)
            if text is None or kind is None:
                continue
            if end is not None and event.number > end:
                choice.after.append(event)
            if text:
                said_kind = _TEXTS[kind][0]
                choice.deltas.append(Delta(event, said_kind, text, place if said_kind == "arguments" else -1))
            elif kind != "input_json_delta" or count:
                said.empty.append(event)
    choice.deltas.sort(key=_order)


def _order(delta: Delta) -> int:
    return delta.event.number


def _piece(block: Block, kind: str | None, delta: dict[str, Any]) -> str | None:
    """The text of a delta; None where it says nothing to clients."""
    if kind not in _TEXTS or (kind == "input_json_delta" and block.kind != "tool_use"):
        return None
    return string(delta.get(_TEXTS[kind][1]))


def _call(block: Block) -> SaidCall:
    start = block.start
    text = block.joined()
    begun = start.get("input")
    if not text and block.stop is not None:
        text = _written(begun)
    return SaidCall(block.event, string(start.get("id")), string(start.get("name")), text)


def _written(value: Any) -> str:
    """An input as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict) else "{}"


def _finish(event: Event, delta: dict[str, Any]) -> SaidFinish | None:
    reason = string(delta.get("stop_reason"))
    if reason is None:
        return None
    return SaidFinish(event, reason, _FINISHES.get(reason, "other"), string(delta.get("stop_sequence")))


def _usage(event: Event, raw: dict[str, Any], counts: dict[str, Any], *, final: bool) -> SaidUsage:
    """``counts``: those of before and the new ones: who says a count once need not repeat it."""
    cached = integer(counts.get("cache_read_input_tokens"))
    prompt = integer(counts.get("input_tokens"))
    if prompt is not None:
        prompt += (cached or 0) + (integer(counts.get("cache_creation_input_tokens")) or 0)
    return SaidUsage(
        event, raw, prompt, integer(counts.get("output_tokens")), None, cached,
        integer(obj(counts.get("output_tokens_details")).get("thinking_tokens")), final,
    )  # fmt: skip


def of_whole(body: dict[str, Any]) -> Said:
    """What a message says that came in one piece."""
    event = Event(0, 0, None, None)
    said = Said(terminals=[event])
    if body.get("type") == "error":
        said.errors.append(event)
        return said
    choice = said.choice(0)
    for block in map(obj, array(body.get("content"))):
        _whole_block(choice, event, block)
    finish = _finish(event, body)
    if finish is not None:
        choice.finishes.append(finish)
    if isinstance(body.get("usage"), dict):
        said.usages.append(_usage(event, body["usage"], body["usage"], final=True))
    return said


def _whole_block(choice: SaidChoice, event: Event, block: dict[str, Any]) -> None:
    kind = block.get("type")
    if kind == "tool_use":
        arguments = _written(block.get("input"))
        choice.deltas.append(Delta(event, "arguments", arguments, len(choice.calls)))
        choice.calls.append(SaidCall(event, string(block.get("id")), string(block.get("name")), arguments))
    elif kind in ("text", "thinking"):
        text = string(block.get(kind))
        if text:
            choice.deltas.append(Delta(event, "content" if kind == "text" else "reasoning", text))
