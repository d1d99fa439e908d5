"""Recorded sessions for the tests of replay, made of the real stages, and ways to spoil a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from replay.derive import Derived, Track, derive
from replay.resolve import Parser
from stages import catalog
from stages.catalog import Layers
from stages.events import (
    AbortInput,
    FinishInput,
    Input,
    Layer,
    PromptInput,
    Semantic,
    Tick,
    TokenLogprob,
    Tokens,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.opening import Ask, Opening, TokenizerFacts, Tool
from stages.stage import Machine, Stage
from store import codec
from store.api import Digest, Mode, Record, SessionInfo, State, Trace

TOOLS = (
    Tool("tide", "High tide at a port", {"type": "object", "properties": {"port": {"type": "string"}}}),
    Tool("moon", "Phase of the moon"),
)
ADDED = {"<tool_call>": 300, "</tool_call>": 301, "<think>": 302, "</think>": 303}
SPECIAL = {"<|im_start|>": 310, "<|im_end|>": 311}
VOCABULARY = TokenizerFacts(special=SPECIAL, added=ADDED, eos=(311,))

THINKING = "<think>\nWhich port? Brest … 潮汐 🌊.\n</think>\n\n"
CALLS = (
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest … 潮汐"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>'
)
SAID = THINKING + "Let me look that up, été 🌙.\n" + CALLS
"""Reasoning, content, two calls; characters of one to four bytes."""


def opening(
    session: str = "a" * 32, *, parser: str = "hermes", tokenizer: TokenizerFacts = VOCABULARY, **ask: Any
) -> Opening:
    """An opening with two tools, streaming unless told otherwise."""
    wanted: dict[str, Any] = {"stream": True, "tools": TOOLS, **ask}
    made = Opening(
        session=session, key="k" * 32, response_id="chatcmpl-1", created=1760000000, opened=1760000000 * 10**9,
        model="demo-1", ask=Ask(**wanted), parser=parser, tokenizer=tokenizer,
        request=b'{"stream": true}' if wanted["stream"] else b"{}",
    )  # fmt: skip
    return msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))


def tokens(text: str, choice: int = 0, *, size: int = 3, logprobs: bool = False) -> list[Input]:
    """One token a step: markers by their ids, the rest in pieces of ``size`` bytes, which cut characters."""
    made: list[Input] = []
    known = {**ADDED, **SPECIAL}
    while text:
        marker = next((marker for marker in known if text.startswith(marker)), None)
        if marker is not None:
            made.append(_token(choice, known[marker], marker.encode(), logprobs))
            text = text[len(marker) :]
            continue
        end = min((place for marker in known if (place := text.find(marker)) >= 0), default=len(text))
        data = text[:end].encode()
        made += [_token(choice, 1000 + at, data[at : at + size], logprobs) for at in range(0, len(data), size)]
        text = text[end:]
    return made


def _token(choice: int, id: int, piece: bytes, logprobs: bool) -> TokensInput:
    entries = (TokenLogprob(id, piece, -0.5, (TopLogprob(id, piece, -0.5),)),) if logprobs else ()
    return TokensInput(choice, (id,), (piece,), piece.decode("utf-8", "replace"), entries)


def text_steps(text: str, size: int = 4) -> list[Input]:
    """Steps of an engine that releases text only."""
    return [TokensInput(0, (), (), text[at : at + size]) for at in range(0, len(text), size)]


def whole(*choices: Sequence[Input]) -> list[Input]:
    """A session whose choices take turns and end by themselves."""
    made: list[Input] = [PromptInput((1, 2, 3), "<|im_start|>assistant\n", 3)]
    longest = max(len(choice) for choice in choices)
    made += [choice[at] for at in range(longest) for choice in choices if at < len(choice)]
    made += [FinishInput(number, "eos", 311) for number in range(len(choices))]
    return [*made, UsageInput(3, sum(len(choice) for choice in choices))]


def aborted(inputs: Sequence[Input], at: int) -> list[Input]:
    """The client leaves before the input ``at``; a keep-alive tick came first."""
    return [*inputs[:at], Tick(), AbortInput("client")]


def record(
    opened: Opening,
    inputs: Sequence[Input],
    *,
    state: State = "closed",
    mode: Mode = "full",
    assemble: Callable[[Opening, Parser | None], Layers] = catalog.layers,
) -> Trace:
    """The session as a store gives it back."""
    derived = derive(opened, inputs, assemble=assemble)
    return recorded(opened, inputs, derived, state=state, mode=mode)


def recorded(
    opened: Opening, inputs: Sequence[Input], derived: Derived, *, state: State = "closed", mode: Mode = "full"
) -> Trace:
    """A session whose derived layers are these."""
    records: dict[tuple[str, Layer], list[Record]] = {
        ("input", "engine"): [Record(seq, -1, seq * 1000, event) for seq, event in enumerate(inputs)]
    }
    digests: dict[str, Digest] = {}
    layers: tuple[Layer, ...] = ("semantic", "chunk", "frame")
    for layer in layers:
        track = derived.track(layer)
        if mode == "lean":
            if track.events:
                digests[f"served/{layer}"] = codec.digest(track.events)
        else:
            rows = zip(track.events, track.causes, strict=True)
            records["served", layer] = [Record(seq, cause, 0, event) for seq, (event, cause) in enumerate(rows)]
    info = SessionInfo(
        session=opened.session, opened=opened.opened, state=state, mode=mode, model=opened.model, parser=opened.parser,
        stages=opened.stages, digests=digests,
    )  # fmt: skip
    return Trace(opening=opened, info=info, records=records)


def tampered(trace: Trace, layer: Layer, seq: int, **fields: Any) -> Trace:
    """The same session with one field of one recorded event changed, or with ``cause`` changed."""
    key = ("served", layer)
    rows = list(trace.records[key])
    cause = fields.pop("cause", rows[seq].cause)
    event = msgspec.structs.replace(rows[seq].event, **fields)
    rows[seq] = msgspec.structs.replace(rows[seq], event=event, cause=cause)
    return Trace(opening=trace.opening, info=trace.info, records={**trace.records, key: rows})


def cut(trace: Trace, layer: Layer, keep: int) -> Trace:
    """The same session with only the first ``keep`` records of a derived layer."""
    key = ("served", layer)
    return Trace(opening=trace.opening, info=trace.info, records={**trace.records, key: trace.records[key][:keep]})


Change = Callable[[Any], Iterable[Any]]
"""An event that a stage emits → what it emits instead."""
Picks = Callable[[Any], bool]
"""Which events."""


class Mutant:
    """A stage that goes wrong: each of its events passes through ``change``, which is made afresh for each session."""

    def __init__(self, stage: Stage[Any, Any], make: Callable[[], Change], name: str = "mutant@1") -> None:
        self.stage = stage
        self.make = make
        self.id = name

    def start(self, opening: Opening) -> Machine[Any, Any]:
        return _Spoiled(self.stage.start(opening), self.make())

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Any, Any]:
        return _Spoiled(self.stage.resume(opening, snapshot), self.make())


class _Spoiled:
    def __init__(self, machine: Machine[Any, Any], change: Change) -> None:
        self.machine = machine
        self.change = change

    def step(self, event: Any, out: list[Any]) -> None:
        made: list[Any] = []
        self.machine.step(event, made)
        for item in made:
            out.extend(self.change(item))

    def snapshot(self) -> msgspec.Struct:
        return self.machine.snapshot()


def only(kind: type) -> Picks:
    return lambda event: isinstance(event, kind)


def nth(picks: Picks, number: int, change: Change) -> Callable[[], Change]:
    """Spoils the n-th event that is picked."""

    def make() -> Change:
        seen = -1

        def apply(event: Any) -> Iterable[Any]:
            nonlocal seen
            if not picks(event):
                return [event]
            seen += 1
            return change(event) if seen == number else [event]

        return apply

    return make


def every(picks: Picks, change: Change) -> Callable[[], Change]:
    return lambda: lambda event: change(event) if picks(event) else [event]


def last(picks: Picks) -> Callable[[], Change]:
    """Loses the last event that is picked: each is held until the next one comes."""

    def make() -> Change:
        held: list[Any] = []

        def apply(event: Any) -> Iterable[Any]:
            if not picks(event):
                # What comes after the picked ones tells that the held one was the last.
                return [event]
            out = list(held)
            held[:] = [event]
            return out

        return apply

    return make


def late(picks: Picks) -> Callable[[], Change]:
    """Each picked event comes with the next event of any kind."""

    def make() -> Change:
        held: list[Any] = []

        def apply(event: Any) -> Iterable[Any]:
            out = [event, *held] if isinstance(event, Tokens) else [*held, event]
            held.clear()
            if picks(event):
                out.remove(event)
                held.append(event)
            return out

        return apply

    return make


def twice(event: Any) -> Iterable[Any]:
    return [event, event]


def lost(event: Any) -> Iterable[Any]:
    return []


def one_character(event: Any) -> Iterable[Any]:
    return [msgspec.structs.replace(event, text="#" + event.text[1:])]


def spoiled(layer: Layer, make: Callable[[], Change]) -> Callable[[Opening, Parser | None], Layers]:
    """The stages that serve, with the one of a layer gone wrong."""

    def assemble(opened: Opening, parser: Parser | None = None) -> Layers:
        layers = catalog.layers(opened, parser)
        return Layers(
            Mutant(layers.semantic, make) if layer == "semantic" else layers.semantic,
            Mutant(layers.encoder, make) if layer == "chunk" else layers.encoder,
            Mutant(layers.framer, make) if layer == "frame" else layers.framer,
            layers.parts,
        )

    return assemble


class Raising:
    """A parser that passes on what Hermes gives, then raises at the n-th step; at 0 it does not start."""

    id = "raising@1"

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        self.at = at
        self.error = error or RuntimeError("no such state")

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        if self.at == 0:
            raise self.error
        return _Raises(catalog.parser("hermes").start(opening), self.at, self.error)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return self.start(opening)


class _Raises:
    def __init__(self, machine: Machine[Input, Semantic], at: int, error: BaseException) -> None:
        self.machine = machine
        self.left = at
        self.error = error

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.left -= 1
        self.machine.step(event, out)
        if self.left == 0:
            raise self.error

    def snapshot(self) -> msgspec.Struct:
        return self.machine.snapshot()


def track(*events: tuple[int, Any]) -> Track:
    """Events with the step that each came from."""
    steps = [step for step, _ in events]
    return Track([event for _, event in events], steps, steps)
