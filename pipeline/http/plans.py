"""From a request's body, whatever its protocol, to what the engine and the stages are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from pipeline.engines.base import Conversation, RawPrompt, Sampling
from stages.errors import RequestError
from stages.opening import Ask
from stages.protocols import anthropic, openai_chat, openai_completions, openai_responses
from stages.protocols.openai_chat import ChatRequest
from stages.protocols.openai_completions import CompletionsRequest
from stages.protocols.sampling import sampling_of

MIN_KEEP_ALIVE = 0.1
"""Seconds. A request that asks for comments more often gets them as often as this: each one is work, and recorded."""


class Plan(msgspec.Struct, frozen=True):
    """A request, understood."""

    ask: Ask
    conversation: Conversation | None
    sampling: Sampling
    prompts: tuple[RawPrompt, ...] = ()
    """Where there is no conversation; see EngineRequest."""
    special: bool = True
    keep_alive: float | None = None
    """Seconds of silence before a comment, where the request has its own; 0: never."""
    ignored: tuple[str, ...] = ()
    """Names of fields that have no meaning here."""
    chat: ChatRequest | None = None
    """The request in chat's terms; None: it has prompts."""


class Forced(msgspec.Struct, frozen=True):
    """Testing: what the sampler must produce."""

    forced_text: str | None = None
    forced_ids: tuple[int, ...] = ()


def plan(
    protocol: str,
    body: bytes,
    model: str,
    *,
    before: Sequence[dict[str, Any]] = (),
    stored: Mapping[str, dict[str, Any]] = {},
    allow_forced: bool = False,
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "both",
) -> Plan:
    """Understand a body. ``before``: the items of the conversation that a responses request goes on with; ``stored``:
    items that its input refers to, by their ids; ``reasoning_field``: where the request names none.

    Raises RequestError: 400 for what is malformed or cannot be served, 404 for another model.
    """
    if protocol == "completions":
        return _of_completions(body, model, allow_forced)
    if protocol == "responses":
        asked = openai_responses.decode_request(body)
        if stored:
            asked = openai_responses.resolved(asked, stored)
        request, unknown = openai_responses.chat_of(asked, before), openai_responses.unknown_fields(body)
    elif protocol == "messages":
        request = anthropic.chat_of(anthropic.decode_request(body))
        unknown = anthropic.unknown_fields(body)
    else:
        request, unknown = openai_chat.decode_request(body), openai_chat.unknown_fields(body)
    _check_model(request.model, model)
    forced = _forced(body) if allow_forced else Forced()
    return Plan(
        openai_chat.ask_of(request, reasoning_field), _conversation(request, protocol), _sampling(request, forced),
        keep_alive=_keep_alive(request), ignored=_ignored(unknown, allow_forced), chat=request,
    )  # fmt: skip


def counted(body: bytes, model: str) -> Conversation:
    """What a messages request's prompt is made of, where nothing is to be generated. Raises RequestError, as
    ``plan``."""
    request = anthropic.chat_of(anthropic.decode_request(body, counting=True))
    _check_model(request.model, model)
    return _conversation(request, "messages")


def _of_completions(body: bytes, model: str, allow_forced: bool) -> Plan:
    request = openai_completions.decode_request(body)
    _check_model(request.model, model)
    forced = _forced(body) if allow_forced else Forced()
    return Plan(
        openai_completions.ask_of(request), None, _sampling(request, forced), openai_completions.prompts_of(request),
        request.add_special_tokens, keep_alive=_keep_alive(request),
        ignored=_ignored(openai_completions.unknown_fields(body), allow_forced),
    )  # fmt: skip


def _check_model(asked: str | None, model: str) -> None:
    if asked is not None and asked != model:
        raise RequestError(
            f"There is no model {asked[:100]!r} here; this server has {model!r}.",
            param="model", code="model_not_found", status=404,
        )  # fmt: skip


def _ignored(unknown: tuple[str, ...], allow_forced: bool) -> tuple[str, ...]:
    known = Forced.__struct_fields__ if allow_forced else ()
    return tuple(name for name in unknown if name not in known)


def _keep_alive(request: ChatRequest | CompletionsRequest) -> float | None:
    asked = request.stream_options.keep_alive if request.stream_options is not None else None
    return max(asked, MIN_KEEP_ALIVE) if asked else asked


def _conversation(request: ChatRequest, protocol: str) -> Conversation:
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
        field="input" if protocol == "responses" else "messages",
    )


def _sampling(request: ChatRequest | CompletionsRequest, forced: Forced) -> Sampling:
    fields = sampling_of(request)
    fields |= {"stop_token_ids": tuple(request.stop_token_ids), "logit_bias": dict(request.logit_bias)}
    return Sampling(
        max_tokens=request.max_tokens, forced_ids=forced.forced_ids, forced_text=forced.forced_text, **fields
    )


def _forced(body: bytes) -> Forced:
    try:
        return msgspec.json.decode(body, type=Forced)
    except msgspec.ValidationError as error:
        raise RequestError(f"forced_text must be text and forced_ids a list of token ids: {error}") from error
