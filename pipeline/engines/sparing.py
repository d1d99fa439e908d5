"""Schemas of JSON that stands in a text where some markers would end it: its strings and names are without them.

A schema says what a string is, not what its text is, so this is said of every string that may be written: those that
the schema lists, and those that it says nothing of. Names that it does not list have no first character of a marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from stages.parse.spellings.patterns import none_of, quoted, unlike
from stages.parse.spellings.ways import Schema

_ANY: Final = {"$ref": "#/x-any"}
_ELSEWHERE: Final = ("$ref", "anyOf", "oneOf", "allOf")
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_DEFINED: Final = ("$defs", "definitions")


def sparing(schema: Schema, markers: Sequence[str]) -> Schema:
    """The schema, for values without ``markers``. Raises RecursionError where it is nested too deep."""
    return _Sparing([_end(marker) for marker in markers]).whole(schema)


def _end(marker: str) -> str:
    """The end of it that begins with a character that it has once: without that it is not written either."""
    return next(marker[at:] for at in range(len(marker)) if marker[at] not in marker[at + 1 :])


class _Sparing:
    def __init__(self, markers: Sequence[str]) -> None:
        self._markers = markers
        self._firsts = "".join(sorted({quoted(marker[0]) for marker in markers}))
        self._text = f"^{_without(markers)}$"

    def whole(self, schema: Schema) -> Schema:
        spared: Any = self._part(schema)
        if spared is False:
            spared = {"enum": []}  # the library will say that nothing satisfies it
        kinds: list[Schema] = [{"type": kind} for kind in ("null", "boolean", "number", "string", "array", "object")]
        return {**spared, "x-any": {"anyOf": [self._part(kind) for kind in kinds]}}

    def _part(self, schema: Any) -> Any:
        if schema is True or schema == {}:
            return _ANY
        if not isinstance(schema, dict):
            return schema
        spared = self._inside({**cast("Schema", schema)})
        if "enum" in spared or "const" in spared:
            return self._listed(spared)
        if any(key in spared for key in _ELSEWHERE):
            return self._beside(spared)
        named: Any = spared.get("type", ["string", "array", "object"])
        kinds = [named] if isinstance(named, str) else _rows(named)
        if "string" in kinds:
            self._string(spared)
        if "array" in kinds or "items" in spared:
            self._array(spared)
        return self._object(spared) if "object" in kinds or "properties" in spared else spared

    def _beside(self, schema: Schema) -> Schema:
        """Beside references and branches, which say it of the value: only of what it says of its inside."""
        if "items" in schema:
            self._array(schema)
        if isinstance(schema.get("properties"), dict):
            listed = cast("Schema", schema["properties"])
            schema["properties"] = {name: self._part(part) for name, part in listed.items()}
        if "additionalProperties" in schema:
            schema["additionalProperties"] = self._part(schema["additionalProperties"])
        return schema

    def _inside(self, schema: Schema) -> Schema:
        """The same of its definitions and branches."""
        for key in _DEFINED:
            if isinstance(schema.get(key), dict):
                schema[key] = {name: self._part(part) for name, part in cast("Schema", schema[key]).items()}
        for key in _MANY:
            if isinstance(schema.get(key), list):
                schema[key] = [self._part(part) for part in _rows(schema[key])]
        return schema

    def _listed(self, schema: Schema) -> Any:
        if "const" in schema:
            return schema if self._free(schema["const"]) else False
        values: Any = schema["enum"]
        if not isinstance(values, list):
            return schema
        free = [value for value in _rows(values) if self._free(value)]
        return {**schema, "enum": free} if free else False

    def _free(self, value: Any) -> bool:
        """No string in it has a marker."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str) and any(marker in part for marker in self._markers):
                return False
            if isinstance(part, dict):
                waiting += [*cast("Schema", part), *cast("Schema", part).values()]
            elif isinstance(part, list):
                waiting += _rows(part)
        return True

    def _string(self, schema: Schema) -> None:
        if "pattern" in schema:
            schema["allOf"] = [{"pattern": self._text}]
        else:
            schema["pattern"] = self._text

    def _array(self, schema: Schema) -> None:
        items: Any = schema.get("items", True)
        schema["items"] = [self._part(item) for item in _rows(items)] if isinstance(items, list) else self._part(items)
        if isinstance(items, list):
            schema["additionalItems"] = self._part(schema.get("additionalItems", True))

    def _object(self, schema: Schema) -> Any:
        found: Any = schema.get("properties")
        listed = cast("Schema", found) if isinstance(found, dict) else {}
        required = [name for name in _rows(schema.get("required")) if isinstance(name, str)]
        keyed = bool(schema.pop("patternProperties", None))  # their names may be any
        others = False if keyed else self._part(schema.get("additionalProperties", True))
        spared = {name: self._part(part) for name, part in listed.items() if self._free(name)}
        if any(name not in spared and (name in listed or not self._free(name)) for name in required):
            return False
        spared |= {name: others for name in required if name not in spared}
        if found is not None or spared:
            schema["properties"] = spared
        if others is not False:
            schema["patternProperties"] = {f"^{unlike([*listed, *required], self._firsts)}$": others}
        schema["additionalProperties"] = False
        return schema


def _rows(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


# --- patterns -------------------------------------------------------------------------------------------------------


def _without(markers: Sequence[str]) -> str:
    """Of texts in which no marker occurs: what begins one does not go on so."""
    firsts = "".join(sorted({quoted(marker[0]) for marker in markers}))
    begun: dict[str, set[str]] = {}
    for marker in markers:
        for size in range(1, len(marker)):
            begun.setdefault(marker[:size], set()).add(marker[size])
    begun = {text: then for text, then in begun.items() if not any(text.startswith(marker) for marker in markers)}
    again = "|".join(map(quoted, begun))
    gone = "|".join(f"{quoted(text)}{none_of(then, firsts)}" for text, then in begun.items())
    if not begun:  # each is one character
        return f"{none_of((), firsts)}*"
    return f"(?:{none_of((), firsts)}|(?:{again})*(?:{gone}))*(?:{again})*"
