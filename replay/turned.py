"""turned: a session's opening as if it had been asked in another protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from stages.catalog import PROTOCOLS
from stages.errors import RequestError, UnknownName
from stages.opening import Ask, Opening
from stages.protocols import anthropic, openai_chat, openai_responses
from stages.protocols.openai_chat import ChatRequest
from stages.sse import FRAMER

RAW: Final = "plain"
"""The parser of completions: the model's text as it wrote it."""
SINGLE: Final = frozenset(("responses", "messages"))
"""Protocols with one choice."""
_ALL: Final = ("content", "reasoning", "arguments", "marker")

_Read: TypeAlias = Callable[[bytes], ChatRequest]
_READ: Final[dict[str, _Read]] = {
    "chat": openai_chat.decode_request,
    "responses": lambda body: openai_responses.chat_of(openai_responses.decode_request(body)),
    "messages": lambda body: anthropic.chat_of(anthropic.decode_request(body)),
}
_EMPTY: Final = b'{"stream":true}'
_WRITE: Final = {
    "chat": openai_chat.body_of, "responses": openai_responses.body_of, "messages": anthropic.body_of,
}  # fmt: skip


def turned(opening: Opening, protocol: str, *, request: bool = True) -> tuple[Opening, tuple[str, ...]]:
    """The opening, and notes for people. ``request``: it has the request as that protocol would have it, as far as
    that can be; else an empty one. Raises UnknownName."""
    entry = PROTOCOLS.get(protocol)
    if entry is None:
        raise UnknownName(f"no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}")
    body, notes = _request(opening, protocol) if request else (_EMPTY, ())
    made = msgspec.structs.replace(
        opening, protocol=protocol, response_id=f"{entry.prefix}{opening.session}", ask=_ask(opening.ask, protocol),
        request=body, upstream=None, parser=RAW if protocol == "completions" else opening.parser,
        stages={**opening.stages, "encoder": entry.encoder.id, "framer": FRAMER.id},
    )  # fmt: skip
    return made, notes


def _ask(ask: Ask, protocol: str) -> Ask:
    made = msgspec.structs.replace(
        ask, stream=True, include_usage=True, continuous_usage=False, metrics=False, echo=False, prompts=1,
        n=1 if protocol in SINGLE else ask.n,
    )  # fmt: skip
    if protocol != "completions":
        return made
    # A stop string that is looked for in some kinds of text only may stand in others.
    stop = ask.stop if set(ask.stop_scopes) == set(_ALL) else ()
    return msgspec.structs.replace(made, tools=(), tool_choice="none", allowed=(), stop=stop)


def _request(opening: Opening, protocol: str) -> tuple[bytes, tuple[str, ...]]:
    """The request's body in another protocol: what of it encoders read, and clients look up."""
    read, write = _READ.get(opening.protocol), _WRITE.get(protocol)
    if read is None or write is None:
        return _EMPTY, ()
    try:
        chat = msgspec.structs.replace(read(opening.request), n=1)
        if protocol == "messages":
            chat = msgspec.structs.replace(chat, logprobs=False, top_logprobs=0)
        body, lost = write(chat, opening.model, True)
        return msgspec.json.encode(body), (f"{protocol} has no place for {', '.join(lost)}",) if lost else ()
    except RequestError as error:
        return _EMPTY, (f"the request cannot be had in {protocol}: {error.message}",)
