"""What schemas, all meant for one value, say of its members and items."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from stages.errors import Unheld
from stages.parse.spellings.patterns import quoted, whole
from stages.parse.spellings.ways import Both, Schema, Ways, is_list, is_names, is_schema, kinds, listed
from stages.parse.types import Parameters
from stages.schema import Checker, checker

_KEYED: Final = 20
"""Patterns for the names of one object."""


class Key(NamedTuple):
    """A member's name, or (None) one that is not listed: ``patterns``: regular expressions of the whole of it;
    ``unlike``: of what it is not."""

    name: str | None
    patterns: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A member that is listed. ``both``: what is said of it; ``read``: where a reader looks that goes by the schema."""

    name: str
    both: Both
    read: Both
    required: bool


@dataclass(frozen=True, slots=True)
class Other:
    """Members that are not listed."""

    key: Key
    both: Both
    read: Both


@dataclass(frozen=True, slots=True)
class Shape:
    """An object."""

    members: tuple[Named, ...]
    others: tuple[Other, ...]


class Objects:
    """Reads objects and arrays of one schema. Raises RequestError for what cannot be held to."""

    def __init__(self, root: Schema, param: str) -> None:
        self.ways = Ways(root, param)
        self.parameters = Parameters(root)
        """As the format's reader knows them."""
        self.param = param
        self._regexes: dict[str, tuple[str, Checker]] = {}

    # --- objects ------------------------------------------------------------------------------------------------------

    def shapes(self, both: Both) -> list[Shape]:
        """The ways that an object may be that satisfies all of the schemas."""
        ways = [way for way in self.ways.of(both) if "object" in kinds(way, self.param)]
        if any(listed(way) is not None for way in ways):
            raise Unheld(self.param, '"enum" or "const" of an object cannot be held to in this format')
        shapes = list(map(self.shape, ways))
        if not shapes:
            raise Unheld(self.param, "unsatisfiable: no object can be written that it allows")
        able = [one for one in shapes if all(all(map(is_schema, part.both)) for part in one.members if part.required)]
        return able or shapes

    def shape(self, way: Both) -> Shape:
        """An object that satisfies all of the schemas."""
        tables = [self._table(schema, "properties") for schema in way]
        keyed = [self._table(schema, "patternProperties") for schema in way]
        required = dict.fromkeys(name for schema in way for name in self._names(schema))
        listed = dict.fromkeys(name for table in tables for name in table)
        closed = any(schema.get("unevaluatedProperties") is False for schema in way)
        speaks = any("additionalProperties" in schema for schema in way) or any(keyed)
        more = not closed and (speaks or not listed)
        self._counted(way, len(required), len({**listed, **required}), more)
        members: list[Named] = []
        for name in {**listed, **required}:
            both = self._meant(way, tables, keyed, name)
            if closed and name not in listed and not any(self._fits(name, table) for table in keyed):
                raise Unheld(self.param, f"unsatisfiable: {name!r:.100} is required, and not allowed")
            here = self._both(table[name] for table in tables if name in table)
            members.append(Named(name, both, here if name in listed else self._rest(way), name in required))
        names = tuple(map(quoted, {**listed, **required}))
        return Shape(tuple(members), self._others(way, keyed, names, more))

    def _others(self, way: Both, keyed: list[Schema], names: tuple[str, ...], more: bool) -> tuple[Other, ...]:
        """Those of each pattern, and those of none."""
        patterns = {pattern: self._regex(pattern)[0] for table in keyed for pattern in table}
        if len(patterns) > _KEYED:
            raise Unheld(self.param, f"more than {_KEYED} patternProperties are meant for one object")
        unlike = ("|".join(names),) if names else ()
        rest = self._rest(way)
        found: list[Other] = []
        for pattern, regex in patterns.items():
            parts: list[Any] = []
            for schema, table in zip(way, keyed, strict=True):
                parts += [table[pattern]] if pattern in table else self._additional(schema)
            others = tuple(other for each, other in patterns.items() if each != pattern)
            found.append(Other(Key(None, (regex,), (*unlike, *others)), self._both(parts), rest))
        if more:
            found.append(Other(Key(None, (), (*unlike, *patterns.values())), rest, rest))
        return tuple(found)

    def _meant(self, way: Both, tables: list[Schema], keyed: list[Schema], name: str) -> Both:
        """All that is said of this member."""
        parts: list[Any] = []
        for schema, table, patterns in zip(way, tables, keyed, strict=True):
            here = [table[name]] if name in table else []
            here += [part for pattern, part in patterns.items() if self._fits(name, {pattern: part})]
            parts += here or self._additional(schema)
        return self._both(parts)

    def _rest(self, way: Both) -> Both:
        return self._both(part for schema in way for part in self._additional(schema))

    def _additional(self, schema: Schema) -> list[Any]:
        return [schema["additionalProperties"]] if "additionalProperties" in schema else []

    def _fits(self, name: str, patterns: Schema) -> bool:
        return any(self._regex(pattern)[1].fault(json.dumps(name)) is None for pattern in patterns)

    def _regex(self, pattern: str) -> tuple[str, Checker]:
        """An expression of the whole name, and what tells whether a name has the pattern."""
        if pattern not in self._regexes:
            text, found = whole(pattern, self.param), checker({"pattern": pattern})
            if found is None:
                raise Unheld(self.param, f"the pattern {pattern!r:.100} cannot be held to in this format")
            self._regexes[pattern] = text, found
        return self._regexes[pattern]

    def _counted(self, way: Both, required: int, all_: int, more: bool) -> None:
        """How many members there are."""
        for schema in way:
            least, most = schema.get("minProperties", 0), schema.get("maxProperties")
            if not isinstance(least, int) or least > required:
                raise Unheld(self.param, '"minProperties" cannot be held to in this format')
            if most is not None and (more or not isinstance(most, int) or most < all_):
                raise Unheld(self.param, '"maxProperties" cannot be held to in this format')
            if schema.get("unevaluatedProperties", True) not in (True, False, {}):
                raise Unheld(self.param, '"unevaluatedProperties" cannot be held to in this format')

    # --- arrays -------------------------------------------------------------------------------------------------------

    def items(self, way: Both) -> tuple[int, int | None, list[Both], Both]:
        """How many there are, at least and at most, what the first ones are, and all others."""
        least = max((self._count(schema, "minItems") for schema in way), default=0)
        most = min((self._count(schema, "maxItems") for schema in way if "maxItems" in schema), default=None)
        heads = [self._heads(schema) for schema in way]
        tails = [self._tail(schema) for schema in way]
        first: list[Both] = []
        for index in range(max(map(len, heads), default=0)):
            pairs = zip(heads, tails, strict=True)
            first.append(self._both(part for head, tail in pairs for part in (head[index : index + 1] or tail)))
        return least, most, first, self._both(part for tail in tails for part in tail)

    def _heads(self, schema: Schema) -> list[Any]:
        value = schema.get("prefixItems", schema.get("items"))
        return value if is_list(value) else []

    def _tail(self, schema: Schema) -> list[Any]:
        value = schema.get("items", True)
        return [schema.get("additionalItems", True) if isinstance(value, list) else value]

    # --- parts --------------------------------------------------------------------------------------------------------

    def _both(self, parts: Iterable[Any]) -> Both:
        """Those that say something."""
        return tuple(part for part in parts if part is not True and part != {})

    def _table(self, schema: Schema, key: str) -> Schema:
        value = schema.get(key, {})
        if not is_schema(value):
            raise Unheld(self.param, f'"{key}" is no object')
        return value

    def _names(self, schema: Schema) -> list[str]:
        value = schema.get("required", [])
        if not is_names(value):
            raise Unheld(self.param, '"required" is no list of names')
        return value

    def _count(self, schema: Schema, key: str) -> int:
        value = schema.get(key, 0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise Unheld(self.param, f'"{key}" is no number of items')
        return int(value)
