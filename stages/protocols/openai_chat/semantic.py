"""The decoder: chat completion chunks → semantic events. The encoder's way back; also how a foreign server is read.

    first sight of a choice   Start, for it and for those before it
    logprobs, token ids       Tokens; -1 for an id that is not told (only entries, or only a running usage that grew)
    reasoning                 Reasoning (reasoning_content where there is no reasoning)
    content, refusal          Content, Refusal
    an entry of a call        CallStart, once the name is known; CallArguments
    the next call             CallEnd of the one before
    finish_reason             CallEnd of an open call, Finish
    usage                     TimingInput of each of its metrics, Usage
    an error                  Failure
    Done                      End; before it Failure if a choice has no finish, or a usage that had no chunk of its own
    Tick                      Tick
    End                       the body has ended: as Done, which some servers never send; but of ours, a stream without
                              it was cut: Failure (code ``truncated``) and End
    ErrorInput                the body broke off: Failure and End
    AbortInput                the client left: End

``src`` counts the bytes of the decoded text, because what the model wrote is not on the wire.

Two kinds of streams are told apart. Our own never mix the entries of two calls, and a choice that finishes with
``stop`` tells that a call of it is not complete: the last one, which therefore ends with the finish. In others a call
goes on until its arguments are one JSON object, and the entries of later calls wait for that; it is complete exactly if
they are one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    Done,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Semantic,
    Src,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Opening
from stages.protocols.openai_chat.calls import Calls, CallState, made_id
from stages.protocols.openai_chat.chunks import (
    TIMINGS,
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionUsage,
    Delta,
    LogprobEntry,
    Metrics,
    TopEntry,
    failure_of,
)
from stages.protocols.telling import TRUNCATED, ObjectScan
from stages.stage import Machine

Wire: TypeAlias = ChatChunk | ChatCompletion | CommonChunk | End | ErrorInput | AbortInput
MOST: Final = 128
"""Choices of a stream; one beyond them is passed over."""
LONGEST: Final = 1 << 16
"""Tokens of a chunk that only a running usage tells of; what it counts beyond them is passed over."""
UNKNOWN: Final = -1
"""The id of a token whose id is not told."""

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "eos", "tool_calls": "eos", "function_call": "eos", "length": "length", "content_filter": "filter",
    "repetition": "length", "max_tokens": "length",
}  # fmt: skip
"""Other words count as the model's own end, but for these:"""
_BROKEN: Final = frozenset(("abort", "error", "insufficient_system_resource"))
_FOR_CALLS: Final = frozenset(("tool_calls", "function_call"))


def ending(said: str, stop: str | int | UnsetType | None) -> tuple[FinishReason, str | int | None] | None:
    """How a choice ended that finished with ``said``, and what matched; None where it broke. ``stop``: what the server
    says that matched."""
    if said in _BROKEN:
        return None
    detail = stop or None if stop != 0 else 0
    reason = _REASONS.get(said, "eos")
    if reason == "eos" and detail is not None:
        reason = "stop" if isinstance(detail, str) else "stop_token"
    return reason, detail


def broken(said: str) -> Failure:
    """What a finish reason that is a failure tells."""
    return Failure("engine", f"The stream ended with the finish reason {said!r}.", said)


class ChoiceState(msgspec.Struct):
    """A choice so far. ``size``: bytes of its text; ``tokens``: how many were told; ``calls``: with the fragments that
    wait; ``open``: the place of the call that is being told, or of the next; ``begun``: its CallStart is out; ``scan``:
    the JSON of its fragments that are out."""

    size: int = 0
    tokens: int = 0
    calls: Calls = msgspec.field(default_factory=Calls)
    open: int = 0
    begun: bool = False
    scan: ObjectScan = msgspec.field(default_factory=ObjectScan)
    finished: bool = False


class DecoderState(msgspec.Struct):
    """All that the decoder knows; plain data."""

    response: str = ""
    choices: list[ChoiceState] = []
    usage: CompletionUsage | None = None
    told: bool = False
    failed: bool = False
    ended: bool = False


