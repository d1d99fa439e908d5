"""The ways that a value may be, by its schema: what is left without references and branches.

Several schemas may be meant for one value: all of them hold. What cannot be held to is refused, by its keyword.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from itertools import combinations
from typing import Any, Final, TypeAlias, TypeGuard

from stages.errors import Unheld
from stages.parse.types import CLASSES, target

Schema: TypeAlias = dict[str, Any]
Both: TypeAlias = tuple[Schema, ...]
"""Schemas that are all meant for one value; none of them says nothing."""

_DEEPEST: Final = 32
_MOST: Final = 500
"""Ways that one value may be."""
_COMPARED: Final = 100
"""Branches of a ``oneOf`` that are compared with each other."""
_LISTED: Final = 20_000
"""Values of an enum."""
_READ: Final = 5000
"""Schemas that are looked at for one value."""
_READ_IN_ALL: Final = 200_000
NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OPEN: Final = frozenset(("additionalProperties", "patternProperties"))
_NAMED: Final = ("properties", "patternProperties")
_DEFINED: Final = ("$defs", "definitions")
_AS_IT_IS: Final = ("enum", "const", "default", "examples", "example")
_BRANCHES: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf"))
_UNHELD: Final = frozenset((
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "dependentRequired",
    "dependentSchemas", "dependencies", "propertyNames", "$dynamicRef", "$recursiveRef", "unevaluatedItems",
))  # fmt: skip
_KINDS: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_SAYS: Final = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "additionalItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": NUMERIC,
}
"""What says something of values of one kind only."""


class Ways:
    """Reads the values of one schema. ``param``: its place in the request; ``root``: where references point into."""

    def __init__(self, root: Schema, param: str) -> None:
        self.root = root
        self.param = param
        self._left = 0
        self._total = _READ_IN_ALL
        self._json: frozenset[str] = frozenset()
        self._alone = False

    def of(self, both: Both, json: frozenset[str] = frozenset()) -> list[Both]:
        """Each of schemas without references and branches; none: nothing satisfies them all. ``json``: kinds whose
        values are written as JSON, by the whole schema. Raises RequestError."""
        self._left = _READ
        self._json = json
        self._alone = len(both) == 1
        ways: list[Both] = [()]
        for schema in both:
            ways = self._product(ways, self._expanded(schema, 0))
        return [way for way in ways if kinds(way, self.param)]

    def spend(self, parts: int = 1) -> None:
        """So much of the schema is looked at. Raises RequestError where it is too much."""
        self._total -= parts
        if self._total < 0:
            raise Unheld(self.param, "it is too large, or its parts refer to others too often")

    def whole(self, both: Both) -> Schema:
        """One schema of these by itself: with what it refers to, and nothing else of the root."""
        names: dict[str, str] = {}
        alone: Schema = self._moved(both[0] if len(both) == 1 else {"allOf": [*both]} if both else {}, names)
        defined: Schema = {}
        while len(defined) < len(names):
            for ref in [*names][len(defined) :]:
                defined[names[ref]] = self._moved(self._referred(ref), names)
        return {**alone, "$defs": defined} if names else alone

    def _moved(self, part: Any, names: dict[str, str]) -> Any:
        """A copy whose references lead to the definitions that ``names`` has for what they point to."""
        if is_list(part):
            return [self._moved(each, names) for each in part]
        if not is_schema(part):
            return part
        self.spend()
        moved: Schema = {}
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                moved[key] = f"#/$defs/{names.setdefault(value, f'd{len(names)}')}"
            elif key in _NAMED and is_schema(value):
                moved[key] = {name: self._moved(each, names) for name, each in value.items()}
            elif key not in _DEFINED:
                moved[key] = value if key in _AS_IT_IS else self._moved(value, names)
        return moved

    def _expanded(self, schema: Any, depth: int) -> list[Both]:
        self.spend()
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise Unheld(self.param, "it is nested, or refers, too deep")
        if schema is False:
            return []
        table: Any = {} if schema is True else schema
        if not is_schema(table):
            raise Unheld(self.param, f"{schema!r:.100} stands where a schema should")
        plain = {key: value for key, value in table.items() if key not in _BRANCHES}
        self._checked(plain)
        ways: list[Both] = [(plain,)] if plain else [()]
        alone = not depth and self._alone and len(_BRANCHES & table.keys()) == 1
        if "$ref" in table:
            ways = self._product(ways, self._expanded(self._referred(table["$ref"]), depth + 1))
        for part in self._list(table, "allOf"):
            ways = self._product(ways, self._expanded(part, depth + 1))
        for word in (word for word in ("anyOf", "oneOf") if word in table):
            branches = [self._expanded(part, depth + 1) for part in self._list(table, word)]
            if word == "oneOf":
                self._exclude([[(plain, *way) for way in branch] for branch in branches], alone)
            ways = self._product(ways, [way for branch in branches for way in branch])
        return ways

    def _checked(self, schema: Schema) -> None:
        for key, value in schema.items():
            if key in _UNHELD and not _idle(key, value, schema):
                raise Unheld(self.param, f'"{key}" cannot be held to in this format')
            if key == "enum" and is_list(value) and len(value) > _LISTED:
                raise Unheld(self.param, f"it is too large: an enum has more than {_LISTED} values")

    def _referred(self, ref: Any) -> Any:
        found = target(ref, self.root)
        if found is None:
            raise Unheld(self.param, f'"$ref" {ref!r:.200} leads nowhere in it')
        return found

    def _list(self, schema: Schema, word: str) -> list[Any]:
        value = schema.get(word, [])
        if not is_list(value):
            raise Unheld(self.param, f'"{word}" is no list')
        return value

    def _product(self, ways: list[Both], others: list[Both]) -> list[Both]:
        if len(ways) * len(others) > _MOST:
            raise Unheld(self.param, f"a value may be written in more than {_MOST} ways")
        return [(*way, *other) for way in ways for other in others]

    def _exclude(self, branches: list[list[Both]], alone: bool) -> None:
        """What satisfies one branch of a ``oneOf`` may not satisfy another. ``alone``: nothing else is said."""
        values = [listed(way) for branch in branches for way in branch]
        if None not in values:
            written = [_canonical(value) for some in values for value in some or ()]
            if len(written) == len(set(written)):
                return
        if len(branches) > _COMPARED:
            raise Unheld(self.param, f'"oneOf" has more than {_COMPARED} branches')
        for mine, theirs in combinations(branches, 2):
            if not all(self._apart(one, other, alone) for one in mine for other in theirs):
                raise Unheld(self.param, '"oneOf" has branches that may overlap')

    def _apart(self, one: Both, other: Both, alone: bool) -> bool:
        """No value that is written for one satisfies the other."""
        values, others = listed(one), listed(other)
        if values is not None and others is not None:
            return {_canonical(value) for value in values}.isdisjoint(map(_canonical, others))
        mine, theirs = kinds(one, self.param) - self._json, kinds(other, self.param) - self._json
        if _unlike(mine, named(other, self.param)) and _unlike(theirs, named(one, self.param)):
            return True
        return mine | theirs == frozenset(("object",)) and _differs(one, other, alone) and _differs(other, one, alone)


def _differs(one: Both, other: Both, alone: bool) -> bool:
    """An object that is written for one does not satisfy the other."""
    has, wants = required(one), required(other)
    members = has.keys() | {name for schema in one for name in _table(schema)}
    closed = alone and any(map(_table, one)) and not any(schema.keys() & _OPEN for schema in one)
    if any(False in said(one, name) or (closed and name not in members) for name in wants):
        return True
    return any(False in said(other, name) or _disjoint(said(one, name), said(other, name)) for name in has)


def _disjoint(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """The values of both are listed, and differ."""
    mine, theirs = (listed(tuple(filter(is_schema, parts))) for parts in (one, other))
    if mine is None or theirs is None:
        return False
    return {_canonical(value) for value in mine}.isdisjoint(map(_canonical, theirs))


def said(way: Both, name: str) -> tuple[Any, ...]:
    """What is said of an object's member, but for patterns of names."""
    parts = (_table(schema).get(name, schema.get("additionalProperties", True)) for schema in way)
    return tuple(part for part in parts if part is not True and part != {})


