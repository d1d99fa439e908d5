"""Values that nest in a notation of their own: a schema → a grammar of what satisfies it.

Each object and array of the schema becomes a rule with a name, which the others refer to: so a recursive schema is
recursive rules, and nothing is written twice.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias, cast

from stages.errors import Unheld
from stages.grammar import NOTHING, Again, Defined, Json, Literal, Members, OneOf, Refer, Row, Rule, Text, one_of
from stages.parse.spellings.objects import Key, Objects, Shape
from stages.parse.spellings.patterns import NUMBERS, quoted
from stages.parse.spellings.productive import names, productive
from stages.parse.spellings.ways import NUMERIC, Both, Schema, is_list, is_schema, kinds, listed, of_kind
from stages.parse.types import Types, types_of
from stages.schema import checker

_HIGHEST: Final = 1e18
"""Of numbers without a bound of their own: the library knows no higher one."""
_BOUNDS: Final = (("minimum", "exclusiveMinimum", -1), ("maximum", "exclusiveMaximum", 1))
_STRUCTURE: Final = frozenset((
    *NUMERIC, "minLength", "maxLength", "pattern", "properties", "required", "additionalProperties", "minProperties",
    "patternProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems",
))  # fmt: skip
"""What a listed value may not satisfy."""
_RULES: Final = 4000
_HOLDING: Final = 300
"""Objects and arrays that hold others: the library follows them on its stack, which bears some 900."""
_ITEMS: Final = 100
"""Items with a schema of their own."""
_DEEPEST: Final = 60


class Notation(Protocol):
    """How a family writes keys and values. ``types``: what the reader knows of an argument; None inside of one."""

    @property
    def words(self) -> Mapping[Any, str]:
        """How True, False and None are written."""
        ...

    @property
    def between(self) -> str:
        """Two members, or two items."""
        ...

    @property
    def braces(self) -> tuple[str, str]:
        """Around an object."""
        ...

    @property
    def typed(self) -> bool:
        """The reader takes words and numbers for what the schema says."""
        ...

    @property
    def sorted(self) -> bool:
        """Keys come in the order of the alphabet, else in the schema's."""
        ...

    @property
    def once(self) -> bool:
        """One key at most that is not listed: the reader takes none twice."""
        ...

    def key(self, key: Key) -> Rule | None:
        """A key, and what stands between it and its value. None: it cannot be written."""
        ...

    def string(self, way: Both, param: str, types: Types | None) -> Rule | None:
        """A string that satisfies all of the schemas. None: there is none here."""
        ...

    def texts(self, values: Sequence[str], types: Types | None) -> Rule | None:
        """One of these strings, but for those that cannot be written. None: none can."""
        ...


TypesOf: TypeAlias = Callable[[str | None], Types | None]
"""What the reader knows of an argument (None: of one that is not listed)."""


