"""How an upstream is asked, so that it tells what the model writes.

    relayed    the client's own request, with ``return_token_ids`` put in (``inject``)
    parsed     ``ask``, by way:
      chat           POST /v1/chat/completions: the client's request, streamed, with ids, nothing hidden
      generate       POST /generate (SGLang): the rendered prompt's ids
      completion     POST /completion (llama.cpp): the same
      completions    POST /v1/completions: the same, or the prompt's text, with special tokens visible

Of the sampling, what the client said is sent, and what it left out is left to the upstream, as it is when its chat
endpoint is asked. What a way has no name for is ``lost``. Names are those of vLLM 0.33, SGLang 0.5 and llama.cpp's
server, from their source.

Stop strings are sent where they are looked for in all that the model writes, as upstreams do. Our stages look for them
too; where only they can tell, whoever reads the response has to close it. To llama.cpp they are not sent: it would hold
text back, which makes its lost ids untraceable (see ``stages.upstream.completion``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pipeline.engines.base import Sampling
from pipeline.engines.prompt import Prompt
from pipeline.http.plans import Plan
from stages.opening import Ask
from stages.protocols.lenient import as_object, value_of
from stages.protocols.openai_chat import ChatRequest, body_of

FIELD: Final = "return_token_ids"
_FIRST: Final = b'"return_token_ids":true'
_SPACE: Final = b" \t\r\n"
_encode = msgspec.json.Encoder().encode
_DEFAULTS: Final = Sampling()
_SAMPLING: Final = Sampling.__struct_fields__
_SCOPES: Final = frozenset(Ask().stop_scopes)


def inject(body: bytes) -> bytes | None:
    """A client's request with ``return_token_ids`` asked for; every other byte is as it was. None where the client says
    itself whether it wants them, or where this is no JSON object."""
    value = value_of(body)
    if not isinstance(value, dict) or FIELD in value:
        return None
    # Of what is an object, the first bracket is its own.
    start = body.index(b"{") + 1
    rest = body[start:]
    return body[:start] + _FIRST + (b"" if rest.lstrip(_SPACE).startswith(b"}") else b",") + rest


def ask(
    way: str,
    *,
    body: bytes,
    plan: Plan,
    prompt: Prompt | None,
    model: str,
    protocol: str = "chat",
    strict: bool = False,
    context: int | None = None,
    ids: bool = False,
    held: Mapping[str, Any] = {},
) -> tuple[str, bytes]:
    """Path and body of a request that makes the upstream tell what the model writes.

    ``body``: the client's, in its ``protocol``; ``prompt``: rendered, for all ways but ``chat``; ``strict``: no fields
    but those of OpenAI's protocol; ``context``: tokens that prompt and answer may have, where it is known; ``ids``: ask
    for token ids too (``completions`` of vLLM); ``held``: fields that hold the answer to something, see ``held``.
    """
    said = as_object(value_of(body))
    if way == "chat":
        own = plan.chat is None or protocol == "chat"
        asked = said if own or plan.chat is None else body_of(plan.chat, model, True)[0]
        return "/v1/chat/completions", _encode(_chat(asked, plan, model))
    rendered = Prompt((), "") if prompt is None else prompt
    sent = {**_sent(way, plan.sampling, said, strict), **held}
    if way == "generate":
        return "/generate", _encode(_generate(sent, plan, rendered))
    if way == "completion":
        return "/completion", _encode(_completion(sent, plan, rendered))
    room = plan.sampling.max_tokens or (context - len(rendered.ids) if context and rendered.ids else None)
    return "/v1/completions", _encode(_completions(sent, plan, rendered, model, room, strict, ids))


def lost(way: str, sampling: Sampling, *, ignored: Sequence[str] = (), strict: bool = False) -> tuple[str, ...]:
    """The fields of a request that an upstream asked in this way is not told of: of its sampling, and ``ignored``: what
    says nothing to us (``guided_regex``), but may to its chat endpoint."""
    if way == "chat":
        return ()
    names = _names(way, strict)
    return (*(name for name in _SAMPLING if name not in names and _set(sampling, name)), *ignored)


def lost_in_chat(request: ChatRequest) -> tuple[str, ...]:
    """The same for the chat way, where the client asked in another protocol."""
    return tuple(name for name in body_of(request, None, True)[1] if name != FIELD)


# --- sampling ---------------------------------------------------------------------------------------------------------

_SAME: Final = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "ignore_eos")
_NAMES: Final[dict[str, dict[str, str]]] = {
    "generate": {name: name for name in (*_SAME, "top_k", "repetition_penalty", "logit_bias", "stop_token_ids")}
    | {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"},
    "completion": {name: name for name in (*_SAME, "top_k", "logit_bias", "seed")}
    | {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"},
    "completions": {
        name: name
        for name in (
            *_SAME, "top_k", "repetition_penalty", "logit_bias", "stop_token_ids", "min_tokens", "max_tokens", "seed",
        )
    },
}  # fmt: skip
"""Field of Sampling → what it is called."""
_OFFICIAL: Final = frozenset(
    ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "max_tokens")
)
"""Those that OpenAI's protocol has."""


