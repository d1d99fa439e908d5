"""A request in one protocol for an upstream that speaks another: its body, and what that does not carry.

the client's request ──its room──▶ ChatRequest, the hub ──``body_of`` of the other room──▶ body
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pipeline.http.plans import Plan
from stages import catalog
from stages.errors import RequestError
from stages.protocols import anthropic, openai_chat, openai_responses
from stages.protocols.lenient import as_object, as_objects, value_of
from stages.protocols.openai_chat import ChatRequest

BodyOf: TypeAlias = Callable[..., tuple[dict[str, Any], tuple[str, ...]]]
_BODIES: Final[dict[str, BodyOf]] = {
    "chat": openai_chat.body_of, "responses": openai_responses.body_of, "messages": anthropic.body_of,
}  # fmt: skip
_SAID: Final = ("temperature", "top_p")
"""Called alike everywhere; a client that gives one the protocol's default means that, and not the upstream's own."""
_DROPPED: Final[dict[str, tuple[str, ...]]] = {
    "chat": (),
    "responses": (
        "truncation", "max_tool_calls", "prompt", "context_management", "moderation", "access_programs",
        "background_options", "image",
    ),
    "messages": (
        "betas", "billing_policy", "cache_control", "context_management", "diagnostics", "fallback_credit_token",
        "fallbacks", "inference_geo", "service_tier", "speed",
    ),
}  # fmt: skip
"""Fields that a room takes and has no meaning for; another server might."""
_INSIDE: Final[dict[str, tuple[str, ...]]] = {
    "chat": (), "responses": ("encrypted_content",), "messages": ("cache_control", "signature", "citations"),
}  # fmt: skip
"""The same of fields of items, blocks and tools."""
_encode = msgspec.json.Encoder().encode


class Outward(NamedTuple):
    """A request that goes out. ``lost``: names of fields that it does not carry; ``strictly``: the same without what
    only servers that run models know, and what is lost then; None: it has nothing of the kind."""

    protocol: str
    path: str
    body: bytes
    lost: tuple[str, ...]
    strictly: tuple[bytes, tuple[str, ...]] | None


def target_of(speaks: Sequence[str], protocol: str) -> str:
    """The first of an upstream's protocols that can carry a request of this one. Raises RequestError (400)."""
    found = next((name for name in speaks if name in _BODIES), None)
    if protocol == "completions":
        raise RequestError(
            f"The server behind this one speaks {', '.join(speaks)}: conversations, and no bare prompt: ask "
            f"{', '.join(catalog.PROTOCOLS[name].path for name in speaks)}.",
            code="untranslatable",
        )
    if found is None:
        raise RequestError(
            "The server behind this one speaks completions, which carries a bare prompt and no conversation: ask "
            f"{catalog.PROTOCOLS['completions'].path}.",
            code="untranslatable",
        )
    return found


def outward(protocol: str, body: bytes, plan: Plan, to: str, model: str | None, cap: int) -> Outward:
    """A client's request, which ``plan`` was made of, in another protocol. ``cap``: of tokens, where the other one
    wants one. Raises RequestError (400) for what would change what the answer means."""
    assert plan.chat is not None  # a conversation
    wire = as_object(value_of(body))
    before = before_hub(protocol, body, plan)
    made, lost = _made(plan.chat, wire, to, model, cap, official=False)
    bare, more = _made(plan.chat, wire, to, model, cap, official=True)
    encoded, plainly = _encode(made), _encode(bare)
    strictly = None if plainly == encoded else (plainly, _once((*before, *more)))
    return Outward(to, catalog.PROTOCOLS[to].path, encoded, _once((*before, *lost)), strictly)


def _made(
    request: ChatRequest, wire: dict[str, Any], to: str, model: str | None, cap: int, *, official: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    made, lost = _BODIES[to](request, model, True, official=official)
    for name in _SAID:
        if wire.get(name) is not None:
            made.setdefault(name, getattr(request, name))
    if to == "messages":
        made.setdefault("max_tokens", cap)
    return made, lost


def before_hub(protocol: str, body: bytes, plan: Plan) -> tuple[str, ...]:
    """What of a conversation's request is lost on the way to the hub: names of its fields."""
    return _once((*plan.ignored, *_dropped(protocol, as_object(value_of(body)))))


def _dropped(protocol: str, wire: dict[str, Any]) -> Iterator[str]:
    yield from (name for name in _DROPPED[protocol] if wire.get(name) is not None)
    level = [item for name in ("system", "tools", "messages", "input") for item in as_objects(wire.get(name))]
    while level:
        yield from (name for item in level for name in _INSIDE[protocol] if item.get(name))
        level = [inner for item in level for inner in as_objects(item.get("content"))]


def _once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
