"""Markers: which literals switch the state, in which state, and how far undecided text must be held back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from stages.opening import Ask, TokenizerFacts
from stages.parse.format import TRIMS, Format
from stages.parse.lexicon import Lexicon, Scan
from stages.parse.modes import SENDS, THINKS, Mode, Role, legal
from stages.parse.text import marks


class Special:
    """What a special token's id means here. ``role`` None: part of the format's literals, found by the scans."""

    __slots__ = ("role", "text")

    def __init__(self, text: str, role: Role | None) -> None:
        self.text = text
        self.role = role


class Reading:
    """The markers as they read in internal text: where ids tell what is special, or where only the text does."""

    __slots__ = ("_extra", "_form", "_legal", "_markers", "_scans", "lexicon", "roles", "tokens")

    def __init__(
        self, form: Format, markers: dict[str, Role], extra: dict[str, Role], tokens: frozenset[str], lexicon: Lexicon
    ) -> None:
        self.lexicon = lexicon
        self.roles = extra | {lexicon.form(text): role for text, role in markers.items()}
        self._form = form
        self._markers = markers
        self._extra = extra
        self.tokens = lexicon.forms(sorted(tokens))
        """The format's literals, or parts of them, that are tokens: where they mean nothing, they are no ordinary text
        either."""
        self._legal = legal(form)
        self._scans: dict[Mode, Scan] = {}

    def scan(self, mode: Mode) -> Scan:
        """The scan for a mode; made when it is first asked for (a vocabulary may have a thousand special tokens)."""
        scan = self._scans.get(mode)
        if scan is None:
            roles = self._legal.get(mode, frozenset[Role]())
            here = self.lexicon.forms(text for text, role in self._markers.items() if role in roles)
            here |= {text: text for text in self._extra}
            calls = Role.OPEN_CALL in self._markers.values()
            scan = self._scans[mode] = Scan(here, _trail(self._form, mode, calls), self._strays(mode, here))
        return scan

    def _strays(self, mode: Mode, here: dict[str, str]) -> dict[str, str]:
        if mode not in SENDS:
            return {}
        strays = self.tokens
        if mode in THINKS and self._form.reasoning is not None and self._form.reasoning.calls == "text":
            # Of calls it thinks.
            strays = {form: text for form, text in strays.items() if self.roles.get(form) is not Role.OPEN_CALL}
        return {form: text for form, text in strays.items() if form not in here}


class Plan:
    """A format's markers, resolved for one tokenizer and one request; shared by all sessions that are alike."""

    __slots__ = ("bare", "by_id", "by_text", "calls", "special")

    def __init__(self, special: dict[int, Special], calls: bool, bare: str, by_id: Reading, by_text: Reading) -> None:
        self.special = special
        """Ids that mean something by themselves."""
        self.calls = calls
        """Calls are wanted."""
        self.bare = bare
        """First characters of an answer that may begin a block without an opener."""
        self.by_id = by_id
        self.by_text = by_text


def _trail(form: Format, mode: Mode, calls: bool) -> str:
    """Characters of which a trailing run is held in ``mode``."""
    if mode is Mode.REASONING and form.reasoning is not None:
        return TRIMS[form.reasoning.trim]
    if mode in (Mode.CONTENT, Mode.CONTENT_OPEN):
        trail = TRIMS[form.calls.trim] if (calls or form.boundaries) and form.calls is not None else ""
        wrapped = form.reasoning is not None and form.reasoning.wrapper is not None
        return trail or ("\n" if wrapped else "")
    return ""