class Values:
    """Makes the rules of one schema. ``inner``: how what is nested is written."""

    def __init__(self, root: Schema, param: str, inner: Notation) -> None:
        self.param = param
        self.objects = Objects(root, param)
        self.ways = self.objects.ways
        self._inner = inner
        self._names: dict[tuple[str, frozenset[object]], str] = {}
        self._waiting: deque[tuple[str, Callable[[], Rule]]] = deque()
        self._kept: list[Both] = []
        """Names are of schemas by identity: they stay."""
        self._rules: dict[str, Rule] = {}

    def whole(self, outer: Notation) -> Rule:
        """An object of the root schema, which are a tool's arguments. Raises RequestError."""
        known = self.objects.parameters.types
        rules = [self._object(shape, outer, known) for shape in self.objects.shapes((self.ways.root,))]
        while self._waiting:
            name, make = self._waiting.popleft()
            self._rules[name] = make()
        rules, made = productive(rules, self._rules)
        if not rules:
            raise Unheld(self.param, "unsatisfiable: nothing that satisfies it can be written in this format")
        if sum(bool(names(rule)) for rule in made.values()) > _HOLDING:
            raise Unheld(self.param, f"it is too large: more than {_HOLDING} objects and arrays hold others")
        rule = one_of(rules)
        return Defined(made, rule) if made else rule

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, both: Both, notation: Notation, types: Types | None, read: Both | None = None) -> Rule | None:
        """A value that satisfies all of the schemas. None: none does. ``read``: the schemas that its reader knows."""
        options: list[Rule] = []
        known = self._read(both if read is None else read) if notation.typed else None
        ways = self.ways.of(both)
        words = [value for way in ways for value in self._words(way)]
        if words and (texts := notation.texts(list(dict.fromkeys(words)), types)) is not None:
            options.append(texts)
        for way in ways:
            values = listed(way)
            options += self._scalars(way, values, notation, types, known)
            if values is None and (nested := kinds(way, self.param) & {"object", "array"}):
                options += self._nested(way, nested)
        options = list({repr(option): option for option in options}.values())
        return None if not options else one_of(options)

    def _read(self, both: Both) -> frozenset[str] | None:
        """As which kinds a bare value is read; None: as what it looks like."""
        if not any(both):
            return None
        found = {str(kind) for schema in both for kind in types_of(schema, self.ways.root).kinds}
        return frozenset(found | {"integer"} if "number" in found else found)

    def _scalars(
        self, way: Both, values: list[Any] | None, notation: Notation, types: Types | None, known: frozenset[str] | None
    ) -> list[Rule]:
        if values is not None:
            others = [value for value in self._values(way) if not isinstance(value, str)]
            readable = [value for value in others if known is None or of_kind(value, known)]
            return [self._constant(value, notation, types, 0) for value in readable]
        found: list[Rule] = []
        mine = kinds(way, self.param) if known is None else kinds(way, self.param, known)
        if "string" in mine and (text := notation.string(way, self.param, types)) is not None:
            found.append(text)
        if known is not None:
            mine = frozenset(kind for kind in mine if kind in known or kind in ("object", "array"))
        if "boolean" in mine:
            found += [Literal(notation.words[True]), Literal(notation.words[False])]
        if "null" in mine:
            found.append(Literal(notation.words[None]))
        if numeric := mine & {"integer", "number"}:
            found.append(self._number(way, "number" if "number" in numeric else "integer"))
        return found

    def _number(self, way: Both, kind: str) -> Rule:
        said: list[Schema] = [{key: schema[key] for key in NUMERIC if key in schema} for schema in way]
        said = [part for part in said if part]
        if not said:
            return Text(NUMBERS[kind])
        if kind == "number":
            for bound, strict, sign in _BOUNDS:
                if not any(bound in part or strict in part for part in said):
                    said.append({bound: sign * _HIGHEST})
        return Json({"type": kind, **said[0]} if len(said) == 1 else {"type": kind, "allOf": said}, self.param)

    # --- values that are listed ---------------------------------------------------------------------------------------

    def _values(self, way: Both) -> list[Any]:
        mine = kinds(way, self.param)
        values = [value for value in listed(way) or () if of_kind(value, mine)]
        rest = [{key: schema[key] for key in _STRUCTURE & schema.keys()} for schema in way]
        if not values or not any(rest):
            return values
        root = self.ways.root
        found = checker({"allOf": rest, **{key: root[key] for key in ("$defs", "definitions") if key in root}})
        if found is None:
            raise Unheld(self.param, "an enum, or a const, stands beside what it cannot be checked against")
        return [value for value in values if found.fault(json.dumps(value)) is None]

    def _words(self, way: Both) -> list[str]:
        return [value for value in self._values(way) if isinstance(value, str)]

    def _constant(self, value: Any, notation: Notation, types: Types | None, depth: int) -> Rule:
        if depth > _DEEPEST:
            raise Unheld(self.param, "it is nested, or refers, too deep")
        inner = self._inner
        if is_list(value):
            items = [self._constant(item, inner, None, depth + 1) for item in value]
            return Row((Literal("["), *_joined(items, inner.between), Literal("]")))
        if is_schema(value):
            pairs = [self._pair(*pair, depth) for pair in value.items()]
            return Row((Literal(inner.braces[0]), *_joined(pairs, inner.between), Literal(inner.braces[1])))
        if isinstance(value, str):
            text = notation.texts([value], types)
            if text is None:
                raise Unheld(self.param, f"the value {value!r:.100} cannot be written in this format")
            return text
        if value is None or isinstance(value, bool):
            return Literal(notation.words[value])
        if not isfinite(value):
            raise Unheld(self.param, f"the value {value!r:.100} cannot be written in this format")
        return Text(quoted(json.dumps(value)))

    def _pair(self, name: str, value: Any, depth: int) -> Rule:
        key = self._inner.key(Key(name))
        if key is None:
            raise Unheld(self.param, f"the name {name!r:.100} cannot be written in this format")
        return Row((key, self._constant(value, self._inner, None, depth + 1)))

    # --- objects and arrays -------------------------------------------------------------------------------------------

    def _nested(self, way: Both, found: frozenset[str]) -> list[Rule]:
        made: list[Rule] = []
        if "array" in found:
            made.append(self._named("array", way, lambda: self._array(way)))
        if "object" in found:
            before, behind = self._inner.braces

            def braced() -> Rule:
                shape = self.objects.shape(way)
                return Row((Literal(before), self._object(shape, self._inner, lambda _: None), Literal(behind)))

            made.append(self._named("object", way, braced))
        return made

    def _named(self, kind: str, way: Both, make: Callable[[], Rule]) -> Rule:
        key = kind, self._identity(way)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _RULES:
                raise Unheld(self.param, f"it is too large: it has more than {_RULES} objects and arrays")
            name = self._names[key] = f"{kind}{len(self._names)}"
            self._kept.append(way)
            self._waiting.append((name, make))
        return Refer(name)

    def _identity(self, way: Both) -> frozenset[object]:
        """Schemas without references are made anew each time; what they hold is not."""
        return frozenset(
            frozenset(
                (key, id(value) if is_schema(value) or is_list(value) else repr(value)) for key, value in each.items()
            )
            for each in way
        )

    def _object(self, shape: Shape, notation: Notation, types: TypesOf) -> Rule:
        parts: list[tuple[Rule, bool]] = []
        ordered = sorted(shape.members, key=lambda member: (member.name.lower(), member.name))
        for member in ordered if notation.sorted else shape.members:
            key = notation.key(Key(member.name))
            if key is None:
                if member.required:
                    raise Unheld(self.param, f"the name {member.name!r:.100} cannot be written in this format")
                continue
            value = self.value(member.both, notation, types(member.name), member.read)
            if value is not None:
                parts.append((Row((key, value)), member.required))
            elif member.required:
                raise Unheld(
                    self.param, f"unsatisfiable: {member.name!r:.100} is required, and nothing can be written for it"
                )
        others: list[Rule] = []
        for other in shape.others:
            key, value = notation.key(other.key), self.value(other.both, notation, types(None), other.read)
            if key is not None and value is not None:
                others.append(Row((key, value)))
        some = None if not others else one_of(others)
        return Members(tuple(parts), notation.between, some, notation.once)

    def _array(self, way: Both) -> Rule:
        least, most, first, rest = self.objects.items(way)
        if len(first) > _ITEMS:
            raise Unheld(self.param, f"an array has more than {_ITEMS} items with a schema of their own")
        read = tuple(part for schema in way if is_schema(part := schema.get("items")))
        rules = [self.value(both, self._inner, None, read) for both in first]
        if None in rules:  # nothing can stand there, so nothing behind it
            most = rules.index(None) if most is None else min(most, rules.index(None))
        tail = None if most is not None and most <= len(first) else self.value(rest, self._inner, None, read)
        if tail is None:
            most = len(rules) if most is None else min(most, len(rules))
        if most is not None and least > most:
            return Row((Literal("["), OneOf(()), Literal("]")))
        items = _row(cast("list[Rule]", rules[:most]), tail, least, most, self._inner.between)
        return Row((Literal("["), items, Literal("]")))


def _row(first: list[Rule], tail: Rule | None, least: int, most: int | None, between: str) -> Rule:
    """Items, with what stands between two of them, the last ones first."""
    count = len(first)
    comma = Literal(between)
    behind: Rule = NOTHING
    if tail is not None and (most is None or most > count):
        more = None if most is None else most - count
        need = max(0, least - count)
        if not first:
            inner: Rule = tail
            if more != 1:
                inner = Row((tail, Again(Row((comma, tail)), max(0, need - 1), None if more is None else more - 1)))
            return inner if need else OneOf((inner, NOTHING))
        behind = Again(Row((comma, tail)), need, more)
    for index in range(count - 1, -1, -1):
        here: Rule = Row((first[index], behind) if not index else (comma, first[index], behind))
        behind = here if index < least else OneOf((here, NOTHING))
    return behind


def _joined(rules: list[Rule], between: str) -> list[Rule]:
    joined: list[Rule] = []
    for rule in rules:
        joined += [Literal(between), rule] if joined else [rule]
    return joined
