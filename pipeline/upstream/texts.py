"""Texts that satisfy regular expressions and do not satisfy others, as a right-linear grammar.

What a structural tag knows of texts is one regular expression, or markers that do not occur in it. All else is worked
out here: by derivatives (of an expression and a character: what may follow it), the states of an automaton, and of each
state a rule.

Expressions are those of ``stages.grammar``, matched against the whole text: no anchors, no look-around, no references.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, Union, assert_never

MOST: Final = 500
"""States of an automaton: a rule each."""
WORK: Final = 50_000
"""Steps that it may take: some tenths of a second."""
_LAST: Final = 0x10FFFF
Ranges: TypeAlias = tuple[tuple[int, int], ...]


class NoGrammar(Exception):
    """There is none, or it would be too large."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: first and last of each range, in order, none touching the next."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Chain:
    """One behind the other."""

    parts: tuple[Texts, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of these."""

    options: frozenset[Texts]


@dataclass(frozen=True, slots=True)
class Both:
    """All of these."""

    parts: frozenset[Texts]


@dataclass(frozen=True, slots=True)
class Not:
    """All texts but these."""

    texts: Texts


@dataclass(frozen=True, slots=True)
class Times:
    """So many, one behind the other; ``most``: None: without a bound."""

    texts: Texts
    least: int
    most: int | None


Texts: TypeAlias = Union[Chars, Chain, Either, Both, Not, Times]  # noqa: UP007 (names that follow)

EMPTY: Final = Chain(())
NONE: Final = Either(frozenset())
ANY: Final = Chars(((0, _LAST),))
ALL: Final = Times(ANY, 0, None)


def chain(parts: Iterable[Texts]) -> Texts:
    """One behind the other."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Chain) else (part,))]
    if NONE in flat:
        return NONE
    return flat[0] if len(flat) == 1 else Chain(tuple(flat))


def either(options: Iterable[Texts]) -> Texts:
    """Any of these."""
    flat = {inner for option in options for inner in (option.options if isinstance(option, Either) else (option,))}
    if ALL in flat:
        return ALL
    return flat.pop() if len(flat) == 1 else Either(frozenset(flat))


def both(parts: Iterable[Texts]) -> Texts:
    """All of these."""
    flat = {inner for part in parts for inner in (part.parts if isinstance(part, Both) else (part,))} - {ALL}
    if NONE in flat:
        return NONE
    if not flat:
        return ALL
    return flat.pop() if len(flat) == 1 else Both(frozenset(flat))


def negated(texts: Texts) -> Texts:
    """All texts but these."""
    if texts in (NONE, ALL):
        return ALL if texts == NONE else NONE
    return texts.texts if isinstance(texts, Not) else Not(texts)


def times(texts: Texts, least: int, most: int | None) -> Texts:
    """So many of them."""
    if most == 0 or texts == EMPTY:
        return EMPTY
    if texts == NONE:
        return NONE if least else EMPTY
    return texts if (least, most) == (1, 1) else Times(texts, least, most)


def chars(ranges: Iterable[tuple[int, int]], *, but: bool = False) -> Chars:
    """A character of these ranges; ``but``: of none of them."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    if not but:
        return Chars(tuple(joined))
    edges = [-1, *(edge for first, last in joined for edge in (first, last)), _LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return Chars(tuple((low + 1, high - 1) for low, high in gaps if low + 1 < high))


# --- derivatives ------------------------------------------------------------------------------------------------------


def _ends(texts: Texts) -> bool:
    """The empty text is one of them."""
    match texts:
        case Chars():
            return False
        case Chain():
            return all(map(_ends, texts.parts))
        case Either():
            return any(map(_ends, texts.options))
        case Both():
            return all(map(_ends, texts.parts))
        case Not():
            return not _ends(texts.texts)
        case Times():
            return texts.least == 0 or _ends(texts.texts)
        case _:
            assert_never(texts)


class _Derived:
    """What may follow a character of a text, worked out once each."""

    def __init__(self) -> None:
        self._known: dict[tuple[Texts, int], Texts] = {}
        self._left = WORK

    def behind(self, texts: Texts, char: int) -> Texts:
        """Raises NoGrammar where it was too much."""
        found = self._known.get((texts, char))
        if found is None:
            found = self._known[texts, char] = self._behind(texts, char)
        return found

    def _behind(self, texts: Texts, char: int) -> Texts:
        self._left -= 1
        if not self._left:
            raise NoGrammar("it takes too long")
        match texts:
            case Chars():
                return EMPTY if any(first <= char <= last for first, last in texts.ranges) else NONE
            case Chain():
                return self._in_chain(texts.parts, char)
            case Either():
                return either(self._behind(option, char) for option in texts.options)
            case Both():
                return both(self._behind(part, char) for part in texts.parts)
            case Not():
                return negated(self._behind(texts.texts, char))
            case Times():
                most = None if texts.most is None else texts.most - 1
                return chain((self._behind(texts.texts, char), times(texts.texts, max(texts.least - 1, 0), most)))
            case _:
                assert_never(texts)

    def _in_chain(self, parts: tuple[Texts, ...], char: int) -> Texts:
        ways: list[Texts] = []
        for index, part in enumerate(parts):
            ways.append(chain((self._behind(part, char), *parts[index + 1 :])))
            if not _ends(part):
                break
        return either(ways)


class _Markers:
    """How much of a marker a text ends in: states are beginnings of markers. ``late``: a text does not end in these."""

    def __init__(self, markers: Iterable[str], late: Iterable[str]) -> None:
        self._markers, self._late = tuple(markers), tuple(late)
        self._begun = {each[:size] for each in (*self._markers, *self._late) for size in range(len(each) + 1)} | {""}
        self.chars = {ord(char) for each in self._begun for char in each}

    def behind(self, state: str, char: int) -> str | None:
        """None: a marker is whole."""
        text = state + chr(char) if char in self.chars else ""
        if any(marker and text.endswith(marker) for marker in self._markers):
            return None
        return next(text[at:] for at in range(len(text) + 1) if text[at:] in self._begun)

    def ends(self, state: str) -> bool:
        """A text may end here."""
        return not any(state.endswith(each) for each in self._late)


def _ranges(texts: Texts) -> set[Ranges]:
    """Of all characters in it."""
    match texts:
        case Chars():
            return {texts.ranges}
        case Chain() | Both():
            return {found for part in texts.parts for found in _ranges(part)}
        case Either():
            return {found for option in texts.options for found in _ranges(option)}
        case Not() | Times():
            return _ranges(texts.texts)
        case _:
            assert_never(texts)


def _alike(texts: Texts, single: Iterable[int]) -> list[Ranges]:
    """Characters that the expression tells not apart, together, and each of some: all characters."""
    found = [*sorted(_ranges(texts)), *(((char, char),) for char in sorted(single))]
    edges = sorted({0, *(edge for ranges in found for first, last in ranges for edge in (first, last + 1))})
    kinds: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for first, behind in zip(edges, (*edges[1:], _LAST + 1), strict=True):
        if first < behind:
            kind = tuple(any(low <= first <= high for low, high in ranges) for ranges in found)
            kinds.setdefault(kind, []).append((first, behind - 1))
    return [chars(ranges).ranges for ranges in kinds.values()]


# --- the grammar ------------------------------------------------------------------------------------------------------


def grammar(texts: Texts, markers: Iterable[str] = (), late: Iterable[str] = ()) -> str:
    """In xgrammar's EBNF. ``markers``: do not occur in such a text; ``late``: it does not end in them. Raises NoGrammar
    where there is no such text, or it takes too many rules, or too long."""
    around = _Markers(markers, late)
    states, ways = _automaton(texts, around)
    ends = [_ends(found) and around.ends(begun) for found, begun in states]
    alive = _alive(ends, ways)
    if 0 not in alive:
        raise NoGrammar("no text satisfies all of it")
    lines = ["root ::= s0"]
    for state in sorted(alive):
        options = ['""'] if ends[state] else []
        options += [f"{_class(ranges)} s{to}" for to, ranges in ways[state].items() if to in alive]
        lines.append(f"s{state} ::= {' | '.join(options)}")
    return "\n".join(lines)


_Ways: TypeAlias = list[dict[int, list[tuple[int, int]]]]


def _automaton(texts: Texts, around: _Markers) -> tuple[list[tuple[Texts, str]], _Ways]:
    """Its states, the first is where it begins, and of each: to which one, by which characters."""
    alike, derived = _alike(texts, around.chars), _Derived()
    states: list[tuple[Texts, str]] = [(texts, "")]
    numbers = {states[0]: 0}
    ways: _Ways = []
    for state, begun in states:  # grows
        found: dict[int, list[tuple[int, int]]] = {}
        for ranges in alike:
            char = ranges[0][0]
            marked, behind = around.behind(begun, char), derived.behind(state, char)
            if marked is not None and behind != NONE:
                number = numbers.setdefault((behind, marked), len(states))
                if number == len(states):
                    states.append((behind, marked))
                found.setdefault(number, []).extend(ranges)
        if len(states) > MOST:
            raise NoGrammar(f"it takes more than {MOST} rules")
        ways.append(found)
    return states, ways


def _alive(ends: Sequence[bool], ways: _Ways) -> set[int]:
    """The states from which an end is reached."""
    before: dict[int, list[int]] = {}
    for state, found in enumerate(ways):
        for to in found:
            before.setdefault(to, []).append(state)
    waiting = [state for state, end in enumerate(ends) if end]
    alive = set(waiting)
    while waiting:
        more = [state for state in before.get(waiting.pop(), ()) if state not in alive]
        alive.update(more)
        waiting += more
    return alive


def _class(ranges: Iterable[tuple[int, int]]) -> str:
    found = chars(ranges)
    if found.ranges[-1][1] < _LAST:
        return f"[{_listed(found.ranges)}]"
    others = chars(found.ranges, but=True).ranges
    return f"[^{_listed(others)}]" if others else '([^\\n] | "\\n")'


def _listed(ranges: Ranges) -> str:
    return "".join(_char(first) if first == last else f"{_char(first)}-{_char(last)}" for first, last in ranges)


def _char(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
