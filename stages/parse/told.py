"""The parser ``told``: what another server says that its model meant (ToldInput) → semantic events.

    the first PromptInput     Start, for each choice
    ToldInput                 its event; a Usage is kept
    FinishInput               CallEnd of an open call, Finish
    UsageInput                Usage, with the reasoning of the one that was told; End
    ErrorInput, AbortInput    CallEnd of open calls, Failure, End
    Tick, TimingInput, Echo   themselves

Ranges (``src``) count the bytes of what was told, in its order: they partition it, as those of a parser partition what
the model wrote. A call that broke off carries a fault, as any parser's. Under the policy ``whole`` a call is told when
it is complete; one that never is, is the fault alone; so is one without a name, whatever the policy: nobody could
answer it. A text that is told inside a call (servers do that) comes behind the call's end, because no protocol can
write it where it was.

TokensInput says nothing here: what a model wrote is for the parser of its format.
"""

from __future__ import annotations

from typing import Final

import msgspec

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
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Meant,
    PromptInput,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.opening import Opening
from stages.parse.parser import ABORTS

_DETAIL: Final = "the upstream does not say that it is complete"
_NAMELESS: Final = "the upstream does not say what is called"


class ToldChoice(msgspec.Struct):
    """A choice so far. ``pos``: bytes told; ``call``: the open one, -1 for none; ``start``: where it begins;
    ``named``: it has a name; ``held``: its events, where they are not told yet; ``texts``: those inside it."""

    pos: int = 0
    call: int = -1
    start: int = 0
    named: bool = True
    held: tuple[CallStart | CallArguments, ...] = ()
    texts: tuple[Reasoning | Content | Refusal, ...] = ()
    finished: bool = False


class ToldState(msgspec.Struct):
    """The machine's snapshot. ``reasoning``: tokens of it that were told."""

    choices: list[ToldChoice] = []
    reasoning: int = 0
    ended: bool = False


