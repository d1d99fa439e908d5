"""leaked: markup in what a client reads, without a fault that says so.

Markup is told from letters by ids: a special token that the model wrote, not the same letters spelled by ordinary
tokens. An added token that is not special (``<tool_call>`` of a Qwen) may as well be text, so it counts only where it
is a literal of the recorded parser's format, and not inside arguments. Reasoning may think of calls: their tokens do
not count there; and strings of arguments may hold any token of the format. Where an engine gives no ids, what counts is
what begins and ends reasoning, calls and messages, outside arguments, and only where the same choice had it consumed as
a marker elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from replay.evidence import markers_of
from replay.result import Breach
from stages import catalog
from stages.errors import UnknownName
from stages.events import CallArguments, Content, FaultCode, Input, Marker, Reasoning, Refusal, TokensInput
from stages.message import Message
from stages.opening import Opening, TokenizerFacts
from stages.parse.format import Format
from stages.parse.lexicon import trie
from stages.parse.parser import Parser

_SAYS: Final = frozenset((Reasoning, Content, Refusal, CallArguments))
_RESTORES: Final = frozenset((
    FaultCode.UNCLOSED_CALL, FaultCode.MALFORMED_CALL, FaultCode.BAD_ARGUMENTS, FaultCode.UNCLOSED_REASONING,
    FaultCode.STRAY_MARKER, FaultCode.MALFORMED_MESSAGE, FaultCode.HELD_OVERFLOW,
))  # fmt: skip
"""Faults that say: markup is delivered as text."""
_LIKE: Final = re.compile(r"[<\[]").search
"""How the literals of formats begin, which are told by their letters."""
_FIELDS: Final = ("reasoning", "content", "refusal")

Texts: TypeAlias = list[tuple[str, str]]
"""The fields of a message that are text, with their values."""


def leaked(
    opening: Opening, inputs: Sequence[Input], events: Sequence[Any], steps: Sequence[int],
    messages: Sequence[Message],
) -> list[Breach]:  # fmt: skip
    """A breach for each choice that says markup; none where the request wants special tokens in the text. Linear."""
    if opening.ask.keep_special:
        return []
    return _Leaks(opening, inputs, events, steps).all(messages)


class Vocabulary:
    """The tokens of a tokenizer that may be markup, by id. ``find`` finds the text of one; None: there is none."""

    __slots__ = ("added", "find", "special")

    def __init__(self, facts: TokenizerFacts) -> None:
        self.special = {number: text for text, number in facts.special.items() if len(text.strip()) > 1}
        self.added = {number: text for text, number in facts.added.items() if len(text.strip()) > 1}
        find = _finder(frozenset((*self.special.values(), *self.added.values())))
        self.find = None if find is None else find.search


_known: dict[int, tuple[TokenizerFacts, Vocabulary]] = {}
"""By identity, which is quick: one object for all sessions of a source. (What is kept cannot share its id.)"""
_MOST_KNOWN: Final = 64


def vocabulary(facts: TokenizerFacts) -> Vocabulary:
    """What of a tokenizer's vocabulary may be markup; made once."""
    found = _known.get(id(facts))
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        made = _vocabulary(tuple(facts.special.items()), tuple(facts.added.items()))
        found = _known[id(facts)] = facts, made
    return found[1]


@lru_cache(maxsize=64)
def _vocabulary(special: tuple[tuple[str, int], ...], added: tuple[tuple[str, int], ...]) -> Vocabulary:
    return Vocabulary(TokenizerFacts(special=dict(special), added=dict(added)))


