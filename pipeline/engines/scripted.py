"""ScriptedEngine: plays given steps. No model, no thread: an engine for tests, benchmarks and trying things out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import anyio
import anyio.lowlevel
import msgspec

from pipeline.engines.base import DEAD, FAILED, SHUTDOWN, Conversation, EngineRequest, Watch, refusal
from pipeline.engines.prompt import check_length
from pipeline.engines.scripted_prompts import admission, logprob, prompts_of
from pipeline.engines.scripts import Compiled, Scripts, canned, compiled, read_scripts
from pipeline.engines.toy import CHATML, ToyTokenizer, rendered
from stages.errors import RequestError
from stages.events import (
    ErrorInput,
    FinishInput,
    Input,
    PromptInput,
    TokensInput,
    UsageInput,
)
from stages.opening import EngineFacts, TokenizerFacts

logger = logging.getLogger("playhead.engine")

BATCH = 256
"""Inputs that one receive hands over at most (an engine step is not divided)."""


class ScriptedEngine:
    """An Engine that plays scripts.

    ``pace``: seconds between steps; 0: as fast as they are read. ``awaited``: one step a receive, as of an engine that
    is never ahead. ``context``: its length in tokens. ``template``: what it says its chat template is. ``prompt``: how
    a conversation becomes text.
    It honours n, several prompts, echo, max_tokens, stop_token_ids, ignore_eos, forced ids and text, logprobs (made up,
    the same every time) and watch.
    """

    def __init__(
        self,
        scripts: Scripts = canned,
        *,
        pace: float = 0.0,
        awaited: bool = False,
        context: int = 1 << 20,
        model: str = "scripted",
        tokenizer: ToyTokenizer | None = None,
        template: str | None = CHATML,
        prompt: Callable[[Any], str] = rendered,
    ) -> None:
        self.toy = tokenizer or ToyTokenizer()
        self.pace = pace
        self.awaited = awaited
        self.context = context
        self.prompt = prompt
        self._scripts = scripts if callable(scripts) else [compiled(script, self.toy) for script in scripts]
        self._turn = 0
        self._template = template
        self._tokenizer = self.toy.facts(template)
        self._facts = EngineFacts(kind="scripted", model=model, fingerprint="fp_scripted", max_tokens=context)
        self._streams: set[ScriptedStream] = set()
        self._alive = False
        self.steps = 0

    @classmethod
    def from_config(cls, script: str | Path | None = None, *, pace: float = 0.0) -> Self:
        """An engine that plays a script file, or the default script. Raises EngineLoadError."""
        return cls(pace=pace) if script is None else cls(read_scripts(script), pace=pace)

    @property
    def facts(self) -> EngineFacts:
        """See Engine."""
        return self._facts

    @property
    def tokenizer(self) -> TokenizerFacts:
        """See Engine."""
        return self._tokenizer

    @property
    def template(self) -> str | None:
        """See Engine."""
        return self._template

    @property
    def alive(self) -> bool:
        """See Engine."""
        return self._alive

    @property
    def live(self) -> int:
        """Requests that are neither read to their end nor aborted."""
        return len(self._streams)

    def submit(self, request: EngineRequest) -> ScriptedStream:
        """See Engine."""
        stream = ScriptedStream(self, request, self._turn, self._streams.discard)
        self._turn += request.n
        if self._alive:
            self._streams.add(stream)
        else:
            stream.end(DEAD)
        return stream

    async def count(self, conversation: Conversation) -> int:
        """See Engine."""
        return len(self.toy.encode(self.prompt(conversation)))

    def die(self) -> None:
        """Testing: the engine is dead from now on, and everything that runs fails."""
        self._end(DEAD)

    def _end(self, error: ErrorInput) -> None:
        self._alive = False
        for stream in tuple(self._streams):
            stream.end(error)

    def scripts_of(self, request: EngineRequest, turn: int) -> list[Compiled]:
        """What the request's choices play, in turn. ``turn``: choices of the requests before it."""
        sampling = request.sampling
        if sampling.forced_text is not None:
            return [compiled([([token], [piece]) for token, piece in self.toy.encode(sampling.forced_text)], self.toy)]
        if sampling.forced_ids:
            return [compiled([([token], [self.toy.piece(token)]) for token in sampling.forced_ids], self.toy)]
        if callable(self._scripts):
            return [compiled(script, self.toy) for script in self._scripts(request)]
        return [self._scripts[(turn + choice) % len(self._scripts)] for choice in range(request.n)]

    async def __aenter__(self) -> Self:
        self._alive = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._end(SHUTDOWN)


