"""Arguments as pairs of a name and a value, each between tags: strings bare, all else as JSON.

arguments ::= { before NAME middle VALUE behind }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stages.grammar import Json, Literal, Members, OneOf, Row, Rule, Spelled, String
from stages.parse.spellings.shape import Reader, Schema, Shape, refuse
from stages.parse.spellings.strings import Bare, quoted
from stages.parse.spellings.values import Values
from stages.parse.types import Parameters, Types, coerce, types_of


@dataclass(frozen=True, slots=True)
class Pairs:
    """``before``, ``middle``: around a name; ``bare``: how strings are written, up to the end of the pair, which other
    values have too; ``between``: two pairs; ``name``: what a name does not have in it; ``read``: raw text and types →
    JSON text, as the format's reader has it; ``kind``: what stands in the place of ``middle`` before and behind the
    kind of the value, where that is told; ``distinct``: a name that comes twice would break the call."""

    before: str
    middle: str
    bare: Bare
    between: str = ""
    name: tuple[str, ...] = ("<", ">", "\n", '"', "'", "=", "/", "\\")
    read: Callable[[str, Types], str] = coerce
    kind: tuple[str, str] | None = None
    distinct: bool = False

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        reader = Reader(value.schema, value.param)
        try:
            known = Parameters(value.schema)
            ways = tuple(self._members(reader, shape, known) for shape in reader.shapes(value.schema))
        except RecursionError:
            refuse(value.param, "it is nested, or refers, too deep")
        return Spelled(value.schema, value.param, ways[0] if len(ways) == 1 else OneOf(ways))

    def _members(self, reader: Reader, shape: Shape, known: Parameters) -> Rule:
        values = Values(reader, self.bare, self.read)
        pairs: list[tuple[Rule, bool]] = []
        for member in shape.members:
            if self._writable(member.name):
                rule = self._pair(values, member.name, member.schema, known.types(member.name))
                pairs.append((rule, member.required))
            elif member.required:
                refuse(reader.param, f"the name {member.name!r} cannot be written in this format")
        if shape.others is None:
            return Members(tuple(pairs), self.between)
        names = "|".join(quoted(member.name) for member in shape.members)
        unlike = (r"\s(?s:.*)", r"(?s:.*)\s", *([names] if names else []))
        name = String((), least=1, without=self.name, unlike=unlike)
        other = self._pair(values, name, shape.others, types_of(shape.others, reader.root))
        if self.distinct:
            return Members((*pairs, (other, False)), self.between)
        return Members(tuple(pairs), self.between, other)

    def _writable(self, name: str) -> bool:
        return bool(name) and name == name.strip() and not any(part in name for part in self.name)

    def _pair(self, values: Values, name: str | String, schema: Schema, types: Types) -> Rule:
        rule = self._named(name, self.middle, values.rule(schema, types))
        if self.kind is None:
            return rule
        told: list[Rule] = []
        for kind in sorted(values.kinds(schema)):
            middle = f"{self.kind[0]}{kind}{self.kind[1]}"
            value = values.rule(schema, Types(frozenset((kind,))), only=True)
            told.append(self._named(name, middle, value))
        return OneOf((rule, *told))

    def _named(self, name: str | String, middle: str, value: Rule) -> Rule:
        if isinstance(name, str):
            return Row((Literal(f"{self.before}{name}{middle}"), value))
        return Row((Literal(self.before), msgspec.structs.replace(name, until=(middle,)), value))
