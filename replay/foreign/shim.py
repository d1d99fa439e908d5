"""shim: a recorded session as a worker is asked for it (see ``peer/worker.py``)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from replay.errors import Unsupported
from stages.errors import RequestError
from stages.events import AbortInput, ErrorInput, FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.opening import Ask, Opening
from stages.protocols import anthropic, openai_responses
from stages.protocols.openai_chat import ChatRequest

_TERMINAL: Final = (UsageInput, ErrorInput, AbortInput)


class Asked(msgspec.Struct, frozen=True):
    """``session``: what the worker gets; ``steps``: input → the step of the answer that belongs to it; ``ends``: input
    → the choice that ends there."""

    session: dict[str, Any]
    steps: dict[int, int]
    ends: dict[int, int]


def asked(opening: Opening, events: Sequence[Input]) -> Asked:
    """The request for a session. Raises Unsupported where it is not known what the model wrote."""
    collecting = _Collecting(opening.ask.n)
    for seq, event in enumerate(events):
        if isinstance(event, _TERMINAL):
            break
        collecting.take(seq, event)
    facts, prompt = opening.tokenizer, collecting.prompt
    request = request_of(opening)
    session: dict[str, Any] = {
        "prompt_ids": list(prompt.ids) if prompt else [],
        "prompt_tail": prompt.tail if prompt else "",
        "request": request,
        "tools": request.get("tools") or [],
        "tool_choice": request.get("tool_choice") or "auto",
        "n": opening.ask.n,
        "steps": collecting.made,
        "finish": collecting.finish,
        "special": facts.special,
        "added": facts.added,
        "eos": list(facts.eos),
    }
    if collecting.unknown:
        raise Unsupported("the recording has ids without their bytes: playhead import --tokenizer joins them")
    return Asked(session, collecting.steps, collecting.ends)


class _Collecting:
    """The steps and finishes of a session, as its inputs come."""

    def __init__(self, choices: int) -> None:
        self.prompt: PromptInput | None = None
        self.made: list[dict[str, Any]] = []
        self.finish: dict[str, dict[str, Any]] = {}
        self.steps: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.unknown = False
        self._choices = choices
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(choices)]
        self._wrote: set[int] = set()

    def take(self, seq: int, event: Input) -> None:
        """The next input. As in our parsers, what comes for a choice that is not admitted, or has ended, is nothing."""
        if isinstance(event, PromptInput):
            self.prompt = self.prompt or event
        elif isinstance(event, TokensInput | FinishInput):
            choice = event.choice
            if self.prompt is None or not 0 <= choice < self._choices or str(choice) in self.finish:
                return
            if isinstance(event, TokensInput):
                self._tokens(seq, event)
                return
            if choice not in self._wrote:
                self._step(seq, choice, (), (), "")
            self.ends[seq] = choice
            self.finish[str(choice)] = {"reason": event.reason, "stop": event.stop}

    def _tokens(self, seq: int, event: TokensInput) -> None:
        pieces = event.pieces if len(event.pieces) == len(event.ids) else ()
        self.unknown = self.unknown or bool(event.ids and not pieces and not event.text and not event.pieces)
        text = self._decoders[event.choice].decode(b"".join(event.pieces)) if event.pieces else event.text
        self._step(seq, event.choice, event.ids, pieces, text)

    def _step(self, seq: int, choice: int, ids: Sequence[int], pieces: Sequence[bytes], text: str) -> None:
        self._wrote.add(choice)
        self.steps[seq] = len(self.made)
        self.made.append(
            {"choice": choice, "ids": list(ids), "pieces": [piece.decode("latin-1") for piece in pieces], "text": text}
        )


def request_of(opening: Opening) -> dict[str, Any]:
    """The request as a body of the chat protocol: the client's own, or, of another protocol, one that asks for the
    same."""
    body: dict[str, Any] | None = None
    if opening.protocol == "chat":
        body = _object(opening.request)
        if body is not None and opening.ask.tools and not body.get("tools"):
            # The body was not kept, or not all of it: without tools no parser looks for calls.
            told = {name: value for name, value in body.items() if value is not None and name != "tools"}
            body = _of_ask(opening.ask) | told
    if body is None:
        body = _of_ask(opening.ask) | _thinking(opening)
    return {"model": opening.model, "messages": [{"role": "user", "content": ""}]} | body


def _thinking(opening: Opening) -> dict[str, Any]:
    """What a request of another protocol gives the template, which some parsers read too, in the chat protocol's
    words."""
    try:
        asked = _chat_of(opening)
    except RequestError:  # what another server takes may be no request to ours
        asked = None
    if asked is None:
        kwargs = (_object(opening.request) or {}).get("chat_template_kwargs")
        return {"chat_template_kwargs": kwargs} if isinstance(kwargs, dict) else {}
    told: dict[str, Any] = {}
    if asked.reasoning_effort is not None:
        told["reasoning_effort"] = asked.reasoning_effort
    if asked.chat_template_kwargs:
        told["chat_template_kwargs"] = asked.chat_template_kwargs
    return told


def _chat_of(opening: Opening) -> ChatRequest | None:
    """None where the protocol's requests are none to a chat template. Raises RequestError."""
    if opening.protocol == "responses":
        return openai_responses.chat_of(openai_responses.decode_request(opening.request))
    if opening.protocol == "messages":
        return anthropic.chat_of(anthropic.decode_request(opening.request))
    return None


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _of_ask(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stream": True,
        "n": ask.n,
        "include_reasoning": ask.include_reasoning,
        "skip_special_tokens": not ask.keep_special,
        "include_stop_str_in_output": ask.include_stop,
    }
    if ask.stop:
        body["stop"] = list(ask.stop)
    if ask.tools:
        named = ask.function
        body["tools"] = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in ask.tools]
        body["tool_choice"] = ask.tool_choice if named is None else {"type": "function", "function": {"name": named}}
        body["parallel_tool_calls"] = ask.parallel
    return body
