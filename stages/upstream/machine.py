"""What all machines have in common that read what the model wrote: frames in, engine inputs out.

    the first event of a choice   PromptInput, once
    ids or text                   TokensInput
    a finish reason               FinishInput; but ErrorInput where it tells of a failure
    an error, an answer that is no success, something that is no JSON     ErrorInput
    [DONE], or End                UsageInput, if all choices seen so far have finished; else ErrorInput (``truncated``)
    ErrorInput, AbortInput        the same

Nothing follows the first of UsageInput, ErrorInput and AbortInput. Usage that is not told is counted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from stages.events import (
    AbortInput,
    Block,
    Body,
    End,
    ErrorInput,
    FinishInput,
    FinishReason,
    Frame,
    Head,
    Input,
    PromptInput,
    UsageInput,
)
from stages.opening import Opening
from stages.protocols.openai_chat import broken, ending
from stages.protocols.telling import TRUNCATED
from stages.stage import Machine
from stages.upstream.wire import DONE, as_input, payload, refusal

Wire: TypeAlias = Frame | End | ErrorInput | AbortInput
MOST: Final = 128
"""Choices of a response; one beyond them is passed over. What our stages serve has as many as were asked for."""


class ChoiceState(msgspec.Struct):
    """A choice so far. ``ids``: how many; ``text``: characters of its text; ``bare``: steps of text without ids;
    ``told``: how many tokens the upstream counts."""

    ids: int = 0
    text: int = 0
    bare: int = 0
    told: int = 0
    finished: bool = False


class InputsState(msgspec.Struct):
    """All that a machine knows; plain data. ``prompt``: its tokens, -1 before the PromptInput; ``usage``: as told for
    the whole response."""

    status: int = 200
    prompt: int = -1
    cached: int = 0
    choices: dict[int, ChoiceState] = {}
    usage: UsageInput | None = None
    over: bool = False


St = TypeVar("St", bound=InputsState)


class InputsMachine(Generic[St]):
    """The machine; a way's own says what an event of its streams means."""

    def __init__(self, opening: Opening, state: St) -> None:
        self._opening = opening
        self._state = state
        # Some servers have never heard of n: a client gets what they make, but our stages have choices to serve.
        upstream = opening.upstream
        self._parsed = upstream is not None and not upstream.relayed
        self._wanted, self._most = (opening.ask.n, opening.ask.n) if self._parsed else (1, MOST)

    def snapshot(self) -> St:
        """See Machine."""
        return copy.deepcopy(self._state)

    def step(self, event: Wire, out: list[Input]) -> None:
        """See Machine."""
        if self._state.over:
            return
        if isinstance(event, Block):
            data = payload(event.data)
            if data == DONE:
                self._end("The stream ended without a finish reason.", out)
            elif data is not None:
                self._event(data, False, out)
        else:
            self._rare(event, out)

    def _rare(self, event: Wire, out: list[Input]) -> None:
        state = self._state
        if isinstance(event, Head):
            state.status = event.status
        elif isinstance(event, Body):
            if 200 <= state.status < 300:
                self._event(event.data, True, out)
            else:
                self._fail(as_input(refusal(state.status, event.data)), out)
        elif isinstance(event, End):
            self._end("The stream broke off before its end.", out)
        elif isinstance(event, ErrorInput | AbortInput):
            state.over = True
            out.append(event)

    def _event(self, data: bytes, whole: bool, out: list[Input]) -> None:
        """What a JSON text means. ``whole``: it is the response, not one of its events."""
        raise NotImplementedError

    # --- what they make

    def _begin(self, ids: tuple[int, ...], count: int, cached: int, out: list[Input]) -> None:
        self._state.prompt, self._state.cached = count, cached
        out.append(PromptInput(ids, "", count, cached))
        # Of several prompts a server tells only how many tokens they have together.
        out += [PromptInput((), "", 0)] * (self._opening.ask.prompts - 1)

    def _choice(self, index: int) -> ChoiceState | None:
        """The choice, if anything of it counts any more."""
        choice = self._state.choices.get(index)
        if choice is None:
            if not 0 <= index < self._most:
                return None
            choice = self._state.choices[index] = ChoiceState()
        return None if choice.finished else choice

    def _finish(self, index: int, choice: ChoiceState, said: str, stop: str | int | None, out: list[Input]) -> bool:
        """A choice ended, for a reason as the protocols of OpenAI name it. False: it is a failure, and nothing more
        counts."""
        ended = ending(said, stop)
        if ended is None:
            self._fail(as_input(broken(said)), out)
            return False
        self._finished_with(index, choice, *ended, out)
        return True

    def _finish_matched(
        self, index: int, choice: ChoiceState, said: str, matched: str | int | None, out: list[Input]
    ) -> bool:
        """As ``_finish``, of a server that tells what matched for end tokens too."""
        ask, eos = self._opening.ask, self._opening.tokenizer.eos
        if isinstance(matched, int) and said == "stop" and (matched in eos or matched not in ask.stop_ids):
            self._finished_with(index, choice, "eos", matched, out)
            return True
        return self._finish(index, choice, said, matched, out)

    def _finished_with(
        self, index: int, choice: ChoiceState, reason: FinishReason, stop: str | int | None, out: list[Input]
    ) -> None:
        choice.finished = True
        out.append(FinishInput(index, reason, stop))

    def _fail(self, error: ErrorInput, out: list[Input]) -> None:
        self._state.over = True
        out.append(error)

    def _end(self, otherwise: str, out: list[Input]) -> None:
        state = self._state
        if len(state.choices) < self._wanted or not all(choice.finished for choice in state.choices.values()):
            failed = not 200 <= state.status < 300
            self._fail(
                as_input(refusal(state.status, b"")) if failed else ErrorInput("engine", otherwise, TRUNCATED), out
            )
            return
        state.over = True
        usage = state.usage
        if usage is None:
            # A step without ids is taken for a token.
            counts = [choice.told or choice.ids + choice.bare for choice in state.choices.values()]
            usage = UsageInput(max(state.prompt, 0), sum(counts), state.cached)
        out.append(usage)


class Inputs(Generic[St]):
    """A stage. ``state``: what a machine of it knows at first."""

    def __init__(self, name: str, machine: Callable[[Opening, St], InputsMachine[St]], state: type[St]) -> None:
        self.id = name
        self._machine = machine
        self._fresh = state

    def start(self, opening: Opening) -> Machine[Wire, Input]:
        """See Stage."""
        return self._machine(opening, self._fresh())

    def resume(self, opening: Opening, snapshot: St) -> Machine[Wire, Input]:
        """See Stage."""
        return self._machine(opening, copy.deepcopy(snapshot))
