"""Arguments in brace notation: ``{key:value,key:value}``, strings verbatim between quotes that are tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from stages.grammar import Json, Literal, Row, Rule, Spelled, String, Text
from stages.parse.spellings.nested import Values
from stages.parse.spellings.objects import Key
from stages.parse.spellings.patterns import quoted
from stages.parse.spellings.python import JSON, encodable
from stages.parse.spellings.strings import Bare
from stages.parse.spellings.ways import Both
from stages.parse.types import ANY, STRING, Types, coerce

NAME: Final = r"[\w./-]+"
"""A function's name."""
_BARE: Final = re.compile(r"[\w$@./-]+")
_MADE: Final = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
"""A name that the model makes up."""
_NAMED: Final = r"[^\x00-\x1f\x7f]{1,64}"


@dataclass(frozen=True, slots=True)
class Braces:
    """``quote``: around strings, and around keys that need it; ``coerces``: the reader takes a quoted argument for a
    string only if the schema allows nothing else."""

    quote: str
    coerces: bool = False
    between: str = ","
    braces: tuple[str, str] = ("{", "}")
    typed: bool = True
    sorted: bool = True
    once: bool = False

    @property
    def words(self) -> Mapping[Any, str]:
        """See Notation."""
        return JSON

    @property
    def _strings(self) -> Bare:
        return Bare(until=(self.quote,), without=(self.quote,))

    def key(self, key: Key) -> Rule | None:
        """See Notation."""
        if key.patterns:
            name = String(
                (self.quote,), (_NAMED, *key.patterns), without=(self.quote,), unlike=key.unlike, opens=self.quote
            )
            return Row((name, Literal(":")))
        if key.name is None:
            return String((":",), (_MADE,), unlike=key.unlike)
        if _BARE.fullmatch(key.name):
            return Text(quoted(f"{key.name}:"))
        return Row((self._exactly((key.name,)), Literal(":"))) if self._writable(key.name) else None

    def string(self, way: Both, param: str, types: Types | None) -> Rule | None:
        """See Notation."""
        read = self._read(types)
        bare = self._strings.string(way, param, () if read is None else read.kinds - {"string"})
        return msgspec.structs.replace(bare, opens=self.quote)

    def texts(self, values: Sequence[str], types: Types | None) -> Rule | None:
        """See Notation."""
        read = self._read(types)
        values = [value for value in values if self._writable(value) and (read is None or _stays(value, read))]
        return self._exactly(values) if values else None

    def _read(self, types: Types | None) -> Types | None:
        """The types that a quoted argument is read as; None: it is a string."""
        if types is None or not self.coerces:
            return None
        types = types if types.schema else ANY
        return None if types.kinds == STRING.kinds else types

    def _writable(self, text: str) -> bool:
        return self.quote not in text and encodable(text)

    def _exactly(self, values: Sequence[str]) -> Rule:
        quote = Literal(self.quote)
        return Row((quote, Text("|".join(map(quoted, values))), quote)) if any(values) else Row((quote, quote))

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        values = Values(value.schema, value.param, self)
        rule = values.whole(self)
        before, behind = self.braces
        return Spelled(value.schema, value.param, Row((Literal(before), rule, Literal(behind))))


def _stays(value: str, types: Types) -> bool:
    """The text is read as itself."""
    return bool(json.loads(coerce(value, types)) == value)
