"""Decoding a request: body → ChatRequest → Ask.

A null at the top level is the same as an absent field. Unknown fields are ignored at every level. What is of the wrong
type, out of range or unsupported is a RequestError whose ``param`` is the field's path in the client's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast, get_args

import msgspec

from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.protocols.openai_chat.request import (
    AllowedChoice,
    AnyMessage,
    AssistantMessage,
    ChatRequest,
    NamedChoice,
    Part,
    StreamOptions,
)

_UNSUPPORTED = ("functions", "function_call", "modalities", "audio", "prediction", "web_search_options", "moderation")
_DEPTH = 100
_LONGEST = 500
_KNOWN = frozenset(ChatRequest.__struct_fields__)
_ROLES = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(AnyMessage))
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_request(body: bytes) -> ChatRequest:
    """Decode and validate. Raises RequestError (400)."""
    fields = {name: value for name, value in _object(body).items() if value is not None}
    try:
        request = msgspec.convert(fields, ChatRequest, str_keys=True)
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from None
    _check_messages(request)
    _check_output(request)
    _check_tools(request)
    if request.continue_final_message and request.add_generation_prompt:
        raise _bad("continue_final_message", "cannot be combined with add_generation_prompt")
    return msgspec.structs.replace(
        request,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        top_k=max(request.top_k, 0),
        add_generation_prompt=not request.continue_final_message
        if request.add_generation_prompt is None
        else request.add_generation_prompt,
    )


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """The top-level fields of a request that have no meaning here, in the request's order. Raises RequestError where
    the body is no JSON object."""
    try:
        return tuple(name for name in _names(body) if name not in _KNOWN)
    except (msgspec.DecodeError, RecursionError):
        raise _bad(None, "The request body must be a JSON object.") from None


def ask_of(request: ChatRequest) -> Ask:
    """What the request asks of the stages."""
    options = request.stream_options or StreamOptions()
    return Ask(
        stream=request.stream,
        n=request.n,
        tools=tuple(
            Tool(spec.function.name, spec.function.description, spec.function.parameters, bool(spec.function.strict))
            for spec in request.tools
            if spec.function is not None
        ),
        tool_choice=_choice(request),
        parallel=request.parallel_tool_calls,
        include_reasoning=request.include_reasoning,
        stop=request.stops,
        include_stop=request.include_stop_str_in_output,
        keep_special=not request.skip_special_tokens,
        ignore_eos=request.ignore_eos,
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        return_token_ids=request.return_token_ids,
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
    )


def _choice(request: ChatRequest) -> str:
    choice = request.tool_choice
    if isinstance(choice, NamedChoice):
        return f"name:{choice.function.name}"
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode
    return choice or ("auto" if request.tools else "none")


# --- checks ---------------------------------------------------------------------------------------------------------


def _bad(param: str | None, wanted: str) -> RequestError:
    text = wanted if param is None else f"{param}: {wanted}"
    # A message may quote the request.
    return RequestError(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", param=param)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise _bad(None, "The request body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from None
    except msgspec.DecodeError as error:
        raise _bad(None, f"The request body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise _bad(None, "The request body must be a JSON object.")
    fields = cast("dict[str, Any]", value)
    for name, item in fields.items():
        _check_shape(name[:100], item)
    return fields


def _check_shape(name: str, value: Any) -> None:
    """Refuse what later encoders (of stores, of templates) cannot take: deep nesting and integers beyond 64 bits."""
    level: list[Any] = [value]
    for _ in range(_DEPTH):
        if any(isinstance(item, int) and not -(1 << 63) <= item < 1 << 64 for item in level):
            raise _bad(name, "integers must fit in 64 bits")
        level = [item for holder in level for item in _inside(holder)]
        if not level:
            return
    raise _bad(name, "nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    kind: type = value.__class__
    inside: Iterable[Any] = value.values() if kind is dict else value if kind is list else ()
    return inside


_WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _refused(text: str) -> RequestError:
    """msgspec's message, with its path ``$.a[0].b`` as the client writes it: ``a[0].b``."""
    where = _WHERE.search(text)
    path = where.group(1).replace("[...]", "").lstrip(".") if where else ""
    if where:
        text = text[: where.start()]
    missing = _MISSING.match(text)
    if missing:
        path = f"{path}.{missing.group(1)}".lstrip(".")
        text = "this field is required"
    if path.endswith(".role") and text.startswith("Invalid value"):
        text += f"; expected one of {_ROLES}"
    return _bad(path or None, text[:1].lower() + text[1:] if path else text)


def _check_messages(request: ChatRequest) -> None:
    for index, message in enumerate(request.messages):
        path = f"messages[{index}].content"
        if isinstance(message.content, list):
            _check_parts(message.content, path, isinstance(message, AssistantMessage))
        if isinstance(message, AssistantMessage) and message.content is None:
            others = (message.tool_calls, message.refusal, message.reasoning, message.reasoning_content)
            if not any(others):
                raise _bad(path, "expected text, because the message has no tool_calls")


def _check_parts(parts: list[Part], path: str, assistant: bool) -> None:
    for index, part in enumerate(parts):
        if part.type == "refusal" and assistant:
            if part.refusal is None:
                raise _bad(f"{path}[{index}].refusal", "expected text")
        elif part.type != "text":
            raise _bad(f"{path}[{index}]", f"parts of type {part.type!r} are not supported; this server takes text")
        elif part.text is None:
            raise _bad(f"{path}[{index}].text", "expected text")


def _check_output(request: ChatRequest) -> None:
    for name in _UNSUPPORTED:
        value = getattr(request, name)
        if value is not None and not (name == "modalities" and value == ["text"]):
            raise _bad(name, "this field is not supported")
    if request.stream_options is not None and not request.stream:
        raise _bad("stream_options", "only allowed when stream is true")
    if request.top_logprobs and not request.logprobs:
        raise _bad("top_logprobs", "only allowed when logprobs is true")
    if isinstance(request.stop, str):
        if not request.stop:
            raise _bad("stop", "a stop string must not be empty")
    elif "" in request.stop:
        raise _bad(f"stop[{request.stop.index('')}]", "a stop string must not be empty")
    cap = request.max_completion_tokens or request.max_tokens
    if cap is not None and request.min_tokens > cap:
        raise _bad("min_tokens", f"expected at most {cap}, the largest number of tokens")


def _check_tools(request: ChatRequest) -> None:
    for index, spec in enumerate(request.tools):
        if spec.type != "function":
            raise _bad(f"tools[{index}].type", f"tools of type {spec.type!r} are not supported; expected 'function'")
        if spec.function is None:
            raise _bad(f"tools[{index}].function", "this field is required")
    choice = request.tool_choice
    if choice is None or choice == "none":
        return
    if not request.tools:
        raise _bad("tool_choice", "only allowed when tools are given")
    names = {spec.function.name for spec in request.tools if spec.function is not None}
    if isinstance(choice, NamedChoice):
        _check_name(choice.function.name, names, "tool_choice.function.name")
    elif isinstance(choice, AllowedChoice):
        for index, entry in enumerate(choice.allowed_tools.tools):
            _check_name(entry.function.name, names, f"tool_choice.allowed_tools.tools[{index}].function.name")


def _check_name(name: str, names: set[str], path: str) -> None:
    if name not in names:
        raise _bad(path, f"there is no tool named {name!r}")