class ScriptedStream:
    """An EngineStream that makes its inputs when they are asked for: nothing waits unread."""

    def __init__(
        self, engine: ScriptedEngine, request: EngineRequest, turn: int, on_over: Callable[[ScriptedStream], object]
    ) -> None:
        self._engine = engine
        self._session = request.session
        self._steps = _play(engine, request, turn)
        self._on_over = on_over
        self._over = anyio.Event()  # nothing more is made: read to the end, aborted, or ended by the engine
        self._last: ErrorInput | None = None
        self._begun: float | None = None
        self._taken = 0

    async def receive(self) -> list[Input]:
        """See EngineStream."""
        if self._engine.pace and not self._over.is_set():
            await self._due()
        else:
            await anyio.lowlevel.checkpoint()
        taken: list[Input] = []
        if not self._over.is_set():
            self._take(taken)
            if not taken:
                await self._over.wait()
        if self._last is not None:
            taken.append(self._last)
            self._last = None
        if not taken:
            raise anyio.EndOfStream
        return taken

    async def _due(self) -> None:
        if self._begun is None:
            self._begun = anyio.current_time()
        with anyio.move_on_after(self._begun + self._taken * self._engine.pace - anyio.current_time()):
            await self._over.wait()

    def _take(self, taken: list[Input]) -> None:
        """Make the next step, and those after it that are due too."""
        engine = self._engine
        limit = BATCH
        if engine.awaited:
            limit = 1
        elif engine.pace and self._begun is not None:
            limit = max(1, min(BATCH, int((anyio.current_time() - self._begun) / engine.pace) + 1 - self._taken))
        steps = 0
        try:
            for made in self._steps:
                taken += made
                steps += 1
                if steps >= limit or len(taken) >= BATCH:
                    break
        except RequestError as error:
            taken.append(refusal(error))
        except Exception:  # a script's own exception is any: it fails this request alone
            logger.exception("session %s: the engine failed on it; the others go on", self._session)
            taken.append(FAILED)
        self._taken += steps
        engine.steps += steps
        if taken and type(taken[-1]) in (UsageInput, ErrorInput):
            self._close()

    def end(self, error: ErrorInput) -> None:
        """The engine's side: this error is the next input, and the last."""
        if not self._over.is_set():
            self._last = error
            self._close()

    def abort(self) -> None:
        """See EngineStream."""
        self._last = None
        self._close()

    def _close(self) -> None:
        self._steps.close()
        self._over.set()
        self._on_over(self)


# --- playing --------------------------------------------------------------------------------------------------------


def _play(engine: ScriptedEngine, request: EngineRequest, turn: int) -> Generator[list[Input]]:
    """The session's inputs, an engine step at a time. Raises what a script fails with."""
    scripts = engine.scripts_of(request, turn)
    if scripts and scripts[0] and isinstance(scripts[0][0], PromptInput | ErrorInput):
        yield from _verbatim(scripts[0])
        return
    opened = prompts_of(request, engine.toy, engine.prompt, engine.context)
    if scripts and scripts[0] and isinstance(scripts[0][0], RequestError):
        raise scripts[0][0].with_traceback(None)
    if request.conversation is not None:
        check_length(len(opened[0][0].ids), engine.context, request.conversation.field)
    made = admission(request, engine.toy, opened)
    _watched(request.watch, made)
    yield made
    playing = [
        _Choice(engine, request, index, scripts[index % len(scripts)], len(prompt.ids))
        for prompt, choices in opened
        for index in choices
    ]
    choices = list(playing)
    while choices:
        for choice in tuple(choices):
            made = choice.step()
            last = type(made[-1])
            if last is FinishInput:
                choices.remove(choice)
            yield made
            if last is ErrorInput or last is UsageInput:
                return
    yield [UsageInput(sum(len(prompt.ids) for prompt, _ in opened), sum(choice.count for choice in playing))]


