"""The encoder: semantic events → events of the responses protocol. Nothing is held back but the end.

    Start                  response.created, response.in_progress
    Content, Refusal       a message item, and in it a part of their kind, opened where none is open; the delta
    Reasoning              a reasoning item and its part, the same; where a summary was asked for, a summary part
    CallStart              a function_call item is added
    CallArguments          response.function_call_arguments.delta
    CallEnd                response.function_call_arguments.done, response.output_item.done
    Finish                 the open part and item are done
    Usage                  response.completed, .incomplete or .failed
    Failure                response.failed; where nothing at all was sent the error object
    End                    the terminal event, where no usage came
    Tokens                 nothing; their entries go with the deltas of the answer (see ``waiting``)
    Marker, Dropped, Fault nothing
    Tick                   Tick while streaming
    TimingInput, Echo      nothing

One item is open at a time, and what is of another kind closes it. A response that wrote nothing is complete, and its
output is empty. A call that is not complete makes the response fail, unless a limit or a filter cut it: a completed
response must not carry it. Its item waits for what comes next: it is ``incomplete`` where it is the last one (the
protocol knows no other incomplete item), else ``completed``, and the error names the call.

Without streaming there is nothing but the response of the terminal event, or the error object with its status.

Events that break the order of the semantic layer are put in order as the chat encoder does; what is of another choice
than the first has no place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    Dropped,
    End,
    Failure,
    Fault,
    Finish,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
)
from stages.opening import Opening
from stages.protocols.openai_chat import error_chunk
from stages.protocols.openai_responses.base import base_of, summarised
from stages.protocols.openai_responses.chunks import (
    CODES,
    OTHER_CODE,
    Chunk,
    Completed,
    Created,
    Failed,
    Incomplete,
    InProgress,
    LifecycleEvent,
    ResponseBody,
)
from stages.protocols.openai_responses.objects import (
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from stages.protocols.openai_responses.opened import PartKind
from stages.protocols.openai_responses.waiting import Waiting, WaitingState, Way
from stages.protocols.openai_responses.writer import Writer, Written
from stages.stage import Machine

ChunkLayer: TypeAlias = Chunk | CommonChunk

AGAIN: Final = "again"
"""The parser of an opening under which one of our own streams is written again."""
_WAYS: Final[dict[str, Way]] = {"told": "told", AGAIN: "exact"}
_CUT: Final = {"length": "max_output_tokens", "context": "max_output_tokens", "filter": "content_filter"}
"""Finish reasons that leave a response incomplete, and how it says so."""


class Phase(IntEnum):
    """What was sent: nothing; comments; the response; its terminal event."""

    FRESH = 0
    QUIET = 1
    SHOWN = 2
    ENDED = 3


class ResponsesSnapshot(msgspec.Struct, frozen=True):
    """The encoder's state. ``finish``: the reason, once there is one."""

    phase: Phase = Phase.FRESH
    written: Written = Written()
    finish: str | None = None
    usage: Usage | None = None
    waiting: WaitingState = WaitingState()


