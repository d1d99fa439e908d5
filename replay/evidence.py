"""evidence: a recorded session as what the protocol rules judge: the response that it served, and all that is known of
how it came about.

A session that ended tells everything. Of one that is open, torn or incomplete the layers stop at different places, so
nothing is compared across them: only what was served is judged, as a stream that somebody cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from replay.baseline import baseline, is_open
from replay.derive import run
from replay.errors import NotAvailable
from replay.resolve import resolve
from replay.turned import SINGLE, turned
from replay.upstream_layers import relay_of, relayed, translated
from stages import catalog
from stages.errors import UnknownName
from stages.events import AbortInput, Body, Echo, FinishInput, Frame, Head, Input, PromptInput, Sent, TokensInput
from stages.message import Message, collect
from stages.opening import Opening
from stages.parse.format import Format
from stages.parse.parser import Parser
from stages.protocols.openai_completions import CAP
from stages.protocols.rules import (
    PROTOCOLS,
    EngineChoice,
    EngineFacts,
    Evidence,
    Http,
    Protocol,
    Write,
    Writes,
)
from stages.protocols.rules import Sent as Taken
from stages.sse import FRAMER
from stages.stage import fold
from store.api import Rows, Trace

_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""The fields of requests that bound what is generated, in the order in which they count."""


def evidence_of(
    trace: Trace, *, effort: bool = False, keep_alive: float = 0.0, seen: frozenset[str] = frozenset(),
    like: Evidence | None = None,
) -> Evidence:  # fmt: skip
    """The evidence of the response that a session served. Frame numbers are those of the recorded frames.

    ``effort``: also what takes another run of the encoder, and the rules that take their time; ``keep_alive``: seconds
    between comments that a stream was promised, 0 for none; ``seen``: request ids of other responses; ``like``: that of
    another response to the same inputs, which tells the same of the engine. A lean session's
    layers are derived first: raises ReplayError where the recorded ones cannot be had again, UnknownName for a protocol
    that is not known.
    """
    opening = trace.opening
    own = not relayed(opening)
    semantic, frames, times = layers_of(trace)
    ended = not is_open(trace.info.state)
    inputs: list[Input] = trace.events("input", "engine")
    sent = trace.events("socket", "frame")
    data = [frame.data for frame in frames if not isinstance(frame, Head)]
    return Evidence(
        body=b"".join(data),
        protocol=protocol_of(opening),
        own=own,
        first=1,
        marked=_marked(trace, inputs, sent, len(frames)),
        request=_request(opening),
        http=_http(opening, frames, seen),
        writes=_writes(frames, times, ended, keep_alive if own and opening.ask.stream else 0.0),
        engine=(_engine(opening, inputs) if like is None else like.engine) if ended else None,
        meant=_meant(opening, semantic) if own and ended else None,
        whole=_whole(opening, semantic) if own and effort and ended else None,
        replayed=_encoded(opening, semantic) if own and effort and ended else None,
        other=_other(opening, semantic) if own and effort and ended and opening.ask.stream else None,
        sent=_taken(frames, sent[-1]) if sent and ended else None,
        effort=True if effort else None,
    )


def protocol_of(opening: Opening) -> Protocol:
    """The session's protocol. Raises UnknownName for one that the rules do not know."""
    for protocol in PROTOCOLS:
        if protocol == opening.protocol:
            return protocol
    raise UnknownName(f"no protocol {opening.protocol!r}; there are {', '.join(PROTOCOLS)}")


def layers_of(trace: Trace) -> tuple[list[Any], list[Frame], list[int]]:
    """What was served: the semantic events (none of a relayed session), the frames, and when each frame came, ns since
    the opening. Raises ReplayError where they are not recorded and cannot be had again."""
    return _relayed(trace) if relayed(trace.opening) else _layers(trace)


def _layers(trace: Trace) -> tuple[list[Any], list[Frame], list[int]]:
    """The semantic events, the frames, and when each frame came."""
    if trace.info.mode == "full":
        records = trace.records.get(("served", "frame"), [])
        semantic = trace.events("served", "semantic")
        if isinstance(records, Rows):
            return semantic, records.events, records.ats
        return semantic, [record.event for record in records], [record.at for record in records]
    opening = trace.opening
    inputs = trace.records.get(("input", "engine"), [])
    found = baseline(
        trace, [record.event for record in inputs], lambda: catalog.layers(opening, resolve(opening.parser, opening))
    )
    if found.derived is None:
        raise NotAvailable(f"session {opening.session}: {'; '.join(found.notes)}")
    frames = found.derived.frame
    times = [inputs[step].at if 0 <= step < len(inputs) else 0 for step in frames.steps]
    return found.derived.semantic.events, frames.events, times


