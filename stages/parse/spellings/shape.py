"""What a schema says of an object, where a format writes its members one by one.

What cannot be held to so is refused: a keyword that says something of the object as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias, cast

from stages.errors import RequestError
from stages.parse.types import Types, target, types_of

Schema: TypeAlias = dict[str, Any]

_EITHER: Final = ("anyOf", "oneOf")
_MERGED: Final = frozenset(("properties", "required", "additionalProperties", "type"))
_SAID: Final = frozenset((
    "not", "if", "enum", "const", "$dynamicRef", "$recursiveRef", "patternProperties", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
))  # fmt: skip
"""Say something of an object beyond its members."""
_VALUES: Final = frozenset(("const", "enum", "default", "examples", "example"))
"""Hold no schemas."""
_MOST: Final = 64
"""Ways that an object may be."""
_DEEPEST: Final = 32
_NESTED: Final = 100
"""Levels of a value's schema: the engine takes fewer."""
_STEPS: Final = 2000
"""Schemas that are looked at for the ways of one object."""
_COPIED: Final = 50_000
"""Parts of schemas that are handed on, definitions as often as they are referred to."""


def refuse(param: str, why: str) -> NoReturn:
    """Raises the RequestError of a schema that a format cannot be held to. ``param``: its place in the request."""
    raise RequestError(f"{param}: no output can be held to this schema: {why}", param=param, code="unsupported_schema")


@dataclass(frozen=True, slots=True)
class Member:
    """One that is listed. ``types``: what a reader takes it for that knows this way of the object alone."""

    name: str
    schema: Schema
    types: Types
    required: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """``others``: the schema of members that are not listed; None: there are none."""

    members: tuple[Member, ...]
    others: Schema | None


class Reader:
    """Reads the objects of one schema. ``param``: its place in the request; ``root``: where references point into."""

    def __init__(self, root: Schema, param: str) -> None:
        self.root = root
        self.param = param
        self._steps = self._copied = 0

    def shapes(self, schema: Schema) -> list[Shape]:
        """The ways that an object of the schema may be. Raises RequestError."""
        self._steps = 0
        ways = [way for way in self._ways(schema, 0) if _may_be(way)]
        found = [shape for way in ways if (shape := self._shape(way)) is not None]
        if not found:
            refuse(self.param, "nothing satisfies it")
        return found

    def target(self, ref: Any) -> Schema | bool:
        """What a reference leads to. Raises RequestError where that is nowhere."""
        found = target(ref, self.root)
        if not isinstance(found, dict | bool):
            refuse(self.param, f'"$ref" {ref!r:.100} leads nowhere in it')
        return cast("Schema", found) if isinstance(found, dict) else found

    # --- schemas of values --------------------------------------------------------------------------------------------

    def whole(self, schema: Schema) -> Schema:
        """The schema by itself, with the definitions that it refers to. Raises RequestError."""
        refs: dict[str, str] = {}
        own = self._copy(schema, refs, 0)
        defined: Schema = {}
        while len(defined) < len(refs):
            for ref, name in [*refs.items()][len(defined) :]:
                defined[name] = self._copy(self.target(ref), refs, 0)
        return {**own, "$defs": defined} if defined else own

    def _copy(self, part: Any, refs: dict[str, str], depth: int) -> Any:
        """``refs``: those met so far, and the names of what they lead to."""
        self._copied += 1
        if depth > _NESTED:
            refuse(self.param, "it is nested, or refers, too deep")
        if self._copied > _COPIED:
            refuse(self.param, "it is too large: too many parts refer to too many others")
        if isinstance(part, list):
            return [self._copy(each, refs, depth + 1) for each in part]
        if not isinstance(part, dict):
            return part
        copied: Schema = {}
        for key, value in cast("Schema", part).items():
            if key == "$ref" and isinstance(value, str):
                copied[key] = f"#/$defs/{refs.setdefault(value, f'd{len(refs)}')}"
            elif depth or key not in ("$defs", "definitions"):
                copied[key] = value if key in _VALUES else self._copy(value, refs, depth + 1)
        return copied

    # --- objects ------------------------------------------------------------------------------------------------------

    def _ways(self, schema: Any, depth: int) -> list[Schema]:
        """The schema without references and branches."""
        self._steps += 1
        if depth > _DEEPEST or self._steps > _STEPS:
            refuse(self.param, "it is nested, or refers, too deep")
        if not isinstance(schema, dict):
            if not isinstance(schema, bool):
                refuse(self.param, f"{schema!r:.100} is no schema")
            return [{}] if schema else []
        table = cast("Schema", schema)
        ways: list[Schema] = [{key: value for key, value in table.items() if key not in ("$ref", "allOf", *_EITHER)}]
        referred = [self.target(table["$ref"])] if "$ref" in table else []
        for part in (*referred, *_rows(table.get("allOf"))):
            ways = self._every(ways, self._ways(part, depth + 1))
        for word in _EITHER:
            if word in table:
                branches = [self._every(ways, self._ways(part, depth + 1)) for part in _rows(table[word])]
                if word == "oneOf" and _overlap(branches):
                    refuse(self.param, 'branches of "oneOf" may be satisfied together')
                ways = [way for branch in branches for way in branch]
        if len(ways) > _MOST:
            refuse(self.param, f"an object may be written in more than {_MOST} ways")
        return ways

    def _every(self, ways: list[Schema], others: list[Schema]) -> list[Schema]:
        if len(ways) * len(others) > _MOST:
            refuse(self.param, f"an object may be written in more than {_MOST} ways")
        return [both for way in ways for other in others if (both := self._both(way, other)) is not None]

    def _both(self, one: Schema, other: Schema) -> Schema | None:
        """An object that both schemas are meant for. None: there is none."""
        for key in one.keys() & other.keys() & _SAID:
            if one[key] != other[key]:
                refuse(self.param, f'two parts of it say something of "{key}"')
        if not (_may_be(one) and _may_be(other)):
            return None
        both = {**one, **other}
        if "properties" in both:
            names = dict.fromkeys((*listed(one), *listed(other)))
            both["properties"] = {name: _all_of([_member(name, one), _member(name, other)]) for name in names}
        if "required" in both:
            both["required"] = [*_names(one), *_names(other)]
        rest = [part["additionalProperties"] for part in (one, other) if "additionalProperties" in part]
        return {**both, "additionalProperties": _all_of(rest)} if rest else both

    def _shape(self, schema: Schema) -> Shape | None:
        """None: what is required is not allowed."""
        members, required = listed(schema), dict.fromkeys(_names(schema))
        for key in schema.keys() & _SAID:
            if not _idle(key, schema):
                refuse(self.param, f'"{key}" of an object cannot be held to in this format')
        missing = [name for name in required if name not in members]
        rest = schema.get("additionalProperties", True)
        if (missing and rest is False) or any(members.get(name) is False for name in required):
            return None
        found = [
            Member(name, part, types_of(part, self.root), name in required)
            for name, value in members.items()
            if value is not False
            for part in [_schema(value)]
        ]
        types = types_of(rest, self.root)
        found += [Member(name, _schema(rest), types, True) for name in missing]
        return Shape(tuple(found), _others(schema, bool(members)))


