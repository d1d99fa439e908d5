"""Checks of a request that its types cannot make. Each refusal names the field and says what to do instead."""

from __future__ import annotations

from typing import Final

from stages.protocols.body import NO_CUSTOM, refused
from stages.protocols.openai_chat.request import (
    AllowedChoice,
    AssistantMessage,
    ChatRequest,
    NamedChoice,
    Part,
    ResponseFormat,
    StreamOptions,
)

UNSUPPORTED: Final = {
    "functions": "this field is not supported; declare the functions in tools",
    "function_call": "this field is not supported; use tool_choice",
    "modalities": "only ['text'] is supported",
    "audio": "this server makes text only; leave the field out",
    "prediction": "predicted output is not supported; leave the field out",
    "web_search_options": "this server does not search; declare a function in tools that does",
    "moderation": "this server does not moderate; leave the field out",
}
"""Fields that are refused, each with what to do."""


def check(request: ChatRequest) -> None:
    """Raises RequestError (400) for the first thing that is wrong."""
    _messages(request)
    _unsupported(request)
    _output(request)
    _tools(request)
    _choice(request)
    if request.continue_final_message and request.add_generation_prompt:
        raise refused("continue_final_message", "cannot be combined with add_generation_prompt")


def _messages(request: ChatRequest) -> None:
    for index, message in enumerate(request.messages):
        path = f"messages[{index}]"
        if isinstance(message.content, list):
            _parts(message.content, f"{path}.content", isinstance(message, AssistantMessage))
        if not isinstance(message, AssistantMessage):
            continue
        if message.function_call is not None:
            raise refused(f"{path}.function_call", "this field is not supported; give the call in tool_calls")
        if message.audio is not None:
            raise refused(f"{path}.audio", "this server takes text only; give what was said as content")
        others = (message.tool_calls, message.refusal, message.reasoning, message.reasoning_content)
        if message.content is None and not any(others):
            raise refused(f"{path}.content", "expected text, because the message has no tool_calls")


def _parts(parts: list[Part], path: str, assistant: bool) -> None:
    for index, part in enumerate(parts):
        if part.type == "refusal" and assistant:
            if part.refusal is None:
                raise refused(f"{path}[{index}].refusal", "expected text")
        elif part.type != "text":
            raise refused(f"{path}[{index}]", f"parts of type {part.type!r} are not supported; this server takes text")
        elif part.text is None:
            raise refused(f"{path}[{index}].text", "expected text")


def _unsupported(request: ChatRequest) -> None:
    for name, instead in UNSUPPORTED.items():
        value = getattr(request, name)
        if value is not None and not (name == "modalities" and value == ["text"]):
            raise refused(name, instead)


def _output(request: ChatRequest) -> None:
    check_output(request.stream, request.stream_options, request.include_metrics, request.response_format, request.stop)
    if request.top_logprobs and not request.logprobs:
        raise refused("top_logprobs", "only allowed when logprobs is true")
    cap = request.max_completion_tokens or request.max_tokens
    if cap is not None and request.min_tokens > cap:
        raise refused("min_tokens", f"expected at most {cap}, the largest number of tokens")


def check_output(
    stream: bool, options: StreamOptions | None, metrics: bool, wanted: ResponseFormat | None, stop: str | list[str]
) -> None:
    """What chat and completions have in common. Raises RequestError (400)."""
    if options is not None and not stream:
        raise refused("stream_options", "only allowed when stream is true")
    if metrics and stream and not (options is not None and options.include_usage):
        raise refused(
            "include_metrics", "a stream needs stream_options.include_usage for it: it is told beside the usage"
        )
    if wanted is not None and wanted.type == "json_schema" and wanted.json_schema is None:
        raise refused("response_format.json_schema", "this field is required")
    if isinstance(stop, str):
        if not stop:
            raise refused("stop", "a stop string must not be empty")
    elif "" in stop:
        raise refused(f"stop[{stop.index('')}]", "a stop string must not be empty")


def _tools(request: ChatRequest) -> None:
    for index, spec in enumerate(request.tools):
        if spec.type == "custom":
            raise refused(f"tools[{index}].type", NO_CUSTOM)
        if spec.type != "function":
            raise refused(f"tools[{index}].type", f"tools of type {spec.type!r} are not supported; expected 'function'")
        if spec.function is None:
            raise refused(f"tools[{index}].function", "this field is required")


def _choice(request: ChatRequest) -> None:
    choice = request.tool_choice
    if choice is None or choice == "none":
        return
    if not request.tools:
        raise refused("tool_choice", "only allowed when tools are given")
    names = {spec.function.name for spec in request.tools if spec.function is not None}
    if isinstance(choice, NamedChoice):
        _declared(choice.function.name, names, "tool_choice.function.name")
    elif isinstance(choice, AllowedChoice):
        for index, entry in enumerate(choice.allowed_tools.tools):
            _declared(entry.function.name, names, f"tool_choice.allowed_tools.tools[{index}].function.name")


def _declared(name: str, names: set[str], path: str) -> None:
    if name not in names:
        raise refused(path, f"there is no tool named {name!r}")
