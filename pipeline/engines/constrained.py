"""Grammars on llguidance: a Constraint over this model's vocabulary, and which tokens it allows next.

The only module that imports llguidance (docs/adr/0015). Its grammars have two levels: lexemes, which are regular
expressions over the bytes of tokens, and rules over them. JSON Schemas it compiles itself, and refuses what it cannot
hold a text to. Special tokens are no text to it: a rule names them by id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Final

import llguidance
import msgspec

from pipeline.engines.base import Unservable
from pipeline.engines.notation import Writer
from pipeline.engines.once import Made, Once
from pipeline.engines.schemas import refused
from stages.errors import RequestError, Unheld
from stages.grammar import Json, Rule, Spelled, String
from stages.opening import TokenizerFacts
from stages.schema_size import LARGEST, size

VERSION: Final = version("llguidance")
KEPT: Final = 32
"""Compiled grammars that are kept for the next request that wants them: some hundred kB each."""
_KEPT_SIZE: Final = 4 * LARGEST
"""The schemas of all that are kept: some 10 kB a part, 200 MB."""
_LIMITS: Final = llguidance.LLParserLimits(max_items_in_row=10_000, max_lexer_states=50_000)
"""An object with 500 optional properties needs 2000 items; a state takes 2 kB."""
AT_ONCE: Final = 2
"""Grammars that are compiled at once: each takes a core from the model."""
_SHOWN: Final = 300
"""Characters of the library's own words in a message."""


class Held:
    """One choice, held to a grammar. ``ends``: the ids that may end it, where the grammar is complete."""

    def __init__(self, matcher: llguidance.LLMatcher, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._ends = ends

    def mask(self) -> bytes:
        """A bit for each id, lowest first: whether it may come next. Raises Unservable where none may, or where the
        library gives up (its bounds on time and memory)."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error() or mask.count(0) == len(mask):
            raise Unservable(f"the output cannot be held to what was asked: {_said(self._matcher.get_error())}")
        return mask

    @property
    def complete(self) -> bool:
        """The output may end here."""
        return self._matcher.is_accepting()

    def take(self, token: int) -> None:
        """A token was chosen, an allowed one."""
        if token not in self._ends and not self._matcher.consume_token(token):
            raise Unservable(f"the output left what it was held to: {_said(self._matcher.get_error())}")


class Grammars:
    """Compiles for one vocabulary. Used by any thread, and so is what it made."""

    def __init__(self, pieces: Sequence[bytes], facts: TokenizerFacts) -> None:
        """``pieces``: the bytes of every id. Takes a second and 100 MB for 150 000 tokens, and no other thread runs
        meanwhile, so this is for the time before anyone is served."""
        self._special = {**facts.special, **{pieces[end].decode("utf-8", "replace"): end for end in facts.eos}}
        self._ends = frozenset(facts.eos)
        self._tokenizer = _tokenizer(pieces, facts, self._special.values()) if facts.eos else None
        self._once: Once[llguidance.LLMatcher] = Once(KEPT, _KEPT_SIZE, AT_ONCE)

    def compiled(self, rule: Rule, wanted: Callable[[], bool] = lambda: True) -> Callable[[], Held]:
        """What makes the state of one choice. Takes seconds at worst, in which other threads run; those that want the
        same wait for it. ``wanted``: asked before it is compiled; where it says no, CancelledError is raised. Raises
        RequestError where the library cannot take a schema."""
        writer = Writer(self._special)
        try:
            text = writer.grammar(rule)
        except RecursionError:
            raise self._deep(writer.schemas) from None
        matcher = self._once.get(text, partial(self._compiled, text, writer), wanted)
        return lambda: Held(matcher.deep_copy(), self._ends)

    def _compiled(self, text: str, writer: Writer) -> Made[llguidance.LLMatcher]:
        total = 0
        for schema in writer.schemas:
            try:
                why = refused(schema.schema)
            except RecursionError:
                raise self._deep([schema]) from None
            if why:
                raise Unheld(schema.param, why)
            total += size(schema.schema)
            if total > LARGEST:
                raise Unheld(schema.param, f"all schemas together are too large: more than {LARGEST} parts")
        matcher = self._matcher(text)
        if not matcher.is_error():
            matcher.compute_bitmask()  # the first one takes long: all copies have it then
        if matcher.is_error():
            raise self._refusal(writer, matcher)
        for rule, param in writer.strings.items():
            self._written(rule, param)
        return Made(matcher, total)

    def _written(self, rule: String, param: str) -> None:
        """There is such a string: the library would find out when it is to be written."""
        text = Writer(self._special).grammar(msgspec.structs.replace(rule, opens=""))
        try:
            Held(self._matcher(text), frozenset()).mask()
        except Unservable:
            what = " and ".join(rule.patterns[:3]) or f"at least {rule.least} characters"
            raise Unheld(param, f"no string that can be written in this format satisfies {what:.200}") from None

    def _matcher(self, grammar: str) -> llguidance.LLMatcher:
        if self._tokenizer is None:
            raise RequestError("this model has no token that ends its output, so nothing can be held to a form")
        return llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)

    def _refusal(self, writer: Writer, matcher: llguidance.LLMatcher) -> RequestError:
        for rule in writer.schemas:
            alone = self._matcher(Writer(self._special).grammar(rule))
            if error := alone.get_error():
                return Unheld(rule.param, _said(error))
        return RequestError(f"no output can be held to what was asked: {_said(matcher.get_error())}")

    def _deep(self, schemas: Sequence[Json | Spelled]) -> RequestError:
        """The last one was being written."""
        return Unheld(schemas[-1].param if schemas else "", "it is nested, or refers, too deep")


class _Vocabulary:
    """What the library asks of a tokenizer. It never cuts text with it: our grammars force no tokens."""

    def __init__(self, pieces: Sequence[bytes], facts: TokenizerFacts, special: Iterable[int]) -> None:
        self.tokens = pieces
        self.eos_token_id = facts.eos[0]
        self.bos_token_id = None
        self.special_token_ids = sorted(set(special))

    def __call__(self, text: bytes) -> list[int]:
        return []


def _tokenizer(pieces: Sequence[bytes], facts: TokenizerFacts, special: Iterable[int]) -> llguidance.LLTokenizer:
    wrapped = llguidance.TokenizerWrapper(_Vocabulary(pieces, facts, special))
    return llguidance.LLTokenizer(wrapped, n_vocab=len(pieces), eos_token=list(facts.eos))


_OURS: Final = (
    (re.compile(r"Unimplemented keys: \[(.*)\]"), r"\1 cannot be held to: leave it out"),
    (
        re.compile(r"oneOf constraints are not supported\..*"),
        'branches of "oneOf" that may overlap cannot be held to: write "anyOf", or tell them apart by a "const"',
    ),
    (
        re.compile(r"Resource '(.*)' is not present in a registry.*"),
        r'"$ref" to another document, \1: put it into "$defs"',
    ),
)
"""What a client cannot act on, as the library says it, and what is said instead."""


def _said(error: str) -> str:
    """What the library says, in one line: the first, and where that points into a text, what is wrong with it."""
    lines = error.strip().splitlines() or ["no token is allowed"]
    first = lines[0].rpartition("failed to compile JSON schema: ")[2]
    wrong = next((line for line in lines if line.startswith("error: ")), "") if first.endswith(":") else ""
    said = f"{first} {wrong.removeprefix('error: ')}".strip()
    for words, ours in _OURS:
        said = words.sub(ours, said)
    return said[:_SHOWN]
