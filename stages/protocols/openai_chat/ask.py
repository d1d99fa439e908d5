"""A ChatRequest as the body of a chat completions request, for another server.

``developer`` is written as ``system``, which every server and every template knows.
"""

from __future__ import annotations

from typing import Any, Final

from stages.protocols.openai_chat.outward import Fields, offered, plain, stops_of
from stages.protocols.openai_chat.request import AnyMessage, AssistantMessage, ChatRequest, Content, ToolMessage

MOST_STOPS: Final = 4
_SAME: Final = (
    "n", "logprobs", "top_logprobs", "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty",
    "logit_bias", "reasoning_effort", "verbosity", "response_format", "user", "metadata", "service_tier",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
)  # fmt: skip
_EXTRA: Final = (
    "top_k", "min_p", "min_tokens", "repetition_penalty", "stop_token_ids", "ignore_eos", "skip_special_tokens",
    "include_stop_str_in_output", "add_generation_prompt", "continue_final_message", "chat_template_kwargs",
)  # fmt: skip


def body_of(
    request: ChatRequest, model: str | None, stream: bool, *, official: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body, and what of the request it does not carry; see ``stages.protocols.outward``."""
    fields = Fields(request, official=official)
    fields.send(_SAME)
    fields.extra(_EXTRA)
    messages = [_message(message, fields, official) for message in request.messages]
    body: dict[str, Any] = {} if model is None else {"model": model}
    body |= {"messages": messages, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    if request.max_tokens is not None:
        body["max_completion_tokens"] = request.max_tokens
    if stops := stops_of(request, MOST_STOPS):
        body["stop"] = stops
    return {**body, **_tools(request), **fields.body}, fields.lost


def _tools(request: ChatRequest) -> dict[str, Any]:
    tools, mode, named = offered(request)
    if not tools:
        return {}
    made: dict[str, Any] = {"tools": [{"type": "function", "function": plain(tool)} for tool in tools]}
    if named is not None:
        made["tool_choice"] = {"type": "function", "function": {"name": named}}
    elif mode is not None:
        made["tool_choice"] = mode
    return made if request.parallel_tool_calls else {**made, "parallel_tool_calls": False}


def _message(message: AnyMessage, fields: Fields, official: bool) -> dict[str, Any]:
    role = "system" if message.__struct_config__.tag == "developer" else message.__struct_config__.tag
    made: dict[str, Any] = {"role": role, "content": _content(message.content)}
    if message.name is not None:
        made["name"] = message.name
    if isinstance(message, ToolMessage):
        made |= {"tool_call_id": message.tool_call_id, "content": _content(message.content) or ""}
    elif isinstance(message, AssistantMessage):
        made |= _assistant(message, fields, official)
    return made


def _assistant(message: AssistantMessage, fields: Fields, official: bool) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if message.refusal is not None:
        made["refusal"] = message.refusal
    if message.tool_calls:
        made["tool_calls"] = [plain(call) for call in message.tool_calls]
    thought = message.reasoning_content if message.reasoning is None else message.reasoning
    if thought is not None and official:
        fields.lose("messages.reasoning")
    elif thought is not None:
        # vLLM reads the one name, SGLang the other.
        made |= {"reasoning": thought, "reasoning_content": thought}
    return made


def _content(content: Content | None) -> Any:
    if content is None or isinstance(content, str):
        return content
    parts = [plain(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
