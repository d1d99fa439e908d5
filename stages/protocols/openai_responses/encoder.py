"""The encoder: semantic events → events of the responses protocol. Nothing is held back but the end.

    Start                  response.created, response.in_progress
    Content, Refusal       a message item, and in it a part of their kind, opened where none is open; the delta
    Reasoning              a reasoning item and its part, the same; where a summary was asked for, a summary part
    CallStart              a function_call item is added
    CallArguments          response.function_call_arguments.delta
    CallEnd                response.function_call_arguments.done, response.output_item.done
    Finish                 the open part and item are done
    Usage                  response.completed, .incomplete or .failed
    Failure                response.failed; before the response was shown the error object, or the event ``error``
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

from collections.abc import Callable
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
    ArgumentsDelta,
    ArgumentsDone,
    Chunk,
    Completed,
    Created,
    ErrorEvent,
    Failed,
    Incomplete,
    InProgress,
    ItemAdded,
    ItemDone,
    LifecycleEvent,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseBody,
    StreamEvent,
    SummaryAdded,
    SummaryDelta,
    SummaryDone,
    SummaryTextDone,
    TextDelta,
    TextDone,
)
from stages.protocols.openai_responses.objects import (
    IncompleteDetails,
    InputDetails,
    Item,
    OutputDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from stages.protocols.openai_responses.opened import OpenItem, PartKind
from stages.protocols.openai_responses.waiting import Waiting, WaitingState
from stages.stage import Machine

ChunkLayer: TypeAlias = Chunk | CommonChunk

_CUT: Final = {"length": "max_output_tokens", "context": "max_output_tokens", "filter": "content_filter"}
"""Finish reasons that leave a response incomplete, and how it says so."""
_PREFIXES: Final = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
_DELTAS: Final[dict[PartKind, type[StreamEvent]]] = {
    "output_text": TextDelta, "refusal": RefusalDelta, "reasoning_text": ReasoningDelta, "summary_text": SummaryDelta,
}  # fmt: skip
_DONES: Final[dict[PartKind, type[StreamEvent]]] = {
    "output_text": TextDone, "refusal": RefusalDone, "reasoning_text": ReasoningDone, "summary_text": SummaryTextDone,
}  # fmt: skip


class Phase(IntEnum):
    """What was sent: nothing; comments; the response; its terminal event."""

    FRESH = 0
    QUIET = 1
    SHOWN = 2
    ENDED = 3


class ResponsesSnapshot(msgspec.Struct, frozen=True):
    """The encoder's state. ``number``: of the next event; ``broken``: what to say of the first call
    that is not complete."""

    phase: Phase
    number: int
    output: tuple[Item, ...] = ()
    open: OpenItem | None = None
    finish: str | None = None
    usage: Usage | None = None
    broken: str | None = None
    waiting: WaitingState = WaitingState()


class _Encoder:
    """The machine."""

    def __init__(
        self, opening: Opening, snapshot: ResponsesSnapshot | None = None, base: Response | None = None
    ) -> None:
        ask = opening.ask
        state = ResponsesSnapshot(Phase.FRESH, 0) if snapshot is None else snapshot
        self._base = base_of(opening) if base is None else base
        self._stream = ask.stream
        self._reasoning = ask.include_reasoning
        self._thoughts: PartKind = "summary_text" if summarised(self._base) else "reasoning_text"
        self._logprobs = ask.logprobs and ask.include_reasoning
        self._waiting = Waiting(ask.top_logprobs, opening.parser == "told", state.waiting)
        self._phase = state.phase
        self._number = state.number
        self._output = list(state.output)
        self._open = None if state.open is None else state.open.copied()
        self._finish = state.finish
        self._usage = state.usage
        self._broken = state.broken

    def snapshot(self) -> ResponsesSnapshot:
        """See Machine."""
        return ResponsesSnapshot(
            self._phase, self._number, tuple(self._output), None if self._open is None else self._open.copied(),
            self._finish, self._usage, self._broken, self._waiting.snapshot(),
        )  # fmt: skip

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event, out)

    # --- what the handlers share

    def _send(self, out: list[ChunkLayer], kind: type[StreamEvent], *fields: Any) -> None:
        if self._stream:
            made: Any = kind(self._number, *fields)
            out.append(made)
            self._number += 1

    def _live(self, choice: int, out: list[ChunkLayer]) -> bool:
        """The choice has a place, and something may still be added to it. Shows the response, if it was not."""
        if choice or self._finish is not None or self._phase is Phase.ENDED:
            return False
        if self._phase is not Phase.SHOWN:
            self._phase = Phase.SHOWN
            self._send(out, Created, self._base)
            self._send(out, InProgress, self._base)
        return True

    def _opened(self, kind: str, part: PartKind, out: list[ChunkLayer]) -> OpenItem:
        """The open item, with an open part of this kind."""
        item = self._open
        if item is not None and item.kind != kind:
            self._close(out)
            item = None
        if item is None:
            item = self._add(OpenItem(kind, self._id(kind)), out)
        elif item.part == part:
            return item
        else:
            self._close_part(item, out)
        item.part = part
        added = SummaryAdded if part == "summary_text" else PartAdded
        self._send(out, added, len(self._output), item.id, len(item.parts), item.made("", ()))
        return item

    def _id(self, kind: str) -> str:
        # Of the response's id: so it leads back to the response, and whoever has the stream can write it again.
        return f"{_PREFIXES[kind]}{self._base.id.removeprefix('resp_')}o{len(self._output)}"

    def _add(self, item: OpenItem, out: list[ChunkLayer]) -> OpenItem:
        self._open = item
        self._send(out, ItemAdded, len(self._output), item.item("in_progress"))
        return item

    def _close_part(self, item: OpenItem, out: list[ChunkLayer]) -> None:
        part = item.part
        if part is None:
            return
        place = (len(self._output), item.id, len(item.parts))
        text = item.text
        made = item.close()
        more = (made.logprobs,) if part == "output_text" else ()
        self._send(out, _DONES[part], *place, text, *more)
        self._send(out, SummaryDone if part == "summary_text" else PartDone, *place, made)

    def _close(self, out: list[ChunkLayer], status: str = "completed") -> None:
        """The open item is done, and with it its part, or the arguments that nobody ended."""
        item = self._open
        if item is None:
            return
        self._close_part(item, out)
        if item.kind == "function_call":
            self._end_call(item, False, out)
        done = item.item(status)
        self._send(out, ItemDone, len(self._output), done)
        self._output.append(done)
        self._open = None

    def _end_call(self, item: OpenItem, complete: bool, out: list[ChunkLayer]) -> None:
        if item.ended:
            return
        item.ended = True
        if not complete and self._broken is None:
            self._broken = f"The model's call of {item.name!r} is not complete."
        self._send(out, ArgumentsDone, len(self._output), item.id, item.text)

    # --- one for each event

    def _on_start(self, event: Start, out: list[ChunkLayer]) -> None:
        self._live(event.choice, out)

    def _on_tokens(self, event: Tokens, _out: list[ChunkLayer]) -> None:
        if self._logprobs and event.choice == 0 and self._finish is None:
            self._waiting.add(event.logprobs)

    def _on_content(self, event: Content, out: list[ChunkLayer]) -> None:
        if not event.text or not self._live(event.choice, out):
            return
        item = self._open
        if item is None or item.part != "output_text":
            item = self._opened("message", "output_text", out)
        entries = self._waiting.take(event.src) if self._logprobs else ()
        item.pieces.append(event.text)
        if entries:
            item.logprobs += entries
        self._send(out, TextDelta, len(self._output), item.id, len(item.parts), event.text, entries)

    def _on_other(self, event: Reasoning | Refusal, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        refusal = type(event) is Refusal
        if not event.text or not (refusal or self._reasoning) or not self._live(event.choice, out):
            return
        part: PartKind = "refusal" if refusal else self._thoughts
        item = self._opened("message" if refusal else "reasoning", part, out)
        item.pieces.append(event.text)
        self._send(out, _DELTAS[part], len(self._output), item.id, len(item.parts), event.text)

    def _on_call_start(self, event: CallStart, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        if self._live(event.choice, out):
            self._close(out)
            item = OpenItem("function_call", self._id("function_call"), event.index, event.id, event.name)
            self._add(item, out)

    def _on_call_arguments(self, event: CallArguments, out: list[ChunkLayer]) -> None:
        self._on_hidden(event, out)
        item = self._open
        if event.text and item is not None and item.takes(event) and self._live(event.choice, out):
            item.pieces.append(event.text)
            self._send(out, ArgumentsDelta, len(self._output), item.id, event.text)

    def _on_call_end(self, event: CallEnd, out: list[ChunkLayer]) -> None:
        item = self._open
        if item is not None and item.takes(event) and self._live(event.choice, out):
            self._end_call(item, event.complete, out)
            if event.complete:
                self._close(out)

    def _on_hidden(self, event: Any, _out: list[ChunkLayer]) -> None:
        """What owns bytes and is no answer. A fault without text owns none."""
        if self._logprobs and event.choice == 0 and (type(event) is not Fault or event.text):
            self._waiting.drop(event.src)

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        if self._live(event.choice, out):
            item = self._open
            broken = item is not None and item.kind == "function_call"
            self._close(out, "incomplete" if broken or event.reason in _CUT else "completed")
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
        elif self._phase is Phase.QUIET:
            self._phase = Phase.ENDED
            self._send(out, ErrorEvent, error["code"], error["message"], event.param)
        else:
            if self._open is not None and self._open.ended:
                self._close(out, "incomplete")
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
            self._show(out, Incomplete, "incomplete", incomplete_details=IncompleteDetails(reason))
        elif self._broken is not None:
            self._fail(ResponseError(OTHER_CODE, self._broken), out)
        else:
            self._show(out, Completed, "completed")

    def _fail(self, error: ResponseError, out: list[ChunkLayer]) -> None:
        self._show(out, Failed, "failed", error=error)

    def _show(self, out: list[ChunkLayer], kind: type[LifecycleEvent], status: str, **fields: Any) -> None:
        usage = None if self._usage is None else _usage(self._usage)
        response = msgspec.structs.replace(self._base, status=status, output=tuple(self._output), usage=usage, **fields)
        self._phase = Phase.ENDED
        self._open = None
        if self._stream:
            self._send(out, kind, response)
        else:
            out.append(ResponseBody(response))

    _handlers: ClassVar[dict[type, Callable[[_Encoder, Any, list[ChunkLayer]], None]]] = {
        Start: _on_start,
        Tokens: _on_tokens,
        Content: _on_content,
        Reasoning: _on_other,
        Refusal: _on_other,
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
    """The machine, for a response that is there already. ``broken``: as in the snapshot."""
    return _Encoder(opening, ResponsesSnapshot(Phase.FRESH, 0, broken=broken), base)


class ResponsesEncoder:
    """The stage ``responses@1``."""

    id = "responses@1"

    def start(self, opening: Opening) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Encoder(opening)

    def resume(self, opening: Opening, snapshot: ResponsesSnapshot) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Encoder(opening, snapshot)


ENCODER = ResponsesEncoder()
