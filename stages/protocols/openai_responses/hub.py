"""From a ResponsesRequest to a ChatRequest: what the prompt and the Ask are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from stages.protocols import openai_chat
from stages.protocols.body import refused
from stages.protocols.openai_chat import ChatRequest
from stages.protocols.openai_responses.items import (
    InputCall,
    InputContent,
    InputItem,
    InputMessage,
    InputReasoning,
    InputResult,
    Reference,
    input_items,
    items_of,
)
from stages.protocols.openai_responses.request import (
    AllowedChoice,
    FunctionChoice,
    ObjectFormat,
    ResponsesRequest,
    SchemaFormat,
    ToolSpec,
)
from stages.protocols.sampling import sampling_of

_Assistant: TypeAlias = InputMessage | InputCall | InputReasoning


def chat_of(request: ResponsesRequest, before: Sequence[dict[str, Any]] = ()) -> ChatRequest:
    """The same request in chat's terms. ``before``: the items of the conversation so far, inputs and outputs.

    Raises RequestError (400) where nothing is said, or a reference to a stored item is left.
    """
    messages = _messages(request, before)
    if not messages:
        raise refused("input", "expected at least one item")
    cap = request.max_output_tokens
    return ChatRequest(
        messages=messages,
        model=request.model,
        stream=request.stream,
        stream_options=_options(request),
        logprobs=request.logprobs,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs else 0,
        include_reasoning=request.include_reasoning,
        skip_special_tokens=request.skip_special_tokens,
        include_stop_str_in_output=request.include_stop_str_in_output,
        max_tokens=cap,
        max_completion_tokens=cap,
        **sampling_of(request),
        stop=request.stop,
        tools=[_tool(spec) for spec in request.tools],
        tool_choice=_choice(request),
        parallel_tool_calls=request.parallel_tool_calls,
        add_generation_prompt=True,
        chat_template_kwargs=request.chat_template_kwargs,
        reasoning_effort=None if request.reasoning is None else request.reasoning.effort,
        verbosity=None if request.text is None else request.text.verbosity,
        response_format=_format(request),
        user=request.user,
        metadata=request.metadata,
        store=request.store,
        service_tier=request.service_tier,
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
        prompt_cache_retention=request.prompt_cache_retention,
        prompt_cache_options=request.prompt_cache_options,
    )


# --- messages -------------------------------------------------------------------------------------------------------


def _messages(request: ResponsesRequest, before: Sequence[dict[str, Any]]) -> list[openai_chat.AnyMessage]:
    items = chain(items_of(before, "previous_response_id"), items_of(input_items(request), "input"))
    said = list(_turns(items, len(before)))
    if said and request.instructions:
        said.insert(0, openai_chat.SystemMessage(request.instructions))
    return said


def _turns(items: Iterable[InputItem], before: int) -> Iterator[openai_chat.AnyMessage]:
    """What the assistant said, thought and called between two words of others is one message. ``before``: items in
    front of the request's own."""
    turn: list[_Assistant] = []
    for index, item in enumerate(items, -before):
        if isinstance(item, Reference):
            where = f"input[{index}].id" if index >= 0 else "previous_response_id"
            raise refused(where, f"there is no stored item {item.id!r}")
        if isinstance(item, InputCall | InputReasoning) or (
            isinstance(item, InputMessage) and item.role == "assistant"
        ):
            turn.append(item)
            continue
        if turn:
            yield _assistant(turn)
            turn = []
        yield _other(item)
    if turn:
        yield _assistant(turn)


def _other(item: InputMessage | InputResult) -> openai_chat.AnyMessage:
    if isinstance(item, InputResult):
        return openai_chat.ToolMessage(_content(item.output), item.call_id)
    content = _content(item.content)
    return openai_chat.UserMessage(content) if item.role == "user" else openai_chat.SystemMessage(content)


def _assistant(turn: list[_Assistant]) -> openai_chat.AssistantMessage:
    """The model wrote nothing between its items: texts are joined as they are."""
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: list[openai_chat.ToolCall] = []
    for item in turn:
        if isinstance(item, InputCall):
            calls.append(openai_chat.ToolCall(item.call_id, openai_chat.CalledFunction(item.name, item.arguments)))
        elif isinstance(item, InputReasoning):
            thoughts.append(item.text)
        elif isinstance(item.content, str):
            texts.append(item.content)
        else:
            for part in item.content:
                (refusals if part.type == "refusal" else texts).append(part.said)
    return openai_chat.AssistantMessage(
        "".join(texts) if texts or not calls else None,
        refusal="".join(refusals) or None,
        reasoning="".join(thoughts) or None,
        tool_calls=calls or None,
    )


def _content(content: InputContent) -> str | list[openai_chat.Part]:
    if isinstance(content, str):
        return content
    return [openai_chat.Part("text", part.said) for part in content]


# --- the other fields -----------------------------------------------------------------------------------------------


def _options(request: ResponsesRequest) -> openai_chat.StreamOptions | None:
    """Usage is always told."""
    if not request.stream:
        return None
    own = request.stream_options
    return openai_chat.StreamOptions(include_usage=True, keep_alive=None if own is None else own.keep_alive)


def _tool(spec: ToolSpec) -> openai_chat.ToolSpec:
    return openai_chat.ToolSpec(
        "function", openai_chat.FunctionSpec(spec.name or "", spec.description, spec.parameters, spec.strict)
    )


def _choice(request: ResponsesRequest) -> openai_chat.ToolChoice | None:
    choice = request.tool_choice
    if isinstance(choice, FunctionChoice):
        return openai_chat.NamedChoice(openai_chat.NamedFunction(choice.name))
    if isinstance(choice, AllowedChoice):
        tools = [openai_chat.AllowedTool(openai_chat.NamedFunction(entry.name)) for entry in choice.tools]
        return openai_chat.AllowedChoice(openai_chat.AllowedTools(choice.mode, tools))
    return choice if request.tools else None


def _format(request: ResponsesRequest) -> openai_chat.ResponseFormat | None:
    wanted = None if request.text is None else request.text.format
    if isinstance(wanted, SchemaFormat):
        schema = openai_chat.SchemaFormat(wanted.name, wanted.description, wanted.schema, wanted.strict)
        return openai_chat.ResponseFormat("json_schema", schema)
    return openai_chat.ResponseFormat("json_object") if isinstance(wanted, ObjectFormat) else None