class _Leaks:
    def __init__(self, opening: Opening, inputs: Sequence[Input], events: Sequence[Any], steps: Sequence[int]) -> None:
        self._opening = opening
        self._inputs = inputs
        self._events = events
        self._steps = steps

    def all(self, messages: Sequence[Message]) -> list[Breach]:
        """A breach for each choice that says markup."""
        steps = (event for event in self._inputs if isinstance(event, TokensInput) and (event.ids or event.text))
        first = next(steps, None)
        if first is None:
            return []
        # Nearly no message has anything that looks like markup: that is found out first.
        find = vocabulary(self._opening.tokenizer).find if first.ids else _LIKE
        judge = self._by_ids if first.ids else self._by_text
        found: list[Breach] = []
        for message in messages:
            if find is None or not _RESTORES.isdisjoint(message.faults):
                continue
            texts = _texts(message)
            if any(find(text) for _, text in texts):
                found += judge(message.choice, texts)
        return found

    def _by_ids(self, choice: int, texts: Texts) -> Iterator[Breach]:
        own = [event for event in self._inputs if isinstance(event, TokensInput) and event.choice == choice]
        known = vocabulary(self._opening.tokenizer)
        wrote: dict[int, str] = {}
        for event in own:
            for number in event.ids:
                text = known.special.get(number) or known.added.get(number)
                if text is not None:
                    wrote[number] = text
        if not wrote:
            return
        may = _may_be_text(self._opening)
        literals = frozenset(markers_of(self._opening))
        anywhere = {text for number, text in wrote.items() if number in known.special and text not in may}
        prose = anywhere | {text for text in wrote.values() if text in literals and text not in may}
        calls = _calls(self._opening)
        said = _counted(texts, anywhere.difference(literals, calls), prose, prose.difference(calls))
        if said:
            spelled = _spelled(own, wrote, set(said))
            for text, (field, times) in said.items():
                if times > spelled.get(text, 0):
                    yield self._breach(choice, text, field)
                    return

    def _by_text(self, choice: int, texts: Texts) -> Iterator[Breach]:
        literals, calls = _outer(self._opening), _calls(self._opening)
        consumed = {
            text for event in self._events
            if event.__class__ is Marker and event.choice == choice and (text := event.text.strip()) in literals
        }  # fmt: skip
        for text, (field, _) in _counted(texts, set(), consumed, consumed.difference(calls)).items():
            yield self._breach(choice, text, field)
            return

    def _breach(self, choice: int, text: str, field: str) -> Breach:
        return Breach("leaked", f"the marker {text!r} in the {field}", choice, self._step(choice, text))

    def _step(self, choice: int, text: str) -> int:
        """The step whose event says the marker; that which wrote it, where no event has all of it."""
        for event, step in zip(self._events, self._steps, strict=True):
            if event.__class__ in _SAYS and event.choice == choice and text in event.text:
                return step
        number = {**self._opening.tokenizer.added, **self._opening.tokenizer.special}.get(text)
        for seq, item in enumerate(self._inputs):
            if isinstance(item, TokensInput) and item.choice == choice and number in item.ids:
                return seq
        return -1


def _texts(message: Message) -> Texts:
    texts = [(field, text) for field in _FIELDS if (text := getattr(message, field))]
    texts += [("arguments", call.arguments) for call in message.tool_calls]
    return texts


def _counted(texts: Texts, given: set[str], prose: set[str], thought: set[str]) -> dict[str, tuple[str, int]]:
    """How often which marker is said, and the field that says it first. ``given``: those that count in
    arguments, ``thought``: in reasoning, which may think of calls; ``prose``: elsewhere."""
    counts = {"arguments": given, "reasoning": thought}
    finds = {field: _finder(frozenset(counts.get(field, prose))) for field, _ in texts}
    said: dict[str, tuple[str, int]] = {}
    for field, text in texts:
        find = finds[field]
        if find is not None:
            for match in find.finditer(text):
                first, times = said.get(match[0], (field, 0))
                said[match[0]] = first, times + 1
    return said


def _finder(texts: frozenset[str]) -> re.Pattern[str] | None:
    return re.compile(trie(sorted(texts), partial=False)) if texts else None


def _spelled(own: list[TokensInput], known: dict[int, str], texts: set[str]) -> dict[str, int]:
    """How often ordinary tokens spell which of the texts. (Letters on both sides of a token that is shown nowhere stand
    side by side.)"""
    parts: list[bytes] = []
    for event in own:
        if len(event.pieces) == len(event.ids):
            parts += [b"" if number in known else piece for number, piece in zip(event.ids, event.pieces, strict=True)]
        else:
            parts.append(event.text.encode("utf-8", "replace"))
    whole = b"".join(parts).decode("utf-8", "replace")
    counts = {text: whole.count(text) for text in texts}
    for event in own:
        if len(event.pieces) != len(event.ids):
            for number in event.ids:
                if known.get(number) in texts:
                    counts[known[number]] -= 1
    return counts


def _outer(opening: Opening) -> frozenset[str]:
    """What begins and ends parts of a message. (What stands inside calls is text outside them.)"""
    form = _format(opening)
    if form is None:
        return frozenset(opening.tokenizer.special)
    calls = form.calls
    inner = frozenset[str]() if calls is None else frozenset(calls.all()) - {*calls.openers, *calls.closers}
    return frozenset((*markers_of(opening), *opening.tokenizer.special)) - inner


def _may_be_text(opening: Opening) -> frozenset[str]:
    """Tokens that are text in this session: those of calls, where the request allows none."""
    ask = opening.ask
    if ask.tools and ask.tool_choice != "none":
        return frozenset()
    return _calls(opening)


def _calls(opening: Opening) -> frozenset[str]:
    """The tokens that the literals of calls are made of."""
    form = _format(opening)
    if form is None or form.calls is None:
        return frozenset()
    literals = tuple(form.calls.all())
    tokens = (*opening.tokenizer.special, *opening.tokenizer.added)
    return frozenset(text for text in tokens if any(text in literal for literal in literals))


def _format(opening: Opening) -> Format | None:
    """The format of the recorded parser; None for a user's own."""
    try:
        parser = catalog.parser(opening.parser)
    except UnknownName:
        return None
    if not isinstance(parser, Parser):
        return None
    return parser.format.variant(opening.tokenizer) if parser.format.variant else parser.format
