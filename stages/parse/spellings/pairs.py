"""Arguments as pairs of a name and a value, each between tags: strings bare, all else as JSON.

arguments ::= { before NAME middle VALUE behind }
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from stages.grammar import Json, Literal, Members, OneOf, Row, Rule, Spelled, String
from stages.parse.spellings.shape import Reader, Schema, Shape, parts, refuse
from stages.parse.spellings.strings import Bare, quoted
from stages.parse.types import Types, coerce, types_of

_DEEPEST: Final = 16


@dataclass(frozen=True, slots=True)
class Pairs:
    """``before``, ``middle``: around a name; ``bare``: how strings are written, up to the end of the pair, which other
    values have too; ``between``: two pairs; ``name``: what a name does not have in it; ``read``: raw text and types →
    JSON text, as the format's reader has it."""

    before: str
    middle: str
    bare: Bare
    between: str = ""
    name: tuple[str, ...] = ("<", ">", "\n", '"', "'", "=", "/", "\\")
    read: Callable[[str, Types], str] = coerce

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        reader = Reader(value.schema, value.param)
        ways = tuple(self._members(reader, shape) for shape in reader.shapes(value.schema))
        return Spelled(value.schema, value.param, ways[0] if len(ways) == 1 else OneOf(ways))

    def _members(self, reader: Reader, shape: Shape) -> Rule:
        pairs: list[tuple[Rule, bool]] = []
        for member in shape.members:
            if not self._writable(member.name):
                if member.required:
                    refuse(reader.param, f"the name {member.name!r} cannot be written in this format")
                continue
            value = self._value(reader, member.schema, member.types)
            pairs.append((Row((Literal(f"{self.before}{member.name}{self.middle}"), value)), member.required))
        others: Rule | None = None
        if shape.others is not None:
            name = String((self.middle,), least=1, without=self.name, unlike=(r"\s(?s:.*)", r"(?s:.*)\s"))
            value = self._value(reader, shape.others, types_of(shape.others, reader.root))
            others = Row((Literal(self.before), name, value))
        return Members(tuple(pairs), self.between, others)

    def _writable(self, name: str) -> bool:
        return bool(name) and name == name.strip() and not any(part in name for part in self.name)

    def _value(self, reader: Reader, schema: Schema, types: Types, depth: int = 0) -> Rule:
        """A value, and the end of its pair. ``types``: of the parameter, by which it is read."""
        schema = reader.resolved(schema)
        if depth > _DEEPEST:
            refuse(reader.param, "it is nested, or refers, too deep")
        own = types_of(schema, reader.root)
        if own.enum is not None:
            return self._listed(reader, own.enum, types)
        ways: list[Rule] = []
        branches: Any = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and not {"type", "pattern", "format", "minLength", "maxLength"} & schema.keys():
            return OneOf(tuple(self._value(reader, reader.whole(part), types, depth + 1) for part in parts(branches)))
        if "string" in own.kinds:
            ways.append(self.bare.string([schema, *parts(schema.get("allOf"))], reader.param, typed=types.verbatim))
        if others := sorted(own.kinds - {"string"}):
            narrowed = {"allOf": [schema, {"type": others}]} if ways else schema
            ways.append(self._json(reader, narrowed))
        return ways[0] if len(ways) == 1 else OneOf(tuple(ways))

    def _json(self, reader: Reader, schema: Schema) -> Rule:
        return Row((Json(reader.whole(schema), reader.param), Literal(self.bare.until[0])))

    def _listed(self, reader: Reader, values: tuple[Any, ...], types: Types) -> Rule:
        """The values of an enum that are read as themselves."""
        texts = [quoted(value) for value in values if isinstance(value, str) and self._is_read(value, value, types)]
        rest = [
            value for value in values
            if not isinstance(value, str) and self._is_read(json.dumps(value, ensure_ascii=False), value, types)
        ]  # fmt: skip
        ways: list[Rule] = [String(self.bare.until, ("|".join(texts),))] if texts else []
        ways += [self._json(reader, {"enum": rest})] if rest else []
        if not ways:
            refuse(reader.param, f"none of the values {list(values)!r:.200} can be written in this format")
        return ways[0] if len(ways) == 1 else OneOf(tuple(ways))

    def _is_read(self, raw: str, value: Any, types: Types) -> bool:
        if isinstance(value, str) and not self.bare.holds(raw):
            return False
        try:
            return bool(json.loads(self.read(raw, types)) == value)
        except ValueError:
            return False