def listed(schema: Schema) -> Mapping[str, Any]:
    """The members that an object's schema lists."""
    value = schema.get("properties")
    return cast("Schema", value) if isinstance(value, dict) else {}


def _idle(key: str, schema: Schema) -> bool:
    """A keyword that says nothing beyond what is required and allowed."""
    value = schema[key]
    if key == "minProperties":
        return isinstance(value, int) and value <= len(set(_names(schema)))
    if key == "maxProperties":
        return isinstance(value, int) and value >= len(listed(schema)) and _others(schema, bool(listed(schema))) is None
    if key == "unevaluatedProperties":
        return value is False and bool(listed(schema)) and "additionalProperties" not in schema
    return key == "patternProperties" and not value


def _may_be(schema: Schema) -> bool:
    """An object."""
    kinds: Any = schema.get("type", "object")
    return kinds == "object" or (isinstance(kinds, list) and "object" in kinds)


def _overlap(branches: list[list[Schema]]) -> bool:
    """An object of one branch may satisfy another."""
    return any(
        _fits(one, other)
        for at, branch in enumerate(branches)
        for to, others in enumerate(branches)
        if at != to
        for one in branch
        for other in others
    )


def _fits(one: Schema, other: Schema) -> bool:
    """An object that is written as ``one`` may satisfy ``other`` too."""
    mine, theirs = listed(one), listed(other)
    if _others(one, bool(mine)) is None and any(name not in mine for name in _names(other)):
        return False
    for name in _names(one):
        if name not in theirs and other.get("additionalProperties") is False:
            return False
        values, allowed = _values(mine.get(name)), _values(theirs.get(name))
        if values is not None and allowed is not None and not any(value in allowed for value in values):
            return False
    return True


def _values(schema: Any) -> list[Any] | None:
    """Of an enum."""
    table = cast("Schema", schema) if isinstance(schema, dict) else {}
    return [table["const"]] if "const" in table else _rows(table.get("enum")) or None


def _names(schema: Schema) -> list[str]:
    """That are required."""
    return [name for name in _rows(schema.get("required")) if isinstance(name, str)]


def _member(name: str, schema: Schema) -> Any:
    """What a schema of an object says of a member."""
    return listed(schema).get(name, schema.get("additionalProperties", True))


def _all_of(schemas: list[Any]) -> Any:
    """What satisfies all of them."""
    if any(part is False for part in schemas):
        return False
    found: list[Any] = []
    for part in schemas:
        if isinstance(part, dict) and part and part not in found:
            found.append(part)
    return {"allOf": found} if len(found) > 1 else found[0] if found else {}


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _schema(value: Any) -> Schema:
    """True and what is none allow anything."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _others(schema: Schema, listed: bool) -> Schema | None:
    """Where it lists members and says nothing of others, there are none: as for JSON."""
    value = schema.get("additionalProperties", not listed)
    return None if value is False else _schema(value)


def parts(value: Any) -> list[Schema]:
    """The schemas in a list of them."""
    return [cast("Schema", part) for part in value if isinstance(part, dict)] if isinstance(value, list) else []