class _Decoder:
    """The machine."""

    def __init__(self, opening: Opening, own: bool, exact: bool, state: DecoderState | None = None) -> None:
        self._named = opening.ask.named
        self._own = own
        self._exact = exact
        self._state = DecoderState() if state is None else copy.deepcopy(state)

    def snapshot(self) -> DecoderState:
        """See Machine."""
        return copy.deepcopy(self._state)

    def step(self, event: Wire, out: list[Semantic]) -> None:
        """See Machine."""
        state = self._state
        if state.ended:
            return
        if isinstance(event, Tick):
            out.append(event)
        elif isinstance(event, Done | End | ErrorInput | AbortInput):
            self._end(event, out)
        elif state.failed:
            pass  # what follows an error is void
        elif isinstance(event, ChatChunk):
            self._chunk(event, out)
        elif isinstance(event, ErrorChunk):
            self._fail(failure_of(event), out)

    # --- chunks

    def _chunk(self, chunk: ChatChunk, out: list[Semantic]) -> None:
        state = self._state
        state.response = state.response or chunk.id
        usage = chunk.usage or None
        for choice in chunk.choices:
            if not 0 <= choice.index < MOST or state.failed:
                continue
            self._introduce(choice.index, chunk, out)
            if not state.choices[choice.index].finished:
                self._choice(choice, usage if len(chunk.choices) == 1 else None, out)
        if usage is None:
            return
        state.usage = usage
        if not chunk.choices and not state.told and not state.failed:
            self._tell(usage, chunk.metrics or None, out)

    def _introduce(self, index: int, chunk: ChatChunk, out: list[Semantic]) -> None:
        choices = self._state.choices
        while len(choices) <= index:
            ids = chunk.prompt_token_ids or () if not choices else ()
            prompt = chunk.usage.prompt_tokens if chunk.usage else len(ids)
            out.append(Start(len(choices), prompt, 0, ids))
            choices.append(ChoiceState())

    def _choice(self, choice: ChunkChoice, running: CompletionUsage | None, out: list[Semantic]) -> None:
        state = self._state.choices[choice.index]
        self._tokens(choice, state, running, out)
        self._texts(choice.index, choice.delta, state, out)
        for entry in choice.delta.tool_calls or ():
            state.calls.add(entry)
            self._call(choice.index, state, out)
        if choice.finish_reason is not None:
            self._finish(choice, state, out)

    def _tokens(
        self, choice: ChunkChoice, state: ChoiceState, running: CompletionUsage | None, out: list[Semantic]
    ) -> None:
        ids = choice.token_ids or ()
        entries = _entries(choice.logprobs, ids)
        if not ids:
            # A running usage tells how many there are.
            grown = 0 if running is None else running.completion_tokens - state.tokens
            state.tokens += max(grown - LONGEST, 0)
            ids = (UNKNOWN,) * max(min(grown, LONGEST), len(entries))
        if ids or entries:
            state.tokens += len(ids)
            out.append(Tokens(choice.index, ids, entries))

    def _texts(self, choice: int, delta: Delta, state: ChoiceState, out: list[Semantic]) -> None:
        thought, content, refusal = delta.reasoning or delta.reasoning_content, delta.content, delta.refusal
        if (thought or content or refusal) and state.begun and state.scan.whole and not self._own:
            self._over(choice, state, True, out)
        if thought:
            out.append(Reasoning(choice, thought, _src(state, thought)))
        if content:
            out.append(Content(choice, content, _src(state, content)))
        if refusal:
            out.append(Refusal(choice, refusal, _src(state, refusal)))

    # --- calls

    def _call(self, choice: int, state: ChoiceState, out: list[Semantic]) -> None:
        """Tell what can be told of the calls, in their order."""
        while state.open < len(state.calls.made):
            if not state.begun and not self._begin(choice, state, out):
                return
            self._fragments(choice, state, out)
            if state.open == len(state.calls.made) - 1 or not self._close(choice, state, out):
                return

    def _begin(self, choice: int, state: ChoiceState, out: list[Semantic]) -> bool:
        call = state.calls.made[state.open]
        last = state.open == len(state.calls.made) - 1
        # An id may still come until there are arguments.
        if not call.name or (last and not call.id and not call.arguments):
            return False
        self._head(choice, state, call, out)
        return True

    def _head(self, choice: int, state: ChoiceState, call: CallState, out: list[Semantic]) -> None:
        number = call.id or made_id(self._state.response, choice, state.open)
        out.append(CallStart(choice, state.open, number, call.name, _src(state, call.name)))
        state.begun = True

    def _fragments(self, choice: int, state: ChoiceState, out: list[Semantic]) -> None:
        pieces = state.calls.made[state.open].arguments
        for piece in pieces:
            state.scan.feed(piece)
            out.append(CallArguments(choice, state.open, piece, _src(state, piece)))
        pieces.clear()

    def _close(self, choice: int, state: ChoiceState, out: list[Semantic]) -> bool:
        """End the open call, if what comes next can end it."""
        if not self._own and not state.scan.whole:
            return False
        self._over(choice, state, state.scan.whole, out)
        return True

    def _over(self, choice: int, state: ChoiceState, complete: bool, out: list[Semantic]) -> None:
        out.append(CallEnd(choice, state.open, complete))
        state.open += 1
        state.begun, state.scan = False, ObjectScan()

    def _close_all(self, choice: int, state: ChoiceState, finish: str | None, out: list[Semantic]) -> None:
        """Nothing more comes for a choice."""
        made = state.calls.made
        while state.open < len(made):
            call = made[state.open]
            if not state.begun:
                self._head(choice, state, call, out)
            self._fragments(choice, state, out)
            # Servers send nothing for a call without arguments.
            blank = not state.scan.begun and finish in _FOR_CALLS
            if blank and not self._exact:
                call.arguments.append("{}")
                self._fragments(choice, state, out)
            cut = finish is None or (self._own and finish == "stop" and not self._named)
            last = state.open == len(made) - 1
            whole = bool(call.name) and (state.scan.whole or blank)
            self._over(choice, state, whole and not (cut and last), out)

    # --- ends

    def _finish(self, choice: ChunkChoice, state: ChoiceState, out: list[Semantic]) -> None:
        said = choice.finish_reason or ""
        ended = ending(said, choice.stop_reason)
        if ended is None:
            self._fail(broken(said), out)
            return
        state.finished = True
        self._close_all(choice.index, state, said, out)
        out.append(Finish(choice.index, *ended))

    def _tell(self, usage: CompletionUsage, metrics: Metrics | None, out: list[Semantic]) -> None:
        self._state.told = True
        if metrics is not None:
            for name, key in TIMINGS.items():
                ms = getattr(metrics, key)
                if ms is not UNSET:
                    out.append(TimingInput(name, round(ms * 1e6)))
        spent, sent = usage.completion_tokens_details or None, usage.prompt_tokens_details or None
        out.append(
            Usage(
                usage.prompt_tokens,
                usage.completion_tokens,
                0 if sent is None else sent.cached_tokens,
                0 if spent is None else spent.reasoning_tokens,
            )
        )

    def _fail(self, failure: Failure, out: list[Semantic]) -> None:
        self._cut(out)
        self._state.failed = True
        out.append(failure)

    def _cut(self, out: list[Semantic]) -> None:
        for index, choice in enumerate(self._state.choices):
            if not choice.finished:
                self._close_all(index, choice, None, out)

    def _end(self, event: Done | End | ErrorInput | AbortInput, out: list[Semantic]) -> None:
        state = self._state
        state.ended = True
        if not state.failed:
            finished = bool(state.choices) and all(choice.finished for choice in state.choices)
            if isinstance(event, ErrorInput):
                self._fail(Failure(event.kind, event.message, event.code, event.param), out)
            elif isinstance(event, AbortInput):
                self._cut(out)
            elif not state.choices or (isinstance(event, End) and (self._own or not finished)):
                self._fail(Failure("engine", "The stream broke off before its end.", TRUNCATED), out)
            elif not finished:
                self._fail(Failure("engine", "The stream ended without a finish reason.", TRUNCATED), out)
            elif state.usage is not None and not state.told:
                self._tell(state.usage, None, out)
        out.append(End())


