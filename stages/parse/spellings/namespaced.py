"""Arguments as elements behind a namespace token, as ``engines.nested_xml`` reads them: objects and arrays nest.

arguments ::= { element }
element   ::= NS "<" TAG ">" ( TEXT | { element } ) NS "</" TAG ">"

A tag is a name twice, so that only names that the schema lists can be written. What has others, and what elements
cannot hold (tuples, recursion), is a JSON text, which the reader takes too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from stages.errors import RequestError, Unheld
from stages.grammar import Json, Literal, Members, OneOf, Row, Rule, Spelled, one_of
from stages.parse.engines.nested_tags import NestedXml
from stages.parse.engines.nested_value import ITEM
from stages.parse.spelling import Spelling
from stages.parse.spellings.objects import Objects, Shape
from stages.parse.spellings.pairs import Pairs, Values
from stages.parse.spellings.strings import Bare
from stages.parse.spellings.ways import Both, kinds
from stages.parse.types import Types

_TAG: Final = re.compile(r"[^\s<>/][^\s<>]{0,255}")
_NAME: Final = r'[^\s"<>](?:[^"<>\n]{0,254}[^\s"<>])?'
_DEEPEST: Final = 16
"""Elements inside each other; deeper values are JSON."""
_MOST: Final = 250
"""Objects and arrays of a tool; those behind them are JSON."""
_ITEMS: Final = 32
"""Items of an array that are counted; where there may be more, it is JSON."""
_ARRAY: Final = frozenset(("object", "array"))


def elements(table: NestedXml) -> Spelling:
    """How a family with these tags writes calls."""
    ns = table.namespace
    return Spelling(
        (f'{ns}<invoke name="', '">', f"{ns}</invoke>\n"), opens=f"{ns}<{table.block}>\n",
        closes=f"{ns}</{table.block}>", arguments=_Elements(ns), name=_NAME,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Elements:
    """``ns``: what stands before every tag."""

    ns: str

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        objects = Objects(value.schema, value.param)
        writer = _Writer(self.ns, objects)
        known = objects.parameters.types
        try:
            found = tuple(writer.members(shape, known, 0) for shape in objects.shapes((value.schema,)))
        except RecursionError:
            raise Unheld(value.param, "it is nested, or refers, too deep") from None
        return Spelled(value.schema, value.param, one_of(found))


class _Writer:
    """Of one tool's arguments."""

    def __init__(self, ns: str, objects: Objects) -> None:
        self.ns = ns
        self.objects = objects
        self._left = _MOST

    def members(self, shape: Shape, types: Any, depth: int) -> Rule:
        """``types``: name → what the reader takes the member for."""
        pairs: list[tuple[Rule, bool]] = []
        for member in shape.members:
            named = _TAG.fullmatch(member.name) is not None
            rule = self.element(member.name, member.both, types(member.name), depth) if named else None
            if rule is not None:
                pairs.append((rule, member.required))
            elif member.required:
                what = f"no value of {member.name!r} can" if named else f"the name {member.name!r} cannot"
                raise Unheld(self.objects.param, f"{what} be written in this format")
        return Members(tuple(pairs))

    def element(self, tag: str, both: Both, types: Types, depth: int) -> Rule | None:
        """An element, with its tags. None: it has no values."""
        values = _Inside(self, both, types, f"{self.ns}</{tag}>", depth).ways()
        rules = [rule for each in values.values() for rule in each]
        return Row((Literal(f"{self.ns}<{tag}>"), one_of(rules))) if rules else None

    def deep(self, depth: int) -> bool:
        """What is inside is JSON. Asked once a value that is an object or an array."""
        self._left -= 1
        return depth > _DEEPEST or self._left < 0


class _Inside(Values):
    """What may stand in an element, and its end."""

    def __init__(self, writer: _Writer, both: Both, types: Types, end: str, depth: int) -> None:
        pairs = Pairs("", "", Bare((end,), (writer.ns,)), inside=(writer.ns,))
        super().__init__(pairs, writer.objects, both, types)
        self._writer = writer
        self._own = both
        self._known = types
        self._end = Literal(end)
        self._depth = depth + 1

    def json(self, kind: str, name: str) -> None:
        """See Values: objects and arrays are elements, where these hold them."""
        rule: Rule | None = None
        if kind in self._known.kinds and not self._writer.deep(self._depth):
            rule = self._object() if kind == "object" else self._array() if kind == "array" else None
        if rule is None:
            super().json(kind, name)
        else:
            self.add(kind, rule)

    def _object(self) -> Rule | None:
        known = self._known
        try:
            shapes = self._writer.objects.shapes((*self._own, {"type": "object"}))
            if any(shape.others or not self._plain(shape) for shape in shapes):
                return None
            found = tuple(self._writer.members(shape, known.member, self._depth) for shape in shapes)
        except RequestError:
            return None
        return Row((one_of(found), self._end))

    def _plain(self, shape: Shape) -> bool:
        """The reader takes its elements for an object."""
        kinds = self._known.kinds
        tags = {member.name for member in shape.members}
        empty = not any(member.required for member in shape.members)
        return not ("array" in kinds and (ITEM in tags or empty)) and not ("string" in kinds and empty)

    def _array(self) -> Rule | None:
        objects = self._writer.objects
        try:
            ways = [way for way in objects.ways.of(self._own, _ARRAY) if "array" in kinds(way, objects.param)]
            least, most, first, rest = objects.items(ways[0])
            if len(ways) > 1 or first or max(least, most or 0) > _ITEMS or (most is not None and most < max(least, 1)):
                return None
            one = self._writer.element(ITEM, rest, self._known.item(), self._depth)
        except RequestError:
            return None
        return None if one is None else self._repeated(one, least, most)

    def _repeated(self, one: Rule, least: int, most: int | None) -> Rule:
        empty = "string" in self._known.kinds  # an empty element is a string
        needed = max(least, 1) if empty else least
        counted = ((one, True),) * needed + ((one, False),) * ((most or needed) - needed)
        rows: Rule = Row((Members(counted, others=one if most is None else None), self._end))
        return OneOf((rows, Row((Literal("[]"), self._end)))) if empty and not least else rows
