"""A ChatRequest as the body of a messages request, for another server.

    system, developer    ``system``, all of them, as text blocks: one that stood later loses its place
    user, tool           blocks of user messages; neighbours become one message, results of calls before what is said
    assistant            thinking (an extra: servers that verify its signature refuse it), text, tool_use

The protocol wants ``max_tokens``; where the request has none, its caller says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stages.protocols.lenient import as_object, value_of
from stages.protocols.openai_chat import (
    NO_ARGUMENTS,
    AssistantMessage,
    ChatRequest,
    DeveloperMessage,
    Fields,
    ResponseFormat,
    SystemMessage,
    ToolMessage,
    UserMessage,
    offered,
    stops_of,
    text_of,
    uncarried,
)

MOST_STOPS: Final = 64
_SAME: Final = ("temperature", "top_p", "top_k")
_EXTRA: Final = (
    "seed", "min_p", "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
    "stop_token_ids", "ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "chat_template_kwargs",
)  # fmt: skip
"""Playhead's."""
_EFFORTS: Final = {"minimal": "low", "ultra": "max"}
"""Words of chat that the protocol has not → the nearest that it has."""


def body_of(
    request: ChatRequest, model: str | None, stream: bool, *, official: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body, and what of the request it does not carry; see ``stages.protocols.outward``. Raises RequestError for
    what would change the answer."""
    if request.n > 1:
        raise uncarried("n", "messages", "makes one answer: ask once for each")
    if request.logprobs:
        raise uncarried("logprobs", "messages", "tells none: leave the field out")
    fields = Fields(request, official=official)
    fields.send(_SAME)
    fields.extra(_EXTRA)
    body: dict[str, Any] = {} if model is None else {"model": model}
    body |= {"messages": _turns(request, fields, official), "stream": stream}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    system = [message for message in request.messages if isinstance(message, SystemMessage | DeveloperMessage)]
    if texts := [text for each in system if (text := text_of(each.content))]:
        body["system"] = [{"type": "text", "text": text} for text in texts]
    # One that is all white space the protocol refuses.
    if stops := [stop for stop in stops_of(request, MOST_STOPS) if stop.strip()]:
        body["stop_sequences"] = stops
    if official and fields.body.get("temperature", 0) > 1:
        fields.body["temperature"] = 1.0
        fields.lose("temperature")
    _output(fields, body)
    if (user := fields.take("user")) is not None:
        body["metadata"] = {"user_id": user}
    return {**body, **_tools(request), **fields.body}, fields.lost


def _output(fields: Fields, body: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    effort = fields.take("reasoning_effort")
    if effort in ("none", 0):
        body["thinking"] = {"type": "disabled"}
    elif isinstance(effort, str):
        config["effort"] = _EFFORTS.get(effort, effort)
        body["thinking"] = {"type": "adaptive"}
    elif effort is not None:
        fields.lose("reasoning_effort")  # the protocol has words only
    wanted: ResponseFormat | None = fields.take("response_format")
    if wanted is not None and wanted.type != "text":
        if wanted.json_schema is None or wanted.json_schema.schema is None:
            raise uncarried("response_format", "messages", "knows no format but a JSON schema: give a json_schema")
        config["format"] = {"type": "json_schema", "schema": wanted.json_schema.schema}
    if config:
        body["output_config"] = config


def _tools(request: ChatRequest) -> dict[str, Any]:
    tools, mode, named = offered(request)
    if not tools:
        return {}
    made: list[dict[str, Any]] = []
    for tool in tools:
        spec: dict[str, Any] = {"name": tool.name, "input_schema": {**NO_ARGUMENTS, **(tool.parameters or {})}}
        spec |= {} if tool.description is None else {"description": tool.description}
        made.append(spec | ({} if tool.strict is None else {"strict": tool.strict}))
    choice: dict[str, Any] = {} if mode is None else {"type": "any" if mode == "required" else mode}
    if named is not None:
        choice = {"type": "tool", "name": named}
    if not request.parallel_tool_calls and mode != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return {"tools": made, "tool_choice": choice} if choice else {"tools": made}


# --- messages -------------------------------------------------------------------------------------------------------


def _turns(request: ChatRequest, fields: Fields, official: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    begun = False
    for message in request.messages:
        if isinstance(message, SystemMessage | DeveloperMessage):
            if begun:
                fields.lose("messages.role")
            continue
        begun = True
        if message.name is not None:
            fields.lose("messages.name")
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, fields, official)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if (fields.take("continue_final_message") is None) == (bool(turns) and turns[-1]["role"] == "assistant"):
        # An assistant's last message is continued, and no other.
        fields.lose("continue_final_message")
    fields.take("add_generation_prompt")
    return [{**turn, "content": _ordered(turn["content"])} for turn in turns if turn["content"]]


def _ordered(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of calls stand in front."""
    return sorted(blocks, key=lambda block: block["type"] != "tool_result")


def _blocks(message: UserMessage | ToolMessage | AssistantMessage, fields: Fields, official: bool) -> list[Any]:
    if isinstance(message, ToolMessage):
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text_of(message.content)}]
    text = text_of(message.content)
    if isinstance(message, UserMessage):
        # An empty block is refused; a message without any, too.
        return [{"type": "text", "text": text}] if text else []
    blocks: list[Any] = []
    thought = message.reasoning_content if message.reasoning is None else message.reasoning
    if thought and official:
        fields.lose("messages.reasoning")
    elif thought:
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    if text or message.refusal:
        blocks.append({"type": "text", "text": text or message.refusal})
    for call in message.tool_calls or ():
        arguments = call.function.arguments
        value: Any = value_of(arguments) if arguments.strip() else {}
        if not isinstance(value, dict):
            # The protocol has objects only: what a model wrote instead is still told.
            fields.lose("messages.tool_calls.arguments")
            value = {"arguments": arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.function.name, "input": as_object(value)})
    return blocks
