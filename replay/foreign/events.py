"""events: a worker's answer, played back as semantic events.

What every parser gives whatever it parses (Start, Tokens, Finish, Usage, Failure, End) is the catalog's plain parser's.
The deltas go through the decoder that also reads other servers' streams, so that a parser gives the same events here as
behind its own server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from replay.errors import PeerError
from replay.foreign.client import Answer, PeerMessage
from replay.foreign.shim import Asked
from stages import catalog
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Echo,
    End,
    ErrorInput,
    Failure,
    Finish,
    FinishReason,
    Input,
    Reasoning,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    Usage,
    UsageInput,
)
from stages.message import Message, ToolCall, finish_reason
from stages.opening import Opening
from stages.protocols.lenient import as_text
from stages.protocols.openai_chat import ChatDecoder, chunk_of
from stages.protocols.telling import ObjectScan

_FRAME: Final = (Start, Tokens, Finish, Usage, Failure, End, Tick, TimingInput, Echo)
_TOLD: Final = (Reasoning, Content, CallStart, CallArguments, CallEnd)
_TERMINAL: Final = (UsageInput, ErrorInput, AbortInput)
_PLAIN: Final = catalog.parser("plain")
_DECODER: Final = ChatDecoder(exact=True)
_LIMITS: Final = ("length", "context")

Delta = tuple[str | int | None, ...]


class PlayedState(msgspec.Struct, frozen=True):
    """The snapshot. ``seq``: the next input; ``ended``: a terminal input came; ``ids``: their call ids → ours."""

    seq: int
    ended: bool
    frame: Any
    decoder: Any
    ids: tuple[dict[str, str], ...]


class Played:
    """The machine: input by input, what the answer has for it. It must get the inputs that were asked for."""

    def __init__(self, opening: Opening, asked: Asked, answer: Answer, state: PlayedState | None = None) -> None:
        self._asked = asked
        self._answer = answer
        self._seq = 0 if state is None else state.seq
        self._ended = state is not None and state.ended
        self._frame = _PLAIN.start(opening) if state is None else _PLAIN.resume(opening, state.frame)
        self._decoder = _DECODER.start(opening) if state is None else _DECODER.resume(opening, state.decoder)
        self._ids = [dict[str, str]() for _ in range(opening.ask.n)]
        if state is not None:
            self._ids = [dict(each) for each in state.ids]

    def snapshot(self) -> PlayedState:
        """See Machine."""
        return PlayedState(
            self._seq, self._ended, self._frame.snapshot(), self._decoder.snapshot(), tuple(map(dict, self._ids))
        )

    def step(self, event: Input, out: list[Semantic]) -> None:
        """See Machine. Raises PeerError where the parser raised."""
        seq = self._seq
        self._seq += 1
        made: list[Semantic] = []
        self._frame.step(event, made)
        last = [each for each in made if isinstance(each, _FRAME)]
        step = self._asked.steps.get(seq)
        if step is not None and step >= len(self._answer.steps):
            self._raise()
        if last and isinstance(last[0], Tokens):
            out.append(last.pop(0))
        if step is not None:
            choice: int = self._asked.session["steps"][step]["choice"]
            self._play(choice, self._answer.steps[step], out)
        ends = self._asked.ends.get(seq)
        if ends is not None:
            self._play(ends, self._answer.flush.get(str(ends), ()), out)
            reason = self._asked.session["finish"][str(ends)]["reason"]
            self._chunk(ends, {}, "length" if reason in _LIMITS else "tool_calls", out)
        elif isinstance(event, _TERMINAL) and not self._ended:
            self._ended = True
            self._tell(AbortInput("shutdown"), out)  # calls that are open end
        out += last

    def _raise(self) -> None:
        error = self._answer.error
        if error is None:
            raise PeerError("the worker's answer ends before the session does", "Crashed")
        raise PeerError(error.message, error.type, error.where)

    def _play(self, choice: int, deltas: Sequence[Delta], out: list[Semantic]) -> None:
        for delta in deltas:
            try:
                self._chunk(choice, self._delta(choice, delta), None, out)
            except (ValueError, IndexError, TypeError) as error:  # how the adapter spelled it
                raise PeerError(f"the worker gave what is no delta: {delta!r:.200}", "Crashed") from error

    def _delta(self, choice: int, delta: Delta) -> dict[str, Any]:
        match delta:
            case ("reasoning" | "content" as kind, str(text)):
                return {kind: text}
            case ("call", int(index), str() | None as number, str(name)):
                ids = self._ids[choice]
                # Ids are random over there, and the same session must replay to the same.
                key = f"{index}" if number is None else f"{index} {number}"
                first = key not in ids
                made = ids.setdefault(key, f"call-{choice}-{len(ids)}")
                told = made if first or number is not None else None
                return {"tool_calls": [{"index": index, "id": told, "function": {"name": name}}]}
            case ("arguments", int(index), str(text)):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case _:
                raise ValueError("no delta")

    def _chunk(self, choice: int, delta: dict[str, Any], finish: str | None, out: list[Semantic]) -> None:
        made = {"index": choice, "delta": delta, "finish_reason": finish}
        self._tell(chunk_of({"id": "", "created": 0, "model": "", "choices": [made]}), out)

    def _tell(self, event: Any, out: list[Semantic]) -> None:
        told: list[Semantic] = []
        self._decoder.step(event, told)
        for each in told:
            if isinstance(each, CallEnd):
                out.append(each)
            elif isinstance(each, _TOLD):
                out.append(msgspec.structs.replace(each, src=(0, 0)))


def one_shot(opening: Opening, asked: Asked, answer: Answer) -> list[Message] | None:
    """The messages that the parser makes of the whole text at once; None where a choice did not end."""
    finishes: dict[str, dict[str, Any]] = asked.session["finish"]
    if answer.one_shot is None or not finishes:
        return None
    return [
        _message(each, finishes[str(each.choice)]["reason"], opening.ask.named)
        for each in sorted(answer.one_shot, key=lambda each: each.choice)
        if str(each.choice) in finishes
    ]


def _message(told: PeerMessage, reason: FinishReason, named: bool) -> Message:
    # Half a character is what the decoder makes of it in the stream, too.
    calls = tuple(
        ToolCall(
            f"call-{told.choice}-{place}", as_text(call.name) or "", as_text(call.arguments) or "",
            _whole(call.arguments, reason),
        )
        for place, call in enumerate(told.tool_calls)
    )  # fmt: skip
    whole = bool(calls) and all(call.complete for call in calls) and not named
    reasoning, content = as_text(told.reasoning) or None, as_text(told.content) or None
    return Message(told.choice, reasoning, content, None, calls, finish_reason(reason, whole))


def _whole(arguments: str, reason: FinishReason) -> bool:
    """As the decoder judges it: one JSON object, or, where the choice was not cut, nothing."""
    scan = ObjectScan()
    scan.feed(arguments)
    return scan.whole or (not arguments.strip() and reason not in _LIMITS)
