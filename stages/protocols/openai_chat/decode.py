"""Decoding a request: body → ChatRequest → Ask.

A null at the top level is the same as an absent field. Unknown fields are ignored at every level. What is of the wrong
type, out of range or unsupported is a RequestError whose ``param`` is the field's path in the client's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import inspect

from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.protocols.openai_chat.check import NO_CUSTOM, check, refused
from stages.protocols.openai_chat.prompt import chosen
from stages.protocols.openai_chat.request import (
    AllowedChoice,
    ChatRequest,
    NamedChoice,
    StreamOptions,
)
from stages.strict import problem_of, repeated_key

_DEPTH: Final = 100
_KNOWN: Final = frozenset(ChatRequest.__struct_fields__)
_REQUEST: Final = inspect.type_info(ChatRequest)
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

StopScope = Literal["content", "reasoning", "arguments", "marker"]
_SCOPES: Final[dict[str, tuple[StopScope, ...]]] = {
    "content": ("content",), "reasoning": ("reasoning",), "tools": ("arguments", "marker"),
}  # fmt: skip


def decode_request(body: bytes) -> ChatRequest:
    """Decode and validate. Raises RequestError (400)."""
    fields = {name: value for name, value in _object(body).items() if value is not None}
    try:
        request = msgspec.convert(fields, ChatRequest, str_keys=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    check(request)
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
        raise refused(None, "The request body must be a JSON object.") from None


def ask_of(request: ChatRequest, reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "both") -> Ask:
    """What the request asks of the stages. ``reasoning_field``: the server's, where the request has none."""
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
        allowed=chosen(request) if isinstance(request.tool_choice, AllowedChoice) else (),
        named_finish=request.named_finish_reason,
        parallel=request.parallel_tool_calls,
        include_reasoning=request.include_reasoning,
        stop=request.stops,
        include_stop=request.include_stop_str_in_output,
        stop_scopes=_scopes(request),
        keep_special=not request.skip_special_tokens,
        ignore_eos=request.ignore_eos,
        stop_ids=tuple(request.stop_token_ids),
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        end_token=request.end_token_logprob,
        return_token_ids=request.return_token_ids,
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        metrics=request.include_metrics,
        reasoning_field=request.reasoning_field or reasoning_field,
    )


def _scopes(request: ChatRequest) -> tuple[StopScope, ...]:
    wanted = _SCOPES if request.stop_scopes is None else request.stop_scopes
    return tuple(kind for name, kinds in _SCOPES.items() if name in wanted for kind in kinds)


def _choice(request: ChatRequest) -> str:
    choice = request.tool_choice
    if isinstance(choice, NamedChoice):
        return f"name:{choice.function.name}"
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode
    return choice or ("auto" if request.tools else "none")


# --- JSON -----------------------------------------------------------------------------------------------------------


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise refused(None, "The request body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    except msgspec.DecodeError as error:
        raise refused(None, f"The request body is not valid JSON: {problem_of(body) or error}.") from None
    if not isinstance(value, dict):
        raise refused(None, "The request body must be a JSON object.")
    fields = cast("dict[str, Any]", value)
    for name, item in fields.items():
        _check_shape(name[:100], item)
    twice = repeated_key(body, fields)
    if twice is not None:
        raise refused(None, f"The request body has the key {twice!r:.100} twice in one object.")
    return fields


def _check_shape(name: str, value: Any) -> None:
    """Refuse what later encoders (of stores, of templates) cannot take: deep nesting and integers beyond 64 bits."""
    level: list[Any] = [value]
    for _ in range(_DEPTH):
        if any(isinstance(item, int) and not -(1 << 63) <= item < 1 << 64 for item in level):
            raise refused(name, "integers must fit in 64 bits")
        level = [item for holder in level for item in _inside(holder)]
        if not level:
            return
    raise refused(name, "nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    kind: type = value.__class__
    inside: Iterable[Any] = value.values() if kind is dict else value if kind is list else ()
    return inside


_WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _words(path: str) -> list[str]:
    """The values that the field of a path may have, where they are words of a list."""
    kinds: list[Any] = [_REQUEST]
    words: list[str] = []
    for name in re.sub(r"\[\d+\]", "", path).split("."):
        structs = [kind for kind in _flat(kinds) if isinstance(kind, inspect.StructType)]
        words = [str(kind.tag) for kind in structs if kind.tag_field == name]
        kinds = [field.type for kind in structs for field in kind.fields if field.encode_name == name]
    return words + [str(word) for kind in _flat(kinds) if isinstance(kind, inspect.LiteralType) for word in kind.values]


def _flat(kinds: Iterable[Any]) -> Iterable[Any]:
    """The types that unions and lists are made of."""
    for kind in kinds:
        if isinstance(kind, inspect.UnionType):
            yield from _flat(kind.types)
        elif isinstance(kind, inspect.ListType):
            yield from _flat([kind.item_type])
        elif isinstance(kind, inspect.Metadata):
            yield from _flat([kind.type])
        else:
            yield kind


def _listed(words: list[str]) -> str:
    shown = [repr(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _explained(text: str) -> RequestError:
    """msgspec's message, with its path ``$.a[0].b`` as the client writes it: ``a[0].b``."""
    where = _WHERE.search(text)
    path = where.group(1).replace("[...]", "").lstrip(".") if where else ""
    if where:
        text = text[: where.start()]
    missing = _MISSING.match(text)
    if missing:
        path = f"{path}.{missing.group(1)}".lstrip(".")
        text = "this field is required"
    if path.startswith("tool_choice.") and path.endswith(".type") and "'custom'" in text:
        text = NO_CUSTOM
    elif text.startswith("Invalid ") and (words := _words(path)):
        text += f"; expected {_listed(words)}"
    return refused(path or None, text[:1].lower() + text[1:] if path else text)