def _verbatim(script: Compiled) -> Generator[list[Input]]:
    for step in script:
        if isinstance(step, Exception):
            raise step.with_traceback(None)  # the same one every time it is played
        yield [step]


def _watched(watch: Watch | None, inputs: Sequence[Input]) -> str | None:
    if watch is None:
        return None
    found: str | None = None
    for event in inputs:
        found = watch(event) or found
    return found


class _Choice:
    """One choice that is being played."""

    def __init__(
        self, engine: ScriptedEngine, request: EngineRequest, index: int, script: Compiled, prompt: int
    ) -> None:
        sampling = request.sampling
        self._toy = engine.toy
        self._watch = request.watch
        self._logprobs = request.logprobs
        self._index = index
        self._script = iter(script)
        self._room = engine.context - prompt
        self._limit = sampling.max_tokens
        self._ends: dict[int, Literal["eos", "stop_token"]] = dict.fromkeys(sampling.stop_token_ids, "stop_token")
        if not sampling.ignore_eos:
            self._ends[self._toy.eos] = "eos"
        self.count = 0

    def step(self) -> list[Input]:
        """The inputs of the next step. Raises what the script fails with."""
        if self._limit == 0:
            ending = FinishInput(self._index, "length")
            _watched(self._watch, [ending])
            return [ending]
        step = next(self._script, None)
        if step is None:
            if self._toy.eos in self._ends:
                step = TokensInput(0, (self._toy.eos,), (self._toy.piece(self._toy.eos),), "")
            else:
                step = FinishInput(0, "length")  # end tokens are ignored, and there is nothing else to say
        if type(step) is TokensInput:
            return self._tokens(step)
        if isinstance(step, Exception):
            raise step.with_traceback(None)  # the same one every time it is played
        if type(step) is FinishInput:
            step = msgspec.structs.replace(step, choice=self._index)
        _watched(self._watch, [step])
        return [step]

    def _tokens(self, step: TokensInput) -> list[Input]:
        size, ending = self._cut(step.ids)
        if size < len(step.ids):
            pieces = step.pieces[:size]
            step = TokensInput(0, step.ids[:size], pieces, b"".join(pieces).decode("utf-8", "replace"))
        self.count += size
        made: list[Input] = [self._own(step)]
        if ending is not None:
            made.append(ending)
        if self._watch is not None:
            stop = self._watch(made[0])
            if stop is not None:
                made[1:] = [FinishInput(self._index, "stop", stop)]
            _watched(self._watch, made[1:])
        return made

    def _cut(self, ids: Sequence[int]) -> tuple[int, FinishInput | None]:
        """How many of these tokens are generated, and what ends the choice with them."""
        count = self.count
        ends = self._ends
        for at, token in enumerate(ids, 1):
            if token in ends:
                return at, FinishInput(self._index, ends[token], token)
            if count + at == self._limit:
                return at, FinishInput(self._index, "length")
            if count + at >= self._room:
                return at, FinishInput(self._index, "context")
        return len(ids), None

    def _own(self, step: TokensInput) -> TokensInput:
        """The step as this choice's, with the logprobs that were asked for."""
        if self._logprobs is not None and not step.logprobs:
            logprobs = tuple(map(partial(logprob, self._toy, self._logprobs), step.ids, step.pieces))
            return msgspec.structs.replace(step, choice=self._index, logprobs=logprobs)
        return step if step.choice == self._index else msgspec.structs.replace(step, choice=self._index)
