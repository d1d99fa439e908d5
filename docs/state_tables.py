"""State tables, drawn by running the parser.

Generated and worked outputs (``tests/support/generate``, ``tests/data/formats``) go through it one step at a time: a
marker, or a single character. Where a step changes the state, that is a row: the state before, what was read, the state
behind it, the events that went out. Rows that say the same are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from stages.events import Fault, Finish, Input, Semantic, Tokens, TokensInput
from stages.parse.format import Format
from stages.parse.modes import Mode
from stages.parse.parser import Parser
from tests.support.format_cases import cases_of, subject_of
from tests.support.format_checks import Subject, generated
from tests.support.generate import families
from tests.support.generate.family import Family, plain, tokenize
from tests.support.parse import grouped, session

SEEDS: Final = 4
"""Outputs drawn from each generator."""
LONGEST: Final = 2000
"""Characters of an output. Longer ones have no states of their own."""
_SHOWN: Final = 4
"""Literals that a cell names."""
_TEXT: Final = "text"
_SPACE: Final = "white space"
_END: Final = "end of output"
_WRONG: Final = "what cannot stand there"
_STRUCTURE: Final = frozenset("{}[]()<>:,;\"'=/|`")
_CLASSES: Final = {
    **dict.fromkeys("\"'", "a quote"), **dict.fromkeys("([{", "an opening bracket"),
    **dict.fromkeys(")]}", "a closing bracket"), **dict.fromkeys("<>/|;`", _TEXT),
}  # fmt: skip
_WORDS: Final = frozenset((_TEXT, _SPACE, _END, _WRONG, *_CLASSES.values()))
_ORDER: Final = ("Marker", "Reasoning", "Content", "CallStart", "CallArguments", "CallEnd", "Dropped")
_BREAKS: Final = frozenset(("Reasoning", "Content", "Dropped"))
"""What goes out beside a state of a call when that was none, or is broken."""


class Change(NamedTuple):
    """A step that changed the state. ``read``: the literal, or a class of characters; ``role``: what the literal is to
    the format, in words ("": nothing)."""

    before: str
    read: str
    role: str
    after: str


Told = dict[Change, frozenset[str]]
"""Changes, in order, each with the events that went out."""


# --- running --------------------------------------------------------------------------------------------------------


@cache
def by_format() -> dict[str, tuple[Family, ...]]:
    """Format name → its generators."""
    found: dict[str, tuple[Family, ...]] = {}
    for family in families():
        found[family.format.name] = (*found.get(family.format.name, ()), family)
    return found


@cache
def changes(name: str) -> Told:
    """All changes of state that a format goes through."""
    found: Told = {}
    for family in by_format()[name]:
        walk = _Walk(family)
        for subject in _subjects(family):
            for change, events in walk.through(subject):
                found[change] = found.get(change, frozenset()) | events
    return found


def _subjects(family: Family) -> Iterator[Subject]:
    subjects = [generated(family, seed)[0] for seed in range(SEEDS)]
    subjects += [subject_of(family, case) for case in cases_of(family)]
    return (subject for subject in subjects if len(subject.raw) <= LONGEST)


class _Walk:
    """Outputs of a family, step by step."""

    def __init__(self, family: Family) -> None:
        self.family = family
        variant = family.format.variant
        self.roles = _roles(variant(family.tokenizer) if variant else family.format, family)
        self.longest = max(map(len, self.roles), default=1)

    def through(self, subject: Subject) -> Iterator[tuple[Change, frozenset[str]]]:
        """The changes of one output."""
        machine = Parser(self.family.format).start(subject.opened("incremental"))
        tokens = [token for part in self._parts(subject) for token in part]
        before = seen = ""
        for event in session(grouped(tokens, [1] * len(tokens)), tail=subject.tail, finish=subject.finish):
            out: list[Semantic] = []
            machine.step(event, out)
            after = machine.state(0)
            seen = (seen + _text(event))[-self.longest :]
            if before and after != before:
                read = self._read(seen) if isinstance(event, TokensInput) else _END
                events = frozenset(name for one in out if (name := _name(one)))
                yield Change(before, read, self.roles.get(read, ""), after), events
            before = after

    def _parts(self, subject: Subject) -> Iterator[list[tuple[int, bytes]]]:
        """Markers in one token, the rest character by character; tokens that are given keep their ids."""
        tokenizer = self.family.tokenizer
        known = {*tokenizer.special, *tokenizer.added, *subject.family.tokenizer.special}
        for number, piece in subject.tokens or ():
            text = piece.decode("utf-8", "replace")
            whole = text in known or text.encode() != piece
            yield [(number, piece)] if whole else [(number, char.encode()) for char in text]
        if subject.tokens is not None:
            return
        literals = sorted({*self.family.markers, *known}, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, literals))})", subject.raw) if literals else [subject.raw]
        for part in parts:
            yield tokenize(part, tokenizer, len(plain(part)) or 1 if part in literals else 1)

    def _read(self, seen: str) -> str:
        """What was read last: the longest literal, or the class of the character."""
        for size in range(len(seen), 1, -1):
            if seen[-size:] in self.roles:
                return seen[-size:]
        return seen[-1:] if seen[-1:] in _STRUCTURE else _SPACE if seen[-1:].isspace() else _TEXT


def _roles(form: Format, family: Family) -> dict[str, str]:
    """Literal → what it is, in words. One that is several things is the first of them."""
    roles: dict[str, str] = {}

    def add(role: str, literals: Iterable[str]) -> None:
        for literal in literals:
            roles.setdefault(literal, role)

    if form.reasoning is not None:
        add("reasoning opener", form.reasoning.openers)
        add("reasoning closer", form.reasoning.closers)
        add("answer wrapper", form.reasoning.wrapper or ())
    if form.channels is not None:
        add("start of a message", form.channels.starts)
        add("part of a header", form.channels.parts)
        add("end of a header", form.channels.bodies)
        add("end of a message", form.channels.enders)
    elif form.calls is not None:
        add("call opener", form.calls.openers)
        add("call closer", form.calls.closers)
    add("boundary", form.boundaries)
    add("end of turn", form.enders)
    known = family.tokenizer.special | family.tokenizer.added
    add("end of turn", (text for text, number in known.items() if number in family.tokenizer.eos))
    add("", family.markers)
    if form.calls is not None:
        add("", form.calls.all())
    add("other special token", family.tokenizer.special)
    return roles


def _text(event: Input) -> str:
    return b"".join(event.pieces).decode("utf-8", "replace") if isinstance(event, TokensInput) else ""


def _name(event: Semantic) -> str:
    """An event's name, where the table shows it."""
    if isinstance(event, Fault):
        return f"Fault {event.code}"
    return "" if isinstance(event, Tokens | Finish) else type(event).__name__


