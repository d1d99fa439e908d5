"""What a tool's schema says of a parameter's type, and the JSON value of a text that was written without one.

Encodings that are not JSON (tags, key-value lines) write every value as bare text. The schema tells what it means:
``types_of`` reads the JSON kinds from it, ``coerce`` makes JSON text of the raw text. A value that is JSON already
stays as it was written: no digit, exponent, key or space changes.

A schema comes from the client and may be anything. Cyclic, deep, huge or ill-typed parts of it say nothing, and the
work on one is bounded. Lone surrogates in a text (see ``stages.parse.text``) stay as they are.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast

from stages.opening import Tool
from stages.parse.literals import integer_text, json_text, number_text, python_text, quoted

Kind: TypeAlias = Literal["null", "integer", "number", "boolean", "object", "array", "string"]
Schema: TypeAlias = Mapping[str, Any]

_ONLY_STRING: Final[frozenset[Kind]] = frozenset(("string",))
_ALIASES: Final[dict[Kind, str]] = {
    "null": "null",
    "integer": "integer long short unsigned",
    "number": "number num double",
    "boolean": "boolean bool binary",
    "object": "object dict map",
    "array": "array arr list tuple sequence",
    "string": "string str text varchar char enum",
}
_NAMES: Final[dict[str, Kind]] = {name: kind for kind, names in _ALIASES.items() for name in names.split()}
_SIZED: Final = re.compile(r"(?:u?int|(float))[0-9]*")
_INDEX: Final = re.compile("[0-9]{1,6}")
CLASSES: Final[dict[type, Kind]] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
"""The kind of a value by its class."""
_DEEPEST: Final = 32
"""How far references and branches are followed. Real schemas need two or three."""
_MOST: Final = 1000
"""How many schemas are looked at for one parameter."""
_BOTH: Final = ("allOf",)
_EITHER: Final = ("anyOf", "oneOf")


# --- what a schema says ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    """What is known of one value. ``enum``: the values of enum and const, or None where others are allowed too."""

    kinds: frozenset[Kind]
    enum: tuple[Any, ...] | None = None
    schema: Schema = field(default_factory=dict[str, Any])
    """The schema itself; empty: none."""
    root: Schema = field(default_factory=dict[str, Any])
    """Where its references point into."""
    _inside: _Inside = field(default_factory=lambda: _Inside(), init=False, repr=False, compare=False)

    @property
    def verbatim(self) -> bool:
        """Only a string can be meant, and no enum can change it: its characters may go out as they come."""
        return self.enum is None and self.kinds == _ONLY_STRING

    def item(self) -> Types:
        """What an item of the array is."""
        inside = self._inside
        if inside.item is None:
            inside.item = _union([part.get("items") for part in _parts(self.schema, self.root)], self.root)
        return inside.item

    def members(self) -> Mapping[str, Sequence[Any]]:
        """The schemas of the object's listed members; several where branches list one name."""
        inside = self._inside
        if inside.listed is None:
            inside.listed = {}
            for part in _parts(self.schema, self.root):
                for key, schema in _table(part.get("properties")).items():
                    inside.listed.setdefault(key, []).append(schema)
        return inside.listed

    def member(self, key: str | None) -> Types:
        """What the object's member of this name is (None: of one that is not listed, for which
        ``additionalProperties`` speaks)."""
        inside = self._inside
        found = None if key is None else inside.known.get(key)
        if found is None and key is not None and key in self.members():
            found = inside.known[key] = _union(self.members()[key], self.root)
        if found is None:  # the model makes such names up: one answer for all
            if inside.rest is None:
                parts = _parts(self.schema, self.root)
                inside.rest = _union([part.get("additionalProperties") for part in parts], self.root)
            found = inside.rest
        return found


class _Inside:
    """What was asked of the inside of a Types so far."""

    __slots__ = ("item", "known", "listed", "rest")

    def __init__(self) -> None:
        self.item: Types | None = None
        self.known: dict[str, Types] = {}
        self.listed: dict[str, list[Any]] | None = None
        self.rest: Types | None = None


