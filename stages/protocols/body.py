"""Decoding a request body, whatever the protocol: bytes → the fields of a JSON object → a Struct, and what is wrong.

A null at the top level is the same as an absent field. Unknown fields are ignored at every level. What is of the wrong
type or out of range is a RequestError whose ``param`` is the field's path in the client's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from stages.errors import RequestError
from stages.strict import problem_of, repeated_key

T = TypeVar("T", bound=msgspec.Struct)
_DEPTH: Final = 100
_LONGEST: Final = 500
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

NO_CUSTOM: Final = "custom tools are not supported; declare a function with one string parameter"


def refused(param: str | None, wanted: str) -> RequestError:
    """The error of a field: its path in the client's words, and what is wrong or wanted."""
    text = wanted if param is None else f"{param}: {wanted}"
    # A message may quote the request.
    return RequestError(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", param=param)


def decoded(body: bytes, kind: type[T]) -> T:
    """The request as this Struct. Raises RequestError (400)."""
    fields = {name: value for name, value in _object(body).items() if value is not None}
    try:
        return msgspec.convert(fields, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind) from None


def converted(value: dict[str, Any], kind: type[T], path: str) -> T:
    """A part of a request, so far without a type, as this Struct; null is the same as absent. ``path``: where it is.
    Raises RequestError (400)."""
    try:
        return msgspec.convert({name: item for name, item in value.items() if item is not None}, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, path) from None


def unknown_fields(body: bytes, kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The top-level fields of a request that this Struct does not have, in the request's order. Raises RequestError
    where the body is no JSON object."""
    known = frozenset(kind.__struct_fields__)
    try:
        return tuple(name for name in _names(body) if name not in known)
    except (msgspec.DecodeError, RecursionError):
        raise refused(None, "The request body must be a JSON object.") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise refused(None, "The request body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise refused(None, f"The request body is not valid JSON: {error}.") from None
    except msgspec.DecodeError as error:
        raise refused(None, f"The request body is not valid JSON: {problem_of(body) or error}.") from None
    if not isinstance(value, dict):
        raise refused(None, "The request body must be a JSON object.")
    fields = cast("dict[str, Any]", value)
    for name, item in fields.items():
        _check_shape(name[:100], item)
    twice = repeated_key(body, fields)
    if twice is not None:
        raise refused(None, f"The request body has the key {twice!r:.100} twice in one object.")
    return fields


def _check_shape(name: str, value: Any) -> None:
    """Refuse what later encoders (of stores, of templates) cannot take: deep nesting and integers beyond 64 bits."""
    level: list[Any] = [value]
    for _ in range(_DEPTH):
        if any(isinstance(item, int) and not -(1 << 63) <= item < 1 << 64 for item in level):
            raise refused(name, "integers must fit in 64 bits")
        level = [item for holder in level for item in _inside(holder)]
        if not level:
            return
    raise refused(name, "nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    kind: type = value.__class__
    inside: Iterable[Any] = value.values() if kind is dict else value if kind is list else ()
    return inside


_WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def _words(path: str, kind: type[msgspec.Struct]) -> list[str]:
    """The values that the field of a path may have, where they are words of a list."""
    kinds: list[Any] = [inspect.type_info(kind)]
    words: list[str] = []
    for name in re.sub(r"\[\d+\]", "", path).split("."):
        structs = [kind for kind in _flat(kinds) if isinstance(kind, inspect.StructType)]
        words = [str(kind.tag) for kind in structs if kind.tag_field == name]
        kinds = [field.type for kind in structs for field in kind.fields if field.encode_name == name]
    return words + [str(word) for kind in _flat(kinds) if isinstance(kind, inspect.LiteralType) for word in kind.values]


def _flat(kinds: Iterable[Any]) -> Iterable[Any]:
    """The types that unions and lists are made of."""
    for kind in kinds:
        if isinstance(kind, inspect.UnionType):
            yield from _flat(kind.types)
        elif isinstance(kind, inspect.ListType):
            yield from _flat([kind.item_type])
        elif isinstance(kind, inspect.Metadata):
            yield from _flat([kind.type])
        else:
            yield kind


def _listed(words: list[str]) -> str:
    shown = [repr(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _explained(text: str, kind: type[msgspec.Struct], holder: str = "") -> RequestError:
    """msgspec's message, with its path ``$.a[0].b`` as the client writes it: ``a[0].b``. ``holder``: what it is in."""
    where = _WHERE.search(text)
    path = where.group(1).replace("[...]", "").lstrip(".") if where else ""
    if where:
        text = text[: where.start()]
    missing = _MISSING.match(text)
    if missing:
        path = f"{path}.{missing.group(1)}".lstrip(".")
        text = "this field is required"
    if path.startswith("tool_choice.") and path.endswith(".type") and "'custom'" in text:
        text = NO_CUSTOM
    elif text.startswith("Invalid ") and (words := _words(path, kind)):
        text += f"; expected {_listed(words)}"
    path = f"{holder}.{path}".strip(".")
    return refused(path or None, text[:1].lower() + text[1:] if path else text)
