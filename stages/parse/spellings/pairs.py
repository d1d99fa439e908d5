"""Arguments as pairs of a name and a value, each between tags: strings bare, all else as JSON.

arguments ::= { before NAME middle VALUE behind }
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from stages import grammar as gr
from stages.errors import Unheld
from stages.grammar import Json, Members, OneOf, Row, Rule, Spelled, String
from stages.parse.literals import json_text
from stages.parse.literals import quoted as as_string
from stages.parse.spellings.leaves import LIMITS, Way, free_number, kinds, values, ways, words
from stages.parse.spellings.patterns import quoted, whole
from stages.parse.spellings.shape import Reader, Schema, Shape
from stages.parse.spellings.strings import Bare
from stages.parse.types import ANY, Types, coerce

_NAME: Final = re.compile(r"[\w.-]{1,256}", re.ASCII)
_LONGEST: Final = 256
"""Code points of a name. Readers know no longer heads than some 500."""
_FREE: Final = 48
"""Of one that the model makes up."""
_INTEGER: Final = "-?(?:0|[1-9][0-9]{0,39})"
_NUMBERS: Final = {"integer": _INTEGER, "number": rf"{_INTEGER}(?:\.[0-9]{{1,40}})?(?:[eE][+-]?[0-9]{{1,2}})?"}
"""Without a limit in the schema. JSON's numbers, but for those beyond a float."""
_WORDS: Final[Mapping[Any, tuple[str, ...]]] = {
    None: ("null", "None"), True: ("true", "True"), False: ("false", "False"),
}  # fmt: skip


def json_or_string(raw: str, types: Types) -> str:
    """``Pairs.read`` of formats that ask no schema."""
    del types
    return json_text(raw.strip()) or f'"{as_string(raw)}"'


@dataclass(frozen=True, slots=True)
class Pairs:
    """``before``, ``middle``: around a name; ``bare``: how strings are written, up to the end of the pair, which other
    values have too; ``between``: two pairs; ``name``: what a name does not have in it; ``read``: raw text and types →
    JSON text, as the format's reader has it.

    ``kinds``: where a pair says what its value is: the kind → what then stands for ``middle``. ``encode``: a name as it
    is written. ``taken``: names that are something else, unless they are listed. ``once``: no name comes twice.
    ``listed``: members that are not listed are not read. ``quotes``: another way to write a value: what stands before
    it, and how it is written then. ``inside``: what JSON does not have in its strings. ``untyped``: of which members
    the reader does not ask the schema, but takes them for any JSON that they read as.
    """

    before: str
    middle: str
    bare: Bare
    between: str = ""
    name: tuple[str, ...] = ("<", ">", "\n", '"', "'", "=", "/", "\\")
    read: Callable[[str, Types], str] = coerce
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    encode: Callable[[str], str] = str
    taken: tuple[str, ...] = ()
    once: bool = False
    listed: bool = False
    quotes: tuple[str, Bare] | None = None
    inside: tuple[str, ...] = ()
    untyped: Literal["none", "unlisted", "all"] = "none"

    def __call__(self, value: Json) -> Rule:
        """The rule of a tool's arguments. Raises RequestError."""
        reader = Reader(value.schema, value.param)
        try:
            ways = tuple(self._members(reader, shape) for shape in reader.shapes(value.schema))
        except RecursionError:
            raise Unheld(reader.param, "it is nested, or refers, too deep") from None
        return Spelled(value.schema, value.param, ways[0] if len(ways) == 1 else OneOf(ways))

    # --- members ----------------------------------------------------------------------------------------------------

    def _members(self, reader: Reader, shape: Shape) -> Rule:
        pairs: list[tuple[Rule, bool]] = []
        known = reader.parameters.keys
        others = None if shape.others is None or (self.listed and known) else self._others(reader, shape)
        for member in shape.members:
            name = self.encode(member.name)
            if not self._writable(name) or (self.listed and known and member.name not in known):
                if member.required:
                    raise Unheld(reader.param, f"the name {member.name!r} cannot be written in this format")
                continue
            values = Values(self, reader, member.schema, member.types).ways()
            if values:
                pairs.append((self._pair(name, values, alone=others is None), member.required))
            elif member.required:
                raise Unheld(reader.param, f"no value of {member.name!r} can be written in this format")
        if others is not None and self.once:
            return Members((*pairs, (others, False)), self.between)
        return Members(tuple(pairs), self.between, others)

    def _writable(self, name: str) -> bool:
        return 0 < len(name) <= _LONGEST and name == name.strip() and not any(part in name for part in self.name)

    def _pair(self, name: str, values: Mapping[str, tuple[Rule, ...]], *, alone: bool) -> Rule:
        """``values``: what stands behind the name, and the values that may follow; ``alone``: no other names may be
        written, so that what stands before it and the name are one text."""
        plain = _NAME.fullmatch(name) is not None
        before = self.before if plain and alone else ""
        heads = [
            # A name of other characters is letters, whatever token they are too.
            Row((gr.Literal(f"{before}{name}{middle}") if plain else String((middle,), (quoted(name),)), _one_of(ways)))
            for middle, ways in values.items()
        ]  # fmt: skip
        return _one_of(heads) if before else Row((gr.Literal(self.before), _one_of(heads)))

    def _others(self, reader: Reader, shape: Shape) -> Rule | None:
        """Members that are not listed."""
        assert shape.others is not None
        values = Values(self, reader, shape.others, reader.unlisted if self.untyped == "none" else ANY).ways()
        if not values:
            return None
        names = sorted({*reader.parameters.keys, *(member.name for member in shape.members), *self.taken})
        unlike = [r"\s(?s:.*)", r"(?s:.*)\s", *(quoted(self.encode(name)) for name in names)]
        patterns = (whole(shape.names, reader.param),) if shape.names else ()
        # A name's code points are counted as it is written.
        heads = [
            Row((String((middle,), patterns, 1, _FREE, self.name, tuple(unlike)), _one_of(ways)))
            for middle, ways in values.items()
        ]  # fmt: skip
        return Row((gr.Literal(self.before), _one_of(heads)))


