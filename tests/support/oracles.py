"""What the oracle tests share: vendors' packages, messages, and the round trip.

A vendor's own code writes a generated message. The ids that it writes, with the bytes that its vocabulary has for each,
go through our parser in steps of every kind and under both call policies. What comes back is the message, after its
documented losses (``oracle_losses.py``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

from stages.events import CallStart, TokensInput
from stages.opening import TokenizerFacts, Tool
from tests.support.format_checks import POLICIES, same_value
from tests.support.generate.message import Limits, Meant, draw
from tests.support.oracle_losses import told
from tests.support.parse import (
    Collected,
    check_partition,
    check_stream,
    grouped,
    merged,
    message,
    opening,
    semantic,
    session,
)

Tokens = list[tuple[int, bytes]]


# --- packages --------------------------------------------------------------------------------------------------------


def vendor(module: str) -> Any:
    """A vendor's module. Absent, the tests fail and say what to do: they are not skipped."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise AssertionError(f"{error}. The oracles come with `make install` (the extra `oracles`).") from error


def packaged(package: str, path: str) -> Path:
    """A file of an installed package, which need not be importable."""
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError as error:
        raise AssertionError(f"no package {error}. The oracles come with `make install`.") from error
    assert found.is_file(), f"{package} has no {path}"
    return found


# --- messages --------------------------------------------------------------------------------------------------------


def drawn(name: str, seed: int, limits: Limits, markers: tuple[str, ...], *, thinks: bool) -> tuple[Meant, Any]:
    """A seeded message whose texts now and then begin or end in white space, as those of models do, and its dice."""
    dice = random.Random(f"{name} {seed}")
    meant = draw(dice, limits, markers, thinks=thinks)

    def frayed(text: str) -> str:
        lead, trail = (dice.choice(("", "", "", "", "", " ", "\n", "\n\n", " \n")) for _ in range(2))
        return lead + text + trail

    return told(meant, frayed, frayed), dice


# --- the round trip --------------------------------------------------------------------------------------------------


SPLITS = ("token", "one", "rand:1", "rand:2")


@dataclass(frozen=True)
class Output:
    """What a vendor's code writes for a message: the ids of one turn with their bytes, and the prompt's end."""

    parser: str
    facts: TokenizerFacts
    tokens: Tokens
    tail: str
    tools: tuple[Tool, ...] = ()

    def grouped(self, split: str) -> list[TokensInput]:
        """The tokens as steps: one token each, all in one, or ``rand:SEED``."""
        if split in ("token", "one"):
            return grouped(self.tokens, [1 if split == "token" else len(self.tokens)] * len(self.tokens))
        dice = random.Random(split)
        return grouped(self.tokens, [dice.randint(1, 9) for _ in self.tokens])

    def ids(self) -> list[str]:
        """The ids of our calls."""
        opened = opening(self.parser, tokenizer=self.facts, tools=self.tools)
        events = semantic(opened, session(self.grouped("token"), tail=self.tail))
        return [event.id for event in events if isinstance(event, CallStart)]

    def read(self, calls: Literal["incremental", "whole"], splits: tuple[str, ...] = SPLITS) -> Collected:
        """Our reading; the same under every split, and every byte owned once."""
        opened = opening(self.parser, calls=calls, tokenizer=self.facts, tools=self.tools)
        first: Any = None
        events: Any = []
        for split in splits:
            inputs = session(self.grouped(split), tail=self.tail)
            events = semantic(opened, inputs)
            check_stream(events)
            check_partition(inputs, events)
            joined = merged(events)
            assert first is None or joined == first, f"{split} differs"
            first = joined
        return message(events)


def check_output(output: Output, meant: Meant) -> None:
    """Our reading of the vendor's writing is ``meant``, under both policies, without a fault."""
    shown = b"".join(piece for _, piece in output.tokens).decode("utf-8", "replace")
    for calls in POLICIES:
        got = output.read(calls)
        try:
            check_message(got, meant)
        except AssertionError as error:
            raise AssertionError(f"{output.parser}, {calls}: {error}\n{shown!r}") from error


def check_message(got: Collected, meant: Meant) -> None:
    """The message says what was meant; all calls complete; no fault."""
    for mine, theirs in ((got.reasoning, meant.reasoning), (got.content, meant.content)):
        assert mine == theirs, f"{mine!r} is not {theirs!r}"
    assert [call.name for call in got.calls] == [call.name for call in meant.calls]
    for call, was in zip(got.calls, meant.calls, strict=True):
        assert call.complete, f"{call} is not complete"
        assert same_value(call.value(), was.arguments), f"{call.arguments!r} is not {was.arguments!r}"
    assert not got.faults, got.faults
    assert got.finish == "eos"
