"""What an engine is to the pipeline: requests in, engine-layer inputs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from stages.constraint import Constraint
from stages.errors import RequestError
from stages.events import ErrorInput, Input
from stages.opening import EngineFacts, TokenizerFacts

Watch: TypeAlias = Callable[[Input], str | None]
"""Called with every input an engine is about to emit, in order, in the engine's thread; returns the stop string that is
complete with it, for the choice of that input. It is a fold of the same stages that serve the session, so that
generation ends on exactly the step on which the client's text does."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose tokens. Ranges are checked where the request is decoded."""

    max_tokens: int | None = None
    """Cap on generated tokens per choice; None: up to the context length."""
    min_tokens: int = 0
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    forced_ids: tuple[int, ...] = ()
    """Testing: the sampler must produce these ids, then end of sequence, on the real path."""
    forced_text: str | None = None
    """Testing: like ``forced_ids``, tokenised by the engine."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt is rendered from. ``messages``: dicts as chat templates take them, content as text; ``field``:
    the request's own name for them."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    field: str = "messages"


RawPrompt: TypeAlias = str | tuple[int, ...]
"""A prompt as it is, text or token ids: no template."""


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to generate ``n`` choices.

    ``conversation``: what a template makes a prompt of; None: there are ``prompts``, each with ``n / len(prompts)``
    choices, in order. ``special``: the tokenizer may put its own special tokens before them. ``echo``: an Echo of each
    prompt, before its choices' first tokens; then ``sampling.max_tokens`` may be 0. ``logprobs``: None is off, else how
    many alternatives per token. ``constraint``: what the output is held to.
    """

    session: str
    conversation: Conversation | None
    sampling: Sampling
    prompts: tuple[RawPrompt, ...] = ()
    special: bool = True
    echo: bool = False
    n: int = 1
    logprobs: int | None = None
    constraint: Constraint | None = None
    watch: Watch | None = None


class EngineStream(Protocol):
    """The inputs of one request. One reader, on the event loop."""

    async def receive(self) -> list[Input]:
        """What has arrived, in order, at least one. The first input is PromptInput (or ErrorInput: refused); the last
        is UsageInput or ErrorInput. Raises anyio.EndOfStream after it. Cancelling loses nothing."""
        ...

    def abort(self) -> None:
        """Stop generating within one step and release the request. Idempotent; never blocks. Nothing arrives after."""
        ...


class Engine(Protocol):
    """A source of tokens. Used as an async context manager: entering starts it, leaving aborts what runs."""

    @property
    def facts(self) -> EngineFacts:
        """What goes into every opening."""
        ...

    @property
    def tokenizer(self) -> TokenizerFacts:
        """What the stages need of the tokenizer."""
        ...

    @property
    def template(self) -> str | None:
        """The chat template's text, for ``--parser auto``."""
        ...

    @property
    def alive(self) -> bool:
        """False when nothing can be served any more: /health answers 503."""
        ...

    def submit(self, request: EngineRequest) -> EngineStream:
        """Queue a request; never blocks. At most a few hundred inputs wait unread per stream: then the engine leaves
        this request out of its steps until they are read."""
        ...

    async def count(self, conversation: Conversation) -> int:
        """Tokens of the prompt that ``submit`` would make of a conversation, also where the model has no room for it.
        Raises RequestError where the template rejects it."""
        ...

    async def __aenter__(self) -> Engine: ...

    async def __aexit__(self, *exc: object) -> None: ...


class EngineLoadError(Exception):
    """The engine cannot start as configured: no such model, an unsupported tokenizer, an unreadable script. The message
    is for people and says what to do."""


class Unservable(Exception):
    """An engine cannot go on with one request; the message is for the client."""


FAILED = ErrorInput("engine", "the engine failed on this request", "engine_error")
"""One request failed; the engine goes on."""
DEAD = ErrorInput("engine", "the engine has stopped", "engine_dead")
"""Nothing can be served any more."""
SHUTDOWN = ErrorInput("cancelled", "the server is shutting down", "shutdown")
"""The engine's context manager is being left."""


def refusal(error: RequestError) -> ErrorInput:
    """What the client is told about a request that cannot be served as it is."""
    return ErrorInput("bad_request", error.message, error.code, error.param)
