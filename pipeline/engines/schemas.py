"""JSON Schemas of requests, as a grammar is made of them.

* What says nothing goes, where the library would refuse it: a ``format`` that it does not know (JSON Schema calls these
  notes), ``uniqueItems: false``, that names are strings; ``oneOf`` of different values is ``anyOf``.
* An object that lists its properties and says nothing of others has no others: the schema allows them, but a small
  model that may write more does so until it runs out of tokens. Only where no other part of the schema can be meant
  for the same object. One with ``patternProperties`` has no others whatever it says.
* Where others are allowed beside listed ones, they are said by a pattern: else the library takes a listed name with
  ``\\u`` escapes in it for another.
* A number over a whole one and under the next (``exclusiveMinimum: 1, maximum: 1.5``) is further away from it: the
  library lets the bound itself through.

What the library would take for minutes over, hold wrongly or find out about only while it writes is refused before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeGuard

from stages.parse.spellings.patterns import others, translated
from stages.parse.spellings.strings import FORMATS, MET
from stages.parse.spellings.ways import NUMERIC, Schema, is_list, is_schema
from stages.parse.types import target
from stages.schema_size import too_large

_ONE: Final = frozenset(("items", "additionalProperties", "additionalItems"))
_MANY: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_OTHERS: Final = frozenset(
    ("additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "propertyNames")
)
"""Say something of properties that are not listed."""
_OWN: Final = frozenset(("properties", "required", *_OTHERS))
_ELSEWHERE: Final = ("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "not", "dependentSchemas")
"""Say more of the same value."""
_KEYED: Final = 50
"""Patterns for the names of one object: 50 ms, 300 take minutes."""
_WHOLE: Final = 1 << 63
"""The library counts in 64 bits."""
_TIMES: Final = frozenset(("time", "date-time"))
_NO_LEAP: Final = ":[0-5][0-9]:[0-5]"
"""A second of a minute: the 61st is one, but few who read it know that."""
_NEAR: Final = 1e-6
"""How far a number is from a whole one that it is not, where the library needs it said."""


class _Way(NamedTuple):
    """``closed``: nothing but one object schema is meant for an object; ``alone``: nor but one schema, that may have
    ``properties`` and ``patternProperties`` for one name."""

    closed: bool
    alone: bool


def writable(schema: Schema) -> Schema:
    """What a model is held to that is to satisfy ``schema``. Raises RecursionError where it is nested too deep."""
    alone = not _shared(schema)
    closed = alone and not any(node.get("properties") and node.get("patternProperties") for node in _nodes(schema))
    return _plain(schema, _Way(closed, alone))


def _shared(schema: Schema) -> bool:
    """Two parts of it may say something of one object, or (by a reference) might."""
    for node in _nodes(schema):
        elsewhere = [key for key in _ELSEWHERE if key in node]
        if len(elsewhere) > 1 or (elsewhere and not _OWN.isdisjoint(node)):
            return True
        every: Any = node.get("allOf")
        if is_list(every) and len(every) > 1:
            return True
    return False


def _nodes(schema: Schema) -> Iterator[Schema]:
    """All schemas in it."""
    yield schema
    for key, value in schema.items():
        for part in _parts(key, value):
            yield from _nodes(part)


def _parts(key: str, value: Any) -> list[Schema]:
    """The schemas in a keyword's value."""
    found: list[Any] = []
    if key in _NAMED and is_schema(value):
        found = list(value.values())
    elif key in _MANY and is_list(value):
        found = value
    elif key in _ONE:
        found = [value]
    return [part for part in found if is_schema(part)]


def _plain(schema: Schema, way: _Way) -> Schema:
    plain: Schema = {}
    for key, value in schema.items():
        if _is_note(key, value):
            continue
        if key == "pattern" and isinstance(value, str):
            value = translated(value)
        if key == "patternProperties" and is_schema(value):
            value = {translated(name): part for name, part in value.items()}
        if key == "oneOf" and "anyOf" not in schema and _different(value):
            key = "anyOf"
        plain[key] = _inside(key, value, way)
    if (way.closed and _lists_all(schema)) or (way.alone and plain.get("patternProperties")):
        plain["additionalProperties"] = False
    elif _opens(schema):
        _say_others(plain)
    if plain.get("format") in _TIMES and "pattern" not in plain:
        plain["pattern"] = _NO_LEAP
    if schema.get("type") != "integer":
        _keep_off(plain, way.alone)
    return plain


def _is_note(key: str, value: Any) -> bool:
    """It says nothing."""
    unknown = key == "format" and isinstance(value, str) and value not in FORMATS
    named = key == "propertyNames" and value in ({}, True, {"type": "string"})
    return unknown or named or (key == "uniqueItems" and value is False)


def _opens(schema: Schema) -> bool:
    """It lists properties, and others are allowed."""
    patterns = schema.get("patternProperties")
    return bool(schema.get("properties")) and schema.get("additionalProperties") is not False and not patterns


def _say_others(plain: Schema) -> None:
    """By a pattern. One that they all have matches all names, so that several parts of a schema may say it."""
    listed, value = plain["properties"], plain.get("additionalProperties", True)
    pattern = "" if value is True or value == {} else others(listed) if is_schema(listed) else ""
    if pattern or value is True or value == {}:
        plain["patternProperties"] = {pattern: {} if value is True else value}
        plain["additionalProperties"] = False


def _different(branches: Any) -> bool:
    """Each is one value, or some, and none is another's."""
    if not is_list(branches):
        return False
    seen: set[str] = set()
    for branch in branches:
        if not is_schema(branch) or ("const" in branch) == ("enum" in branch):
            return False
        values: Any = [branch["const"]] if "const" in branch else branch["enum"]
        if not is_list(values) or not all(value is None or isinstance(value, str | bool) for value in values):
            return False
        written = {json.dumps(value) for value in values}
        if not seen.isdisjoint(written):
            return False
        seen |= written
    return True


