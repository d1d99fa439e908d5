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
from stages.grammar import Json, Members, Row, Rule, Spelled, String, one_of
from stages.parse.literals import guessed
from stages.parse.spellings.objects import Objects, Other, Shape
from stages.parse.spellings.patterns import NUMBERS, quoted
from stages.parse.spellings.strings import Bare
from stages.parse.spellings.ways import NUMERIC, Both, kinds, listed
from stages.parse.types import ANY, Types, coerce

_NAME: Final = re.compile(r"[\w.-]{1,256}", re.ASCII)
_LONGEST: Final = 256
"""Code points of a name. Readers know no longer heads than some 500."""
_FREE: Final = 48
"""Of one that the model makes up."""
_LIMITS: Final = (*NUMERIC, "enum", "const")
_JSON: Final = frozenset(("object", "array"))
"""Kinds that are written as JSON."""
_WORDS: Final[Mapping[Any, tuple[str, ...]]] = {
    None: ("null", "None"), True: ("true", "True"), False: ("false", "False"),
}  # fmt: skip


def json_or_string(raw: str, types: Types) -> str:
    """``Pairs.read`` of formats that ask no schema."""
    del types
    return guessed(raw)


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
        objects = Objects(value.schema, value.param)
        try:
            ways = tuple(self._members(objects, shape) for shape in objects.shapes((value.schema,)))
        except RecursionError:
            raise Unheld(value.param, "it is nested, or refers, too deep") from None
        return Spelled(value.schema, value.param, one_of(ways))

    # --- members ----------------------------------------------------------------------------------------------------

    def _members(self, objects: Objects, shape: Shape) -> Rule:
        pairs: list[tuple[Rule, bool]] = []
        known = objects.parameters.keys if self.listed else frozenset[str]()
        # As in JSON: an object with patternProperties has no others.
        more = [other for other in shape.others if other.key.patterns] or shape.others
        some = [] if known else [rule for other in more for rule in self._others(objects, shape, other)]
        others = Row((gr.Literal(self.before), one_of(some))) if some else None
        for member in shape.members:
            name = self.encode(member.name)
            if not self._writable(name) or (known and member.name not in known):
                if member.required:
                    raise Unheld(objects.param, f"the name {member.name!r} cannot be written in this format")
                continue
            values = Values(self, objects, member.both, objects.parameters.types(member.name)).ways()
            if values:
                pairs.append((self._pair(name, values, alone=others is None), member.required))
            elif member.required:
                why = f"unsatisfiable: no value of {member.name!r} can be written in this format"
                raise Unheld(objects.param, why)
        return Members(tuple(pairs), self.between, others, self.once)

    def _writable(self, name: str) -> bool:
        return 0 < len(name) <= _LONGEST and name == name.strip() and not any(part in name for part in self.name)

    def _pair(self, name: str, values: Mapping[str, tuple[Rule, ...]], *, alone: bool) -> Rule:
        """``values``: what stands behind the name, and the values that may follow; ``alone``: no other names may be
        written, so that what stands before it and the name are one text."""
        plain = _NAME.fullmatch(name) is not None
        before = self.before if plain and alone else ""
        heads = [
            # A name of other characters is letters, whatever token they are too.
            Row((gr.Literal(f"{before}{name}{middle}") if plain else String((middle,), (quoted(name),)), one_of(ways)))
            for middle, ways in values.items()
        ]  # fmt: skip
        return one_of(heads) if before else Row((gr.Literal(self.before), one_of(heads)))

    def _others(self, objects: Objects, shape: Shape, other: Other) -> list[Rule]:
        """Members that are not listed, without what stands before their names."""
        types = objects.parameters.types(None) if self.untyped == "none" else ANY
        names = {*objects.parameters.keys, *(member.name for member in shape.members)}
        unlike = (
            r"\s(?s:.*)",
            r"(?s:.*)\s",
            *map(quoted, sorted({*map(self.encode, names), *self.taken})),
            *other.key.unlike,
        )
        # A name's code points are counted as it is written.
        return [
            Row((String((middle,), other.key.patterns, 1, _FREE, self.name, unlike), one_of(ways)))
            for middle, ways in Values(self, objects, other.both, types).ways().items()
        ]


