"""Grammars on llguidance: a Constraint over this model's vocabulary, and which tokens it allows next.

The only module that imports llguidance (docs/adr/0015). Its grammars have two levels: lexemes, which are regular
expressions over the bytes of tokens, and rules over them. JSON Schemas it compiles itself, and refuses what it cannot
hold a text to. Special tokens are no text to it: a rule names them by id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Final

import llguidance

from pipeline.engines.base import Unservable
from pipeline.engines.notation import Writer
from pipeline.engines.schemas import refused, size
from stages.errors import RequestError
from stages.grammar import Json, Rule, Spelled
from stages.opening import TokenizerFacts

VERSION: Final = version("llguidance")
KEPT: Final = 32
"""Compiled grammars that are kept for the next request that wants them: some hundred kB each."""
LARGEST: Final = 5000
"""The size of all schemas of a request (see ``schemas.size``): seconds to compile, some 10 kB each."""
_KEPT_SIZE: Final = 4 * LARGEST
"""Of all that are kept: 200 MB."""
_LIMITS: Final = llguidance.LLParserLimits(max_items_in_row=10_000, max_lexer_states=50_000)
"""An object with 500 optional properties needs 2000 items; a state takes 2 kB."""
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
    """Compiles for one vocabulary. Used by one thread; what it made may be used by another."""

    def __init__(self, pieces: Sequence[bytes], facts: TokenizerFacts) -> None:
        """``pieces``: the bytes of every id."""
        self._pieces = pieces
        self._facts = facts
        self._special = {**facts.special, **{pieces[end].decode("utf-8", "replace"): end for end in facts.eos}}
        self._made: llguidance.LLTokenizer | None = None
        self._kept: OrderedDict[str, tuple[llguidance.LLMatcher, int]] = OrderedDict()

    def compiled(self, rule: Rule) -> Callable[[], Held]:
        """What makes the state of one choice. Raises RequestError where the library cannot take a schema."""
        writer = Writer(self._special)
        try:
            text = writer.grammar(rule)
        except RecursionError:
            raise self._deep(writer.schemas) from None
        kept = self._kept.pop(text, None)
        matcher, cost = kept or self._compiled(text, writer.schemas)
        self._kept[text] = matcher, cost
        total = sum(cost for _, cost in self._kept.values())
        while len(self._kept) > KEPT or (total > _KEPT_SIZE and len(self._kept) > 1):
            _, (_, freed) = self._kept.popitem(last=False)
            total -= freed
        ends = frozenset(self._facts.eos)
        return lambda: Held(matcher.deep_copy(), ends)

    def _compiled(self, text: str, schemas: Sequence[Json | Spelled]) -> tuple[llguidance.LLMatcher, int]:
        """And its size."""
        total = 0
        for schema in schemas:
            try:
                why = refused(schema.schema)
            except RecursionError:
                raise self._deep([schema]) from None
            if why:
                raise _unsupported(schema.param, why)
            total += size(schema.schema)
            if total > LARGEST:
                raise _unsupported(schema.param, f"all schemas together are too large: more than {LARGEST} parts")
        matcher = self._matcher(text)
        if matcher.is_error():
            raise self._refusal(schemas, matcher)
        for schema in schemas:
            if isinstance(schema, Spelled) and not self._written(schema):
                raise _unsupported(schema.param, "unsatisfiable: what is said of a string leaves none")
        return matcher, total

    def _written(self, schema: Spelled) -> bool:
        """Each of its strings can be: the library finds out about some only while it writes."""
        writer = Writer(self._special)
        writer.grammar(schema)
        for string in map(self._matcher, writer.strings()):
            string.compute_bitmask()
            if string.get_error():
                return False
        return True

    def _matcher(self, grammar: str) -> llguidance.LLMatcher:
        return llguidance.LLMatcher(self._tokenizer(), grammar, log_level=0, limits=_LIMITS)

    def _tokenizer(self) -> llguidance.LLTokenizer:
        """Made when it is wanted: a second and 100 MB for 150 000 tokens."""
        if self._made is None:
            if not self._facts.eos:
                raise RequestError("this model has no token that ends its output, so nothing can be held to a form")
            wrapped = llguidance.TokenizerWrapper(_Vocabulary(self._pieces, self._facts, self._special.values()))
            ends = list(self._facts.eos)
            self._made = llguidance.LLTokenizer(wrapped, n_vocab=len(self._pieces), eos_token=ends)
        return self._made

    def _refusal(self, schemas: Iterable[Json | Spelled], matcher: llguidance.LLMatcher) -> RequestError:
        for schema in schemas:
            alone = self._matcher(Writer(self._special).grammar(schema))
            if error := alone.get_error():
                return _unsupported(schema.param, _said(error))
        return RequestError(f"no output can be held to what was asked: {_said(matcher.get_error())}")

    def _deep(self, schemas: Sequence[Json | Spelled]) -> RequestError:
        """The last one was being written."""
        return _unsupported(schemas[-1].param if schemas else "", "it is nested, or refers, too deep")


class _Vocabulary:
    """What the library asks of a tokenizer. It never cuts text with it: our grammars force no tokens."""

    def __init__(self, pieces: Sequence[bytes], facts: TokenizerFacts, special: Iterable[int]) -> None:
        self.tokens = pieces
        self.eos_token_id = facts.eos[0]
        self.bos_token_id = None
        self.special_token_ids = sorted(set(special))

    def __call__(self, text: bytes) -> list[int]:
        return []


def _unsupported(param: str, why: str) -> RequestError:
    message = f"{param}: no output can be held to this schema: {why}"
    return RequestError(message, param=param, code="unsupported_schema")


def _said(error: str) -> str:
    """The first line of the library's own words."""
    first = error.strip().splitlines()[0] if error.strip() else "no token is allowed"
    return first.rpartition("failed to compile JSON schema: ")[2][:_SHOWN]
