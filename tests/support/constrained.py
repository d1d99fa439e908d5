"""A toy vocabulary, and outputs that a grammar allows, chosen at random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.engines.constrained import Grammars, Held
from stages.constraint import Constraint
from stages.events import TokensInput
from stages.opening import TokenizerFacts
from stages.parse.format import Format
from stages.parse.spellings.pairs import Pairs

END = "<end of turn>"
PREFIXES = ("｜DSML｜", "｜GCML｜", "]<]minimax[>[")
"""Of each tag that has one of these, only that is a token."""
WORDS = (b'{"', b'": ', b'", "', b'"}', b"}}", b"\n{", b"</", b"name", b"arguments", b"> ", b"<tool_", b"call>\n")


class Vocabulary:
    """256 bytes, some words, and special tokens; the last one ends the output. ``words``: further ones, that are likely
    where they may come."""

    def __init__(self, special: Iterable[str] = (), words: Iterable[str] = ()) -> None:
        more = [word.encode() for word in dict.fromkeys(words) if word]
        ordinary = [*(bytes([byte]) for byte in range(256)), *WORDS, *more]
        markers = [*dict.fromkeys((*special, END))]
        self.pieces = [*ordinary, *(marker.encode() for marker in markers), b"", b""]
        ids = {marker: len(ordinary) + index for index, marker in enumerate(markers)}
        self.end = ids[END]
        self.special = frozenset(ids.values())
        self.likely = {ord('"'), *self.special, *(self.pieces.index(word, 256) for word in more)}
        self.facts = TokenizerFacts(special=ids, eos=(self.end,))
        self.grammars = Grammars(self.pieces, self.facts)

    def held(self, constraint: Constraint, tail: str = "") -> Held:
        """One choice behind a prompt."""
        return self.grammars.compiled(constraint.after(tail))()

    def allowed(self, held: Held) -> list[int]:
        """The ids that may come next."""
        mask = held.mask()
        return [number for number in range(len(self.pieces)) if mask[number >> 3] >> (number & 7) & 1]

    def ids(self, text: str) -> list[int]:
        """A text in special tokens and bytes."""
        ids: list[int] = []
        while text:
            marker = next((marker for marker in self.facts.special if text.startswith(marker)), None)
            piece = text[:1] if marker is None else marker
            ids += piece.encode() if marker is None else [self.facts.special[piece]]
            text = text[len(piece) :]
        return ids

    def takes(self, held: Held, text: str) -> bool:
        """The text is allowed, and complete: the end is."""
        for number in self.ids(text):
            if number not in self.allowed(held):
                return False
            held.take(number)
        return self.end in self.allowed(held)

    def written(self, held: Held, seed: int, most: int = 4000) -> list[TokensInput]:
        """A random output. Quotes, markers and the end are likelier than their share, so that it comes to one."""
        dice = random.Random(seed)
        steps: list[TokensInput] = []
        while len(steps) < most:
            allowed = self.allowed(held)
            likely = [number for number in allowed if number in self.likely]
            token = dice.choice(likely if likely and dice.random() < 0.3 else allowed)
            special = [number for number in likely if number in self.special and number != self.end]
            if special and dice.random() < 0.1:
                token = dice.choice(special)
            token = self.end if self.end in allowed and dice.random() < 0.1 else token
            steps.append(TokensInput(0, (token,), (self.pieces[token],), ""))
            if token == self.end:
                return steps
            held.take(token)
        raise AssertionError(f"no end after {most} tokens: {text_of(steps)[-300:]!r}")


def text_of(steps: Sequence[TokensInput]) -> str:
    """What the steps say."""
    return b"".join(piece for step in steps for piece in step.pieces).decode("utf-8", "replace")


def ends(form: Format) -> list[str]:
    """What ends bare names and values: without them in mind, chance goes on for long."""
    found = [spelling.arguments for spelling in form.spellings]
    pairs = [each for each in found if isinstance(each, Pairs)]
    closers = () if form.reasoning is None or not pairs else form.reasoning.closers
    return [*closers, *(end for each in pairs for end in (*each.bare.until, each.middle, *each.kinds.values()))]


def writable(form: Format, values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each string as the format can write it: to some, white space at its ends is none of it."""
    pairs = form.spellings[0].arguments
    if not isinstance(pairs, Pairs):
        return values
    return {
        name: {
            key: value.strip() if isinstance(value, str) and not pairs.bare.holds(value) else value
            for key, value in each.items()
        }
        for name, each in values.items()
    }


def markers(form: Format) -> list[str]:
    """The literals that are special tokens in a model's vocabulary."""
    found = [*(form.calls.all() if form.calls else ()), *(form.reasoning.literals() if form.reasoning else ())]
    found += [*form.channels.literals()] if form.channels else []
    found += [spelling.token for spelling in form.spellings if spelling.token]
    found = [next((word for word in PREFIXES if word in marker), marker) for marker in found]
    return [marker for marker in dict.fromkeys(found) if marker[0] in "<[]｜" and len(marker) > 2]


def vocabulary(form: Format, ids: bool) -> Vocabulary:
    """``ids``: the format's literals are special tokens; else they are letters, words where a message ends only with
    them."""
    words = [*ends(form), *(() if ids or form.channels is None else markers(form))]
    return Vocabulary(markers(form) if ids else (), words)
