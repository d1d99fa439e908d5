"""What a schema says of an object, where a format writes its members one by one.

What cannot be held to so is refused: a keyword that says something of the object as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from stages.errors import Unheld
from stages.parse.types import Parameters, Types, target

Schema: TypeAlias = dict[str, Any]

_EITHER: Final = ("anyOf", "oneOf")
_DEFINED: Final = ("$defs", "definitions")
_NOTES: Final = frozenset((
    "type", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "nullable",
    "$schema", "$id", "$comment", "$anchor", *_DEFINED, "strict", "format", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "minItems",
    "maxItems", "uniqueItems", "contains", "contentEncoding", "contentMediaType",
))  # fmt: skip
"""Say nothing, or what is known already, of an object."""
_KEPT: Final = frozenset(("properties", "required", "additionalProperties", "$ref", "allOf", *_EITHER))
_MERGED: Final = frozenset(("properties", "required", "additionalProperties"))
_NAMED: Final = ("properties", "patternProperties")
_AS_IT_IS: Final = ("enum", "const", "default", "examples", "example")
_MOST: Final = 64
"""Ways that an object may be."""
_DEEPEST: Final = 32
_LOOKED_AT: Final = 100_000
"""Parts of a schema that are looked at, all together."""


@dataclass(frozen=True, slots=True)
class Member:
    """One that is listed. ``schema``: with the definitions that it may refer to; ``types``: what its reader knows."""

    name: str
    schema: Schema
    types: Types
    required: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """``others``: the schema of members that are not listed; None: there are none; ``names``: a pattern of their names,
    if not all may be theirs."""

    members: tuple[Member, ...]
    others: Schema | None
    names: str = ""


class Reader:
    """Reads the objects of one schema. ``param``: its place in the request; ``root``: where references point into."""

    def __init__(self, root: Schema, param: str) -> None:
        self.root = root
        self.param = param
        self.parameters = Parameters(root)
        """As the format's reader knows them."""
        self._left = _LOOKED_AT

    def spend(self, parts: int = 1) -> None:
        """So much of the schema is looked at. Raises RequestError where it is too much."""
        self._left -= parts
        if self._left < 0:
            raise Unheld(self.param, "it is too large, or its parts refer to others too often")

    @property
    def unlisted(self) -> Types:
        """What the format's reader knows of a member that no part of the schema lists."""
        return self.parameters.types(max(self.parameters.keys, default="") + "x")

    def shapes(self, schema: Schema) -> list[Shape]:
        """The ways that an object of the schema may be. Raises RequestError."""
        found = [shape for part in self._ways(schema, 0) if (shape := self._shape(part)) is not None]
        if not found:
            raise Unheld(self.param, "unsatisfiable: no object can be written that it allows")
        return found

    def target(self, ref: Any) -> Any:
        """What a reference points to. Raises RequestError where that is nothing in the schema."""
        found = target(ref, self.root)
        if not isinstance(found, dict | bool):
            raise Unheld(self.param, f'"$ref" {ref!r} leads nowhere in it')
        return cast("Schema | bool", found)

    def whole(self, schema: Schema) -> Schema:
        """The schema by itself: with what it refers to, and nothing else of the root."""
        names: dict[str, str] = {}
        alone = cast("Schema", self._moved(schema, names))
        defined: Schema = {}
        while len(defined) < len(names):
            for ref in [*names][len(defined) :]:
                defined[names[ref]] = self._moved(self.target(ref), names)
        return {**alone, "$defs": defined} if names else alone

    def _moved(self, part: Any, names: dict[str, str]) -> Any:
        """A copy whose references lead to the definitions that ``names`` has for what they point to."""
        if isinstance(part, list):
            return [self._moved(each, names) for each in _list(part)]
        if not isinstance(part, dict):
            return part
        self.spend()
        moved: Schema = {}
        for key, value in cast("Schema", part).items():
            if key == "$ref" and isinstance(value, str):
                moved[key] = f"#/$defs/{names.setdefault(value, f'd{len(names)}')}"
            elif key in _NAMED and isinstance(value, dict):
                moved[key] = {name: self._moved(each, names) for name, each in cast("Schema", value).items()}
            elif key in _AS_IT_IS:
                moved[key] = value
            elif key not in _DEFINED:
                moved[key] = self._moved(value, names)
        return moved

    def _ways(self, schema: Any, depth: int) -> list[Schema]:
        """The schema without references and branches; what no object satisfies goes."""
        self.spend()
        if schema is False:
            return []
        if depth > _DEEPEST:
            raise Unheld(self.param, "it is nested, or refers, too deep")
        node: Schema = _schema(schema)
        own = {key: value for key, value in node.items() if key not in ("$ref", "allOf", *_EITHER)}
        ways = [own] if _is_object(own) else []
        parts = (
            _list(node.get("allOf")) if "$ref" not in node else [self.target(node["$ref"]), *_list(node.get("allOf"))]
        )
        for part in parts:
            ways = self._met(ways, self._ways(part, depth + 1))
        for word in _EITHER:
            if branches := _list(node.get(word)):
                each = [self._ways(branch, depth + 1) for branch in branches]
                if word == "oneOf" and not _apart(each):
                    raise Unheld(self.param, '"oneOf" whose branches may overlap cannot be held to in this format')
                ways = self._met(ways, [way for branch in each for way in branch])
        return ways

    def _met(self, ways: list[Schema], others: list[Schema]) -> list[Schema]:
        if len(ways) * len(others) > _MOST:
            raise Unheld(self.param, f"an object may be written in more than {_MOST} ways")
        return [self._both(way, other) for way in ways for other in others]

    def _both(self, one: Schema, other: Schema) -> Schema:
        """An object that both schemas are meant for."""
        both = {**one, **other}
        mine, theirs = _listed(one), _listed(other)
        self.spend(len(mine) + len(theirs))
        both["properties"] = {
            name: _all(_of(name, one), _of(name, other)) for name in dict.fromkeys((*mine, *theirs))
        }  # fmt: skip
        both["required"] = [*_required(one), *_required(other)]
        if "additionalProperties" in one and "additionalProperties" in other:
            both["additionalProperties"] = _all(one["additionalProperties"], other["additionalProperties"])
        for key in one.keys() & other.keys() - _MERGED:
            if one[key] != other[key] and key not in _NOTES:
                raise Unheld(self.param, f'two parts of it have "{key}"')
        return both

    def _shape(self, schema: Schema) -> Shape | None:
        """None: no object satisfies it."""
        listed = _listed(schema)
        required = dict.fromkeys(_required(schema))
        for key in schema:
            if key not in _KEPT and key not in _NOTES and not self._idle(key, schema):
                raise Unheld(self.param, f'"{key}" of an object cannot be held to in this format')
        others = _others(schema, bool(listed))
        every = dict(listed) | {name: False if others is None else others for name in required if name not in listed}
        if any(every[name] is False for name in required):
            return None
        members = tuple(
            Member(name, _schema(value), self.parameters.types(name), name in required)
            for name, value in every.items()
            if value is not False
        )
        if pattern := _pattern(schema):
            value = cast("Schema", schema["patternProperties"])[pattern]
            return Shape(members, None if value is False else _schema(value), pattern)
        return Shape(members, others)

    def _idle(self, key: str, schema: Schema) -> bool:
        """A keyword that says nothing beyond what is required, or of a value that is none."""
        value: Any = schema[key]
        if key == "minProperties":
            return isinstance(value, int) and value <= len(set(_required(schema)))
        if key == "maxProperties":
            listed = _listed(schema)
            most = len({*listed, *_required(schema)})
            return isinstance(value, int) and value >= most and _others(schema, bool(listed)) is None
        if key == "patternProperties":
            return not value or _pattern(schema) != ""
        if key == "unevaluatedProperties":
            return value is False
        return key.startswith("x-")


