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

MOST: Final = 1000
"""States of an automaton: a rule each."""
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


def literal(text: str) -> Texts:
    """This text."""
    return chain(Chars(((ord(char), ord(char)),)) for char in text)


def without(markers: Iterable[str]) -> Texts:
    """Those in which none of these occurs."""
    return negated(chain((ALL, either(literal(marker) for marker in markers), ALL)))


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


# --- derivatives ----------------------------------------------------------------------------------------------------


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


def _behind(texts: Texts, char: int) -> Texts:
    """What may follow this character."""
    match texts:
        case Chars():
            return EMPTY if any(first <= char <= last for first, last in texts.ranges) else NONE
        case Chain():
            ways: list[Texts] = []
            for index, part in enumerate(texts.parts):
                ways.append(chain((_behind(part, char), *texts.parts[index + 1 :])))
                if not _ends(part):
                    break
            return either(ways)
        case Either():
            return either(_behind(option, char) for option in texts.options)
        case Both():
            return both(_behind(part, char) for part in texts.parts)
        case Not():
            return negated(_behind(texts.texts, char))
        case Times():
            most = None if texts.most is None else texts.most - 1
            return chain((_behind(texts.texts, char), times(texts.texts, max(texts.least - 1, 0), most)))
        case _:
            assert_never(texts)


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


def _alike(texts: Texts) -> list[Ranges]:
    """Characters that the expression tells not apart, together: all characters."""
    found = sorted(_ranges(texts))
    edges = sorted(
        {0, *(edge for ranges in found for first, last in ranges for edge in (first, last + 1))} - {_LAST + 1}
    )
    kinds: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for index, first in enumerate(edges):
        last = edges[index + 1] - 1 if index + 1 < len(edges) else _LAST
        kind = tuple(any(low <= first <= high for low, high in ranges) for ranges in found)
        kinds.setdefault(kind, []).append((first, last))
    return [chars(ranges).ranges for ranges in kinds.values()]


# --- the grammar ----------------------------------------------------------------------------------------------------


def grammar(texts: Texts) -> str:
    """In xgrammar's EBNF. Raises NoGrammar where there is no such text, or for more than MOST states."""
    states, ways = _automaton(texts)
    alive = _alive(states, ways)
    if 0 not in alive:
        raise NoGrammar("no text satisfies all of it")
    lines = ["root ::= s0"]
    for state, found in enumerate(states):
        if state in alive:
            options = ['""'] if _ends(found) else []
            options += [f"{_class(ranges)} s{to}" for to, ranges in ways[state].items() if to in alive]
            lines.append(f"s{state} ::= {' | '.join(options)}")
    return "\n".join(lines)


def _automaton(texts: Texts) -> tuple[list[Texts], list[dict[int, list[tuple[int, int]]]]]:
    """Its states, the first is where it begins, and of each: to which one, by which characters."""
    alike = _alike(texts)
    states, numbers = [texts], {texts: 0}
    ways: list[dict[int, list[tuple[int, int]]]] = []
    for state in states:  # grows
        found: dict[int, list[tuple[int, int]]] = {}
        for ranges in alike:
            to = _behind(state, ranges[0][0])
            if to != NONE:
                if to not in numbers:
                    numbers[to] = len(states)
                    states.append(to)
                found.setdefault(numbers[to], []).extend(ranges)
        if len(states) > MOST:
            raise NoGrammar(f"it takes more than {MOST} rules")
        ways.append(found)
    return states, ways


def _alive(states: Sequence[Texts], ways: Sequence[dict[int, list[tuple[int, int]]]]) -> set[int]:
    """The states from which an end is reached."""
    before: dict[int, list[int]] = {}
    for state, found in enumerate(ways):
        for to in found:
            before.setdefault(to, []).append(state)
    waiting = [state for state, texts in enumerate(states) if _ends(texts)]
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
