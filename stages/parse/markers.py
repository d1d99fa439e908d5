"""Markers: which literals switch the state, in which state, and how far undecided text must be held back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from stages.opening import Ask, TokenizerFacts
from stages.parse.format import Format
from stages.parse.modes import LEGAL, Mode, Role
from stages.parse.text import MARK

Find: TypeAlias = Callable[[str], object]
_NEVER: Final = re.compile(r"(?!)")


class Scan:
    """One mode's precompiled scan. A match with a group is a whole marker, one without is a tail to be held."""

    __slots__ = ("final", "newline", "pattern", "quick")

    def __init__(self, literals: Iterable[str], marks: bool, newline: bool) -> None:
        texts = sorted(set(literals))
        whole = [trie(texts, partial=False)] if texts else []
        if marks:
            whole.append(f"[{MARK}]")
        both = f"({'|'.join(whole)})" if whole else ""
        # A literal that begins a longer one is held at the end of the text, so the tail is tried first.
        held = trie(texts, partial=True) if texts else ""
        self.pattern = re.compile("|".join(filter(None, (held, both)))) if both else _NEVER
        """Markers, and the longest tail that may become one."""
        self.final = re.compile(both) if both else _NEVER
        """Markers only: at the end of the output nothing can become one."""
        self.newline = newline
        """A trailing run of newlines is held: a marker that drops it may follow."""
        firsts = "".join(re.escape(c) for c in sorted({t[0] for t in texts})) + (MARK if marks else "")
        firsts += "\n" if newline else ""
        self.quick: Find | None = re.compile(f"[{firsts}]").search if firsts else None
        """Finds the first character that could be of interest; None: no character is."""


def trie(texts: list[str], *, partial: bool) -> str:
    """A pattern for any of ``texts``, longest first; or (``partial``) for a proper beginning of one at the end.

    ``texts``: sorted, not empty, none empty.
    """
    branches: list[str] = []
    i = 0
    while i < len(texts):
        first = texts[i][:1]
        j = i
        while j < len(texts) and texts[j][:1] == first:
            j += 1
        rest = [text[1:] for text in texts[i:j] if len(text) > 1]
        branches.append(_branch(first, rest, j - i - len(rest) > 0, partial))
        i = j
    branches = [branch for branch in branches if branch]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""


def _branch(first: str, rest: list[str], ends: bool, partial: bool) -> str:
    char = re.escape(first)
    if partial:
        # Only a beginning of a longer literal counts.
        deeper = trie(rest, partial=True) if rest else ""
        return "" if not rest else f"{char}(?:\\Z|{deeper})" if deeper else f"{char}\\Z"
    if not rest:
        return char
    deeper = trie(rest, partial=False)
    return f"{char}(?:{deeper})?" if ends else f"{char}{deeper}"


class Special:
    """What a special token's id means here. ``role`` None: a marker of the format, found by the scans."""

    __slots__ = ("role", "text")

    def __init__(self, text: str, role: Role | None) -> None:
        self.text = text
        self.role = role


class Plan:
    """A format's markers, resolved for one tokenizer and one request; shared by all sessions that are alike."""

    __slots__ = ("by_id", "by_text", "roles", "special")

    def __init__(self, markers: dict[str, Role], special: dict[int, Special], by_id: set[str], foreign: set[str],
                 enders: set[str], blind: bool) -> None:  # fmt: skip
        self.special = special
        """Ids that mean something by themselves."""
        self.roles: dict[str, Role] = {**dict.fromkeys(foreign, Role.FOREIGN), **dict.fromkeys(enders, Role.ENDER)}
        self.roles |= markers
        extra = foreign | enders
        self.by_text = _scans(markers, set(), extra)
        """The scans where there are no ids: text decides everything."""
        self.by_id = _scans(markers, by_id, extra if blind else set())
        """The scans where there are ids."""


def _scans(markers: dict[str, Role], by_id: set[str], extra: set[str]) -> dict[Mode, Scan]:
    calls = Role.OPEN_CALL in markers.values()
    scans: dict[Mode, Scan] = {}
    for mode, legal in LEGAL.items():
        here = {text for text, role in markers.items() if role in legal}
        newline = mode is Mode.REASONING or (calls and mode in (Mode.CONTENT, Mode.CONTENT_OPEN))
        scans[mode] = Scan((here - by_id) | extra, bool(here & by_id), newline)
    return scans


def plan(form: Format, tokenizer: TokenizerFacts, ask: Ask) -> Plan:
    """Resolve a format's markers: which are ids of special tokens, which are text, which are off in this request."""
    return _plan(
        form, tuple(tokenizer.special.items()), bool(tokenizer.added), tokenizer.eos,
        bool(ask.tools) and ask.tool_choice != "none", ask.keep_special, ask.ignore_eos,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _plan(form: Format, specials: tuple[tuple[str, int], ...], added: bool, eos: tuple[int, ...], tools: bool,
          keep: bool, ignore_eos: bool) -> Plan:  # fmt: skip
    specials = tuple((text, number) for text, number in specials if text.strip())
    names = {text for text, _ in specials}
    enders = {text for text, number in specials if number in eos} | set(form.enders)
    markers = _markers(form, tools)
    # A call marker where there are no tools is text.
    plain = set(_markers(form, True)) - set(markers)
    special: dict[int, Special] = {number: Special("", Role.ENDER) for number in eos}
    for text, number in specials:
        if text not in plain:
            role = None if text in markers else Role.ENDER if text in enders else Role.FOREIGN
            special[number] = Special(text, role)
    if ignore_eos:
        for entry in special.values():
            entry.role = Role.FOREIGN if entry.role is Role.ENDER else entry.role
    foreign: set[str] = (names | enders) - plain - set(markers)
    if not ignore_eos:
        foreign -= enders
    if keep:
        foreign.clear()
        special = {number: entry for number, entry in special.items() if entry.role is not Role.FOREIGN}
    blind = not specials and not added
    return Plan(markers, special, names & set(markers), foreign, set() if ignore_eos else enders, blind)


def _markers(form: Format, tools: bool) -> dict[str, Role]:
    markers: dict[str, Role] = {}
    if form.reasoning is not None:
        markers[form.reasoning.opener] = Role.OPEN_REASONING
        markers[form.reasoning.closer] = Role.CLOSE_REASONING
    if form.calls is not None and tools:
        markers |= dict.fromkeys(form.calls.openers, Role.OPEN_CALL)
        markers |= dict.fromkeys(form.calls.closers, Role.CLOSE_CALL)
    return markers
