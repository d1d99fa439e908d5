"""Requests outward: what the ways of writing a ChatRequest as a body of some protocol have in common.

Each protocol's room has ``ask.body_of(request, model, stream, official=…)``, which gives the body and the names of the
fields that it could not carry. Its fields are of three kinds: those that the protocol has; extras, which servers that
run models have beside it (left out, and lost, where ``official``); and all others, which are lost. What our own stages
do with the response, whoever made it, is neither sent nor lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from stages.errors import RequestError
from stages.protocols.openai_chat.prompt import chosen
from stages.protocols.openai_chat.request import (
    AllowedChoice,
    ChatRequest,
    Content,
    FunctionSpec,
    NamedChoice,
)

_OURS: Final = frozenset((
    "stream", "stream_options", "end_token_logprob", "include_metrics", "reasoning_field", "stop_scopes",
    "named_finish_reason", "include_reasoning", "modalities", "store",
))  # fmt: skip
"""What our stages and our store do, or what says nothing."""
_SHAPED: Final = frozenset(
    ("messages", "model", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "stop")
)
"""Fields that every protocol writes in its own way."""
_DEFAULTS: Final = {
    field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    for field in msgspec.structs.fields(ChatRequest)
}
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
"""The schema of a function without arguments."""


def said(request: ChatRequest) -> dict[str, Any]:
    """The fields that are not as when nothing is said, by their names in chat: those that our stages do not see to, and
    that are written alike in all protocols, if they are written at all."""
    found = {
        name: getattr(request, name)
        for name, default in _DEFAULTS.items()
        if name not in _OURS and name not in _SHAPED and getattr(request, name) != default
    }
    if request.add_generation_prompt is not request.continue_final_message:
        found.pop("add_generation_prompt", None)  # as it is anyway
    return found


class Fields:
    """Fields on their way out: each is sent, or lost. ``official``: extras are lost."""

    def __init__(self, request: ChatRequest, *, official: bool) -> None:
        self.body: dict[str, Any] = {}
        self._rest = said(request)
        self._official = official
        self._lost: list[str] = []

    def send(self, names: Iterable[str]) -> None:
        """Send what is said of these, which the protocol has."""
        for name in names:
            if name in self._rest:
                self.body[name] = plain(self._rest.pop(name))

    def extra(self, names: Iterable[str]) -> None:
        """Send what is said of these, where extras may be sent."""
        if not self._official:
            self.send(names)

    def take(self, name: str) -> Any:
        """What is said of a field, which its caller sees to; None for nothing."""
        return self._rest.pop(name, None)

    def lose(self, name: str) -> None:
        """Something else cannot be carried."""
        if name not in self._lost:
            self._lost.append(name)

    @property
    def lost(self) -> tuple[str, ...]:
        """What was not sent."""
        return (*self._rest, *self._lost)


def plain(value: Any) -> Any:
    """A value of a field as JSON has it: without what is null, keys as text."""
    made = msgspec.to_builtins(value, str_keys=True)
    return _bare(made) if isinstance(value, msgspec.Struct) else made


def _bare(value: Any) -> Any:
    return {name: _bare(item) for name, item in value.items() if item is not None} if value.__class__ is dict else value


class Offered(NamedTuple):
    """``tools``: those that may be called, or all where none may; ``mode``: none, auto, required; None: nothing is
    said; ``named``: the function that must be called."""

    tools: tuple[FunctionSpec, ...]
    mode: str | None
    named: str | None


def offered(request: ChatRequest) -> Offered:
    """The tools and the choice among them. Where only some are allowed the others are not offered: not every server
    knows ``allowed_tools``, and a model that does not hear of a tool calls it as little."""
    choice = request.tool_choice
    named = choice.function.name if isinstance(choice, NamedChoice) else None
    wanted = frozenset(chosen(request)) if isinstance(choice, AllowedChoice) else None
    tools = [spec.function for spec in request.tools if spec.function is not None]
    mode: str | None = choice.allowed_tools.mode if isinstance(choice, AllowedChoice) else None
    if isinstance(choice, str):
        mode = choice
    return Offered(tuple(tool for tool in tools if wanted is None or tool.name in wanted), mode, named)


def text_of(content: Content | None) -> str:
    """A content as one text: its parts as chat templates get them."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.refusal or part.text or "" for part in content)


def stops_of(request: ChatRequest, most: int) -> tuple[str, ...]:
    """The stop strings to send. Our stages look for them all, whoever else does; servers look for theirs in all that
    the model writes, so that those for certain kinds of text are not for them; nor is a number that they refuse."""
    stops = request.stops
    return stops if request.stop_scopes is None and len(stops) <= most else ()


def uncarried(name: str, protocol: str, instead: str) -> RequestError:
    """The error of a field whose loss would change what the answer means."""
    return RequestError(f"{name}: the server behind this one speaks {protocol}, which {instead}", param=name)
