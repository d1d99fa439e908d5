"""POST /v1/chat/completions: from a body to what the engine and the stages are asked."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pipeline.engines.base import Conversation, Sampling
from stages.errors import RequestError
from stages.opening import Ask
from stages.protocols import openai_chat
from stages.protocols.openai_chat import ChatRequest

MIN_KEEP_ALIVE = 0.1
"""Seconds. A request that asks for comments more often gets them as often as this: each one is work, and recorded."""


class Plan(msgspec.Struct, frozen=True):
    """A request, understood."""

    ask: Ask
    conversation: Conversation
    sampling: Sampling
    keep_alive: float | None = None
    """Seconds of silence before a comment, where the request has its own; 0: never."""
    ignored: tuple[str, ...] = ()
    """Names of fields that have no meaning here."""


class Forced(msgspec.Struct, frozen=True):
    """Testing: what the sampler must produce."""

    forced_text: str | None = None
    forced_ids: tuple[int, ...] = ()


def plan(
    body: bytes,
    model: str,
    *,
    allow_forced: bool = False,
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "both",
) -> Plan:
    """Understand a body. ``reasoning_field``: where the request names none.

    Raises RequestError: 400 for what is malformed or cannot be served, 404 for another model.
    """
    request = openai_chat.decode_request(body)
    if request.model is not None and request.model != model:
        raise RequestError(
            f"There is no model {request.model[:100]!r} here; this server has {model!r}.",
            param="model", code="model_not_found", status=404,
        )  # fmt: skip
    ask = openai_chat.ask_of(request, reasoning_field)
    forced = _forced(body) if allow_forced else Forced()
    known = Forced.__struct_fields__ if allow_forced else ()
    ignored = tuple(name for name in openai_chat.unknown_fields(body) if name not in known)
    return Plan(ask, _conversation(request), _sampling(request, forced), _keep_alive(request), ignored)


def _keep_alive(request: ChatRequest) -> float | None:
    asked = request.stream_options.keep_alive if request.stream_options is not None else None
    return max(asked, MIN_KEEP_ALIVE) if asked else asked


def _conversation(request: ChatRequest) -> Conversation:
    kwargs: dict[str, Any] = {}
    effort = request.reasoning_effort
    if effort is not None:
        # The two switches that templates of hybrid models read; what the request gives a template by name wins.
        thinks = effort not in ("none", 0)
        kwargs = {"enable_thinking": thinks, "thinking": thinks, "reasoning_effort": effort}
    return Conversation(
        messages=openai_chat.messages_of(request),
        tools=openai_chat.tools_of(request),
        template_kwargs=kwargs | request.chat_template_kwargs,
        add_generation_prompt=bool(request.add_generation_prompt),
        continue_final_message=request.continue_final_message,
    )


def _sampling(request: ChatRequest, forced: Forced) -> Sampling:
    return Sampling(
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        seed=request.seed,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=dict(request.logit_bias),
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        forced_ids=forced.forced_ids,
        forced_text=forced.forced_text,
    )


def _forced(body: bytes) -> Forced:
    try:
        return msgspec.json.decode(body, type=Forced)
    except msgspec.ValidationError as error:
        raise RequestError(f"forced_text must be text and forced_ids a list of token ids: {error}") from error
