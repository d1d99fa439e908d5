"""What the model meant, from a response that does not tell what it wrote: in whichever protocol the upstream was asked.

Its frames are decoded as those of a relayed session (``stages.upstream.decode``), and the semantic events become
inputs, so that another encoder can serve them:

    Start                     PromptInput, once
    texts, calls, Tokens      ToldInput
    Finish                    FinishInput
    Usage                     kept, as the response's last word
    End                       a told Usage where some of it is reasoning, and UsageInput; but ErrorInput where a choice
                              that was asked for has not finished
    Failure                   ErrorInput, in place of the End

Nothing follows the first of UsageInput, ErrorInput and AbortInput. Usage that is not told is counted: a step of
text is taken for a token where no tokens are told.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    ErrorInput,
    Failure,
    Finish,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tokens,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.opening import Opening
from stages.protocols.telling import TRUNCATED
from stages.stage import Machine
from stages.upstream.decode import DECODERS, Upstream
from stages.upstream.wire import as_input

_TEXTS: Final = (Reasoning, Content, Refusal, CallArguments)
_UNTOLD: Final = ErrorInput("engine", "The response ended before all its choices did.", TRUNCATED)


class ToldInputsState(msgspec.Struct):
    """The machine's snapshot. ``decoder``: its own; ``prompt``, ``cached``: tokens of the prompt, -1 before there was
    one; ``open``: the choices that have not finished; ``tokens``, ``texts``: told so far; ``usage``: as told."""

    decoder: Any = None
    prompt: int = -1
    cached: int = 0
    open: tuple[int, ...] = ()
    tokens: int = 0
    texts: int = 0
    usage: Usage | None = None
    over: bool = False


class ToldInputsMachine:
    """The machine."""

    def __init__(self, decoder: Machine[Upstream, Semantic], state: ToldInputsState) -> None:
        self._decoder = decoder
        self._state = msgspec.structs.replace(state, decoder=None)

    def snapshot(self) -> ToldInputsState:
        """See Machine."""
        return msgspec.structs.replace(self._state, decoder=self._decoder.snapshot())

    def step(self, event: Upstream, out: list[Input]) -> None:
        """See Machine."""
        state = self._state
        if state.over:
            return
        if isinstance(event, AbortInput):
            state.over = True
            out.append(event)
            return
        said: list[Semantic] = []
        self._decoder.step(event, said)
        for one in said:
            self._said(one, out)

    def _said(self, event: Semantic, out: list[Input]) -> None:
        state = self._state
        match event:
            case _ if state.over:
                pass
            case Tokens() | Reasoning() | Content() | Refusal() | CallStart() | CallArguments() | CallEnd():
                if event.choice in state.open:
                    state.tokens += len(event.ids) if isinstance(event, Tokens) else 0
                    state.texts += isinstance(event, _TEXTS)
                    out.append(ToldInput(event))
            case Start():
                self._start(event, out)
            case Finish():
                if event.choice in state.open:
                    state.open = tuple(choice for choice in state.open if choice != event.choice)
                    out.append(FinishInput(event.choice, event.reason, event.detail))
            case Usage():
                state.usage = event
            case Failure():
                state.over = True
                out.append(as_input(event))
            case End():
                self._end(out)
            case _:
                pass  # what a response never tells: markers, faults, times

    def _start(self, event: Start, out: list[Input]) -> None:
        state = self._state
        if state.prompt < 0:
            state.prompt, state.cached = event.prompt_tokens, event.cached
            out.append(PromptInput(event.prompt_ids, "", event.prompt_tokens, event.cached))

    def _end(self, out: list[Input]) -> None:
        state = self._state
        state.over = True
        if state.prompt < 0 or state.open:
            out.append(_UNTOLD)
            return
        usage = state.usage or Usage(state.prompt, state.tokens or state.texts, state.cached)
        if usage.reasoning:
            out.append(ToldInput(usage))
        out.append(UsageInput(usage.prompt, usage.completion, usage.cached))


class ToldInputs:
    """The stage. Of the opening it reads in which protocol the upstream was asked."""

    @property
    def id(self) -> str:
        """See Stage."""
        return "inputs.told@1"

    def start(self, opening: Opening) -> ToldInputsMachine:
        """See Stage."""
        fresh = ToldInputsState(open=tuple(range(opening.ask.n)))
        return ToldInputsMachine(DECODERS[_protocol(opening)].start(opening), fresh)

    def resume(self, opening: Opening, snapshot: ToldInputsState) -> ToldInputsMachine:
        """See Stage."""
        return ToldInputsMachine(DECODERS[_protocol(opening)].resume(opening, snapshot.decoder), snapshot)


def _protocol(opening: Opening) -> str:
    return (opening.upstream and opening.upstream.protocol) or opening.protocol


TOLD: Final = ToldInputs()
