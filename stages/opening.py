"""Opening: all that is known of a session before its engine speaks."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function the model may call. ``parameters``: its JSON Schema, or None for no arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Ask(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the request asks of the stages, in no protocol's terms. Derived from the request, purely."""

    stream: bool = False
    n: int = 1
    """Choices, of all prompts together."""
    prompts: int = 1
    """The first ``n / prompts`` choices are of the first prompt, and so on."""
    echo: bool = False
    """The prompt stands before what the model writes (completions)."""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """``none``, ``auto``, ``required``, or ``name:N`` for the named function N."""
    allowed: tuple[str, ...] = ()
    """Of the tools, the names of those that may be called; empty: all."""
    named_finish: Literal["stop", "tool_calls"] = "stop"
    """How a choice finishes that called the named function."""
    parallel: bool = True
    include_reasoning: bool = True
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stop_scopes: tuple[Literal["content", "reasoning", "arguments", "marker"], ...] = (
        "content", "reasoning", "arguments", "marker",
    )  # fmt: skip
    keep_special: bool = False
    """Special tokens outside the format stay in the text (``skip_special_tokens: false``)."""
    ignore_eos: bool = False
    """Ends of turn do not end the output: what follows them is text."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end the output, beside those of the tokenizer."""
    logprobs: bool = False
    top_logprobs: int = 0
    end_token: bool = True
    """The token that ended the output has an entry among the logprobs."""
    return_token_ids: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    answer: dict[str, Any] | None = None
    """The JSON Schema that the content is held to; ``{}``: any JSON object; None: free text."""
    constrained: bool = False
    """A grammar held the output to the calls and the answer that were asked for. Set where the engine does."""
    metrics: bool = False
    """The measured times (TimingInput) are told beside the usage."""
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "both"

    @property
    def named(self) -> bool:
        """One function was named, and a call of it is an answer, not a request to go on (finish reason ``stop``)."""
        return self.named_finish == "stop" and self.function is not None

    @property
    def function(self) -> str | None:
        """The named function."""
        return self.tool_choice[5:] if self.tool_choice.startswith("name:") else None


class EngineFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the session's engine is. ``fingerprint``: a hash of weights, dtype and versions."""

    kind: str
    model: str
    fingerprint: str | None = None
    dtype: str | None = None
    max_tokens: int | None = None
    """The context length, prompt and completion together."""
    versions: dict[str, str] = {}
    constrains: bool = False
    """It can hold a model's output to a form (``stages.constraint``)."""
    arguments: dict[str, str] = {}
    """How it was started, where it tells: parser flags, quantisation and the like, by its own names; no secrets."""


class UpstreamFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The other server that generates a session's output, and how it was asked.

    ``name``: as the settings call it; ``url``: without user, password and query; ``path``: what was asked there.
    ``depth``: what is known of what the model wrote: its ``tokens``, its raw ``text``, or (``verbatim``) only what the
    upstream made of it; ``why``: why not more. ``relayed``: the client gets the upstream's own response, else what our
    stages make of the inputs. ``taken_out``: what stands in a relayed response for the token ids that we asked for and
    the client did not: ``null``, or nothing (``absent``); empty: nothing was added to the request. ``lost``: fields
    of the request that the upstream was not told, because it has no name for them there. ``protocol``: the one in which
    it was asked, where that is not the client's; empty: it is, or it was asked in none that clients know.
    """

    name: str
    url: str
    path: str
    depth: Literal["tokens", "text", "verbatim"]
    why: str = ""
    relayed: bool = True
    taken_out: Literal["", "null", "absent"] = ""
    lost: tuple[str, ...] = ()
    protocol: str = ""


class TokenizerFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the stages need of the tokenizer. ``special``: text → id of special tokens, ``added``: of added tokens that
    are not special (a Qwen ``<tool_call>``). ``template``: hash of the chat template. ``joined``: the bytes of the ids
    are its, and were put beside them after the recording."""

    hash: str | None = None
    special: dict[str, int] = {}
    added: dict[str, int] = {}
    eos: tuple[int, ...] = ()
    template: str | None = None
    joined: bool = False


class Opening(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that is known before the engine speaks: the only door for clock, ids and configuration.

    ``created``: unix s; ``opened``: unix ns; ``key``: what call ids are derived from; ``request``: the body, verbatim;
    ``headers``: request headers kept on purpose (never credentials); ``parser``: the name P, resolved from ``auto``;
    ``stages``: ids of the stages in force by role, e.g. ``{"parser": "parse.hermes@1", "encoder": "chat@1"}``;
    ``upstream``: where another server generates; ``conversation``: the stored conversation that the session belongs to.
    """

    session: str
    key: str
    response_id: str
    created: int
    opened: int
    model: str
    protocol: str = "chat"
    request: bytes = b"{}"
    ask: Ask = Ask()
    parser: str = "plain"
    calls: Literal["incremental", "whole"] = "incremental"
    max_held: int = 4 << 20
    stages: dict[str, str] = {}
    engine: EngineFacts = EngineFacts(kind="none", model="")
    tokenizer: TokenizerFacts = TokenizerFacts()
    headers: dict[str, str] = {}
    upstream: UpstreamFacts | None = None
    conversation: str = ""

    @property
    def answers(self) -> bool:
        """There is a response; what is done to a stored conversation itself has a session and none."""
        return not self.conversation or self.response_id != self.conversation

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end an output."""
        ask = self.ask
        return frozenset(ask.stop_ids if ask.ignore_eos else (*self.tokenizer.eos, *ask.stop_ids))