# --- tables ---------------------------------------------------------------------------------------------------------


def call_table(names: Iterable[str], folded: tuple[str, ...] = (), *, classes: bool = False) -> list[str]:
    """The table of what happens in calls, over these formats. ``folded``: beginnings of states; those that begin so are
    one. ``classes``: brackets and quotes are told as such, where many states read them."""
    into, inside, out = _Rows(), _Rows(), _Rows()
    for change, events in _merged(names).items():
        before, after = (_fold(state, folded) for state in (change.before, change.after))
        within = _mode(before) == "call", _mode(after) == "call"
        read = _CLASSES.get(change.read, change.read) if classes and within[0] else change.read
        read = _WRONG if within[0] and read != _END and events & _BREAKS else read
        if before != after and any(within):
            (inside if all(within) else out if within[0] else into).add(before, read, after, events)
    return _table([*into.rows(joined=True), *inside.rows(), *out.rows(joined=True)])


def text_table(names: Iterable[str], *, calls: bool) -> list[str]:
    """The table of what happens outside calls, over these formats: literals by their roles, calls as one state.
    ``calls``: also how calls end."""
    found = _Rows()
    order = [mode.name.lower() for mode in Mode]
    changes = sorted(_merged(names).items(), key=lambda told: order.index(_mode(told[0].before)))
    for change, events in changes:
        before, after = _mode(change.before), _mode(change.after)
        read = change.role or (change.read if change.read in (_SPACE, _END) else _TEXT)
        if before != after and (calls or before != "call"):
            found.add(before, read, after, events)
    return _table(found.rows(words=True))