def _relayed(trace: Trace) -> tuple[list[Any], list[Frame], list[int]]:
    """As ``_layers``, of another server's response. No semantic events: what a parser of ours makes of its tokens is
    not what it meant to send."""
    records = relay_of(trace)
    return [], [record.event for record in records], [record.at for record in records]


def _meant(opening: Opening, semantic: Sequence[Any]) -> list[Message]:
    """What the choices mean to say; with echo, their prompt first."""
    ask = opening.ask
    messages = collect(semantic, named=ask.named)
    each = max(ask.n // ask.prompts, 1)
    told = {event.prompt: event.text for event in semantic if isinstance(event, Echo)} if ask.echo else {}
    return [
        msgspec.structs.replace(
            message, content=(told.get(message.choice // each, "") + (message.content or "")) or None
        )
        for message in messages
    ]


def _marked(
    trace: Trace, inputs: Sequence[Input], sent: Sequence[Sent], frames: int
) -> Literal["complete", "truncated", "client_closed"]:
    """A client that leaves while the last frames are written aborts nothing: what the socket took tells."""
    if is_open(trace.info.state):
        return "truncated"
    left = isinstance(inputs[-1], AbortInput) and inputs[-1].by == "client" if inputs else False
    left = left or trace.info.state == "detached"
    return "client_closed" if left or (sent and sent[-1].seq < frames) else "complete"


def _request(opening: Opening) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(opening.request, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _http(opening: Opening, frames: Sequence[Frame], seen: frozenset[str]) -> Http | None:
    head = frames[0] if frames else None
    if not isinstance(head, Head):
        return None
    asked = tuple((name.lower(), value) for name, value in opening.headers.items()) or None
    # How the body was framed on the wire is the HTTP server's: no version, so that nothing is expected of it.
    return Http(head.status, head.headers, asked, version="", seen_ids=seen)


def _writes(frames: Sequence[Frame], times: Sequence[int], ended: bool, keep_alive: float) -> Writes:
    """Frames of one moment left together."""
    items: list[Write] = []
    end = 0
    for at, group in groupby(zip(times, frames, strict=True), key=_time):
        size = sum(len(frame.data) for _, frame in group if not isinstance(frame, Head))
        end += size
        if size:
            items.append(Write(at, end))
    last = times[-1] if ended and times else None
    return Writes(items, begun=0, ended=last, keep_alive=round(keep_alive * 1e9))


def _time(frame: tuple[int, Frame]) -> int:
    return frame[0]


def _taken(frames: Sequence[Frame], sent: Sent) -> Taken:
    """What the socket took is counted where it is written, and nothing else of it is recorded: the hash is that of the
    recorded frames below the count, so it holds exactly where the sizes agree."""
    handed = b"".join(frame.data for frame in frames[: sent.seq] if not isinstance(frame, Head))
    return Taken(sent.size, hashlib.sha256(handed).hexdigest())


# --- the engine -------------------------------------------------------------------------------------------------------


class _Choice:
    __slots__ = ("ids", "pieces", "reason", "whole")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.pieces: list[bytes] = []
        self.whole = True
        self.reason: str | None = None


def _engine(opening: Opening, inputs: Sequence[Input]) -> EngineFacts | None:
    """None for an engine that gives no ids: its tokens cannot be counted."""
    if translated(opening):
        return None
    prompts: list[PromptInput] = []
    choices: dict[int, _Choice] = {}
    for event in inputs:
        if isinstance(event, TokensInput):
            choice = choices.setdefault(event.choice, _Choice())
            if event.text and not event.ids:
                return None
            choice.ids += event.ids
            choice.pieces += event.pieces
            choice.whole = choice.whole and len(event.pieces) == len(event.ids)
        elif isinstance(event, FinishInput):
            choices.setdefault(event.choice, _Choice()).reason = event.reason
        elif isinstance(event, PromptInput):
            prompts.append(event)
    if not prompts:
        return None
    if relayed(opening) and any(isinstance(event, FinishInput) and event.reason == "stop" for event in inputs):
        # A server that cuts its text at a stop string cuts the ids behind it, too: they are not all that it generated.
        for choice in choices.values():
            choice.ids, choice.whole = [], False
    count = sum(prompt.count for prompt in prompts)
    caps = [_cap(opening, prompt.count) for prompt in prompts]
    each = max(opening.ask.n // len(prompts), 1)
    return EngineFacts(
        {
            index: EngineChoice(
                tuple(choice.ids), choice.reason, caps[min(index // each, len(caps) - 1)],
                tuple(choice.pieces) if choice.whole else (),
            )
            for index, choice in sorted(choices.items())
        },
        prompt=count if count or not relayed(opening) else None,
        prompt_ids=prompts[0].ids,
        markers=markers_of(opening),
        constrained=opening.ask.constrained,
    )  # fmt: skip


def _cap(opening: Opening, prompt: int) -> int | None:
    if opening.engine.kind == "scripted" or (relayed(opening) and opening.engine.max_tokens is None):
        # Reasons are those of a script, which no count bounds; or the context's end may come first.
        return None
    request = _request(opening) or {}
    usual = CAP if opening.protocol == "completions" else None
    asked = next((request[name] for name in _CAPS if isinstance(request.get(name), int)), usual)
    room = None if opening.engine.max_tokens is None else opening.engine.max_tokens - prompt
    return min((cap for cap in (asked, room) if cap is not None), default=None)


def markers_of(opening: Opening) -> tuple[str, ...]:
    """The literals of the session's format that are not text of their own: no fences, no words."""
    try:
        parser = catalog.parser(opening.parser)
    except UnknownName:  # a user's own
        return ()
    return literals_of(parser.format, opening) if isinstance(parser, Parser) else ()


def literals_of(form: Format, opening: Opening) -> tuple[str, ...]:
    """The same of any format, as it is in this session."""
    form = form.variant(opening.tokenizer) if form.variant else form
    ask = opening.ask

    def literals() -> Iterator[str]:
        if form.reasoning is not None:
            yield from form.reasoning.literals()
        # Where no call may be, its markers are text.
        if form.calls is not None and ask.tools and ask.tool_choice != "none":
            yield from (literal for literal in form.calls.all() if literal not in form.calls.words)
        if form.channels is not None:
            yield from form.channels.literals()
        if not (ask.keep_special or ask.ignore_eos):
            yield from (*form.boundaries, *form.enders)

    return tuple(sorted({literal for literal in literals() if len(literal) > 3 and literal[0] in "<[]"}))


# --- again ------------------------------------------------------------------------------------------------------------


def _whole(opening: Opening, semantic: Sequence[Any]) -> bytes | None:
    """The body without streaming; None where that would be an error."""
    ask = msgspec.structs.replace(opening.ask, stream=False)
    frames = _frames(msgspec.structs.replace(opening, ask=ask), semantic)
    if not frames or not isinstance(frames[0], Head) or frames[0].status != 200:
        return None
    return b"".join(frame.data for frame in frames if isinstance(frame, Body))


_OTHERS: dict[Protocol, Protocol] = {
    "chat": "responses", "responses": "messages", "messages": "chat", "completions": "chat",
}  # fmt: skip
"""The protocol that a session's is held against."""


def _other(opening: Opening, semantic: Sequence[Any]) -> tuple[Protocol, bytes] | None:
    """The stream of the same events in another protocol; None where that has one choice only, and there are more."""
    protocol = _OTHERS[protocol_of(opening)]
    if protocol in SINGLE and opening.ask.n > 1:
        return None
    body = _encoded(turned(opening, protocol, request=False)[0], semantic)
    return None if body is None else (protocol, body)


def _encoded(opening: Opening, semantic: Sequence[Any]) -> bytes | None:
    frames = _frames(opening, semantic)
    return None if frames is None else b"".join(frame.data for frame in frames if not isinstance(frame, Head))


def _frames(opening: Opening, semantic: Sequence[Any]) -> list[Frame] | None:
    """None where the encoder raises: on events that a user's parser put together wrongly."""
    steps = range(len(semantic))
    chunks, failed = run(catalog.PROTOCOLS[opening.protocol].encoder, "chunk", opening, semantic, steps)
    return None if failed else fold(FRAMER.start(opening), chunks.events)
