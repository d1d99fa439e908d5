"""JSON Schemas of requests, as a grammar is made of them.

* What says nothing goes, where the library would refuse it: a ``format`` that it does not know (JSON Schema calls these
  notes), ``uniqueItems: false``.
* An object that lists its properties and says nothing of others has no others: the schema allows them, but a small
  model that may write more does so until it runs out of tokens. Only where no other part of the schema can be meant
  for the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeGuard

Schema: TypeAlias = dict[str, Any]

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
_ONE: Final = frozenset(("items", "additionalProperties", "additionalItems"))
_MANY: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_OTHERS: Final = frozenset(
    ("additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "propertyNames")
)
"""Say something of properties that are not listed."""
_OWN: Final = frozenset(("properties", "required", *_OTHERS))
_ELSEWHERE: Final = ("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "not", "dependentSchemas")
"""Say more of the same value."""


def writable(schema: Schema) -> Schema:
    """What a model is held to that is to satisfy ``schema``. Raises RecursionError where it is nested too deep."""
    return _plain(schema, closed=not _shared(schema))


def _shared(schema: Schema) -> bool:
    """Two parts of it may say something of one object, or (by a reference) might."""
    for node in _nodes(schema):
        elsewhere = [key for key in _ELSEWHERE if key in node]
        if len(elsewhere) > 1 or (elsewhere and not _OWN.isdisjoint(node)):
            return True
        every: Any = node.get("allOf")
        if _is_list(every) and len(every) > 1:
            return True
    return False


def _nodes(schema: Schema) -> Iterator[Schema]:
    """All schemas in it."""
    yield schema
    for key, value in schema.items():
        for part in _parts(key, value):
            yield from _nodes(part)


def _parts(key: str, value: Any) -> list[Schema]:
    """The schemas in a keyword's value."""
    found: list[Any] = []
    if key in _NAMED and _is_schema(value):
        found = list(value.values())
    elif key in _MANY and _is_list(value):
        found = value
    elif key in _ONE:
        found = [value]
    return [part for part in found if _is_schema(part)]


def _plain(schema: Schema, closed: bool) -> Schema:
    plain: Schema = {}
    for key, value in schema.items():
        if key == "format" and isinstance(value, str) and value not in _FORMATS:
            continue
        if key == "uniqueItems" and value is False:
            continue
        plain[key] = _inside(key, value, closed)
    if closed and _lists_all(schema):
        plain["additionalProperties"] = False
    return plain


def _inside(key: str, value: Any, closed: bool) -> Any:
    if key in _NAMED and _is_schema(value):
        return {name: _part(part, closed) for name, part in value.items()}
    if key in _MANY and _is_list(value):
        return [_part(part, closed) for part in value]
    return _part(value, closed) if key in _ONE else value


def _part(value: Any, closed: bool) -> Any:
    return _plain(value, closed) if _is_schema(value) else value


def _lists_all(schema: Schema) -> bool:
    """It lists properties, all that it requires among them, and says nothing of others."""
    listed: Any = schema.get("properties")
    required: Any = schema.get("required", [])
    if not _is_schema(listed) or not listed or not _is_list(required):
        return False
    names = listed.keys()
    return _OTHERS.isdisjoint(schema) and all(name in names for name in required)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_schema(value: Any) -> TypeGuard[Schema]:
    return isinstance(value, dict)