class _Encoder:
    """The machine."""

    def __init__(self, opening: Opening, state: ResponsesSnapshot, base: Response | None = None) -> None:
        ask = opening.ask
        self._base = base_of(opening) if base is None else base
        self._stream = ask.stream
        self._reasoning = ask.include_reasoning
        self._thoughts: PartKind = "summary_text" if summarised(self._base) else "reasoning_text"
        self._logprobs = ask.logprobs and ask.include_reasoning
        self._runs = frozenset[type]() if self._logprobs else frozenset((Content, Reasoning, CallArguments))
        self._waiting = Waiting(ask.top_logprobs, _WAYS.get(opening.parser, "counted"), state.waiting)
        self._writer = Writer(self._base.id, self._stream, state.written)
        self._phase = state.phase
        self._finish = state.finish
        self._usage = state.usage

    def snapshot(self) -> ResponsesSnapshot:
        """See Machine."""
        return ResponsesSnapshot(
            self._phase, self._writer.snapshot(), self._finish, self._usage, self._waiting.snapshot()
        )

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event, out)

    def run_steps(self, inputs: Iterable[Semantic], out: list[ChunkLayer], ends: list[int]) -> None:
        """See ``stages.stage.run_steps``."""
        rest = iter(inputs)
        for event in rest:
            following: Semantic | None = event
            while following is not None:
                before = len(out)
                self.step(following, out)
                ends.append(len(out))
                runs = type(following) in self._runs and len(out) > before
                following = self._writer.run(following, rest, out, ends) if runs else None

    def _live(self, choice: int, out: list[ChunkLayer]) -> bool:
        """The choice has a place, and something may still be added to it. Shows the response, if it was not."""
        if choice or self._finish is not None or self._phase is Phase.ENDED:
            return False
        if self._phase is not Phase.SHOWN:
            self._show(out)
        return True

    def _show(self, out: list[ChunkLayer]) -> None:
        self._phase = Phase.SHOWN
        self._writer.send(out, Created, self._base)
        self._writer.send(out, InProgress, self._base)

    # --- one for each event

    def _on_start(self, event: Start, out: list[ChunkLayer]) -> None:
        self._live(event.choice, out)

    def _on_tokens(self, event: Tokens, _out: list[ChunkLayer]) -> None:
        if self._logprobs and event.choice == 0 and self._finish is None:
            self._waiting.add(event.logprobs)

    def _on_content(self, event: Content, out: list[ChunkLayer]) -> None:
        if event.text and self._live(event.choice, out):
            entries = self._waiting.take(event.text, event.src) if self._logprobs else ()
            self._writer.say("output_text", event.text, out, entries)

    def _on_reasoning(self, event: Reasoning, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        if event.text and self._reasoning and self._live(event.choice, out):
            self._writer.say(self._thoughts, event.text, out)

    def _on_refusal(self, event: Refusal, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        if event.text and self._live(event.choice, out):
            self._writer.say("refusal", event.text, out)

    def _on_call_start(self, event: CallStart, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        if self._live(event.choice, out):
            self._writer.call(event, out)

    def _on_call_arguments(self, event: CallArguments, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        item = self._writer.open
        if event.text and item is not None and item.takes(event) and self._live(event.choice, out):
            self._writer.argue(item, event.text, out)

    def _on_call_end(self, event: CallEnd, out: list[ChunkLayer]) -> None:
        item = self._writer.open
        if item is not None and item.takes(event) and self._live(event.choice, out):
            self._writer.end_call(item, event.complete, out)
            if event.complete:
                self._writer.close(out)

    def _on_hidden(self, event: Any, _out: list[ChunkLayer]) -> None:
        """What owns bytes and is no answer. A fault without text owns none."""
        if self._logprobs and event.choice == 0 and (type(event) is not Fault or event.text):
            self._waiting.drop(event.src)

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        if self._live(event.choice, out):
            item = self._writer.open
            broken = item is not None and item.kind == "function_call"
            self._writer.close(out, "incomplete" if broken or event.reason in _CUT else "completed")
            self._finish = event.reason
            if self._usage is not None:
                self._end(out)

    def _on_usage(self, event: Usage, out: list[ChunkLayer]) -> None:
        if self._phase is not Phase.ENDED:
            self._usage = event
            if self._finish is not None:
                self._end(out)

    def _on_failure(self, event: Failure, out: list[ChunkLayer]) -> None:
        if self._phase is Phase.ENDED:
            return
        shown = error_chunk(event.kind, event.message, event.code, event.param)
        error: dict[str, Any] = shown.body["error"]
        if event.kind == "client_closed":
            self._phase = Phase.ENDED
        elif self._phase is Phase.FRESH or not self._stream:
            self._phase = Phase.ENDED
            out.append(shown)
        else:
            if self._phase is Phase.QUIET:
                # The head is out, so this is a stream, and no client reads one that begins otherwise.
                self._show(out)
            if self._writer.open is not None and self._writer.open.ended:
                self._writer.close(out, "incomplete")
            param = msgspec.UNSET if event.param is None else event.param
            self._fail(ResponseError(CODES.get(event.kind, OTHER_CODE), error["message"], param), out)

    def _on_end(self, _event: End, out: list[ChunkLayer]) -> None:
        if self._phase is not Phase.ENDED:
            if self._finish is not None:
                self._usage = self._usage or Usage(0, 0)
                self._end(out)
            else:
                self._on_failure(Failure("engine", "The output ended without a finish."), out)

    def _on_tick(self, event: Tick, out: list[ChunkLayer]) -> None:
        if self._stream and self._phase is not Phase.ENDED:
            self._phase = max(self._phase, Phase.QUIET)
            out.append(event)

    # --- the end

    def _end(self, out: list[ChunkLayer]) -> None:
        reason = _CUT.get(self._finish or "")
        if reason is not None:
            self._over(out, Incomplete, "incomplete", incomplete_details=IncompleteDetails(reason))
        elif self._writer.broken is not None:
            self._fail(ResponseError(OTHER_CODE, self._writer.broken), out)
        else:
            self._over(out, Completed, "completed")

    def _fail(self, error: ResponseError, out: list[ChunkLayer]) -> None:
        self._over(out, Failed, "failed", error=error)

    def _over(self, out: list[ChunkLayer], kind: type[LifecycleEvent], status: str, **fields: Any) -> None:
        usage = None if self._usage is None else _usage(self._usage)
        response = msgspec.structs.replace(
            self._base, status=status, output=tuple(self._writer.output), usage=usage, **fields
        )
        self._phase = Phase.ENDED
        self._writer.open = None
        if self._stream:
            self._writer.send(out, kind, response)
        else:
            out.append(ResponseBody(response))

    _handlers: ClassVar[dict[type, Callable[[_Encoder, Any, list[ChunkLayer]], None]]] = {
        Start: _on_start,
        Tokens: _on_tokens,
        Content: _on_content,
        Reasoning: _on_reasoning,
        Refusal: _on_refusal,
        CallStart: _on_call_start,
        CallArguments: _on_call_arguments,
        CallEnd: _on_call_end,
        Marker: _on_hidden,
        Dropped: _on_hidden,
        Fault: _on_hidden,
        Finish: _on_finish,
        Usage: _on_usage,
        Failure: _on_failure,
        End: _on_end,
        Tick: _on_tick,
    }


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt,
        InputDetails(usage.cached),
        usage.completion,
        OutputDetails(usage.reasoning),
        usage.prompt + usage.completion,
    )


def machine(opening: Opening, base: Response, broken: str | None) -> Machine[Semantic, ChunkLayer]:
    """The machine, for a response that is there already. ``broken``: as in Written."""
    return _Encoder(opening, ResponsesSnapshot(written=Written(broken=broken)), base)


class ResponsesEncoder:
    """The stage ``responses@2``."""

    id = "responses@2"

    def start(self, opening: Opening) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Encoder(opening, ResponsesSnapshot())

    def resume(self, opening: Opening, snapshot: ResponsesSnapshot) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Encoder(opening, snapshot)


ENCODER = ResponsesEncoder()