def kinds(way: Both, param: str, known: Set[str] = _KINDS) -> frozenset[str]:
    """The kinds of values that are written: those that the types name, or that something else is said of, where that is
    ``known`` to the reader; "number" has whole ones too, "integer" is alone then. None: nothing satisfies it."""
    found = named(way, param)
    if not any("type" in schema or listed((schema,)) is not None for schema in way):
        for kind, words in _SAYS.items():
            if kind in known and any(word in schema for schema in way for word in words):
                return frozenset((kind,))
    return found


def named(way: Both, param: str) -> frozenset[str]:
    """The kinds that the types allow, and listed values have."""
    found = set(_KINDS)
    for schema in way:
        if "type" in schema:
            value = schema["type"]
            names = {value} if isinstance(value, str) else set(value) if is_names(value) else {""}
            if unknown := sorted(names - _KINDS):
                raise Unheld(param, f'"type" {unknown[0] or value!r:.100} is no type')
            found &= names | {"integer"} if "number" in names else names
    if (values := listed(way)) is not None:
        found = {kind_of(value) for value in values if of_kind(value, found)}
    return frozenset(found - {"integer"} if "number" in found else found)


def kind_of(value: Any) -> str:
    """The kind of a value; "integer" of every whole number."""
    return "integer" if isinstance(value, float) and value.is_integer() else CLASSES[type(value)]


