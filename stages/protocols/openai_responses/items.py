"""Items of a request's input: objects of the body → Structs, and what is wrong with them.

All that a server sent as output is taken back as it is, and nulls, which dumps of the SDK's objects are full of, are
the same as absent fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from stages.protocols.body import NO_CUSTOM, converted, refused
from stages.protocols.openai_responses.request import ResponsesRequest


class InputPart(msgspec.Struct, frozen=True):
    """A part of a content, of an output or of a reasoning."""

    type: str
    text: str | None = None
    refusal: str | None = None

    @property
    def said(self) -> str:
        """What it says."""
        return self.text or self.refusal or ""


InputContent: TypeAlias = str | list[InputPart]


class InputMessage(msgspec.Struct, frozen=True):
    """What somebody said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: InputContent


class InputCall(msgspec.Struct, frozen=True):
    """An earlier call of the assistant."""

    call_id: str
    name: str
    arguments: str


class InputResult(msgspec.Struct, frozen=True):
    """The result of a call."""

    call_id: str
    output: InputContent


class InputReasoning(msgspec.Struct, frozen=True):
    """What the assistant thought before. What is only there encrypted says nothing to this server."""

    content: list[InputPart] = []
    summary: list[InputPart] = []

    @property
    def text(self) -> str:
        """The reasoning itself; its summary where that is all there is."""
        return "".join(part.said for part in self.content) or "".join(part.said for part in self.summary)


class Reference(msgspec.Struct, frozen=True):
    """An item that is stored."""

    id: str


InputItem: TypeAlias = InputMessage | InputCall | InputResult | InputReasoning | Reference

_ITEMS: Final[dict[str, type[InputItem]]] = {
    "message": InputMessage, "function_call": InputCall, "function_call_output": InputResult,
    "reasoning": InputReasoning, "item_reference": Reference,
}  # fmt: skip
_TEXTS: Final = ("input_text", "output_text", "text")
_THOUGHTS: Final = ("reasoning_text", "summary_text", "text")
_CUSTOM: Final = ("custom_tool_call", "custom_tool_call_output")


def kind_of(item: dict[str, Any]) -> str:
    """An item's type; of one without, what its fields say that it is."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference" if "id" in item else ""
    return kind if isinstance(kind, str) else ""


def items_of(items: Iterable[dict[str, Any]], path: str) -> Iterator[InputItem]:
    """The items. ``path``: what the client calls their list. Raises RequestError (400)."""
    for index, item in enumerate(items):
        yield _item(item, f"{path}[{index}]")


def input_items(request: ResponsesRequest) -> list[dict[str, Any]]:
    """The request's own input as a list of items; a text is one user message."""
    given = request.input
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return given or []


def references(request: ResponsesRequest) -> tuple[str, ...]:
    """The ids of the stored items that the input refers to, in its order."""
    items = input_items(request)
    return tuple(str(item["id"]) for item in items if kind_of(item) == "item_reference")


def resolved(request: ResponsesRequest, stored: Mapping[str, dict[str, Any]]) -> ResponsesRequest:
    """The request with these items in the place of what refers to them; a reference to another one stays."""
    items = [
        stored.get(str(item["id"]), item) if kind_of(item) == "item_reference" else item
        for item in input_items(request)
    ]
    return msgspec.structs.replace(request, input=items)


def _item(item: dict[str, Any], path: str) -> InputItem:
    kind = kind_of(item)
    if kind in _CUSTOM:
        raise refused(f"{path}.type", NO_CUSTOM)
    if kind not in _ITEMS:
        words = ", ".join(repr(name) for name in _ITEMS)
        seen = f"items of type {kind!r} are not supported" if kind else "no item that is known"
        raise refused(f"{path}.type", f"{seen}; expected one of {words}")
    made = converted(item, _ITEMS[kind], path)
    if isinstance(made, InputMessage):
        _parts(made.content, f"{path}.content", (*_TEXTS, "refusal") if made.role == "assistant" else _TEXTS)
    elif isinstance(made, InputResult):
        _parts(made.output, f"{path}.output", _TEXTS)
    elif isinstance(made, InputReasoning):
        _parts(made.content, f"{path}.content", _THOUGHTS)
        _parts(made.summary, f"{path}.summary", _THOUGHTS)
    return made


def _parts(content: InputContent, path: str, kinds: tuple[str, ...]) -> None:
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if part.type not in kinds:
            raise refused(f"{path}[{index}]", f"parts of type {part.type!r} are not supported; this server takes text")
        name = "refusal" if part.type == "refusal" else "text"
        if getattr(part, name) is None:
            raise refused(f"{path}[{index}].{name}", "expected text")
