"""JSON Schemas of requests, as a grammar is made of them.

* What says nothing goes, where the library would refuse it: a ``format`` that it does not know (JSON Schema calls these
  notes), ``uniqueItems: false``.
* An object that lists its properties and says nothing of others has no others: the schema allows them, but a small
  model that may write more does so until it runs out of tokens. Only where no other part of the schema can be meant
  for the same object.
* A pattern's ``[^...]`` leaves out U+0001 too: of a class with all control characters the library lets ``\\"`` and
  ``\\\\`` through, whatever else the class leaves out.

What the library would take for minutes over, hold wrongly or find out about only while it writes is refused before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from stages.parse.types import target

Schema: TypeAlias = dict[str, Any]

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
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
LARGEST: Final = 2000
"""The size of a schema: compiling is quadratic in it, 2 s then. Real ones stay below 300."""
_LISTED: Final = 10
"""Values of an enum that cost what a property costs."""
_MET: Final = 8
"""Patterns for one string: each doubles the time."""
_KEYED: Final = 50
"""Patterns for the names of one object: 50 ms, 300 take minutes."""
_NEGATED: Final = re.compile(r"\\.|\[\^", re.DOTALL)


def writable(schema: Schema) -> Schema:
    """What a model is held to that is to satisfy ``schema``. Raises RecursionError where it is nested too deep."""
    return _plain(schema, closed=not _shared(schema))


def _shared(schema: Schema) -> bool:
    """Two parts of it may say something of one object, or (by a reference) might."""
    for node in _nodes(schema):
        elsewhere = [key for key in _ELSEWHERE if key in node]
        if len(elsewhere) > 1 or (elsewhere and not _OWN.isdisjoint(node)):
            return True
        every: Any = node.get("allOf")
        if _is_list(every) and len(every) > 1:
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
    if key in _NAMED and _is_schema(value):
        found = list(value.values())
    elif key in _MANY and _is_list(value):
        found = value
    elif key in _ONE:
        found = [value]
    return [part for part in found if _is_schema(part)]


def _plain(schema: Schema, closed: bool) -> Schema:
    plain: Schema = {}
    for key, value in schema.items():
        if key == "format" and isinstance(value, str) and value not in _FORMATS:
            continue
        if key == "uniqueItems" and value is False:
            continue
        if key == "pattern" and isinstance(value, str):
            value = _without_control(value)
        if key == "patternProperties" and _is_schema(value):
            value = {_without_control(name): part for name, part in value.items()}
        plain[key] = _inside(key, value, closed)
    if closed and _lists_all(schema):
        plain["additionalProperties"] = False
    return plain


def _inside(key: str, value: Any, closed: bool) -> Any:
    if key in _NAMED and _is_schema(value):
        return {name: _part(part, closed) for name, part in value.items()}
    if key in _MANY and _is_list(value):
        return [_part(part, closed) for part in value]
    return _part(value, closed) if key in _ONE else value


def _part(value: Any, closed: bool) -> Any:
    return _plain(value, closed) if _is_schema(value) else value


def _lists_all(schema: Schema) -> bool:
    """It lists properties, all that it requires among them, and says nothing of others."""
    listed: Any = schema.get("properties")
    required: Any = schema.get("required", [])
    if not _is_schema(listed) or not listed or not _is_list(required):
        return False
    names = listed.keys()
    return _OTHERS.isdisjoint(schema) and all(name in names for name in required)


def _without_control(pattern: str) -> str:
    return _NEGATED.sub(lambda found: r"[^\x01" if found[0] == "[^" else found[0], pattern)


# --- what is refused ------------------------------------------------------------------------------------------------


def size(schema: Schema) -> int:
    """What compiling it costs: its objects, arrays, and names that are required; ten values of an enum count as one."""
    total = 0
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        total += 1
        waiting += [each for each in (part.values() if _is_schema(part) else part) if isinstance(each, dict | list)]
        if _is_schema(part):
            names, values = part.get("required"), part.get("enum")
            total += len(names) if _is_list(names) else 0
            total += len(values) // _LISTED if _is_list(values) else 0
    return total


def refused(schema: Schema) -> str:
    """Why no output is held to it; empty: the library is to say. Raises RecursionError where it is nested, or refers
    from one part to the next, too deep."""
    if (parts := size(schema)) > LARGEST:
        return f"it is too large: {parts} properties, required names and other parts, where {LARGEST} are the most"
    reader = _Reader(schema)
    for node in _nodes(schema):
        met = reader.met(node)
        if met is None:
            return "it refers to itself without an object or an array between"
        if met.patterns > _MET:
            return f"{met.patterns} patterns are meant for one string, where {_MET} are the most"
        if met.keyed > _KEYED:
            return f"{met.keyed} patternProperties are meant for one object, where {_KEYED} are the most"
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
        patterns, names = int("pattern" in node), len(keyed) if _is_schema(keyed) else 0
        referred = target(node.get("$ref"), self._root)
        both = [self.met(part) for part in (*_branches(node, "allOf"), *([referred] if _is_schema(referred) else []))]
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
    distinct = len(required) if _is_list(required) else 0
    return isinstance(least, int) and least > distinct + 1 and node.get("additionalProperties") is not False


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_schema(value: Any) -> TypeGuard[Schema]:
    return isinstance(value, dict)