def _listed(schema: Schema) -> Mapping[str, Any]:
    value = schema.get("properties")
    return cast("Schema", value) if isinstance(value, dict) else {}


def _schema(value: Any) -> Schema:
    """True and what is none allow anything."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _others(schema: Schema, listed: bool) -> Schema | None:
    """Where it lists members and says nothing of others, there are none: as for JSON."""
    value = schema.get("additionalProperties", not listed)
    return None if value is False else _schema(value)


def _pattern(schema: Schema) -> str:
    """The one pattern of names of an object that lists none; else ""."""
    keyed: Any = schema.get("patternProperties")
    if not isinstance(keyed, dict) or len(cast("Schema", keyed)) != 1 or _listed(schema) or _required(schema):
        return ""
    return next(iter(cast("Schema", keyed)))


def _required(schema: Schema) -> list[str]:
    return [name for name in _list(schema.get("required")) if isinstance(name, str)]


def _is_object(schema: Schema) -> bool:
    kinds: Any = schema.get("type", "object")
    return kinds == "object" or "object" in _list(kinds)


def _of(name: str, schema: Schema) -> Any:
    """What it says of a member."""
    listed = _listed(schema)
    return listed[name] if name in listed else schema.get("additionalProperties", True)


def _all(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    if one == other or not _schema(other):
        return one
    return {"allOf": [one, other]} if _schema(one) else other


# --- oneOf ----------------------------------------------------------------------------------------------------------


def _apart(branches: list[list[Schema]]) -> bool:
    """No object, as it is written for a way of one branch, is meant by another branch too."""
    return all(
        _differs(way, other)
        for index, branch in enumerate(branches)
        for way in branch
        for at, others in enumerate(branches)
        for other in others
        if at != index
    )


def _differs(way: Schema, other: Schema) -> bool:
    """What is written for ``way`` does not satisfy ``other``."""
    listed, closed = _listed(way), _others(way, bool(_listed(way))) is None
    if closed and any(listed.get(name, False) is False for name in _required(other)):
        return True
    for name in _required(way):
        theirs = _of(name, other)
        mine, meant = _values(listed.get(name)), _values(theirs)
        if theirs is False or (mine and meant and mine.isdisjoint(meant)):
            return True
    return False


def _values(schema: Any) -> frozenset[str]:
    """Those of a const or an enum of strings; empty: other values are allowed."""
    part = _schema(schema)
    listed = [part["const"]] if "const" in part else _list(part.get("enum"))
    return frozenset(listed) if all(isinstance(value, str) for value in listed) else frozenset[str]()


def _list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
