"""Decoding a request: body → CompletionsRequest → Ask, and its prompts.

See ``stages.protocols.body`` for what is refused, and how.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from stages.opening import Ask
from stages.protocols.body import decoded, refused
from stages.protocols.body import unknown_fields as body_unknown
from stages.protocols.openai_chat import StreamOptions, check_output
from stages.protocols.openai_completions.request import MOST, CompletionsRequest

Prompt: TypeAlias = str | tuple[int, ...]

_UNSUPPORTED: Final = {
    "suffix": "text cannot be inserted before a suffix here; leave the field out",
    "prompt_embeds": "this server takes text and token ids; give the prompt in prompt",
    "prompt_logprobs": "this field is not supported; ask for logprobs with echo",
    "truncate_prompt_tokens": "prompts are not cut here; send the part that is meant",
}


def decode_request(body: bytes) -> CompletionsRequest:
    """Decode and validate. Raises RequestError (400)."""
    request = decoded(body, CompletionsRequest)
    for name, instead in _UNSUPPORTED.items():
        if getattr(request, name) not in (None, ""):
            raise refused(name, instead)
    _prompt(request)
    _numbers(request)
    check_output(request.stream, request.stream_options, request.include_metrics, request.response_format, request.stop)
    return msgspec.structs.replace(request, top_k=max(request.top_k, 0))


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """The top-level fields of a request that have no meaning here, in the request's order. Raises RequestError where
    the body is no JSON object."""
    return body_unknown(body, CompletionsRequest)


def _prompt(request: CompletionsRequest) -> None:
    if not request.prompt:
        raise refused("prompt", "expected text or token ids, not an empty prompt")
    if isinstance(request.prompt, str):
        return
    items: list[Any] = request.prompt
    kind: type = items[0].__class__
    for index, item in enumerate(items):
        if item.__class__ is not kind:
            raise refused(f"prompt[{index}]", "a prompt list has texts, or token ids, or lists of token ids")
        if kind is not int and not item:
            raise refused(f"prompt[{index}]", "expected text or token ids, not an empty prompt")


def _numbers(request: CompletionsRequest) -> None:
    prompts = len(prompts_of(request))
    if prompts * request.n > MOST:
        raise refused(
            "prompt",
            f"{prompts} prompts with {request.n} choices each are more than {MOST} choices; send fewer at once",
        )
    best = request.best_of
    if best is not None and best < request.n:
        raise refused("best_of", f"expected at least n, which is {request.n}")
    if best is not None and best > request.n:
        what = "choices cannot be ranked in a stream" if request.stream else "this server does not rank choices"
        raise refused("best_of", f"{what}; ask for {best} choices with n, or leave the field out")
    if request.max_tokens == 0 and not request.echo:
        raise refused("max_tokens", "expected at least 1; 0 needs echo")
    if request.min_tokens > request.max_tokens:
        raise refused("min_tokens", f"expected at most {request.max_tokens}, the largest number of tokens")


def prompts_of(request: CompletionsRequest) -> tuple[Prompt, ...]:
    """The prompts, in order: text, or token ids."""
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt[0], int):
        return (tuple(prompt),)
    return tuple(item if isinstance(item, str) else tuple(item) for item in prompt)


def ask_of(request: CompletionsRequest) -> Ask:
    """What the request asks of the stages."""
    options = request.stream_options or StreamOptions()
    prompts = len(prompts_of(request))
    return Ask(
        stream=request.stream,
        n=request.n * prompts,
        prompts=prompts,
        echo=request.echo,
        stop=request.stops,
        include_stop=request.include_stop_str_in_output,
        keep_special=not request.skip_special_tokens,
        ignore_eos=request.ignore_eos,
        stop_ids=tuple(request.stop_token_ids),
        logprobs=request.logprobs is not None,
        top_logprobs=request.logprobs or 0,
        end_token=request.end_token_logprob,
        return_token_ids=request.return_token_ids,
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        metrics=request.include_metrics,
        answer=None if request.response_format is None else request.response_format.answer,
    )
