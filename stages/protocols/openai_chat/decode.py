"""Decoding a request: body → ChatRequest → Ask.

See ``stages.protocols.body`` for what is refused, and how.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from stages.opening import Ask, Tool
from stages.protocols.body import decoded
from stages.protocols.body import unknown_fields as body_unknown
from stages.protocols.openai_chat.check import check
from stages.protocols.openai_chat.prompt import chosen
from stages.protocols.openai_chat.request import (
    AllowedChoice,
    ChatRequest,
    NamedChoice,
    StreamOptions,
)

StopScope = Literal["content", "reasoning", "arguments", "marker"]
_SCOPES: Final[dict[str, tuple[StopScope, ...]]] = {
    "content": ("content",), "reasoning": ("reasoning",), "tools": ("arguments", "marker"),
}  # fmt: skip


def decode_request(body: bytes) -> ChatRequest:
    """Decode and validate. Raises RequestError (400)."""
    request = decoded(body, ChatRequest)
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
    return body_unknown(body, ChatRequest)


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
        answer=None if request.response_format is None else request.response_format.answer,
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
