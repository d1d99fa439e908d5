"""One value between tags: a string bare, all else as JSON, so that its reader takes it for what the schema means.

The reader knows the kinds that the whole of the tool's schema has for a name (``Types``), and takes the first that fits
(``coerce``): what would be read as another kind, or as another value of an enum, is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec

from stages.grammar import Json, Literal, OneOf, Row, Rule
from stages.parse.spellings.shape import Reader, Schema, refuse
from stages.parse.spellings.strings import Bare, quoted
from stages.parse.types import ANY, Kind, Types, coerce, types_of

_COMBINES: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf"))
_SAID: Final = ("not", "if", "$dynamicRef", "$recursiveRef")
"""Say something of a string that no rule of ours has."""
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_MOST: Final = 64
"""Ways that a value may be."""
_DEEPEST: Final = 32
_STEPS: Final = 1000
"""Schemas that are looked at for one value."""
_LARGEST: Final = 10**15
"""Of a number without bounds: one with an exponent may be infinite, and then no number to the reader."""

_BLANK: Final = r"[\s\x1c-\x1f]*"
_NULL: Final = f"{_BLANK}(?:[Nn][Uu][Ll][Ll]|[Nn][Oo][Nn][Ee]){_BLANK}"
_NUMBER: Final = rf"{_BLANK}[+-]?[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?{_BLANK}"
_TRUTH: Final = f"{_BLANK}(?:[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|1|0){_BLANK}"
_READ: Final[dict[Kind, str]] = {
    "null": _NULL, "integer": _NUMBER, "number": _NUMBER, "boolean": _TRUTH,
    "object": rf"{_BLANK}\{{(?s:.*)", "array": rf"{_BLANK}\[(?s:.*)",
}  # fmt: skip
"""Texts that are read as this kind, where it may be meant."""
_QUOTED: Final = rf'{_BLANK}"(?s:.*)'


@dataclass(frozen=True, slots=True)
class Values:
    """``bare``: how strings are written, up to the end of the value, which other values have too; ``read``: raw text and
    types → JSON text, as the format's reader has it."""

    reader: Reader
    bare: Bare
    read: Callable[[str, Types], str] = coerce

    def rule(self, schema: Schema, types: Types, *, only: bool = False) -> Rule:
        """A value, and its end. ``types``: by which it is read; ``only``: it has one of these kinds, whatever else the
        schema allows. Raises RequestError."""
        ways = self.ways(schema)
        texts = [] if only and "string" not in types.kinds else [self._text(way, types) for way in ways]
        rest = self._rest(schema, frozenset(types.kinds - {"string"}))
        rules = (*(rule for rule in texts if rule is not None), *rest)
        if not rules:
            refuse(self.reader.param, f"no value of {schema!r:.200} can be written in this format")
        return rules[0] if len(rules) == 1 else OneOf(rules)

    def ways(self, schema: Any) -> list[list[Schema]]:
        """Of a value: each some schemas that it satisfies, without references and branches. Raises RequestError."""
        return _Ways(self.reader).of(schema)

    def kinds(self, schema: Any) -> frozenset[Kind]:
        """That a value may have. Raises RequestError."""
        return frozenset[Kind]().union(*map(_kinds, self.ways(schema)))

    # --- strings ------------------------------------------------------------------------------------------------------

    def _text(self, way: list[Schema], types: Types) -> Rule | None:
        """A string that satisfies all schemas of a way; None: there is none that can be written."""
        if "string" not in _kinds(way):
            return None
        for schema in way:
            if key := next((key for key in _SAID if key in schema), None):
                refuse(self.reader.param, f'"{key}" of a string cannot be held to in this format')
        unlike = () if types.verbatim else (*self._unlike(types),)
        bare = replace(self.bare, unlike=(*self.bare.unlike, *unlike))
        rule = bare.string(way, self.reader.param, typed=True)
        values = _listed(way)
        if values is None:
            return rule
        texts = [quoted(value) for value in values if isinstance(value, str) and self._is_read(value, value, types)]
        if not texts:
            return None
        return msgspec.structs.replace(rule, patterns=(*rule.patterns, "|".join(texts)), without=(), unlike=())

    @staticmethod
    def _unlike(types: Types) -> Iterator[str]:
        """Texts that are read as no string."""
        kinds = types.kinds
        if "string" not in kinds:
            kinds = ANY.kinds
            yield _QUOTED
        yield from dict.fromkeys(_READ[kind] for kind in sorted(kinds - {"string"}))

    # --- other values -------------------------------------------------------------------------------------------------

    def _rest(self, schema: Schema, kinds: frozenset[Kind]) -> Iterator[Rule]:
        """What has one of these kinds, as JSON."""
        kinds &= self.kinds(schema)
        if not kinds:
            return
        narrowed = self._narrowed(schema, kinds)
        enum = types_of(schema, self.reader.root).enum
        if enum is not None:
            values = [value for value in enum if not isinstance(value, str)]
            values = [value for value in values if self._is_read(_json(value), value, Types(kinds))]
            if not values:
                return
            narrowed = {"allOf": [narrowed, {"enum": values}]}
        elif "number" in kinds and not any(f'"{key}"' in _json(schema) for key in _BOUNDS):
            bounds = {"minimum": -_LARGEST, "maximum": _LARGEST}
            narrowed = {"allOf": [narrowed, bounds]} if _COMBINES & narrowed.keys() else {**narrowed, **bounds}
        yield Row((Json(self.reader.whole(narrowed), self.reader.param), Literal(self.bare.until[0])))

    def _narrowed(self, schema: Schema, kinds: frozenset[Kind]) -> Schema:
        """What has one of these kinds. No ``allOf`` where another will do: its objects would be open."""
        if self.kinds(schema) <= kinds:
            return schema
        combined = _COMBINES & schema.keys()
        if not combined:
            return {**schema, "type": sorted(kinds)}
        for word in ("anyOf", "oneOf"):
            if combined == {word}:
                parts = [part for part in _rows(schema[word]) if kinds & self.kinds(part)]
                return {**schema, word: [self._narrowed({} if part is True else part, kinds) for part in parts]}
        return {"allOf": [schema, {"type": sorted(kinds)}]}

    def _is_read(self, raw: str, value: Any, types: Types) -> bool:
        """It can be written, and is read as itself."""
        if isinstance(value, str) and not self.bare.holds(raw):
            return False
        try:
            found = json.loads(self.read(raw, types))
        except (ValueError, RecursionError):
            return False
        return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)


