"""The quick way to read the chunks that most streams are made of: one choice, its text, ids or calls, and nothing else.

Each function gives the chunk that the lenient reading of the same value gives, as far as the decoder looks at it, or
None where the value has anything else: then that reading has to be asked. Values are those of strict JSON: texts have
no half of a surrogate pair.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, UnsetType

from stages.protocols.openai_chat import ChatChunk, ChunkChoice, Delta, FunctionDelta, ToolCallDelta

_TEXT: Final = frozenset((str, type(None)))
_MOST: Final = 1 << 63
_WIDTH: Final = 32
"""Token ids, or entries of calls, that a chunk of a stream has at most."""


def chat_chunk(value: dict[str, Any]) -> ChatChunk | None:
    """A chunk of chat completions."""
    choice = _only(value)
    if choice is None:
        return None
    wire: Any = choice.get("delta")
    if wire.__class__ is not dict or "function_call" in wire:
        return None
    get = wire.get
    content, refusal, reasoning, other = get("content"), get("refusal"), get("reasoning"), get("reasoning_content")
    if not (
        content.__class__ in _TEXT
        and refusal.__class__ in _TEXT
        and reasoning.__class__ in _TEXT
        and other.__class__ in _TEXT
    ):
        return None
    calls = get("tool_calls")
    entries: tuple[ToolCallDelta, ...] | None = None
    if calls:
        entries = _entries(calls)
        if entries is None:
            return None
    return _chunk(value, choice, Delta(UNSET, content, refusal, reasoning, other, entries))


def completion_chunk(value: dict[str, Any]) -> ChatChunk | None:
    """A chunk of completions, its text as content."""
    choice = _only(value)
    if choice is None or choice.get("prompt_token_ids"):
        return None
    text = choice.get("text")
    return _chunk(value, choice, Delta(UNSET, text)) if text.__class__ in _TEXT else None


def _only(value: dict[str, Any]) -> dict[str, Any] | None:
    """The choice of a chunk that has nothing else to say."""
    get = value.get
    choices: Any = get("choices")
    if choices.__class__ is not list or len(choices) != 1 or get("error") or get("usage") is not None:
        return None
    if get("prompt_token_ids") is not None or get("metrics") is not None or get("object") == "error":
        return None
    choice = choices[0]
    if choice.__class__ is not dict or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    return choice


def _chunk(value: dict[str, Any], choice: dict[str, Any], delta: Delta) -> ChatChunk | None:
    index: Any = choice.get("index")
    number: Any = value.get("id")
    ids: Any = choice.get("token_ids")
    if index.__class__ is not int or not 0 <= index < _WIDTH or number.__class__ is not str:
        return None
    told: tuple[int, ...] | UnsetType = UNSET
    if ids:
        if ids.__class__ is not list or len(ids) > _WIDTH:
            return None
        for one in ids:
            if one.__class__ is not int or not -_MOST <= one < _MOST:
                return None
        told = tuple(ids)
    return ChatChunk(number, 0, "", None, (ChunkChoice(index, delta, None, None, UNSET, told),))


def _entries(calls: Any) -> tuple[ToolCallDelta, ...] | None:
    if calls.__class__ is not list or len(calls) > _WIDTH:
        return None
    made: list[ToolCallDelta] = []
    for call in calls:
        entry = _entry(call) if call.__class__ is dict else None
        if entry is None:
            return None
        made.append(entry)
    return tuple(made)


def _entry(call: dict[str, Any]) -> ToolCallDelta | None:
    index: Any = call.get("index")
    function: Any = call.get("function")
    if index.__class__ is not int or not 0 <= index < _MOST or function.__class__ is not dict:
        return None
    number, kind, name, arguments = call.get("id"), call.get("type"), function.get("name"), function.get("arguments")
    for text in (number, kind, name, arguments):
        if text.__class__ not in _TEXT:
            return None
    return ToolCallDelta(index, number, kind, FunctionDelta(name, arguments))
