"""What a response of the completions protocol says: raw text, of one or more choices."""

from __future__ import annotations

from typing import Any

from stages.protocols.rules.completions_view import View
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.said import Delta, FinishKind, Said, SaidFinish, SaidUsage
from stages.protocols.rules.values import array, integer, obj, string

_FINISHES: dict[str, FinishKind] = {"stop": "stop", "length": "length", "content_filter": "filter"}


def of_stream(reading: Reading) -> Said:
    """What a stream says, up to its first ``[DONE]``."""
    view = reading.view(View)
    said = Said(errors=list(view.errors), terminals=list(view.dones))
    for event, entry in view.entries:
        _entry(said, event, entry)
    for event, raw, final in view.usages:
        said.usages.append(_usage(event, raw, final))
    return said


def of_whole(body: dict[str, Any]) -> Said:
    """What a response says that came in one piece."""
    event = Event(0, 0, None, None)
    said = Said(terminals=[event], errors=[event] if body.get("error") else [])
    for entry in map(obj, array(body.get("choices"))):
        _entry(said, event, entry)
    if isinstance(body.get("usage"), dict):
        said.usages.append(_usage(event, body["usage"], True))
    return said


def _entry(said: Said, event: Event, entry: dict[str, Any]) -> None:
    index = integer(entry.get("index"))
    if index is None:
        return
    choice = said.choice(index)
    text = string(entry.get("text"))
    reason = entry.get("finish_reason")
    # With logprob entries or token ids it need not have text.
    carries = bool(entry.get("token_ids") or obj(entry.get("logprobs")).get("tokens"))
    if carries:
        choice.tokens.append(event)
    if choice.finishes and (text or carries):
        choice.after.append(event)
    if text:
        choice.deltas.append(Delta(event, "content", text))
    elif text == "" and reason is None and not carries:
        said.empty.append(event)
    if isinstance(reason, str):
        choice.finishes.append(SaidFinish(event, reason, _FINISHES.get(reason, "other"), _stop(entry)))


def _stop(entry: dict[str, Any]) -> str | int | None:
    for key in ("stop_reason", "matched_stop"):
        value = entry.get(key)
        found = string(value) or integer(value)
        if found is not None:
            return found
    return None


def _usage(event: Event, raw: dict[str, Any], final: bool) -> SaidUsage:
    return SaidUsage(
        event, raw, integer(raw.get("prompt_tokens")), integer(raw.get("completion_tokens")),
        integer(raw.get("total_tokens")),
        integer(obj(raw.get("prompt_tokens_details")).get("cached_tokens")),
        integer(obj(raw.get("completion_tokens_details")).get("reasoning_tokens")), final,
    )  # fmt: skip
