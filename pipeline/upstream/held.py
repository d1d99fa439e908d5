"""What of a request holds a model to something while it generates, for an upstream that is asked for tokens.

    chat           the client's own fields say it: nothing is put in
    generate       ``json_schema`` (SGLang)
    completion     ``json_schema`` (llama.cpp)
    completions    ``response_format`` (vLLM, SGLang)

An upstream that gets a bare prompt knows nothing of reasoning and of calls: it holds all that the model writes to the
schema. So behind a prompt that opens reasoning, and where the model may call instead, the format of an answer is lost;
and calls, whose markers only the model's format has, are never forced. What is lost our stages note where the model
does not keep to it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from stages.opening import Ask
from stages.parse.format import Format
from stages.parse.modes import THINKS
from stages.parse.reasoning import start_mode

_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_KINDS: Final = ("vllm", "sglang", "playhead")
"""Servers whose completions know ``response_format``."""


class Held(NamedTuple):
    """``fields``: to send; ``lost``: names of the request's fields, in chat's terms."""

    fields: dict[str, Any]
    lost: tuple[str, ...]


def held(way: str, ask: Ask, form: Format | None, tail: str, kind: str) -> Held:
    """What is sent in this way. ``form``: what the model writes, None where that is not known; ``tail``: of the prompt;
    ``kind``: which server it is."""
    if way == "chat":
        return Held({}, ())
    forced = ask.function is not None or ask.tool_choice == "required"
    calls = bool(ask.tools) and ask.tool_choice != "none"
    lost = ("tool_choice",) if calls and forced else ()
    if calls and any(tool.strict for tool in ask.tools):
        lost = (*lost, "tools.strict")
    if ask.answer is None:
        return Held({}, lost)
    thinks = form is None or start_mode(form, tail, calls=False) in THINKS
    fields = {} if calls or thinks else _answer(way, ask.answer, kind)
    return Held(fields, lost if fields or (calls and forced) else (*lost, "response_format"))


def _answer(way: str, schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The answer's schema, {} for any object, as the server calls it; nothing where it has no name for it."""
    if way == "generate":
        return {"json_schema": msgspec.json.encode(schema or _OBJECT).decode()}
    if way == "completion":
        return {"json_schema": schema or _OBJECT}
    if kind not in _KINDS:
        return {}
    named = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named} if schema else {"type": "json_object"}}