class _Same:
    """Told apart by identity: a vocabulary is large, and the same object for all sessions of a server."""

    __slots__ = ("facts",)

    def __init__(self, facts: TokenizerFacts) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return id(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.facts is self.facts


def plan(form: Format, tokenizer: TokenizerFacts, ask: Ask) -> Plan:
    """Resolve a format's markers: which are ids of special tokens, which are text, which are off in this request."""
    tools = bool(ask.tools) and ask.tool_choice != "none"
    return _known(form, _Same(tokenizer), tools, ask.keep_special, ask.ignore_eos)


@lru_cache(maxsize=256)
def _known(form: Format, same: _Same, tools: bool, keep: bool, ignore_eos: bool) -> Plan:
    facts = same.facts
    special, added = tuple(facts.special.items()), tuple(facts.added)
    return _plan(form, special, added, facts.eos, tools, keep, ignore_eos)


@lru_cache(maxsize=256)
def _plan(form: Format, specials: tuple[tuple[str, int], ...], added: tuple[str, ...], eos: tuple[int, ...],
          tools: bool, keep: bool, ignore_eos: bool) -> Plan:  # fmt: skip
    specials = tuple((text, number) for text, number in specials if text.strip())
    names = {text for text, _ in specials}
    enders = {text for text, number in specials if number in eos} | set(form.enders)
    literals = _literals(form, tools)
    tokens = [text for text in sorted(names) if any(text in literal for literal in literals)]
    # A call marker where there are no tools is text.
    plain = {text for text in names if any(text in other for other in _literals(form, True))} - set(tokens)
    special: dict[int, Special] = {number: Special("", Role.ENDER) for number in eos}
    for text, number in specials:
        if text not in plain:
            role = None if text in tokens else Role.ENDER if text in enders else Role.FOREIGN
            special[number] = Special(text, role)
    if ignore_eos:
        for entry in special.values():
            entry.role = Role.FOREIGN if entry.role is Role.ENDER else entry.role
    foreign = (names | enders) - plain - set(tokens)
    if not ignore_eos:
        foreign -= enders
    blind = not specials and not added
    if blind:
        foreign |= set(form.foreign)
    if keep:
        foreign.clear()
        special = {number: entry for number, entry in special.items() if entry.role is not Role.FOREIGN}
    markers = _markers(form, tools)
    extra: dict[str, Role] = dict.fromkeys(foreign, Role.FOREIGN)
    extra |= dict.fromkeys(set() if ignore_eos else enders - literals, Role.ENDER)
    words = form.calls.words if form.calls is not None else ()
    own = frozenset[str]() if keep else frozenset((*tokens, *literals.intersection(added))).difference(words)
    lexicon = Lexicon(dict(zip(tokens, marks(), strict=False)))
    by_id = Reading(form, markers, extra if blind else {}, own, lexicon)
    bare = form.calls.bare if form.calls is not None and tools else ""
    return Plan(special, tools, bare, by_id, Reading(form, markers, extra, own, Lexicon({})))


def _literals(form: Format, tools: bool) -> set[str]:
    calls: Iterable[str] = form.calls.all() if form.calls is not None and tools else ()
    reasoning: Iterable[str] = form.reasoning.literals() if form.reasoning is not None else ()
    return {*form.boundaries, *reasoning, *calls, *(form.channels.literals() if form.channels is not None else ())}


def _markers(form: Format, tools: bool) -> dict[str, Role]:
    markers = dict.fromkeys(form.boundaries, Role.BOUNDARY)
    if form.reasoning is not None:
        markers |= dict.fromkeys(form.reasoning.openers, Role.OPEN_REASONING)
        markers |= dict.fromkeys(form.reasoning.closers, Role.CLOSE_REASONING)
        if form.reasoning.wrapper is not None:
            markers |= dict(zip(form.reasoning.wrapper, (Role.OPEN_ANSWER, Role.CLOSE_ANSWER), strict=True))
    if form.calls is not None and tools:
        markers |= dict.fromkeys(form.calls.openers, Role.OPEN_CALL)
        markers |= dict.fromkeys(form.calls.closers, Role.CLOSE_CALL)
    if form.channels is not None:
        markers |= dict.fromkeys(form.channels.starts, Role.START_MESSAGE)
        markers |= dict.fromkeys((*form.channels.parts, *form.channels.lead), Role.PART)
        markers |= dict.fromkeys(form.channels.bodies, Role.BODY)
        markers |= dict.fromkeys(form.channels.enders, Role.END_MESSAGE)
    return markers
