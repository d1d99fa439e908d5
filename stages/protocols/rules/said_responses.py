"""What a response of the responses protocol says: one choice."""

from __future__ import annotations

from typing import Any

from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.responses_view import ARGUMENTS, FIELD, TERMINAL, Item, View
from stages.protocols.rules.said import Delta, FinishKind, Kind, Said, SaidCall, SaidChoice, SaidFinish, SaidUsage
from stages.protocols.rules.values import array, integer, obj, string

_KINDS: dict[str, Kind] = {"output_text": "content", "refusal": "refusal", "reasoning_text": "reasoning"}
_TEXTS: dict[str, Kind] = {f"response.{name}.delta": kind for name, kind in _KINDS.items()}
_SUMMARY = "response.reasoning_summary_text.delta"
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_CALLS = ("function_call", "custom_tool_call")
_FINISHES: dict[Any, FinishKind] = {"max_output_tokens": "length", "content_filter": "filter"}


def of_stream(reading: Reading) -> Said:
    """What a stream says, up to its terminal event."""
    view = reading.view(View)
    said = Said()
    end = view.terminals[0][0].number if view.terminals else None
    if view.life or view.added:
        said.choice(0)
    calls = _calls(said, view)
    summaries: list[tuple[int, Delta]] = []
    for event, kind, value in view.events:
        if end is not None and event.number >= end:
            break
        if kind in _TEXTS:
            _text(said, event, _TEXTS[kind], value)
        elif kind in _ARGUMENTS:
            _argument(said, event, value, calls)
        elif kind == _SUMMARY and string(value.get("delta")):
            summaries.append((len(said.choice(0).deltas), Delta(event, "reasoning", value["delta"])))
        elif value.get("error") and kind not in TERMINAL:
            said.errors.append(event)
    _summarise(said, summaries)
    _end(said, view)
    return said


def _calls(said: Said, view: View) -> dict[int, int]:
    """The calls; their places among all calls by output index."""
    places: dict[int, int] = {}
    for item in view.added:
        if item.kind in _CALLS:
            calls = said.choice(0).calls
            if item.listed:
                places[item.index] = len(calls)
            calls.append(_call(item.event, item.value, _arguments(item)))
    return places


def _arguments(item: Item) -> str | None:
    """Joined; where they came in no deltas, those that the done events have."""
    field = ARGUMENTS[item.kind or ""]
    begun = string(item.value.get(field))
    if item.texts:
        return "".join(item.texts)
    told = [value for _, value in item.wholes] + [done.get(field) for _, done in item.dones]
    return next((one for one in told if isinstance(one, str)), begun)


def _call(event: Event, item: dict[str, Any], arguments: str | None) -> SaidCall:
    free = item.get("type") == "custom_tool_call"
    return SaidCall(event, string(item.get("call_id")), string(item.get("name")), arguments, free)


def _text(said: Said, event: Event, kind: Kind, value: dict[str, Any]) -> None:
    text = value.get("delta")
    choice = said.choice(0)
    carries = bool(value.get("logprobs"))
    if carries:
        choice.tokens.append(event)
    if isinstance(text, str):
        if text:
            choice.deltas.append(Delta(event, kind, text))
        elif not carries:
            said.empty.append(event)


def _argument(said: Said, event: Event, value: dict[str, Any], calls: dict[int, int]) -> None:
    text = value.get("delta")
    index = integer(value.get("output_index"))
    if text == "":
        said.empty.append(event)
    elif isinstance(text, str) and index in calls:
        said.choice(0).deltas.append(Delta(event, "arguments", text, calls[index]))


def _summarise(said: Said, summaries: list[tuple[int, Delta]]) -> None:
    """A summary is what a response says of its reasoning where it does not say the reasoning itself."""
    if summaries and said.choice(0).text("reasoning") is None:
        deltas = said.choice(0).deltas
        merged: list[Delta] = []
        done = 0
        for place, delta in summaries:
            merged += [*deltas[done:place], delta]
            done = place
        said.choice(0).deltas = [*merged, *deltas[done:]]


def _end(said: Said, view: View) -> None:
    said.terminals = [event for event, _, _ in view.terminals]
    first = said.terminals[0].number if said.terminals else None
    for event, kind, response in view.life:
        if first is None or event.number <= first:
            _usage(said, event, response, final=kind in TERMINAL)
    for event, kind, response in view.terminals[:1]:
        if kind in ("error", "response.failed"):
            said.errors.append(event)
        else:
            said.choice(0).finishes.append(_finish(event, response))


def _finish(event: Event, response: dict[str, Any]) -> SaidFinish:
    status = string(response.get("status")) or ""
    if status == "incomplete":
        reason = string(obj(response.get("incomplete_details")).get("reason")) or ""
        return SaidFinish(event, reason, _FINISHES.get(reason, "other"))
    return SaidFinish(event, status, "stop" if status == "completed" else "other")


def _usage(said: Said, event: Event, response: dict[str, Any], *, final: bool) -> None:
    raw = response.get("usage")
    if isinstance(raw, dict):
        counts = obj(raw)
        said.usages.append(
            SaidUsage(
                event, counts, integer(counts.get("input_tokens")), integer(counts.get("output_tokens")),
                integer(counts.get("total_tokens")),
                integer(obj(counts.get("input_tokens_details")).get("cached_tokens")),
                integer(obj(counts.get("output_tokens_details")).get("reasoning_tokens")), final,
            )
        )  # fmt: skip


def of_whole(body: dict[str, Any]) -> Said:
    """What a response says that came in one piece."""
    event = Event(0, 0, None, None)
    said = Said(terminals=[event])
    if body.get("error"):
        said.errors.append(event)
    choice = said.choice(0)
    for item in map(obj, array(body.get("output"))):
        if item.get("type") in _CALLS:
            arguments = string(item.get(ARGUMENTS[item["type"]]))
            if arguments:
                choice.deltas.append(Delta(event, "arguments", arguments, len(choice.calls)))
            choice.calls.append(_call(event, item, arguments))
        else:
            _whole_texts(choice, event, item)
    if not said.errors:
        choice.finishes.append(_finish(event, body))
    _usage(said, event, body, final=True)
    return said


def _whole_texts(choice: SaidChoice, event: Event, item: dict[str, Any]) -> None:
    parts = [obj(part) for part in array(item.get("content"))]
    if not any(part.get("type") == "reasoning_text" for part in parts):
        parts += [obj(part) for part in array(item.get("summary"))]
    for part in parts:
        name = part.get("type")
        kind: Kind | None = "reasoning" if name == "summary_text" else _KINDS.get(string(name) or "")
        text = string(part.get(FIELD.get(string(name) or "", "text")))
        if kind is not None and text:
            choice.deltas.append(Delta(event, kind, text))
