"""The response before it has any output: what its request asked, told back."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from stages.errors import RequestError
from stages.opening import Ask, Opening
from stages.protocols.openai_responses.check import decode_request
from stages.protocols.openai_responses.objects import ConversationRef, ReasoningConfig, Response
from stages.protocols.openai_responses.request import ResponsesRequest, TextConfig, ToolSpec


def base_of(opening: Opening) -> Response:
    """The response of an opening, in progress. Where its request is one of another protocol, what its Ask tells."""
    try:
        request = decode_request(opening.request)
    except RequestError:
        return _of_ask(opening)
    choice: Any = "auto" if request.tool_choice is None else msgspec.to_builtins(request.tool_choice)
    conversation = request.conversation_id
    return Response(
        opening.response_id,
        opening.created,
        opening.model,
        background=request.background,
        conversation=UNSET if conversation is None else ConversationRef(conversation),
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        parallel_tool_calls=request.parallel_tool_calls,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        # There is one tier, whichever was asked for.
        service_tier=None if request.service_tier is None else "default",
        store=request.store,
        temperature=request.temperature,
        text=_text(request.text),
        tool_choice=choice,
        tools=tuple(_tool(spec) for spec in request.tools),
        top_logprobs=request.top_logprobs or 0,
        top_p=request.top_p,
        truncation=request.truncation,
        user=request.user,
        metadata=dict(request.metadata),
    )


def summarised(response: Response) -> bool:
    """The reasoning is sent as a summary."""
    return response.reasoning is not None and response.reasoning.summary is not None


def _of_ask(opening: Opening) -> Response:
    ask = opening.ask
    return Response(
        opening.response_id,
        opening.created,
        opening.model,
        parallel_tool_calls=ask.parallel,
        store=False,
        text=_text(None),
        tool_choice=_choice(ask),
        tools=tuple(
            _tool(ToolSpec("function", tool.name, tool.description, tool.parameters, tool.strict)) for tool in ask.tools
        ),
        top_logprobs=ask.top_logprobs,
    )


def _choice(ask: Ask) -> Any:
    if ask.function is not None:
        return {"type": "function", "name": ask.function}
    if ask.allowed:
        tools = [{"type": "function", "name": name} for name in ask.allowed]
        return {"type": "allowed_tools", "mode": ask.tool_choice, "tools": tools}
    return ask.tool_choice if ask.tools else "auto"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "function", "name": spec.name, "description": spec.description, "parameters": spec.parameters,
        "strict": spec.strict,
    }  # fmt: skip
    return made


def _text(config: TextConfig | None) -> dict[str, Any]:
    """As the request has it, with the default format."""
    form: dict[str, Any] = {"type": "text"}
    if config is not None and config.format is not None:
        form = {key: value for key, value in msgspec.to_builtins(config.format).items() if value is not None}
    made: dict[str, Any] = {"format": form}
    if config is not None and config.verbosity is not None:
        made["verbosity"] = config.verbosity
    return made


def _reasoning(request: ResponsesRequest) -> ReasoningConfig:
    asked = request.reasoning
    if asked is None:
        return ReasoningConfig()
    return ReasoningConfig(asked.effort, asked.summarised)