class _Ways:
    """The ways that a value may be: each some schemas that it satisfies, without references and branches."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._steps = 0

    def of(self, schema: Any, depth: int = 0) -> list[list[Schema]]:
        """Raises RequestError."""
        self._steps += 1
        if depth > _DEEPEST or self._steps > _STEPS:
            refuse(self._reader.param, "it is nested, or refers, too deep")
        if not isinstance(schema, dict):
            if not isinstance(schema, bool):
                refuse(self._reader.param, f"{schema!r:.100} is no schema")
            return [[]] if schema else []
        table = cast("Schema", schema)
        own = {key: value for key, value in table.items() if key not in _COMBINES}
        ways = [[own]] if own else [[]]
        referred = [self._reader.target(table["$ref"])] if "$ref" in table else []
        for part in (*referred, *_rows(table.get("allOf"))):
            ways = self._every(ways, self.of(part, depth + 1))
        for word in ("anyOf", "oneOf"):
            if word in table:
                branches = [self.of(part, depth + 1) for part in _rows(table[word])]
                if word == "oneOf" and _overlap(branches):
                    refuse(self._reader.param, 'branches of "oneOf" may be satisfied together')
                ways = self._every(ways, [way for branch in branches for way in branch])
        return ways

    def _every(self, ways: list[list[Schema]], others: list[list[Schema]]) -> list[list[Schema]]:
        if len(ways) * len(others) > _MOST:
            refuse(self._reader.param, f"a value may be written in more than {_MOST} ways")
        return [[*way, *other] for way in ways for other in others]


def _overlap(branches: list[list[list[Schema]]]) -> bool:
    """A string may satisfy two of them."""
    seen: list[Any] = []
    others = 0
    for branch in branches:
        texts = [way for way in branch if "string" in _kinds(way)]
        values = [_listed(way) for way in texts]
        listed = [value for each in values if each is not None for value in each if isinstance(value, str)]
        if any(value in seen for value in listed):
            return True
        seen += listed
        others += bool(texts) and (None in values)
    return others > 1 or bool(others and seen)


def _kinds(way: list[Schema]) -> frozenset[Kind]:
    """Those that a value may have."""
    kinds = ANY.kinds
    for schema in way:
        if "type" in schema:
            named = types_of({"type": schema["type"]}, {}).kinds
            kinds &= named | {"integer"} if "number" in named else named
        if "enum" in schema or "const" in schema:
            kinds &= types_of({key: schema[key] for key in ("enum", "const") if key in schema}, {}).kinds
    return kinds


def _listed(way: list[Schema]) -> list[Any] | None:
    """The values that are left of all enums; None: there is none."""
    found: list[Any] | None = None
    for schema in way:
        rows = ([schema["const"]],) if "const" in schema else ()
        for values in (*rows, *([_rows(schema["enum"])] if "enum" in schema else [])):
            found = values if found is None else [value for value in found if value in values]
    return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
