"""What a model may mean: seeded messages, and the tools whose schemas type their arguments truly.

Plain code on ``random.Random``: the same seed gives the same message in every run. No set is iterated and nothing is
hashed. Shared by the tests and the bench.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from replay.plain import is_list, is_map
from stages.opening import Tool

Value: TypeAlias = Any
"""A JSON value."""

KINDS = ("string", "integer", "number", "boolean", "null", "array", "object")
NAME_CHARS = string.ascii_letters + string.digits + "_-."
WORD_CHARS = string.ascii_letters + string.digits + "_"


@dataclass(frozen=True)
class Invocation:
    """One call, as meant."""

    name: str
    arguments: dict[str, Value]


@dataclass(frozen=True)
class Meant:
    """What one answer says. ``parts``: content and calls in the order in which they are written; two texts never stand
    side by side. Reasoning comes first; None: there is none."""

    reasoning: str | None = None
    parts: tuple[str | Invocation, ...] = ()

    @property
    def content(self) -> str | None:
        """All content, joined; None if there is none."""
        return "".join(part for part in self.parts if isinstance(part, str)) or None

    @property
    def calls(self) -> list[Invocation]:
        """The calls in order."""
        return [part for part in self.parts if isinstance(part, Invocation)]


@dataclass(frozen=True)
class Limits:
    """What a grammar can say; shapes what is drawn. The defaults: everything that JSON can hold.

    Where a grammar loses something by definition, either exclude it here or declare it in ``Family.expect``.
    """

    reasoning: bool = True
    """The family reasons."""
    calls: int = 3
    """At most so many calls in a message; 0: no calls at all."""
    before: bool = True
    """Content may stand before the first call."""
    between: bool = True
    """Content may stand between two calls."""
    after: bool = True
    """Content may stand behind the last call."""
    final_newlines: bool = True
    """Content at the very end may end in newlines (and keeps them)."""
    prose_never: tuple[str, ...] = ()
    """What content and reasoning never contain: literals that mean something there. The format's own text markers
    belong here (for those in ``tokenizer.special`` there is no need: the harness spells them)."""
    prose_also: tuple[str, ...] = ()
    """Marker-like text that is content all the same, without a fault (``<tool``, ``</parameter>``)."""
    names: str = NAME_CHARS
    """The characters of tool names; the first is a letter always."""
    keys: str | None = None
    """The characters of argument names; None: any text, empty and unicode included, as in JSON."""
    kinds: tuple[str, ...] = KINDS
    """The JSON types that an argument may have; nested values too."""
    depth: int = 3
    """Levels of values: 1 is scalars only (and empty arrays and objects)."""
    uniform: bool = False
    """Nested values have one kind at each path, in all calls of a tool: the schema tells it without a union. For
    grammars that write nested values without their types."""
    empty: bool = True
    """``{}``, ``[]`` and ``""`` can be written."""
    strings_never: tuple[str, ...] = ()
    """What strings (and, with ``keys`` None, argument names) never contain: the closers of unescaped values."""
    edges: str = "any"
    """How strings begin and end: ``any``, ``no-newline`` (trimmed newlines), ``no-space`` (trimmed white space)."""
    controls: bool = True
    """Strings may hold control characters other than tab, newline and carriage return."""
    longest: int = 3000
    """The length of the longest strings."""


_WORDS = (
    "tide", "the", "Brest", "Überfahrt", "naïve", "e\u0301te\u0301", "日本語", "한국어", "שלום", "😀", "\U0001d4b3",
    "🇫🇷", "👩\u200d👩\u200d👧", "👍🏽", "a\u2028b", "\ufeffx", "\ufffd", "“so”", "it's", '"q"', "`c`", "x < y", "a > b",
    "<b>", "</p>", "&lt;", "&", "1,5", "3.14", "{x}", "{{y}}", "[1]", "(z)", "C:\\dir", "50%", "a=b", "#1", "$x", "a|b",
    "~", "...", "*b*", "//", "¿qué?", "ﬁ", "\u00a0nb", "null", "True",
)  # fmt: skip
_JOINS = (" ", " ", " ", " ", ", ", ". ", "\n", "\n\n", "\n- ", "  ", "\t")
_PIECES = (
    *_WORDS, "\n", "\n\n", "\r\n", "\t", " ", "  ", "\\", "\\n", "\\u00e9", '"', "'", "'''", '"""', "{", "}", "[", "]",
    ",", ":", '{"a": 1}', "</", "<", ">", "/>", "<!--", "]]>", "\u2029", "\u200b", "\u202e", "\x85",
)  # fmt: skip
_CONTROLS = ("\x00", "\x01", "\b", "\f", "\x1b", "\x1f", "\x7f", "\x0b")
_WHOLE = (
    "", "", " ", "\n", "\n\n", "a\n", "\na", " a ", "\n\na\n\n", "12", "-3", "1.5", "1e5", "true", "False", "null",
    "None", "{}", "[]", '{"a": 1}', "[1, 2]", '"quoted"', "'single'", "nan", "0x10", "007", "tide", "Brest", "日本語",
    "😀", "SELECT 1;", "def f(x):\n    return {'a': x}\n", "a\\", "\\\\", '<a href="x">y</a>', "2024-01-01",
)  # fmt: skip
_NAMES = (
    "tide", "moon", "get_weather", "geo.tide", "moon-phase", "f", "X9", "a.b-c_d", "search_the_web_for_pages", "A" * 64,
    "list_files", "run2", "nullable", "t.r.u.e",
)  # fmt: skip
_KEYS = (
    "port", "day", "a", "b", "x1", "query", "file_path", "name", "arguments", "parameters", "type", "null", "camelCase",
    "_id", "very_long_argument_name_of_a_tool", "n-1", "a.b",
)  # fmt: skip
_ODD_KEYS = ("", "first name", "été", "日本", "😀", 'q"q', "back\\slash", "new\nline", "<k>", "a:b", "a=b", "{", "0")
_INTEGERS = (0, 1, -1, 7, 42, -300, 2**31, 2**53 + 1, -(2**63), 2**70, 10**30)
_NUMBERS = (0.5, -1.25, 3.0, -0.0, 1e-7, 1.5e22, -2.5e-300, 1e100, 0.1, 123456.789)


