"""A ChatRequest as the body of a responses request, for another server.

    a first system message      instructions
    system, developer, user     messages of these roles
    assistant                   its reasoning as an item (an extra), its text as a message, its calls as items
    tool                        function_call_output

The server is told not to store the response: the conversation comes whole each time.
Stop strings are not sent, which the protocol has not: our stages look for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stages.protocols.openai_chat import (
    NO_ARGUMENTS,
    AnyMessage,
    AssistantMessage,
    ChatRequest,
    DeveloperMessage,
    Fields,
    ResponseFormat,
    SystemMessage,
    ToolMessage,
    offered,
    plain,
    text_of,
    uncarried,
)

_SAME: Final = (
    "temperature", "top_p", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options",
)  # fmt: skip
_EXTRA: Final = (
    "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
    "stop_token_ids", "ignore_eos", "skip_special_tokens", "chat_template_kwargs",
)  # fmt: skip
"""Those of vLLM."""


def body_of(
    request: ChatRequest, model: str | None, stream: bool, *, official: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body, and what of the request it does not carry; see ``stages.protocols.outward``. Raises RequestError for
    what would change the answer."""
    if request.n > 1:
        raise uncarried("n", "responses", "makes one answer: ask once for each")
    fields = Fields(request, official=official)
    fields.send(_SAME)
    fields.extra(_EXTRA)
    messages = [*request.messages]
    body: dict[str, Any] = {} if model is None else {"model": model}
    if len(messages) > 1 and isinstance(messages[0], SystemMessage | DeveloperMessage):
        body["instructions"] = text_of(messages.pop(0).content)
    items = [item for place, message in enumerate(messages) for item in _items(place, message, fields, official)]
    body |= {"input": items, "stream": stream, "store": False}
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if fields.take("logprobs"):
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": fields.take("top_logprobs") or 0}
    _effort(fields, body)
    _text(fields, body)
    return {**body, **_tools(request), **fields.body}, fields.lost


def _effort(fields: Fields, body: dict[str, Any]) -> None:
    effort = fields.take("reasoning_effort")
    if isinstance(effort, str):
        body["reasoning"] = {"effort": effort}
    elif effort is not None:
        fields.lose("reasoning_effort")  # the protocol has words only


def _text(fields: Fields, body: dict[str, Any]) -> None:
    text: dict[str, Any] = {}
    wanted: ResponseFormat | None = fields.take("response_format")
    if wanted is not None:
        text["format"] = {"type": wanted.type}
        if wanted.json_schema is not None:
            text["format"] |= plain(wanted.json_schema)
    verbosity = fields.take("verbosity")
    if verbosity is not None:
        text["verbosity"] = verbosity
    if text:
        body["text"] = text


def _tools(request: ChatRequest) -> dict[str, Any]:
    tools, mode, named = offered(request)
    if not tools:
        return {}
    made: dict[str, Any] = {
        "tools": [
            # Without ``strict`` the protocol means true.
            {"type": "function", "parameters": NO_ARGUMENTS, "strict": False, **plain(tool)}
            for tool in tools
        ]
    }
    if named is not None:
        made["tool_choice"] = {"type": "function", "name": named}
    elif mode is not None:
        made["tool_choice"] = mode
    return made if request.parallel_tool_calls else {**made, "parallel_tool_calls": False}


def _items(place: int, message: AnyMessage, fields: Fields, official: bool) -> Iterator[dict[str, Any]]:
    if isinstance(message, AssistantMessage):
        yield from _assistant(place, message, fields, official)
    elif isinstance(message, ToolMessage):
        output = text_of(message.content)
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
    else:
        yield {"type": "message", "role": message.__struct_config__.tag, "content": text_of(message.content)}
    if message.name is not None:
        fields.lose("messages.name")


def _assistant(place: int, message: AssistantMessage, fields: Fields, official: bool) -> Iterator[dict[str, Any]]:
    thought = message.reasoning_content if message.reasoning is None else message.reasoning
    if thought and official:
        fields.lose("messages.reasoning")
    elif thought:
        text = [{"type": "reasoning_text", "text": thought}]
        yield {"type": "reasoning", "id": f"rs_{place}", "summary": [], "content": text}
    content = text_of(message.content) or message.refusal
    if content:
        yield {"type": "message", "role": "assistant", "content": content}
    for call in message.tool_calls or ():
        function = call.function
        yield {
            "type": "function_call", "call_id": call.id, "name": function.name, "arguments": function.arguments,
        }  # fmt: skip