def _keep_off(plain: Schema, alone: bool) -> None:
    """Numbers keep off a whole one that is no longer one of them. ``alone``: both bounds are said here."""
    low: Any = plain.get("exclusiveMinimum", plain.get("minimum"))
    high: Any = plain.get("exclusiveMaximum", plain.get("maximum"))
    gap = high - low if _is_number(low) and _is_number(high) else 1
    if (alone and gap >= 1) or gap <= 0:
        return
    near = min(_NEAR, gap / 1000)
    for sign, exclusive, inclusive in ((1, "exclusiveMinimum", "minimum"), (-1, "exclusiveMaximum", "maximum")):
        bound: Any = plain.get(exclusive)
        if _is_number(bound) and bound == int(bound) and abs(bound) < 1 / _NEAR:
            other: Any = plain.get(inclusive, bound)
            tight = float(bound + sign * near)
            plain[inclusive] = max(tight, other) if sign > 0 else min(tight, other)
            del plain[exclusive]


def _inside(key: str, value: Any, way: _Way) -> Any:
    if key in _NAMED and is_schema(value):
        return {name: _part(part, way) for name, part in value.items()}
    if key in _MANY and is_list(value):
        return [_part(part, way) for part in value]
    return _part(value, way) if key in _ONE else value


def _part(value: Any, way: _Way) -> Any:
    return _plain(value, way) if is_schema(value) else value


def _lists_all(schema: Schema) -> bool:
    """It lists properties, all that it requires among them, and says nothing of others."""
    listed: Any = schema.get("properties")
    required: Any = schema.get("required", [])
    if not is_schema(listed) or not listed or not is_list(required):
        return False
    names = listed.keys()
    return _OTHERS.isdisjoint(schema) and all(name in names for name in required)


# --- what is refused ------------------------------------------------------------------------------------------------


def refused(schema: Schema) -> str:
    """Why no output is held to it; empty: the library is to say. Raises RecursionError where it is nested, or refers
    from one part to the next, too deep."""
    if why := too_large(schema):
        return why
    reader = _Reader(schema)
    shared = _shared(schema)
    for node in _nodes(schema):
        met = reader.met(node)
        if met is None:
            return "it refers to itself without an object or an array between"
        if met.patterns > MET:
            return f"{met.patterns} patterns are meant for one string, where {MET} are the most"
        if met.keyed > _KEYED:
            return f"{met.keyed} patternProperties are meant for one object, where {_KEYED} are the most"
        if why := _misheld(node, shared):
            return why
        if _repeatable(node):
            return 'its "minProperties" asks for more names than it requires, and a name may be written twice'
    return ""


class _Met(NamedTuple):
    """How many patterns are meant for one value, and for the names of one object."""

    patterns: int
    keyed: int


class _Reader:
    """Follows what is meant for one value: references and branches."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, _Met | None] = {}

    def met(self, node: Schema) -> _Met | None:
        """None: it leads to itself."""
        key = id(node)
        if key not in self._known:
            self._known[key] = None  # while it is read
            self._known[key] = self._read(node)
        return self._known[key]

    def _read(self, node: Schema) -> _Met | None:
        keyed = node.get("patternProperties")
        patterns, names = int("pattern" in node), len(keyed) if is_schema(keyed) else 0
        referred = target(node.get("$ref"), self._root)
        both = [self.met(part) for part in (*_branches(node, "allOf"), *([referred] if is_schema(referred) else []))]
        either = [self.met(part) for key in ("anyOf", "oneOf") for part in _branches(node, key)]
        if None in both or None in either:
            return None
        patterns += sum(met.patterns for met in both if met) + max((met.patterns for met in either if met), default=0)
        names += sum(met.keyed for met in both if met) + max((met.keyed for met in either if met), default=0)
        return _Met(patterns, names)


def _branches(node: Schema, key: str) -> list[Schema]:
    return _parts(key, node.get(key))


def _repeatable(node: Schema) -> bool:
    """Names that are not listed may be written twice, and one object needs more of them than one."""
    least: Any = node.get("minProperties")
    required: Any = node.get("required")
    distinct = len(required) if is_list(required) else 0
    return isinstance(least, int) and least > distinct + 1 and node.get("additionalProperties") is not False


def _misheld(node: Schema, shared: bool) -> str:
    """What the library would hold to something else."""
    for key in (*NUMERIC, "const", "enum"):
        if number := _beyond(node.get(key)):
            return f"its {key!r} has {number:.30g}, where numbers count up to 2^63"
    open_ = node.get("additionalProperties") is not False
    if shared and node.get("patternProperties") and open_:
        return 'its "patternProperties" need "additionalProperties": false, where more is said of the same object'
    listed: Any = node.get("properties")
    keyed: Any = node.get("patternProperties")
    if is_schema(listed) and is_schema(keyed):
        for pattern in keyed:
            if pattern[:1] == "^" and pattern[-1:] == "$" and pattern[1:-1] in listed:
                return f'"patternProperties" has {pattern!r}, which "properties" has'
    if _opens(node) and is_schema(listed) and node.get("additionalProperties") not in (None, True, {}):
        return "" if others(listed) else 'it lists too many "properties" beside a schema of "additionalProperties"'
    return ""


def _beyond(value: Any) -> float | int | None:
    """A whole number in it that is too large."""
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, int) and not -_WHOLE <= part < _WHOLE:
            return part
        waiting += part.values() if is_schema(part) else part if is_list(part) else ()
    return None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
