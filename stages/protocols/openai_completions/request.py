"""CompletionsRequest: the request's fields, their types and ranges. ``asking`` makes one of a body."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from stages.protocols.openai_chat import ResponseFormat, StreamOptions
from stages.protocols.sampling import Natural, SamplingFields, TokenId

MOST = 128
"""Choices of all prompts together."""
CAP = 16
"""Tokens of a choice at most, where the request does not say."""


class CompletionsRequest(SamplingFields, frozen=True, kw_only=True):
    """A valid request. Fields that chat has too mean the same as there. ``prompt``: one text, one list of token ids, or
    a list of either. ``logprobs``: how many alternatives; 0: the chosen token alone; None: off. ``max_tokens``: 0 only
    with ``echo``. ``best_of`` is ``n`` or absent."""

    prompt: str | list[str | TokenId | list[TokenId]]
    model: str | None = None

    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MOST)] = 1
    best_of: Annotated[int, Meta(ge=1)] | None = None
    echo: bool = False
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    end_token_logprob: bool = True
    return_token_ids: bool = False
    include_metrics: bool = False
    skip_special_tokens: bool = True
    add_special_tokens: bool = True
    """The tokenizer may put its own special tokens before a prompt that is text."""
    include_stop_str_in_output: bool = False

    max_tokens: Natural = CAP
    stop: str | Annotated[list[str], Meta(max_length=4)] = []

    response_format: ResponseFormat | None = None
    user: str | None = None

    # Fields of the protocol, and of servers that clients of it know, that change the answer and cannot be served.
    suffix: Any = None
    prompt_embeds: Any = None
    prompt_logprobs: Any = None
    truncate_prompt_tokens: Any = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
