"""Elements that become JSON values: their schema, and what is inside, tell which.

element ::= "<" TAG ">" { TEXT | element } "</" TAG ">"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from stages.parse.literals import quoted
from stages.parse.types import Types, coerce

ITEM: Final = "item"
"""The tag of an array's elements."""
TEXT: Final = "$text"
"""The key of text beside elements."""


class Value(NamedTuple):
    """A finished element: its tag, its JSON text, and its raw text if it has no elements inside."""

    tag: str
    json: str
    leaf: str | None


@dataclass(slots=True)
class Node:
    """An element that is being read. ``texts`` is visible text."""

    tag: str
    types: Types
    texts: list[str] = field(default_factory=list[str])
    children: list[Value] = field(default_factory=list[Value])

    def child(self, tag: str) -> Types:
        """What an element of this name inside is."""
        kinds = self.types.kinds
        if "array" in kinds and (tag == ITEM or "object" not in kinds):
            return self.types.item()
        return self.types.member(tag)

    def value(self) -> Value:
        """What it is, now that it has ended."""
        text = "".join(self.texts)
        if not self.children:
            return Value(self.tag, _leaf(text, self.types), text)
        kinds = self.types.kinds
        items = all(child.tag == ITEM for child in self.children) and ("array" in kinds or "object" not in kinds)
        if not text.strip() and (items or ("array" in kinds and "object" not in kinds)):
            return Value(self.tag, f"[{', '.join(child.json for child in self.children)}]", None)
        return Value(self.tag, self._object(text.strip()), None)

    def _object(self, text: str) -> str:
        groups: dict[str, list[Value]] = {}
        for child in self.children:
            groups.setdefault(child.tag, []).append(child)
        members = [f'"{quoted(tag)}": {listed(values, self.child(tag))}' for tag, values in groups.items()]
        if text:
            members.insert(0, f'"{TEXT}": "{quoted(text)}"')
        return f"{{{', '.join(members)}}}"


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """A node's snapshot; its type follows from where it stands."""

    tag: str
    text: str
    children: tuple[Value, ...]


class NestedState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    guarded: bool
    seen: bool
    sure: bool
    ended: bool
    first: bool
    part: bytes
    start: int
    junk: int
    name: str
    param: str
    inner: tuple[str, ...]
    nodes: tuple[NodeState, ...]
    waiting: tuple[Value, ...]


def listed(values: list[Value], types: Types) -> str:
    """Elements of one name: one value, or a list of them, to which arrays add their items."""
    if len(values) == 1:
        return values[0].json
    item = types.item() if "array" in types.kinds else types
    items: list[str] = []
    for value in values:
        if value.json.startswith("[") and "array" not in item.kinds:
            items.append(value.json[1:-1].strip())
        else:
            items.append(value.json if value.leaf is None else _leaf(value.leaf, item))
    return f"[{', '.join(filter(None, items))}]"


def _leaf(text: str, types: Types) -> str:
    if "string" not in types.kinds and not text.strip():
        for kind, empty in (("array", "[]"), ("object", "{}"), ("null", "null")):
            if kind in types.kinds:
                return empty
    return coerce(text, types)
