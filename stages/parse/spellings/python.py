r"""Arguments of a call in Python: ``name=value, name=value``, values as displays and literals.

Strings stand in double quotes as JSON writes them: Python reads those alike (``\/``, which it does not, is never
written). In single quotes ``\\``, ``\'``, ``\n``, ``\r`` and ``\t`` are the escapes; where a pattern is to hold, none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from stages.grammar import Json, Literal, OneOf, Row, Rule, Spelled, String, Text, one_of
from stages.parse.spellings.nested import Values
from stages.parse.spellings.objects import Key
from stages.parse.spellings.patterns import quoted
from stages.parse.spellings.strings import Bare, formed
from stages.parse.spellings.ways import Both, Schema
from stages.parse.types import Types

PYTHON: Final[Mapping[Any, str]] = {True: "True", False: "False", None: "None"}
JSON: Final[Mapping[Any, str]] = {True: "true", False: "false", None: "null"}
_SAID: Final = ("minLength", "maxLength", "pattern", "format")
NAME: Final = r"[^\W\d][\w.-]*"
"""A function's name."""
_IDENT: Final = re.compile(r"[^\W\d]\w*")
_MADE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
"""A name that the model makes up."""
_PLAIN: Final = r"[^\x00-\x1f\x7f\"'\\]{0,64}"
_SINGLE: Final = Bare(until=("'",), without=("'", "\\"))
_ESCAPES: Final = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


@dataclass(frozen=True, slots=True)
class Display:
    """``quotes``: those that strings may stand in, one or both; ``coerces``: the reader takes a string whose schema
    allows none for what it says; ``keywords``: the members are arguments; ``once``: see Notation."""

    words: Mapping[Any, str] = field(default_factory=lambda: PYTHON)
    quotes: str = "\"'"
    coerces: bool = False
    keywords: bool = False
    once: bool = False
    between: str = ", "
    typed: bool = False
    sorted: bool = False

    @property
    def braces(self) -> tuple[str, str]:
        """See Notation."""
        return ("", "") if self.keywords else ("{", "}")

    def key(self, key: Key) -> Rule | None:
        """See Notation."""
        if self.keywords:
            if key.name is not None:
                return Text(quoted(f"{key.name}=")) if _IDENT.fullmatch(key.name) else None
            return String(("=",), (_MADE, *key.patterns), unlike=key.unlike)
        if key.name is not None:
            return Row((self._exactly((key.name,)), Literal(": "))) if encodable(key.name) else None
        ways = [
            String((f"{quote}: ",), (_PLAIN, *key.patterns), unlike=key.unlike, opens=quote) for quote in self.quotes
        ]
        return one_of(ways)

    def string(self, way: Both, param: str, types: Types | None) -> Rule | None:
        """See Notation."""
        if self._never(types):
            return None
        said = [part for schema in way if (part := _said(schema))]
        more: Schema = said[0] if len(said) == 1 else {"allOf": said} if said else {}
        double = Json({"type": "string", **more}, param)
        if self.quotes == '"':
            return double
        bare = _SINGLE.string(said, param)
        if any(map(formed, said)):
            return OneOf((msgspec.structs.replace(bare, opens="'"), double))
        most = "" if bare.most is None else bare.most
        single = Text(rf"'(?:[^'\\\x00-\x1f]|\\[\\'nrt]){{{bare.least},{most}}}'")
        return single if self.quotes == "'" else OneOf((single, double))

    def texts(self, values: Sequence[str], types: Types | None) -> Rule | None:
        """See Notation."""
        values = [value for value in values if encodable(value)]
        return self._exactly(values) if values and not self._never(types) else None

    def _never(self, types: Types | None) -> bool:
        return self.coerces and types is not None and "string" not in types.kinds

    def _exactly(self, values: Sequence[str]) -> Rule:
        written = [json.dumps(value, ensure_ascii=False) for value in values if '"' in self.quotes]
        written += [f"'{_single(value)}'" for value in values if "'" in self.quotes]
        return Text("|".join(map(quoted, written)))


@dataclass(frozen=True, slots=True)
class Python:
    """``outer``: how arguments are written; ``inner``: what is nested in them."""

    outer: Display
    inner: Display

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        values = Values(value.schema, value.param, self.inner)
        return Spelled(value.schema, value.param, values.whole(self.outer))


def _said(schema: Schema) -> Schema:
    return {key: schema[key] for key in _SAID if key in schema}


def encodable(text: str) -> bool:
    """It is Unicode: no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _single(text: str) -> str:
    return "".join(_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if char < " " else char) for char in text)
