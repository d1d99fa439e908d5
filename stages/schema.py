"""Whether a call's arguments satisfy its tool's JSON Schema.

The schema is the client's, so it is not trusted: nothing is fetched, patterns are matched in linear time, and a schema
that may take long in another way is not used. Formats (``date-time``) are notes, as in the newest draft.
``nullable: true`` beside a type means what OpenAPI says: null is allowed too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import jsonschema_rs

from stages.parse.types import target

_DEEPEST_SCHEMA: Final = 100
"""Real ones have about ten levels."""
_LARGEST: Final = 10_000
"""Schemas in a schema, those behind references counted wherever they are used. Checking can take time with each."""
_DEEPEST: Final = 200
"""Open brackets of arguments that are checked: what any stack can bear."""
_DIGITS: Final = 4_000
"""Digits of an integer that are read."""
_EXPLAINED: Final = 16 << 10
"""Characters of arguments up to which the broken rule is named."""
_SHOWN: Final = 200
"""Characters of a path in a detail."""
_PATTERNS: Final = jsonschema_rs.RegexOptions()
"""Linear in the text. It knows no lookaround and no back-references: with one of these, no text is safe to match."""
_BRACKETS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_DRAFTS: Final[tuple[Callable[..., Any], ...]] = (
    jsonschema_rs.validator_for,  # the one that the schema names, else the newest
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft4Validator,
)


class Checker:
    """Checks arguments against one schema."""

    __slots__ = ("_explains", "_validator")

    def __init__(self, validator: Any, explains: bool) -> None:
        self._validator = validator
        self._explains = explains

    def fault(self, arguments: str) -> str | None:
        """Which rule of the schema the arguments break, without any of their text; None: none, or they cannot be read
        (nested beyond bounds, numbers that are not finite)."""
        value = _value(arguments)
        try:
            if value is None or self._validator.is_valid(value):
                return None
            if self._explains and len(arguments) <= _EXPLAINED:
                self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return f"the arguments break the schema at {_rule(error)}"
        except ValueError:
            return None  # a nesting that the library does not take
        # To tell why takes time with every branch that failed, in a recursive schema without bounds; whether does not.
        return "the arguments do not satisfy the tool's schema"


def checker(schema: dict[str, Any] | None) -> Checker | None:
    """The checker of a tool's parameters. None where there is nothing to check, and where the schema cannot be used:
    it is no JSON Schema, refers to what it does not hold, is too deep or too large. That is nothing the model did."""
    if not schema:
        return None
    survey = _Survey(schema)
    if not survey.usable:
        return None
    used = _widened(schema) if survey.nullable else schema
    for draft in _DRAFTS:
        try:
            made = draft(used, offline=True, validate_formats=False, pattern_options=_PATTERNS)
        except ValueError:
            continue
        return Checker(made, not survey.recursive)
    return None


# --- schemas --------------------------------------------------------------------------------------------------------


class _Survey:
    """One walk through a schema and what it refers to, as often as it does.

    References that are recursive cost the library nothing more; others it follows one by one, so that a few lines may
    stand for millions of schemas.
    """

    __slots__ = ("_active", "_left", "_root", "nullable", "recursive", "usable")

    def __init__(self, root: dict[str, Any]) -> None:
        self.usable = True
        self.recursive = False
        self.nullable = False
        self._root = root
        self._left = _LARGEST
        self._active: set[int] = set()
        self._walk()

    def _walk(self) -> None:
        path: list[tuple[int, Iterator[Any]]] = [(0, iter((self._root,)))]
        while path and self.usable:
            owner, rest = path[-1]
            for node in rest:
                inside = self._enter(node)
                if inside is not None:
                    path.append((id(node), iter(inside)))
                    break
            else:
                path.pop()
                self._active.discard(owner)
            if self._left <= 0 or len(path) > _DEEPEST_SCHEMA:
                self.usable = False

    def _enter(self, node: Any) -> Iterable[Any] | None:
        """What stands in ``node``; None if that is nothing, or the walk is inside it already."""
        if not isinstance(node, (dict, list)):
            return None
        if id(cast("object", node)) in self._active:
            self.recursive = True
            return None
        self._active.add(id(cast("object", node)))
        self._left -= 1
        return cast("Iterable[Any]", node) if isinstance(node, list) else self._members(cast("dict[str, Any]", node))

    def _members(self, schema: dict[str, Any]) -> list[Any]:
        self.nullable = self.nullable or schema.get("nullable") is True
        inside: list[Any] = [value for word, value in schema.items() if word != "enum" or not isinstance(value, list)]
        if isinstance(schema.get("$ref"), str):
            inside.append(target(schema["$ref"], self._root))
            if inside[-1] is None:
                self.usable = False
        for word in (
            ("$dynamicRef", "$recursiveRef") if schema is self._root else ("$dynamicRef", "$recursiveRef", "$id")
        ):
            if isinstance(schema.get(word), str):
                self.usable = False  # where these lead is the library's own matter
        return inside


def _widened(value: Any) -> Any:
    """A copy in which ``nullable`` is said as JSON Schema says it."""
    if isinstance(value, list):
        return [_widened(item) for item in cast("Iterable[Any]", value)]
    if not isinstance(value, dict):
        return value
    made = {key: _widened(item) for key, item in cast("dict[str, Any]", value).items()}
    if made.get("nullable") is True:
        for word, null in (("type", "null"), ("enum", None)):
            told = made.get(word)
            listed = list(cast("Iterable[Any]", told)) if isinstance(told, list) else [told]
            if told is not None and null not in listed:
                made[word] = [*listed, null]
    return made


# --- arguments ------------------------------------------------------------------------------------------------------


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("too long")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError("not finite")
    return value


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_finite)


def _value(arguments: str) -> Any:
    """The value; None if it cannot be read, or is null."""
    if not _shallow(arguments):
        return None
    try:
        value = _DECODER.decode(arguments)
        if "\\u" in arguments:
            # Half a character is U+FFFD for everybody who reads it.
            whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
            value = _DECODER.decode(whole.decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        return None
    return value


def _shallow(arguments: str) -> bool:
    if arguments.count("{") + arguments.count("[") <= _DEEPEST:
        return True
    depth = 0
    for match in _BRACKETS.finditer(arguments):
        char = match[0][0]
        if char != '"':
            depth += 1 if char in "{[" else -1
            if depth > _DEEPEST:
                return False
    return True


def _rule(error: jsonschema_rs.ValidationError) -> str:
    """Where in the schema the broken rule stands: words of the schema only."""
    path = "/".join(str(part) for part in error.schema_path)
    missing: Any = getattr(error.kind, "property", None) if path.endswith("required") else None
    shown = f"{path}: {missing}" if isinstance(missing, str) else path
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