def of_kind(value: Any, found: Set[str]) -> bool:
    """It is one of these kinds."""
    kind = kind_of(value)
    return kind in found or (kind == "integer" and "number" in found)


def is_names(value: Any) -> TypeGuard[list[str]]:
    """A list of names."""
    return is_list(value) and all(isinstance(name, str) for name in value)


def _unlike(some: frozenset[str], others: frozenset[str]) -> bool:
    numbers = {"integer", "number"}
    return some.isdisjoint(others) and not (some & numbers and others & numbers)


def listed(way: Both) -> list[Any] | None:
    """The values of ``enum`` and ``const``, where there are some: those in all of them."""
    found: list[Any] | None = None
    for schema in way:
        for values in _lists(schema):
            if found is None:
                found = values
            else:
                known = {_canonical(value) for value in values}
                found = [value for value in found if _canonical(value) in known]
    return found


def _lists(schema: Schema) -> Iterable[list[Any]]:
    if "const" in schema:
        yield [schema["const"]]
    values = schema.get("enum")
    if is_list(values):
        yield values


def _canonical(value: Any) -> str:
    """Of equal JSON values the same text."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_list(value):
        return [_plain(item) for item in value]
    if is_schema(value):
        return {key: _plain(item) for key, item in value.items()}
    return value


def required(way: Both) -> dict[str, None]:
    """The names that an object has."""
    return {name: None for schema in way if is_names(names := schema.get("required")) for name in names}


def _table(schema: Schema) -> Schema:
    found = schema.get("properties")
    return found if is_schema(found) else {}


def _idle(key: str, value: Any, schema: Schema) -> bool:
    """The keyword says nothing."""
    if key in ("minContains", "maxContains"):
        return "contains" not in schema
    if key in ("then", "else"):
        return "if" not in schema
    if key == "uniqueItems":
        most = schema.get("maxItems")
        return value is False or (isinstance(most, int) and most <= 1)
    if key == "propertyNames":
        return value in (True, {}, {"type": "string"})
    return value == {} and key in ("dependentRequired", "dependentSchemas", "dependencies")


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """A list."""
    return isinstance(value, list)


def is_schema(value: Any) -> TypeGuard[Schema]:
    """A table: a schema, if it stands where one should."""
    return isinstance(value, dict)
