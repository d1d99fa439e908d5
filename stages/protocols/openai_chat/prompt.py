"""What chat templates are given: messages and tools as plain dicts."""

from __future__ import annotations

from typing import Any

import msgspec

from stages.protocols.openai_chat.request import (
    AllowedChoice,
    AnyMessage,
    AssistantMessage,
    ChatRequest,
    Content,
    DeveloperMessage,
    NamedChoice,
    SystemMessage,
    ToolCall,
    ToolMessage,
)


def messages_of(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The messages as chat templates take them: content as text (parts joined by LF), ``developer`` as ``system``,
    reasoning under both names, call arguments as objects where they are JSON objects. Absent fields are absent."""
    return tuple(_message(message) for message in request.messages)


def tools_of(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The tools as chat templates take them. A model is told of no tool that ``tool_choice`` rules out: of none with
    ``none``, of the named function alone, of the allowed ones."""
    if request.tool_choice == "none":
        return ()
    wanted = chosen(request)
    return tuple(
        _without_none(msgspec.to_builtins(spec))
        for spec in request.tools
        if not wanted or (spec.function is not None and spec.function.name in wanted)
    )


def chosen(request: ChatRequest) -> tuple[str, ...]:
    """The names that ``tool_choice`` narrows the tools down to, in its order; empty: all may be called."""
    choice = request.tool_choice
    if isinstance(choice, NamedChoice):
        return (choice.function.name,)
    if isinstance(choice, AllowedChoice):
        return tuple(dict.fromkeys(tool.function.name for tool in choice.allowed_tools.tools))
    return ()


def _message(message: AnyMessage) -> dict[str, Any]:
    if isinstance(message, AssistantMessage):
        return _assistant(message)
    role = "user"
    if isinstance(message, SystemMessage | DeveloperMessage):
        role = "system"
    elif isinstance(message, ToolMessage):
        role = "tool"
    made: dict[str, Any] = {"role": role, "content": _text(message.content or "")}
    if message.name is not None:
        made["name"] = message.name
    if isinstance(message, ToolMessage):
        made["tool_call_id"] = message.tool_call_id
    return made


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    content = "" if message.content is None else _text(message.content)
    made: dict[str, Any] = {"role": "assistant", "content": content or message.refusal or ""}
    if message.name is not None:
        made["name"] = message.name
    reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
    if reasoning is not None:
        made["reasoning"] = made["reasoning_content"] = reasoning
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    return made


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    if not text.strip():
        # A call without arguments is also written so; templates loop over an object.
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.refusal or part.text or "" for part in content)


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    made = {key: item for key, item in value.items() if item is not None}
    if "function" in made:
        made["function"] = {key: item for key, item in made["function"].items() if item is not None}
    return made
