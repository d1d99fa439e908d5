"""What a schema says of an object, where a format writes its members one by one.

What cannot be held to so is refused: a keyword that says something of the object as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias, cast

from stages.errors import RequestError
from stages.parse.types import Types, target, types_of

Schema: TypeAlias = dict[str, Any]

_EITHER: Final = ("anyOf", "oneOf")
_DEFINED: Final = ("$defs", "definitions")
_NOTES: Final = frozenset((
    "type", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "nullable",
    "$schema", "$id", "$comment", "$anchor", *_DEFINED, "strict",
))  # fmt: skip
"""Say nothing, or what is known already, of an object."""
_KEPT: Final = frozenset(("properties", "required", "additionalProperties", "$ref", "allOf", *_EITHER))
_MOST: Final = 64
"""Ways that an object may be."""
_DEEPEST: Final = 32


def refuse(param: str, why: str) -> NoReturn:
    """Raises the RequestError of a schema that a format cannot be held to. ``param``: its place in the request."""
    raise RequestError(f"{param}: no output can be held to this schema: {why}", param=param, code="unsupported_schema")


@dataclass(frozen=True, slots=True)
class Member:
    """One that is listed. ``schema``: with the definitions that it may refer to; ``types``: what its reader knows."""

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

    def shapes(self, schema: Schema) -> list[Shape]:
        """The ways that an object of the schema may be. Raises RequestError."""
        found = [self._shape(part) for part in self._ways(schema, 0)]
        if len(found) > _MOST:
            refuse(self.param, f"an object may be written in more than {_MOST} ways")
        return found

    def resolved(self, schema: Schema) -> Schema:
        """Without a reference at its head. Raises RequestError where that leads nowhere, or in a circle."""
        for _ in range(_DEEPEST):
            ref = schema.get("$ref")
            if ref is None:
                return schema
            found = target(ref, self.root)
            if not isinstance(found, dict):
                refuse(self.param, f'"$ref" {ref!r} leads nowhere in it')
            schema = {**cast("Schema", found), **{key: value for key, value in schema.items() if key != "$ref"}}
        refuse(self.param, "it is nested, or refers, too deep")

    def whole(self, schema: Schema) -> Schema:
        """The schema, with the definitions that it may refer to."""
        defined: Schema = {key: self.root[key] for key in _DEFINED if key in self.root}
        return {**schema, **defined} if defined and _refers(schema) else schema

    def _ways(self, schema: Schema, depth: int) -> Iterator[Schema]:
        """The schema without references and branches."""
        if depth > _DEEPEST:
            refuse(self.param, "it is nested, or refers, too deep")
        schema = self.resolved(schema)
        parts: Any = schema.get("allOf", [])
        rest = {key: value for key, value in schema.items() if key not in ("allOf", *_EITHER)}
        ways = [rest]
        for part in parts if isinstance(parts, list) else []:
            ways = [self._both(way, other) for way in ways for other in self._ways(part, depth + 1)]
        for word in _EITHER:
            branches: Any = schema.get(word)
            if isinstance(branches, list):
                others = [way for branch in branches for way in self._ways(branch, depth + 1)]
                ways = [self._both(way, other) for way in ways for other in others]
            if len(ways) > _MOST:
                refuse(self.param, f"an object may be written in more than {_MOST} ways")
        yield from ways

    def _both(self, one: Schema, other: Schema) -> Schema:
        """An object that both schemas are meant for."""
        mine, theirs = _listed(one), _listed(other)
        for name in mine.keys() & theirs.keys():
            if mine[name] != theirs[name]:
                refuse(self.param, f'two parts of it say something of "{name}"')
        both = {**one, **other}
        both["properties"] = {**mine, **theirs}
        both["required"] = [*one.get("required", []), *other.get("required", [])]
        return both

    def _shape(self, schema: Schema) -> Shape:
        listed = _listed(schema)
        required = frozenset(cast("list[str]", schema.get("required", [])))
        for key in schema:
            if key not in _KEPT and key not in _NOTES and not self._idle(key, schema):
                refuse(self.param, f'"{key}" of an object cannot be held to in this format')
        members = tuple(
            Member(name, self.whole(part), types_of(part, self.root), name in required)
            for name, value in listed.items()
            if value is not False and (part := _schema(value)) is not None
        )
        others = _others(schema, bool(listed))
        if missing := [name for name in required if name not in listed]:
            if others is None:
                refuse(self.param, f'"{missing[0]}" is required, and not allowed')
            added = [Member(name, self.whole(others), types_of(others, self.root), True) for name in sorted(missing)]
            members = (*members, *added)
        return Shape(members, None if others is None else self.whole(others))

    def _idle(self, key: str, schema: Schema) -> bool:
        """A keyword that says nothing beyond what is required, or of a value that is none."""
        value = schema[key]
        if key == "minProperties":
            return isinstance(value, int) and value <= len(schema.get("required", []))
        if key == "unevaluatedProperties":
            return value is False
        return key.startswith("x-") or (key == "patternProperties" and not value)


def _listed(schema: Schema) -> Mapping[str, Any]:
    value = schema.get("properties")
    return cast("Schema", value) if isinstance(value, dict) else {}


def _schema(value: Any) -> Schema | None:
    """True and what is none allow anything."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _others(schema: Schema, listed: bool) -> Schema | None:
    """Where it lists members and says nothing of others, there are none: as for JSON."""
    value = schema.get("additionalProperties", not listed)
    return None if value is False else _schema(value)


def _refers(part: Any) -> bool:
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "$ref" in value:
                return True
            waiting += cast("Schema", value).values()
        elif isinstance(value, list):
            waiting += value
    return False


def parts(value: Any) -> list[Schema]:
    """The schemas in a list of them."""
    return [cast("Schema", part) for part in value if isinstance(part, dict)] if isinstance(value, list) else []