def _names(way: str, strict: bool) -> dict[str, str]:
    names = _NAMES[way]
    return (
        {name: wire for name, wire in names.items() if name in _OFFICIAL} if strict and way == "completions" else names
    )


def _set(sampling: Sampling, name: str) -> bool:
    return bool(getattr(sampling, name) != getattr(_DEFAULTS, name))


def _sent(way: str, sampling: Sampling, said: dict[str, Any], strict: bool) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name, wire in _names(way, strict).items():
        value = getattr(sampling, name)
        if name != "max_tokens" and value is not None and (_set(sampling, name) or said.get(name) is not None):
            sent[wire] = _VALUES.get((way, name), _VALUES.get(("", name), _as_it_is))(value)
    return sent


def _as_it_is(value: Any) -> Any:
    return value


def _off_below_zero(top_k: int) -> int:
    return top_k or -1


def _keyed(bias: dict[int, float]) -> dict[str, float]:
    return {str(token): value for token, value in bias.items()}


def _paired(bias: dict[int, float]) -> list[tuple[int, float]]:
    return list(bias.items())


def _small(seed: int) -> int:
    """32 bits, of which all ones stand for chance."""
    return seed % 0xFFFFFFFF


_VALUES: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("", "top_k"): _off_below_zero,
    ("completion", "top_k"): _as_it_is,
    ("", "logit_bias"): _keyed,
    ("completion", "logit_bias"): _paired,
    ("completion", "seed"): _small,
}


def _stops(asked: Ask) -> tuple[str, ...]:
    return asked.stop if _SCOPES.issubset(asked.stop_scopes) else ()


# --- bodies -----------------------------------------------------------------------------------------------------------


def _chat(said: dict[str, Any], plan: Plan, model: str) -> dict[str, Any]:
    body = {**said, "model": model, "stream": True, FIELD: True, "include_reasoning": True}
    if plan.ask.stop and not _stops(plan.ask):
        body.pop("stop", None)
    return body


def _generate(sent: dict[str, Any], plan: Plan, prompt: Prompt) -> dict[str, Any]:
    asked = plan.ask
    params: dict[str, Any] = {
        **sent, "max_new_tokens": plan.sampling.max_tokens, "n": asked.n,
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
    }  # fmt: skip
    if _stops(asked):
        params |= {"stop": _stops(asked), "no_stop_trim": True}
    given = {"input_ids": prompt.ids} if prompt.ids else {"text": prompt.text}
    body: dict[str, Any] = {**given, "sampling_params": params, "stream": True}
    if asked.logprobs:
        body |= {"return_logprob": True, "top_logprobs_num": asked.top_logprobs, "return_text_in_logprobs": False}
    return body


def _completion(sent: dict[str, Any], plan: Plan, prompt: Prompt) -> dict[str, Any]:
    asked = plan.ask
    most = plan.sampling.max_tokens
    body: dict[str, Any] = {
        "prompt": prompt.ids or prompt.text, "n_predict": -1 if most is None else most, "stream": True,
        "return_tokens": True, "cache_prompt": True, **sent,
    }  # fmt: skip
    if asked.n > 1:
        body["n"] = asked.n
    if "repeat_penalty" in sent or "presence_penalty" in sent or "frequency_penalty" in sent:
        body["repeat_last_n"] = -1  # the others look at all that was written, not at the last 64 tokens
    if asked.logprobs:
        body["n_probs"] = max(asked.top_logprobs, 1)  # 0 turns them off
    return body


def _completions(
    sent: dict[str, Any], plan: Plan, prompt: Prompt, model: str, room: int | None, strict: bool, ids: bool
) -> dict[str, Any]:
    asked = plan.ask
    body: dict[str, Any] = {
        "model": model, "prompt": (strict and prompt.text) or prompt.ids or prompt.text, "stream": True,
        "stream_options": {"include_usage": True}, **sent,
    }  # fmt: skip
    if room is not None or not strict:
        body["max_tokens"] = room  # null is no cap, nothing may be 16
    if asked.n > 1:
        body["n"] = asked.n
    if asked.logprobs:
        body["logprobs"] = asked.top_logprobs
    if _stops(asked):
        body["stop"] = _stops(asked)
    if strict:
        return body
    body |= {
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
        "add_special_tokens": plan.conversation is None and plan.special,
    }  # fmt: skip
    if _stops(asked):
        # Whoever reads the text finds them there, and leaves them out.
        body |= {"include_stop_str_in_output": True, "no_stop_trim": True}
    if ids:
        body[FIELD] = True
    return body
