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

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    End,
    ErrorInput,
    Reasoning,
    Refusal,
    Semantic,
    Src,
    Start,
    TokenLogprob,
    TopLogprob,
)
from stages.opening import Opening
from stages.protocols.openai_chat.calls import Calls, CallState, made_id
from stages.protocols.openai_chat.chunks import (
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionUsage,
    Delta,
    LogprobEntry,
    TopEntry,
)
from stages.protocols.openai_chat.shared_decoder import UNKNOWN, SharedChoice, SharedDecoder, SharedState
from stages.protocols.telling import ObjectScan
from stages.stage import Machine

Wire: TypeAlias = ChatChunk | ChatCompletion | CommonChunk | End | ErrorInput | AbortInput
_FOR_CALLS: Final = frozenset(("tool_calls", "function_call"))


class ChoiceState(SharedChoice):
    """A choice so far. ``calls``: with the fragments that wait; ``open``: the place of the call that is being told, or
    of the next; ``begun``: its CallStart is out; ``scan``: the JSON of its fragments that are out."""

    calls: Calls = msgspec.field(default_factory=Calls)
    open: int = 0
    begun: bool = False
    scan: ObjectScan = msgspec.field(default_factory=ObjectScan)


class DecoderState(SharedState[ChoiceState]):
    """All that the decoder knows; plain data."""


class _Decoder(SharedDecoder[ChoiceState]):
    """The machine."""

    kind = ChatChunk

    def __init__(self, opening: Opening, own: bool, exact: bool, state: DecoderState | None = None) -> None:
        super().__init__(own, DecoderState() if state is None else state)
        self._named = opening.ask.named
        self._exact = exact

    def _introduce(self, choice: ChunkChoice, chunk: ChatChunk, out: list[Semantic]) -> ChoiceState:
        """It, and those before it."""
        choices = self._state.choices
        for index in range(len(choices), choice.index + 1):
            ids = chunk.prompt_token_ids or () if index == 0 else ()
            prompt = chunk.usage.prompt_tokens if chunk.usage else len(ids)
            out.append(Start(index, prompt, 0, ids))
            choices[index] = ChoiceState()
        return choices[choice.index]

    def _choice(
        self, choice: ChunkChoice, state: ChoiceState, running: CompletionUsage | None, out: list[Semantic]
    ) -> None:
        self._tokens(choice, _entries(choice.logprobs, choice.token_ids or ()), state, running, out)
        self._texts(choice.index, choice.delta, state, out)
        for entry in choice.delta.tool_calls or ():
            state.calls.add(entry)
            self._call(choice.index, state, out)
        if choice.finish_reason is not None:
            self._finish(choice, state, out)

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
            if state.open == len(state.calls.made) - 1 or not self._ends(choice, state, out):
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

    def _ends(self, choice: int, state: ChoiceState, out: list[Semantic]) -> bool:
        """End the open call, if what comes next can end it."""
        if not self._own and not state.scan.whole:
            return False
        self._over(choice, state, state.scan.whole, out)
        return True

    def _over(self, choice: int, state: ChoiceState, complete: bool, out: list[Semantic]) -> None:
        out.append(CallEnd(choice, state.open, complete))
        state.open += 1
        state.begun, state.scan = False, ObjectScan()

    def _close(self, choice: int, state: ChoiceState, finish: str | None, out: list[Semantic]) -> None:
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
