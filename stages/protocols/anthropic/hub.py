"""From a body to a MessagesRequest, and from that to a ChatRequest: what the prompt and the Ask are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols import openai_chat
from stages.protocols.anthropic.check import check, results
from stages.protocols.anthropic.request import Block, MessagesRequest, ToolSpec, dropped
from stages.protocols.body import decoded
from stages.protocols.body import unknown_fields as body_unknown
from stages.protocols.lenient import written
from stages.protocols.openai_chat import ChatRequest
from stages.protocols.sampling import sampling_of


def decode_request(body: bytes, *, counting: bool = False) -> MessagesRequest:
    """Decode and validate. ``counting``: nothing is to be generated, and ``max_tokens`` may be missing. Raises
    RequestError (400)."""
    request = decoded(body, MessagesRequest)
    check(request, counting=counting)
    return request


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """The top-level fields of a request that have no meaning here, in the request's order. Raises RequestError where
    the body is no JSON object."""
    return body_unknown(body, MessagesRequest)


def chat_of(request: MessagesRequest) -> ChatRequest:
    """The same request in chat's terms. The order of what was said stays; see docs/messages.md for each field."""
    continued = request.messages[-1].role == "assistant"
    choice = request.tool_choice
    config = request.output_config
    return ChatRequest(
        messages=[*_system(request), *_turns(request)],
        model=request.model,
        stream=request.stream,
        stream_options=_options(request),
        include_reasoning=request.include_reasoning,
        skip_special_tokens=request.skip_special_tokens,
        include_stop_str_in_output=request.include_stop_str_in_output,
        max_tokens=request.max_tokens,
        max_completion_tokens=request.max_tokens,
        **sampling_of(request),
        stop=list(request.stop_sequences),
        stop_scopes=request.stop_scopes,
        tools=[_tool(tool) for tool in request.tools],
        tool_choice=_choice(request),
        # A call is a call, whoever chose its function.
        named_finish_reason="tool_calls",
        parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        add_generation_prompt=not continued,
        continue_final_message=continued,
        chat_template_kwargs=_kwargs(request),
        reasoning_effort=_effort(request),
        response_format=None if config is None or config.format is None else _format(config.format.schema),
        user=None if request.metadata is None else request.metadata.user_id,
    )


def _options(request: MessagesRequest) -> openai_chat.StreamOptions | None:
    """Usage is always told."""
    if not request.stream:
        return None
    own = request.stream_options
    return openai_chat.StreamOptions(include_usage=True, keep_alive=None if own is None else own.keep_alive)


# --- messages -------------------------------------------------------------------------------------------------------


def _system(request: MessagesRequest) -> Iterator[openai_chat.SystemMessage]:
    system = request.system
    texts = [system] if isinstance(system, str) else [block.text or "" for block in system or ()]
    kept = [text for text in texts if text and not dropped(text)]
    if kept:
        yield openai_chat.SystemMessage(_parts(kept))


def _turns(request: MessagesRequest) -> Iterator[openai_chat.AnyMessage]:
    for turn in request.messages:
        blocks = [Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
        if turn.role == "assistant":
            yield _assistant(blocks)
        elif turn.role == "system":
            yield openai_chat.SystemMessage(_parts([block.text or "" for block in blocks]))
        else:
            yield from _user(blocks)


def _user(blocks: list[Block]) -> Iterator[openai_chat.AnyMessage]:
    """What the user says, and the results of calls, each in its place."""
    texts: list[str] = []
    said = False
    for block in blocks:
        if block.type == "text":
            texts.append(block.text or "")
            continue
        if texts:
            yield openai_chat.UserMessage(_parts(texts))
        texts, said = [], True
        result = "\n".join(results(block))
        yield openai_chat.ToolMessage(f"Error: {result}" if block.is_error else result, block.tool_use_id or "")
    if texts or not said:
        yield openai_chat.UserMessage(_parts(texts))


def _assistant(blocks: list[Block]) -> openai_chat.AssistantMessage:
    """What the model wrote in several blocks is one text: it wrote nothing between them."""
    texts = [block.text or "" for block in blocks if block.type == "text"]
    thoughts = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    calls = [
        openai_chat.ToolCall(block.id or "", openai_chat.CalledFunction(block.name or "", written(block.input)))
        for block in blocks
        if block.type == "tool_use"
    ]
    return openai_chat.AssistantMessage(
        "".join(texts) if texts or not calls else None,
        reasoning="".join(thoughts) if thoughts else None,
        tool_calls=calls or None,
    )


def _parts(texts: list[str]) -> str | list[openai_chat.Part]:
    return "".join(texts) if len(texts) < 2 else [openai_chat.Part("text", text) for text in texts]


# --- the other fields -----------------------------------------------------------------------------------------------


def _tool(tool: ToolSpec) -> openai_chat.ToolSpec:
    schema = tool.input_schema or {}
    parameters = schema if "type" in schema else {"type": "object", **schema}
    return openai_chat.ToolSpec(
        "function", openai_chat.FunctionSpec(tool.name or "", tool.description, parameters, tool.strict)
    )


def _choice(request: MessagesRequest) -> openai_chat.ToolChoice | None:
    choice = request.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        return openai_chat.NamedChoice(openai_chat.NamedFunction(choice.name or ""))
    return "required" if choice.type == "any" else choice.type


def _effort(request: MessagesRequest) -> openai_chat.Effort | None:
    if request.thinking is not None and request.thinking.type == "disabled":
        return "none"
    return None if request.output_config is None else request.output_config.effort


def _kwargs(request: MessagesRequest) -> dict[str, Any]:
    """Thinking that is wanted is switched on where a template has a switch; what the request gives it by name wins."""
    on = request.thinking is not None and request.thinking.type != "disabled"
    switches = {"enable_thinking": True, "thinking": True} if on else {}
    return {**switches, **request.chat_template_kwargs}


def _format(schema: dict[str, Any]) -> openai_chat.ResponseFormat:
    return openai_chat.ResponseFormat("json_schema", openai_chat.SchemaFormat("answer", schema=schema, strict=True))
