"""Parsers that go wrong on purpose where the grouping of tokens, or the end of a session, tempts them to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from replay.derive import derive_layers
from replay.diff import Session
from replay.relayed import Judge
from replay.result import Finding
from replay.splitting import under_splits
from replay.upstream_diff import Told
from stages import catalog
from stages.events import Input, Semantic, TokensInput
from stages.opening import Opening
from stages.stage import Machine
from tests.support.replay import opening

Change = Callable[[TokensInput], TokensInput]
"""A step → what the parser sees of it."""


class Spoiled:
    """Hermes, that sees each step changed. ``steps``: how many inputs its machines got, over all of them."""

    def __init__(self, change: Change = lambda event: event, name: str = "spoiled@1") -> None:
        self.inner = catalog.parser("hermes")
        self.change = change
        self.id = name
        self.steps = 0

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return SpoiledMachine(self, self.inner.start(opening))

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return SpoiledMachine(self, self.inner.resume(opening, snapshot))


class SpoiledMachine:
    def __init__(self, stage: Spoiled, machine: Machine[Input, Semantic]) -> None:
        self.stage = stage
        self.machine = machine

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.stage.steps += 1
        self.machine.step(self.stage.change(event) if isinstance(event, TokensInput) else event, out)

    def snapshot(self) -> msgspec.Struct:
        return self.machine.snapshot()


def kept(event: TokensInput, keep: Iterable[int]) -> TokensInput:
    """The step with these tokens of it only."""
    places = list(keep)
    return TokensInput(
        event.choice, tuple(event.ids[at] for at in places), tuple(event.pieces[at] for at in places),
        "".join(event.pieces[at].decode("utf-8", "replace") for at in places),
    )  # fmt: skip


def found_under(
    parser: Any,
    inputs: list[Input],
    *splits: str,
    judge: Judge = lambda track: Told("same"),
    opened: Opening | None = None,
) -> Finding:
    """What replaying these inputs under the splits shows; what is recorded is not looked at."""
    session = session_of(parser, inputs, opened)
    found = Finding()
    derived = derive_layers(session.opening, inputs, session.layers, depth="message")
    assert derived.failed is None
    under_splits(splits, found, session, (), derived, judge)
    return found


def session_of(parser: Any, inputs: list[Input], opened: Opening | None = None) -> Session:
    """A session that this parser is to replay."""
    opened = opening() if opened is None else opened
    return Session(opened, inputs, catalog.layers(opened, parser), False, len(inputs))