def draw(dice: random.Random, limits: Limits, markers: tuple[str, ...] = (), *, thinks: bool = True) -> Meant:
    """A message within ``limits``. ``markers``: text that strings of arguments hold now and then; ``thinks``: it may
    have reasoning."""
    return _Drawer(dice, limits, markers).message(thinks)


class _Drawer:
    def __init__(self, dice: random.Random, limits: Limits, markers: tuple[str, ...]) -> None:
        self.dice = dice
        self.limits = limits
        self.markers = markers
        self.kinds: dict[tuple[str, ...], str] = {}
        """The kind of each argument of each tool: a tool called twice has one schema. Keys: the tool, then the path."""

    def message(self, thinks: bool) -> Meant:
        dice, limits = self.dice, self.limits
        reasoning = self.prose() if thinks and limits.reasoning and dice.random() < 0.7 else None
        count = min(dice.choice((0, 1, 1, 1, 2, 2, 3, 5)), limits.calls)
        parts: list[str | Invocation] = []
        if count == 0 or (limits.before and dice.random() < 0.5):
            parts.append(self.prose())
        for number in range(count):
            if number and limits.between and dice.random() < 0.25:
                parts.append(self.prose())
            parts.append(self.call())
        if count and limits.after and dice.random() < 0.25:
            parts.append(self.prose())
        if limits.final_newlines and isinstance(parts[-1], str) and dice.random() < 0.2:
            parts[-1] += "\n" * dice.randint(1, 3)
        if count == 0 and reasoning and dice.random() < 0.1:
            parts.clear()
        return Meant(reasoning, tuple(parts))

    # --- text ---------------------------------------------------------------------------------------------------------

    def prose(self) -> str:
        """Content or reasoning: neither begins nor ends in white space."""
        dice, never = self.dice, self.limits.prose_never
        words = [word for word in (*_WORDS, *self.limits.prose_also) if not any(text in word for text in never)]
        size = dice.choice((1, 2, 5, 10, 25))
        pieces = [dice.choice(words)]
        for _ in range(size):
            pieces += dice.choice(_JOINS), dice.choice(words)
        return without("".join(pieces), never).strip() or "tide"

    def text(self) -> str:
        """A string of the arguments."""
        dice, limits = self.dice, self.limits
        if dice.random() < 0.4:
            text = dice.choice(_WHOLE)
        else:
            pieces = _PIECES + (_CONTROLS if limits.controls else ()) + self.markers * 2
            text = "".join(dice.choice(pieces) for _ in range(dice.choice((1, 2, 4, 8, 20))))
            if dice.random() < 0.03 and limits.longest > len(text) + 1:
                text = (text + " ") * (limits.longest // (len(text) + 1))
        return self.trimmed(without(text, limits.strings_never))

    def trimmed(self, text: str) -> str:
        """As ``edges`` and ``empty`` want it."""
        if self.limits.edges == "no-newline":
            text = text.strip("\r\n")
        elif self.limits.edges == "no-space":
            text = text.strip()
        return text if text or self.limits.empty else "x"

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self) -> Invocation:
        dice, limits = self.dice, self.limits
        name = dice.choice([name for name in _NAMES if all(char in limits.names for char in name)])
        arguments: dict[str, Value] = {}
        for _ in range(dice.choice((0, 1, 1, 2, 3, 6))):
            key = self.key()
            kind = self.kinds.setdefault((name, key), dice.choice(limits.kinds))
            arguments[key] = self.value(kind, limits.depth, (name, key))
        return Invocation(name, arguments)

    def key(self) -> str:
        dice, allowed = self.dice, self.limits.keys
        if allowed is None:
            keys = _KEYS + (_ODD_KEYS if dice.random() < 0.3 else ())
            return without(dice.choice(keys), self.limits.strings_never)
        return dice.choice([key for key in _KEYS if all(char in allowed for char in key)])

    def value(self, kind: str, depth: int, path: tuple[str, ...]) -> Value:
        dice = self.dice
        match kind:
            case "string":
                return self.text()
            case "integer":
                return dice.choice(_INTEGERS)
            case "number":
                return dice.choice(_NUMBERS)
            case "boolean":
                return dice.random() < 0.5
            case "null":
                return None
            case "array":
                inside = (*path, "[]")
                return [self.value(self.nested(depth, inside), depth - 1, inside) for _ in range(self.size(depth))]
            case _:
                return self.object(depth, path)

    def object(self, depth: int, path: tuple[str, ...]) -> dict[str, Value]:
        members: dict[str, Value] = {}
        for _ in range(self.size(depth)):
            key = self.key()
            inside = (*path, key)
            members[key] = self.value(self.nested(depth, inside), depth - 1, inside)
        return members

    def size(self, depth: int) -> int:
        least = 0 if self.limits.empty else 1
        return max(least, self.dice.choice((0, 1, 2, 3))) if depth > 1 else least

    def nested(self, depth: int, path: tuple[str, ...]) -> str:
        limits = self.limits
        kinds = limits.kinds
        if depth <= 2 and not limits.empty:
            kinds = tuple(kind for kind in kinds if kind not in ("array", "object")) or ("string",)
        kind = self.dice.choice(kinds)
        return self.kinds.setdefault(path, kind) if limits.uniform else kind