class ToldMachine:
    """One session's machine. What is told of a choice that was not admitted, or behind its end, is ignored."""

    def __init__(self, opening: Opening, state: ToldState) -> None:
        self._ask = opening.ask
        self._whole = opening.calls == "whole"
        self._reasoning, self._ended = state.reasoning, state.ended
        self._choices = [_Choice(choice) for choice in state.choices]

    def snapshot(self) -> ToldState:
        """See Machine."""
        return ToldState([choice.snapshot() for choice in self._choices], self._reasoning, self._ended)

    def state(self, choice: int) -> str:
        """Where a choice stands, for people; "" for one that was not admitted."""
        if not 0 <= choice < len(self._choices):
            return ""
        return "call" if self._choices[choice].call >= 0 else "content"

    def step(self, event: Input, out: list[Semantic]) -> None:
        """See Machine."""
        if self._ended:
            return
        match event:
            case ToldInput():
                self._told(event.event, out)
            case PromptInput():
                self._prompt(event, out)
            case FinishInput():
                self._finish(event, out)
            case UsageInput():
                usage = Usage(event.prompt, event.completion, event.cached, min(self._reasoning, event.completion))
                self._end(usage, out)
            case ErrorInput():
                self._end(Failure(event.kind, event.message, event.code, event.param), out)
            case AbortInput():
                self._end(Failure(*ABORTS[event.by]), out)
            case Tick() | TimingInput() | Echo():
                out.append(event)
            case _:
                pass  # neither scheduling nor tokens mean anything here

    def _prompt(self, event: PromptInput, out: list[Semantic]) -> None:
        first, own = len(self._choices), self._ask.n // self._ask.prompts
        if first >= self._ask.n:
            return
        for index in range(first, first + own):
            self._choices.append(_Choice(ToldChoice()))
            ids = event.ids if index == first and self._ask.return_token_ids else ()
            out.append(Start(index, event.count, event.cached, ids))

    def _told(self, event: Meant, out: list[Semantic]) -> None:
        if isinstance(event, Usage):
            self._reasoning = event.reasoning
            return
        choice = self._choices[event.choice] if 0 <= event.choice < len(self._choices) else None
        if choice is None or choice.finished:
            return
        if isinstance(event, Tokens):
            out.append(event)
        elif isinstance(event, Reasoning | Content | Refusal):
            if choice.call < 0:
                out.append(choice.owned(event))
            else:
                choice.texts.append(event)
        else:
            self._call(event, choice, out)

    def _call(self, event: CallStart | CallArguments | CallEnd, choice: _Choice, out: list[Semantic]) -> None:
        if isinstance(event, CallStart):
            self._break(event.choice, choice, out)
            choice.call, choice.start, choice.named = event.index, choice.pos, bool(event.name)
            self._piece(msgspec.structs.replace(event, src=choice.take(event.name)), choice, out)
        elif event.index != choice.call:
            return  # of a call that is not open
        elif isinstance(event, CallArguments):
            self._piece(msgspec.structs.replace(event, src=choice.take(event.text)), choice, out)
        elif event.complete and choice.named:
            out += choice.held
            out.append(event)
            choice.close(out)
        else:
            self._break(event.choice, choice, out)

    def _piece(self, event: CallStart | CallArguments, choice: _Choice, out: list[Semantic]) -> None:
        if self._whole or not choice.named:
            choice.held.append(event)
        else:
            out.append(event)

    def _break(self, index: int, choice: _Choice, out: list[Semantic]) -> None:
        """The open call, if there is one, broke off."""
        if choice.call < 0:
            return
        src = choice.start, choice.pos
        code, detail = (FaultCode.UNCLOSED_CALL, _DETAIL) if choice.named else (FaultCode.MALFORMED_CALL, _NAMELESS)
        if self._whole or not choice.named:
            text = "".join(each.name if isinstance(each, CallStart) else each.text for each in choice.held)
            out.append(Fault(index, code, src, text, detail))
        else:
            out.append(Fault(index, code, src, detail=detail))
            out.append(CallEnd(index, choice.call, False))
        choice.close(out)

    def _finish(self, event: FinishInput, out: list[Semantic]) -> None:
        if not 0 <= event.choice < len(self._choices) or self._choices[event.choice].finished:
            return
        choice = self._choices[event.choice]
        self._break(event.choice, choice, out)
        choice.finished = True
        out.append(Finish(event.choice, event.reason, event.stop))

    def _end(self, last: Usage | Failure, out: list[Semantic]) -> None:
        self._ended = True
        for index, choice in enumerate(self._choices):
            self._break(index, choice, out)
        out += last, End()


class _Choice:
    """See ToldChoice."""

    __slots__ = ("call", "finished", "held", "named", "pos", "start", "texts")

    def __init__(self, state: ToldChoice) -> None:
        self.pos, self.call, self.start, self.finished = state.pos, state.call, state.start, state.finished
        self.named, self.held, self.texts = state.named, list(state.held), list(state.texts)

    def snapshot(self) -> ToldChoice:
        held, texts = tuple(self.held), tuple(self.texts)
        return ToldChoice(self.pos, self.call, self.start, self.named, held, texts, self.finished)

    def take(self, text: str) -> tuple[int, int]:
        """The range of the next text."""
        start = self.pos
        self.pos += len(text.encode("utf-8", "surrogatepass"))
        return start, self.pos

    def close(self, out: list[Semantic]) -> None:
        """No call is open any more."""
        self.call = -1
        self.held.clear()
        out += map(self.owned, self.texts)
        self.texts.clear()

    def owned(self, event: Reasoning | Content | Refusal) -> Reasoning | Content | Refusal:
        """The text, with the next range."""
        return msgspec.structs.replace(event, src=self.take(event.text))


class Told:
    """The stage."""

    name: Final = "told"
    """What the catalog calls it."""

    @property
    def id(self) -> str:
        """See Stage."""
        return "told@1"

    def start(self, opening: Opening) -> ToldMachine:
        """See Stage."""
        return ToldMachine(opening, ToldState())

    def resume(self, opening: Opening, snapshot: ToldState) -> ToldMachine:
        """See Stage."""
        return ToldMachine(opening, snapshot)


TOLD: Final = Told()