def _src(state: ChoiceState, text: str) -> Src:
    start = state.size
    state.size += len(text.encode("utf-8", "surrogatepass"))
    return start, state.size


def _entries(logprobs: ChoiceLogprobs | None, ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
    if logprobs is None:
        return ()
    said = (*(logprobs.content or ()), *(logprobs.refusal or ()))
    known = ids if len(ids) == len(said) else (UNKNOWN,) * len(said)
    return tuple(
        TokenLogprob(number, _piece(entry), entry.logprob, tuple(_other(top) for top in entry.top_logprobs))
        for number, entry in zip(known, said, strict=True)
    )


def _other(entry: TopEntry) -> TopLogprob:
    return TopLogprob(UNKNOWN, _piece(entry), entry.logprob)


def _piece(entry: LogprobEntry | TopEntry) -> bytes:
    return entry.token.encode("utf-8", "surrogatepass") if entry.bytes is None else bytes(entry.bytes)


class ChatDecoder:
    """The stage ``chat.decode@2``. ``own``: the stream is one of ours; ``exact``: a call that was sent without
    arguments has none, else ``{}``."""

    id = "chat.decode@2"

    def __init__(self, *, own: bool = False, exact: bool = False) -> None:
        self._own = own
        self._exact = exact

    def start(self, opening: Opening) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder(opening, self._own, self._exact)

    def resume(self, opening: Opening, snapshot: DecoderState) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder(opening, self._own, self._exact, snapshot)


DECODER = ChatDecoder()
OWN_DECODER = ChatDecoder(own=True)