def without(text: str, never: tuple[str, ...]) -> str:
    """``text`` without any of ``never``, also none that the removal would join."""
    while any(part in text for part in never):
        for part in never:
            text = text.replace(part, "")
    return text


def mapped(value: Value, change: Callable[[str], str]) -> Value:
    """``value`` with ``change`` applied to every string in it, keys included."""
    if isinstance(value, str):
        return change(value)
    if is_list(value):
        return [mapped(item, change) for item in value]
    if is_map(value):
        return {change(key): mapped(item, change) for key, item in value.items()}
    return value


def mapped_message(meant: Meant, change: Callable[[str], str]) -> Meant:
    """``meant`` with ``change`` applied to every text in it but the names of tools."""
    parts = tuple(
        change(part) if isinstance(part, str) else replace(part, arguments=mapped(part.arguments, change))
        for part in meant.parts
    )
    return Meant(None if meant.reasoning is None else change(meant.reasoning), parts)


# --- tools -----------------------------------------------------------------------------------------------------------


def tools_for(meant: Meant, dice: random.Random | None = None) -> tuple[Tool, ...]:
    """The tools that the calls of ``meant`` call, and one that is not called. Their schemas type every argument truly,
    nested ones too. With ``dice`` some types are unions, where that leaves no doubt about the value."""
    schemas: dict[str, dict[str, Any]] = {}
    for call in meant.calls:
        properties = schemas.setdefault(call.name, {})
        for key, value in call.arguments.items():
            schema = _schema(value, dice)
            properties[key] = schema if key not in properties else _both(properties[key], schema)
    tools = [
        Tool(name, parameters={"type": "object", "properties": properties}) for name, properties in schemas.items()
    ]
    if "unused" not in schemas:
        tools.append(Tool("unused", parameters={"type": "object", "properties": {"a": {"type": "string"}}}))
    return tuple(tools)


def _schema(value: Value, dice: random.Random | None) -> dict[str, Any]:
    kind = kind_of(value)
    schema: dict[str, Any] = {"type": kind}
    if is_map(value):
        schema["properties"] = {key: _schema(item, dice) for key, item in value.items()}
    elif is_list(value) and value:
        schemas = [_schema(item, dice) for item in value]
        schema["items"] = schemas[0]
        for other in schemas[1:]:
            schema["items"] = _both(schema["items"], other)
    if dice is None or kind == "string" or dice.random() < 0.7:
        return schema
    # Never a union with string where the text could be read as another type.
    if kind == "null":
        return {"type": ["string", "null"]} if dice.random() < 0.5 else {"anyOf": [{"type": "string"}, schema]}
    return {"anyOf": [schema, {"type": "null"}]} if dice.random() < 0.5 else {**schema, "type": [kind, "null"]}


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What both allow."""
    if one == other:
        return one
    if one.get("type") == other.get("type") == "object":
        properties: dict[str, Any] = dict(one.get("properties", {}))
        for key, schema in other.get("properties", {}).items():
            properties[key] = _both(properties[key], schema) if key in properties else schema
        return {**one, "properties": properties}
    if one.get("type") == other.get("type") == "array":
        if "items" in one and "items" in other:
            return {**one, "items": _both(one["items"], other["items"])}
        return one if "items" in one else other
    branches: list[dict[str, Any]] = []
    for schema in (one, other):
        for branch in schema["anyOf"] if "anyOf" in schema else [schema]:
            if branch not in branches:
                branches.append(branch)
    return {"anyOf": branches}


def kind_of(value: Value) -> str:
    """The JSON Schema type of a value; ``integer`` for an int, ``number`` for a float."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((str, "string"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"
