"""What a schema says of one value, kind by kind, where a format writes strings and words bare.

A schema is an ``and`` of what stands in it and of what it refers to: each way that it may be met is a list of schemas
without references and branches, all of which hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

from stages.errors import Unheld
from stages.parse.spellings.shape import Reader, Schema

Way: TypeAlias = tuple[Schema, ...]

KINDS: Final = ("null", "boolean", "integer", "number", "object", "array", "string")
_NAMES: Final[dict[type, str]] = {
    float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_EITHER: Final = ("anyOf", "oneOf")
_MOST: Final = 64
_DEEPEST: Final = 32
LIMITS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_BEYOND: Final = (
    "not", "if", "then", "else", "$dynamicRef", "$recursiveRef", "dependentSchemas", "dependentRequired",
    "dependencies",
)  # fmt: skip
"""Keywords that are not looked into."""


def ways(reader: Reader, schema: Any, depth: int = 0) -> list[Way]:
    """The ways that a schema may be met. Raises RequestError: too many, or a keyword that cannot be held to."""
    reader.spend()
    if schema is False:
        return []
    if not isinstance(schema, dict) or not schema:
        return [()]
    if depth > _DEEPEST:
        raise Unheld(reader.param, "it is nested, or refers, too deep")
    node = cast("Schema", schema)
    for key in _BEYOND:
        if key in node:
            raise Unheld(reader.param, f'"{key}" cannot be held to in this format')
    own: Way = ({key: value for key, value in node.items() if key not in ("$ref", "allOf", *_EITHER)},)
    found = [own]
    every = [reader.target(node["$ref"])] if "$ref" in node else []
    for part in (*every, *_list(node.get("allOf"))):
        found = _both(reader, found, ways(reader, part, depth + 1))
    for word in _EITHER:
        each = [ways(reader, branch, depth + 1) for branch in _list(node.get(word))]
        if word == "oneOf":
            _apart(reader, each, kinds(own))
        if each:
            found = _both(reader, found, [way for branch in each for way in branch])
    return found


def _both(reader: Reader, one: list[Way], other: list[Way]) -> list[Way]:
    if len(one) * len(other) > _MOST:
        raise Unheld(reader.param, f"a value may be written in more than {_MOST} ways")
    both = [(*mine, *theirs) for mine in one for theirs in other]
    reader.spend(sum(map(len, both)))
    return both


def _apart(reader: Reader, branches: list[list[Way]], allowed: frozenset[str]) -> None:
    """Of a oneOf, at most one branch may allow a value that is written bare."""
    taken: list[tuple[frozenset[str], frozenset[str] | None]] = []
    for branch in branches:
        bare = allowed.intersection(kind for way in branch for kind in kinds(way)) - {"object", "array"}
        listed = [values(way) for way in branch]
        known = None if None in listed else frozenset(_key(value) for each in listed for value in each or ())
        for kinds_before, known_before in taken:
            if bare & kinds_before and (known is None or known_before is None or known & known_before):
                raise Unheld(reader.param, '"oneOf" whose branches may overlap cannot be held to in this format')
        taken.append((bare, known))


# --- one way --------------------------------------------------------------------------------------------------------


def kinds(way: Way) -> frozenset[str]:
    """The kinds that it allows; "number" allows "integer" too."""
    found = frozenset(KINDS)
    for part in way:
        if "type" in part:
            found &= frozenset(_kinds(part["type"]))
    if (listed := values(way)) is not None:
        found &= frozenset(_kind(value) for value in listed)
    return found


def _kinds(names: Any) -> Iterator[str]:
    for name in _list(names) or [names]:
        if isinstance(name, str):
            yield name
            if name == "number":
                yield "integer"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    return _NAMES[type(value)]


def values(way: Way) -> list[Any] | None:
    """The values of its enum and const that are in all of them; None: there is none."""
    found: list[Any] | None = None
    for part in way:
        listed = [part["const"]] if "const" in part else None
        if listed is None and isinstance(part.get("enum"), list):
            listed = cast("list[Any]", part["enum"])
        if listed is not None:
            keys = {_key(value) for value in listed}
            found = listed if found is None else [value for value in found if _key(value) in keys]
    return found


def _key(value: Any) -> str:
    """Equal for values that are."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{_kind(value)} {value!r}"


def words(found: Iterable[Way]) -> tuple[Any, ...]:
    """Which of null, true and false are allowed."""
    allowed: list[Any] = []
    for word in (None, True, False):
        for way in found:
            listed = values(way)
            if _kind(word) in kinds(way) and (listed is None or any(value is word for value in listed)):
                allowed.append(word)
                break
    return tuple(allowed)


def free_number(found: Iterable[Way]) -> str:
    """ "number" or "integer", where some way allows any; else ""."""
    best = ""
    for way in found:
        limited = any(key in part for part in way for key in (*LIMITS, "enum", "const"))
        if not limited and "number" in kinds(way):
            return "number"
        if not limited and "integer" in kinds(way):
            best = "integer"
    return best


def _list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