def _merged(names: Iterable[str]) -> Told:
    found: Told = {}
    for name in names:
        for change, events in changes(name).items():
            found[change] = found.get(change, frozenset()) | events
    return found


def _mode(state: str) -> str:
    return state.partition(":")[0]


def _fold(state: str, folded: tuple[str, ...]) -> str:
    for beginning in folded:
        if state.startswith(beginning):
            return f"{beginning}…"
    return state


class _Rows:
    """Changes that become rows: the same read with the same outcome, whatever the state before; and then all reads from
    the same states with the same outcome."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], dict[str, None]] = {}
        """(read, after) → states before."""
        self._events: dict[tuple[str, str], frozenset[str]] = {}

    def add(self, before: str, read: str, after: str, events: frozenset[str]) -> None:
        """One more change."""
        self._states.setdefault((read, after), {})[before] = None
        self._events[read, after] = self._events.get((read, after), frozenset()) | events

    def rows(self, *, joined: bool = False, words: bool = False) -> list[str]:
        """The rows, in the order in which their states were first seen. ``joined``: one for each outcome; ``words``:
        what is read is told in words."""
        found: dict[tuple[str, ...], _Cells] = {}
        for (read, after), states in self._states.items():
            told = self._events[read, after]
            apart = read if read in (_WRONG, _END) else str("CallEnd" in told)
            key = (after, apart) if joined else (*states, after)
            found.setdefault(key, _Cells()).add(states, read, after, told)
        seen: dict[str, int] = {}
        for cells in found.values():
            seen.setdefault(next(iter(cells.before)), len(seen))
        ordered = sorted(found.values(), key=lambda cells: seen[next(iter(cells.before))])
        return [cells.row(words) for cells in ordered]


class _Cells:
    """What a row is made of."""

    def __init__(self) -> None:
        self.before: dict[str, None] = {}
        self._reads: dict[str, None] = {}
        self._after = ""
        self._events: frozenset[str] = frozenset()

    def add(self, before: Iterable[str], read: str, after: str, events: frozenset[str]) -> None:
        """The same read with the same outcome, from these states."""
        self.before |= dict.fromkeys(before)
        self._reads[read] = None
        self._after = after
        self._events |= events

    def row(self, words: bool) -> str:
        """As a line of the table."""
        reads = _reads([*self._reads], words)
        return f"| {_listed(self.before)} | {reads} | {self._after} | {_told(self._events)} |"


def _listed(states: Iterable[str]) -> str:
    """States; those of calls without repeating the mode."""
    calls = [state.removeprefix("call: ") for state in states if state.startswith("call: ")]
    others = [state for state in states if not state.startswith("call: ")]
    return ", ".join([*others, *([f"call: {', '.join(calls)}"] if calls else [])])


def _reads(reads: list[str], words: bool) -> str:
    told = [read for read in reads if words or read in _WORDS]
    literals = [read for read in reads if read not in told]
    more = ["…"] if len(literals) > _SHOWN else []
    return ", ".join(told) if words else " ".join([*map(code, literals[:_SHOWN]), *more, *told])


def _told(events: frozenset[str]) -> str:
    faults = sorted(name.removeprefix("Fault ") for name in events if name.startswith("Fault "))
    told = [name for name in _ORDER if name in events]
    return ", ".join([*told, *([f"Fault ({', '.join(faults)})"] if faults else [])])


def code(text: str) -> str:
    """A literal, in a cell of a table."""
    text = text.replace("\n", "⏎").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _table(rows: list[str]) -> list[str]:
    return ["| state | reads | state behind it | what may go out |", "|---|---|---|---|", *rows]
