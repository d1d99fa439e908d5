r"""What a generator is: one ``Family`` for each grammar (and vocabulary) that is to be put under every test.

To add one, write ``tests/support/generate/NAME.py`` with ``FAMILIES: tuple[Family, ...]``, and name the module in
``__init__.py``. ``hermes.py`` is the one to copy. Then

    python -m tests.support.format_checks NAME 200                # all checks, 200 seeds
    FORMATS=NAME python -m pytest tests/parse/test_formats_*.py  # what CI runs of it

Worked examples of a format: ``tests/data/formats/FORMAT.jsonl`` (the fields: ``tests/support/format_cases.py``).

``write(meant, dice, kind)`` returns the text of a whole output that means ``meant``, as the official template or
renderer writes it, with the variations that the grammar allows drawn from ``dice`` (and from nothing else). ``kind``
names the prompt's tail, a key of ``tails``:

* ``plain``: nothing is open. ``meant.reasoning`` is a text or None; where it is a text, write the opener, too.
* ``thinking``: the prompt opened reasoning: begin with the reasoning text and write the closer. ``meant.reasoning`` may
  be None: then write only the closer (or what the family's models do).
* ``off``: reasoning is switched off or already closed in the prompt: ``meant.reasoning`` is None.
* any other key a family wants; reasoning is drawn unless the key is ``off`` or ``limits.reasoning`` is false.

Texts of ``meant`` neither begin nor end in white space (final newlines excepted, see ``Limits``), so the newlines that
surround markers are all yours. Between two parts nothing stands but what you write.

Special tokens. Where ``tokenizer.special`` has a marker, your output's marker is that token. The same letters inside a
value or in prose are ordinary tokens, and the harness sees to it: the strings that ``write`` gets have the invisible
``BREAK`` inside such letters. Write them through as they are; the harness takes ``BREAK`` out when it cuts the output
into tokens (also where ``json.dumps`` or ``repr`` made ``\uf8ff`` of it). Such a message is not put through the
text-only splits, because there is no telling them apart there. Markers in ``tokenizer.added`` are tokens or letters,
by chance: that must make no difference. So what a value may not hold at all (an unescaped closer that is not special)
belongs into ``limits.strings_never``, and what prose may not hold into ``limits.prose_never``.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from stages.opening import TokenizerFacts
from stages.parse.format import Format
from tests.support.generate.message import Limits, Meant, Value, draw, mapped_message

BREAK = "\uf8ff"
"""Inside the letters of a marker: they are spelled, not the token. Private use: no message is drawn with it."""
_BREAKS = re.compile(r"\uf8ff|\\+uf8ff")


def same(meant: Meant, kind: str) -> Meant:
    """The default of ``Family.expect``: nothing is lost."""
    del kind
    return meant


@dataclass(frozen=True)
class Family:
    """A grammar's generator. See the module for ``write`` and for how special tokens are told from letters."""

    format: Format
    tokenizer: TokenizerFacts
    """As the real vocabulary has it: which markers are special, which only added, which ids end a turn."""
    write: Callable[[Meant, random.Random, str], str]
    tails: dict[str, str]
    """Ends of the prompt by kind; see the module."""
    markers: tuple[str, ...]
    """The grammar's literals, longest first or not. They are where the ``marker`` split cuts, what strings of the
    arguments hold now and then, what is deleted and doubled in broken output, and the only text (whole or begun) that
    may turn up at the end of an output that was cut."""
    limits: Limits = field(default_factory=Limits)
    expect: Callable[[Meant, str], Meant] = same
    """What the parser gives for ``meant`` written as ``kind``, where that is not ``meant`` itself: the family's
    documented losses. Say each in its docstring."""
    variant: str = ""
    """Tells families of one format apart (another vocabulary, another template): ``hermes/text``."""
    streams: bool = True
    """Under ``incremental`` a call's name is sent when its terminator is there, and a string of the arguments (typed
    string by its schema) as it comes, not when it is whole."""
    tail: int = 64
    """How many characters may at most be undecided where an output is cut (they then come out as text)."""

    @property
    def name(self) -> str:
        """The catalog name, and the variant."""
        return f"{self.format.name}/{self.variant}" if self.variant else self.format.name

    def draw(self, dice: random.Random, kind: str) -> Meant:
        """A message that this family can write as ``kind``."""
        return draw(dice, self.limits, self.markers, thinks=kind != "off")

    def output(self, meant: Meant, dice: random.Random, kind: str) -> str:
        """The output for ``meant``, with BREAK where letters are not a token."""
        specials = tuple(self.tokenizer.special)
        if dice.random() < 0.3:
            specials += tuple(self.tokenizer.added)
        return self.write(spelled(meant, specials), dice, kind)


def spelled(meant: Meant, literals: tuple[str, ...]) -> Meant:
    """``meant`` with BREAK inside every one of ``literals`` in it."""
    known = sorted((text for text in literals if len(text) > 1), key=len, reverse=True)
    if not known:
        return meant
    pattern = re.compile("|".join(map(re.escape, known)))

    def broken(text: str) -> str:
        return pattern.sub(lambda match: match.group()[:1] + BREAK + match.group()[1:], text)

    return mapped_message(meant, broken)


def plain(raw: str) -> str:
    """The output as text: without BREAK."""
    return _BREAKS.sub("", raw)


def tokenize(raw: str, tokenizer: TokenizerFacts, dice: random.Random | int = 4) -> list[tuple[int, bytes]]:
    """(id, piece) pairs of an output: special and added tokens by id, the rest in pieces of ``dice`` characters (an
    int), or of 1 to 9 at random."""
    ids = {**tokenizer.special, **tokenizer.added}
    known = sorted(ids, key=len, reverse=True)
    pattern = re.compile(f"({'|'.join(map(re.escape, known))})") if known else re.compile("(?!)()")
    spare = max((*ids.values(), *tokenizer.eos, 0)) + 1
    tokens: list[tuple[int, bytes]] = []
    for part in pattern.split(raw):
        if part in ids:
            tokens.append((ids[part], part.encode()))
            continue
        text = plain(part)
        i = 0
        while i < len(text):
            size = dice if isinstance(dice, int) else dice.randint(1, 9)
            tokens.append((spare + size, text[i : i + size].encode()))
            i += size
    return tokens


# --- for writers -----------------------------------------------------------------------------------------------------


def json_text(value: Value, dice: random.Random) -> str:
    """JSON as models write it: mostly as templates do, sometimes compact, escaped, or with white space."""
    style = dice.random()
    if style < 0.6:
        return json.dumps(value, ensure_ascii=False)
    if style < 0.75:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if style < 0.9:
        return json.dumps(value, ensure_ascii=True)
    return json.dumps(value, ensure_ascii=False, indent=dice.choice((1, 2, "\t")))