class Values:
    """What may stand for one value, and the end of its pair. ``types``: what its reader knows of it."""

    def __init__(self, pairs: Pairs, reader: Reader, schema: Schema, types: Types) -> None:
        self._pairs = pairs
        self._reader = reader
        self._schema = schema
        self._types = ANY if pairs.kinds or pairs.untyped == "all" else types
        self._listed = frozenset(value for value in self._types.enum or () if isinstance(value, str))
        self._found: dict[str, list[Rule]] = {}

    def ways(self) -> Mapping[str, tuple[Rule, ...]]:
        """What stands behind the name → the values that may follow."""
        found = ways(self._reader, self._schema)
        for way in found:
            if "string" in kinds(way):
                self._strings(way)
        self._words(words(found))
        allowed = frozenset(kind for way in found for kind in kinds(way))
        if number := free_number(found):
            if number == "number" and "number" not in self._types.kinds:
                number = "integer"
            if self._read_as(number):
                self.add("number", self._text(_NUMBERS[number]))
        elif numbers := allowed & {"integer", "number"}:
            self.json("number", [kind for kind in ("number", "integer") if kind in numbers][:1])
        for kind in ("object", "array"):
            if kind in allowed:
                self.json(kind, [kind])
        return {middle: tuple(rules) for middle, rules in self._found.items()}

    def _read_as(self, kind: str) -> bool:
        """The reader knows that the value may be one."""
        return kind in self._types.kinds or (kind == "integer" and "number" in self._types.kinds)

    def add(self, kind: str, rule: Rule) -> None:
        """A way to write a value of this kind."""
        rules = self._found.setdefault(self._pairs.kinds.get(kind, self._pairs.middle), [])
        if rule not in rules:
            rules.append(rule)

    def _text(self, pattern: str) -> Rule:
        return String(self._pairs.bare.until, (pattern,))

    # --- strings and words ------------------------------------------------------------------------------------------

    def _strings(self, way: Way) -> None:
        if not self._read_as("string"):
            return
        pairs, param = self._pairs, self._reader.param
        taken = () if pairs.kinds else self._types.kinds - {"string"}
        listed = values(way)
        if listed is None:
            self.add("string", pairs.bare.string(way, param, taken))
            if pairs.quotes is not None:
                opener, bare = pairs.quotes
                self.add("string", Row((gr.Literal(opener), bare.string(way, param, taken))))
            return
        self._reader.spend(len(listed))
        texts = [value for value in listed if isinstance(value, str) and self._is_read(value, value)]
        if texts:
            limits = pairs.bare.string(way, param)
            self.add(
                "string",
                String(limits.until, ("|".join(map(quoted, texts)), *limits.patterns), limits.least, limits.most),
            )

    def _is_read(self, raw: str, value: Any) -> bool:
        if isinstance(value, str) and (not self._pairs.bare.holds(raw) or self._pairs.kinds):
            return self._pairs.bare.holds(raw)
        try:
            types = replace(self._types, enum=(value,)) if raw in self._listed else self._types  # looked at once
            found = json.loads(self._pairs.read(raw, types))
        except ValueError:
            return False
        return type(found) is type(value) and bool(found == value)

    def _words(self, allowed: tuple[Any, ...]) -> None:
        for kind, values_of in (("null", (None,)), ("boolean", (True, False))):
            texts = [
                raw for value in values_of if value in allowed for raw in _WORDS[value] if self._is_read(raw, value)
            ]  # fmt: skip
            if texts:
                self.add(kind, self._text("|".join(texts)))

    # --- what is JSON -----------------------------------------------------------------------------------------------

    def json(self, kind: str, names: Sequence[str]) -> None:
        """Adds values of this kind that are JSON: of the first of ``names``, by which a schema knows it."""
        if not self._read_as(names[0]):
            return
        schema = self._reader.whole({**self._schema, "type": names[0]})
        limited = "number" not in names or any(key in schema for key in (*LIMITS, "enum", "const"))
        if not limited:  # its branches may allow exponents that are beyond a float
            schema |= {"minimum": -(10**15), "maximum": 10**15}
        pairs, param = self._pairs, self._reader.param
        nested = kind in ("object", "array")
        value = Json(schema, param, without=pairs.inside if nested else ())
        self.add(kind, Row((value, gr.Literal(pairs.bare.until[0]))))
        if nested and pairs.quotes is not None:
            opener, bare = pairs.quotes
            self.add(
                kind, Row((gr.Literal(opener), Json(schema, param, without=bare.without), gr.Literal(bare.until[0])))
            )


def _one_of(ways: Sequence[Rule]) -> Rule:
    return ways[0] if len(ways) == 1 else OneOf(tuple(ways))
