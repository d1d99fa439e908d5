"""The parser stage: engine-layer inputs → semantic events, one machine per choice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from stages.events import (
    AbortInput,
    Echo,
    End,
    ErrorInput,
    Failure,
    FailureKind,
    FinishInput,
    Input,
    PromptInput,
    Semantic,
    Start,
    Tick,
    TimingInput,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.opening import Opening
from stages.parse.choice import Choice, ChoiceState
from stages.parse.format import Format
from stages.parse.markers import plan
from stages.parse.modes import Mode
from stages.parse.reasoning import Begin, begin
from stages.parse.types import Tools

ABORTS: Final[dict[str, tuple[FailureKind, str]]] = {
    "client": ("client_closed", "the client closed the connection"),
    "timeout": ("timeout", "the request took too long"),
    "cancel": ("cancelled", "the request was cancelled"),
    "shutdown": ("cancelled", "the server is shutting down"),
}
"""Who ended a session → what it is told as."""


class ParserState(msgspec.Struct, frozen=True):
    """A parser's snapshot: plain data that msgspec encodes and decodes."""

    mode: int
    header: str
    ended: bool
    choices: tuple[ChoiceState, ...]


class Parser:
    """A format as a Stage. ``id``: ``parse.NAME@VERSION``."""

    def __init__(self, form: Format) -> None:
        self.format = form

    @property
    def id(self) -> str:
        """See Stage."""
        return self.format.id

    def start(self, opening: Opening) -> ParserMachine:
        """See Stage."""
        return ParserMachine(self.format, opening)

    def resume(self, opening: Opening, snapshot: ParserState) -> ParserMachine:
        """See Stage."""
        machine = ParserMachine(self.format, opening)
        machine.restore(snapshot)
        return machine


class ParserMachine:
    """One session's parser. Inputs of a choice that was not admitted, and all after End, are ignored."""

    __slots__ = ("_begin", "_choices", "_ended", "_format", "_opening", "_plan", "_tools")

    def __init__(self, form: Format, opening: Opening) -> None:
        self._format = form = form.variant(opening.tokenizer) if form.variant else form
        self._opening = opening
        self._plan = plan(form, opening.tokenizer, opening.ask)
        self._tools = Tools(opening.ask.tools)
        self._choices: dict[int, Choice] = {}
        self._begin = Begin()
        self._ended = False

    def step(self, event: Input, out: list[Semantic]) -> None:
        """See Machine."""
        if type(event) is TokensInput:
            choice = self._choices.get(event.choice)
            if choice is not None and not self._ended:
                choice.tokens(event, out)
        elif not self._ended:
            self._rare(event, out)

    def run_steps(self, inputs: Iterable[Input], out: list[Semantic], ends: list[int]) -> None:
        """See ``stages.stage.run_steps``."""
        rest = iter(inputs)
        for event in rest:
            following: Input | None = event
            while following is not None:
                choice = None
                if type(following) is TokensInput and not self._ended:
                    choice = self._choices.get(following.choice)
                    if choice is not None:
                        choice.tokens(following, out)
                else:
                    self.step(following, out)
                ends.append(len(out))
                following = choice.run(rest, out, ends) if choice is not None and choice.clean else None

    def _rare(self, event: Input, out: list[Semantic]) -> None:
        match event:
            case PromptInput():
                self._prompt(event, out)
            case FinishInput():
                choice = self._choices.get(event.choice)
                if choice is not None:
                    choice.finish(event.reason, event.stop, out)
            case UsageInput():
                self._cut(out)
                reasoning = sum(choice.reasoning for choice in self._choices.values())
                out += Usage(event.prompt, event.completion, event.cached, reasoning), End()
            case ErrorInput():
                self._cut(out)
                out += Failure(event.kind, event.message, event.code, event.param), End()
            case AbortInput():
                self._cut(out)
                out += Failure(*ABORTS[event.by]), End()
            case Tick() | TimingInput() | Echo():
                out.append(event)
            case _:
                pass  # scheduling means nothing here

    def _prompt(self, event: PromptInput, out: list[Semantic]) -> None:
        ask = self._opening.ask
        first, own = len(self._choices), ask.n // ask.prompts
        if first >= ask.n:
            return
        calls = self._format.calls is not None and bool(ask.tools) and ask.tool_choice != "none"
        self._begin = begin(self._format, event.tail, calls)
        for index in range(first, first + own):
            self._admit(index)
            ids = event.ids if index == first and ask.return_token_ids else ()
            out.append(Start(index, event.count, event.cached, ids))

    def _admit(self, index: int) -> Choice:
        choice = Choice(self._format, self._plan, self._opening, self._tools, index, self._begin)
        self._choices[index] = choice
        return choice

    def _cut(self, out: list[Semantic]) -> None:
        self._ended = True
        for choice in self._choices.values():
            choice.cut(out)

    def state(self, choice: int) -> str:
        """Where a choice stands, for people: ``content``, ``call: name``; "" for one that was not admitted."""
        found = self._choices.get(choice)
        return "" if found is None else found.scanner.state

    def snapshot(self) -> ParserState:
        """See Machine."""
        choices = tuple(choice.snapshot() for choice in self._choices.values())
        return ParserState(self._begin.mode, self._begin.header, self._ended, choices)

    def restore(self, state: ParserState) -> None:
        """Continue from a snapshot."""
        self._begin = Begin(Mode(state.mode), state.header)
        self._ended = state.ended
        for index, choice in enumerate(state.choices):
            self._admit(index).restore(choice)
