"""What the scripted engine makes of prompts: ids, what comes before the first tokens, and made-up logprobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.engines.base import EngineRequest
from pipeline.engines.prompt import Prompt, Reader, raw_prompts
from pipeline.engines.toy import VOCABULARY, ToyTokenizer
from stages.events import Echo, Input, PrefillInput, PromptInput, ScheduledInput, TokenLogprob, TopLogprob


def prompts_of(
    request: EngineRequest, toy: ToyTokenizer, render: Callable[[Any], str], context: int
) -> list[tuple[Prompt, range]]:
    """The prompts of a request, each with the numbers of its choices. ``render``: a conversation → text. Raises
    RequestError."""

    def encoded(text: str) -> tuple[int, ...]:
        return tuple(token for token, _ in toy.encode(text))

    if request.conversation is not None:
        text = render(request.conversation)
        return [(Prompt(encoded(text), text[-2000:], text), range(request.n))]
    return raw_prompts(request, Reader(encoded, toy.piece, VOCABULARY, toy.facts(None)), context)


def admission(request: EngineRequest, toy: ToyTokenizer, prompts: Sequence[tuple[Prompt, range]]) -> list[Input]:
    """What comes before the first tokens."""
    made: list[Input] = [PromptInput(prompt.ids, prompt.tail, len(prompt.ids)) for prompt, _ in prompts]
    made.append(ScheduledInput())
    made += [PrefillInput(0, len(prompt.ids)) for prompt, _ in prompts]
    if request.echo:
        made += [_echo(toy, request, number, prompt) for number, (prompt, _) in enumerate(prompts)]
    return made


def _echo(toy: ToyTokenizer, request: EngineRequest, number: int, prompt: Prompt) -> Echo:
    if request.logprobs is None:
        return Echo(number, prompt.text)
    # The bytes of a word are known from its text alone.
    raw = request.prompts[number] if request.prompts else prompt.text
    tokens = toy.encode(raw) if isinstance(raw, str) else [(token, toy.piece(token)) for token in raw]
    (_, first), *others = tokens
    return Echo(number, prompt.text, first, tuple(logprob(toy, request.logprobs, *token) for token in others))


def logprob(toy: ToyTokenizer, alternatives: int, token: int, piece: bytes) -> TokenLogprob:
    """Made up from the id: the sampled token is the likeliest, the ids after it follow, each half as likely."""
    likely = -(1 + token % 8) / 8
    top = [TopLogprob(token, piece, likely)]
    top += [
        TopLogprob(token + n, toy.piece(token + n), likely - 0.6931471805599453 * n) for n in range(1, alternatives)
    ]
    return TokenLogprob(token, piece, likely, tuple(top[:alternatives]))