STRING: Final = Types(_ONLY_STRING)
"""Nothing is known."""
ANY: Final = Types(frozenset(("null", "integer", "number", "boolean", "object", "array", "string")))
"""Where a format guesses from the text."""


def types_of(schema: Any, root: Schema) -> Types:
    """What ``schema`` says; its references point into ``root``. Raises on nothing."""
    table = _table(schema)
    if not table:
        return STRING
    kinds, enum = _Reader(_table(root)).read(table, 0)
    if not kinds:
        kinds.add("string")
        if table.get("nullable") is True:
            kinds.add("null")
    return Types(frozenset(kinds), enum, table, root)


def _union(schemas: Sequence[Any], root: Schema) -> Types:
    found = [part for schema in schemas for part in (_rows(schema) or [schema]) if _table(part)]
    if not found:
        return STRING
    return types_of(found[0] if len(found) == 1 else {"anyOf": found}, root)


Told: TypeAlias = tuple[set[Kind], tuple[Any, ...] | None]


class _Reader:
    """Reads one parameter's schema. What is being read already, lies too deep or comes too late says nothing."""

    __slots__ = ("_left", "_reading", "_root")

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST
        self._reading: set[int] = set()

    def read(self, schema: Schema, depth: int) -> Told:
        """Kinds (none: it says nothing) and enum."""
        if depth > _DEEPEST or self._left <= 0 or id(schema) in self._reading:
            return set(), None
        self._left -= 1
        self._reading.add(id(schema))
        both = [self.read(part, depth + 1) for part in self._branches(schema, _BOTH)]
        referred = _resolved(schema, self._root)
        if referred is not None:
            both.append(self.read(referred, depth + 1))
        either = [self.read(part, depth + 1) for part in self._branches(schema, _EITHER)]
        self._reading.discard(id(schema))

        enum = _enum(schema)
        kinds: set[Kind] = _named(schema.get("type"))
        if not kinds and enum is not None:
            kinds = {CLASSES[value.__class__] for value in enum if value.__class__ in CLASSES}
        if not kinds:
            kinds = _shaped(schema)
            for told in (*both, *either):
                kinds |= told[0]
        if schema.get("nullable") is True and kinds:
            kinds.add("null")
        if enum is None:
            enum = next((told[1] for told in both if told[1] is not None), None)
        return kinds, enum or _listed(either)

    def _branches(self, schema: Schema, words: tuple[str, ...]) -> Iterator[Schema]:
        for part in _subschemas(schema, words):
            if self._left <= 0:
                return
            yield part


def _table(value: object) -> Schema:
    """An object's members; empty if it is none."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _rows(value: object) -> Sequence[Any]:
    """An array's items; empty if it is none."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def _listed(either: Sequence[Told]) -> tuple[Any, ...] | None:
    """The values of all branches if no branch allows a string that is not listed."""
    found: list[Any] = []
    for kinds, enum in either:
        if enum is not None:
            found += enum
        elif not kinds or "string" in kinds:
            return None
    return tuple(found) if found else None


def _named(names: Any) -> set[Kind]:
    found: set[Kind] = set()
    for name in _rows(names) or [names]:
        if not isinstance(name, str) or len(name) > 32:
            continue
        name = name.strip().lower()
        sized = _SIZED.fullmatch(name)
        if sized is not None:
            found.add("number" if sized[1] else "integer")
        elif name in _NAMES:
            found.add(_NAMES[name])
    return found


def _shaped(schema: Schema) -> set[Kind]:
    found: set[Kind] = set()
    if isinstance(schema.get("properties"), dict):
        found.add("object")
    if "items" in schema or "prefixItems" in schema:
        found.add("array")
    return found


def _enum(schema: Schema) -> tuple[Any, ...] | None:
    if "const" in schema:
        return (schema["const"],)
    return tuple(_rows(schema.get("enum"))) or None