class Values:
    """What may stand for one value, and the end of its pair. ``types``: what its reader knows of it."""

    def __init__(self, pairs: Pairs, objects: Objects, both: Both, types: Types) -> None:
        self._pairs = pairs
        self._objects = objects
        self._both = both
        self._types = ANY if pairs.kinds or pairs.untyped == "all" else types
        self._listed = frozenset(value for value in self._types.enum or () if isinstance(value, str))
        self._found: dict[str, list[Rule]] = {}

    def ways(self) -> Mapping[str, tuple[Rule, ...]]:
        """What stands behind the name → the values that may follow."""
        param = self._objects.param
        ways = [(way, kinds(way, param, self._types.kinds)) for way in self._objects.ways.of(self._both, _JSON)]
        for way, found in ways:
            if "string" in found:
                self._strings(way)
        for kind, words in (("null", (None,)), ("boolean", (True, False))):
            self._words(kind, [word for word in words if any(_allows(way, kind, word) for way in ways)])
        self._numbers([(way, numeric) for way, found in ways if (numeric := found & NUMBERS.keys())])
        for kind in ("object", "array"):
            if any(kind in found for _, found in ways):
                self.json(kind, kind)
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

    def _strings(self, way: Both) -> None:
        if not self._read_as("string"):
            return
        pairs, param = self._pairs, self._objects.param
        taken = () if pairs.kinds else self._types.kinds - {"string"}
        values = listed(way)
        if values is None:
            self.add("string", pairs.bare.string(way, param, taken))
            if pairs.quotes is not None:
                opener, bare = pairs.quotes
                self.add("string", Row((gr.Literal(opener), bare.string(way, param, taken))))
            return
        self._objects.ways.spend(len(values))
        texts = [value for value in values if isinstance(value, str) and self._is_read(value, value)]
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

    def _words(self, kind: str, words: Sequence[Any]) -> None:
        if texts := [raw for word in words for raw in _WORDS[word] if self._is_read(raw, word)]:
            self.add(kind, self._text("|".join(texts)))

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _numbers(self, ways: Sequence[tuple[Both, frozenset[str]]]) -> None:
        """Any, where some way allows that."""
        free = [way for way in ways if not any(key in part for part in way[0] for key in _LIMITS)]
        kind = max((kind for _, found in free or ways for kind in found), default="")
        if not free:
            self.json("number", kind)
            return
        kind = kind if kind in self._types.kinds else "integer"
        if self._read_as(kind):
            self.add("number", self._text(NUMBERS[kind]))

    # --- what is JSON -----------------------------------------------------------------------------------------------

    def json(self, kind: str, name: str) -> None:
        """Adds values of this kind that are JSON. ``name``: by which a schema knows it."""
        if not self._read_as(name):
            return
        schema = {**self._objects.ways.whole(self._both), "type": name}
        if name == "number" and not any(key in schema for key in _LIMITS):
            schema |= {"minimum": -(10**15), "maximum": 10**15}  # branches may allow exponents that are beyond a float
        pairs, param = self._pairs, self._objects.param
        nested = kind in _JSON
        value = Json(schema, param, without=pairs.inside if nested else ())
        self.add(kind, Row((value, gr.Literal(pairs.bare.until[0]))))
        if nested and pairs.quotes is not None:
            opener, bare = pairs.quotes
            self.add(
                kind, Row((gr.Literal(opener), Json(schema, param, without=bare.without), gr.Literal(bare.until[0])))
            )


def _allows(way: tuple[Both, frozenset[str]], kind: str, word: Any) -> bool:
    values = listed(way[0])
    return kind in way[1] and (values is None or any(value is word for value in values))