def _subschemas(schema: Schema, words: tuple[str, ...]) -> Iterator[Schema]:
    for word in words:
        for part in _rows(schema.get(word)):
            if table := _table(part):
                yield table


def target(ref: object, root: Schema) -> Any:
    """What a ``$ref`` points to, by JSON pointer inside the root; None if it leads elsewhere or nowhere."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: Any = root
    for name in ref.split("/", _DEEPEST)[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        rows = _rows(found)
        if rows:
            found = rows[int(name)] if _INDEX.fullmatch(name) and int(name) < len(rows) else None
        else:
            found = _table(found).get(name)
    return found


def _resolved(schema: Schema, root: Schema) -> Schema | None:
    return _table(target(schema.get("$ref"), root)) or None


def _parts(schema: Schema, root: Schema, words: tuple[str, ...] = (*_BOTH, *_EITHER)) -> Iterator[Schema]:
    """The schema, and every one that it is made of by reference or branch: each once, at most ``_MOST``."""
    waiting = deque([schema])
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        part = waiting.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        referred = _resolved(part, root)
        if referred is not None:
            waiting.append(referred)
        waiting += islice(_subschemas(part, words), _MOST)


# --- tools ----------------------------------------------------------------------------------------------------------


class Parameters:
    """A tool's parameters. ``given``: there is a schema; ``keys``: all that it lists, also in references and branches;
    ``required``: those that every call must have."""

    __slots__ = ("_types", "given", "keys", "required")

    def __init__(self, schema: Schema | None) -> None:
        root = _table(schema)
        self._types = Types(frozenset[Kind](("object",)), None, root, root)
        self.given = bool(root)
        self.keys = frozenset(self._types.members())
        self.required = frozenset(key for part in _parts(root, root, _BOTH) for key in _required(part))

    def types(self, key: str | None) -> Types:
        """What the parameter is (None: one that is not listed); STRING where the schema does not say."""
        return self._types.member(key)


def _required(schema: Schema) -> list[str]:
    return [name for name in _rows(schema.get("required")) if isinstance(name, str)]


class Tools:
    """The tools that a request offers, by name. Of two with one name the last counts."""

    __slots__ = ("_known", "_tools", "names")

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._known: dict[str, Parameters] = {}
        self.names = frozenset(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Parameters | None:
        """The parameters of this tool; None if it is not offered."""
        found = self._known.get(name)
        if found is None and name in self._tools:
            found = self._known[name] = Parameters(self._tools[name].parameters)
        return found


# --- values -----------------------------------------------------------------------------------------------------------


def coerce(raw: str, types: Types, *, python: bool = True) -> str:
    """The JSON text of the value that ``raw`` stands for: the first kind that fits, in a fixed order, a string last.

    If nothing fits: ``raw`` itself where it is JSON, else as a string. Raises on nothing; a value is never lost.
    ``python``: literals as Python writes them (``None``, ``{'a': True}``) are understood too.
    """
    kinds = types.kinds
    if kinds == _ONLY_STRING:
        return _string(raw, types)
    text = raw.strip()
    word = text.lower() if len(text) <= 5 else ""
    found: str | None = None
    if (word == "null" or (python and word == "none")) and ("null" in kinds or "string" not in kinds):
        found = "null"
    elif "integer" in kinds or "number" in kinds:
        found = number_text(text) if "number" in kinds else integer_text(text)
    if found is None and "boolean" in kinds:
        found = _BOOLEANS.get(word)
    if found is None and _KINDS.get(text[:1]) in kinds:
        found = json_text(text) or (python_text(text) if python else None)
    if found is None and "string" not in kinds:
        found = json_text(text)
    return _string(raw, types) if found is None else found


_BOOLEANS: Final = {"true": "true", "false": "false", "1": "true", "0": "false"}
_KINDS: Final[dict[str, Kind]] = {"{": "object", "[": "array"}


def _string(raw: str, types: Types) -> str:
    if types.enum is not None and raw not in types.enum and raw.strip() in types.enum:
        raw = raw.strip()
    return f'"{quoted(raw)}"'
