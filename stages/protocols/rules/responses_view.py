"""View: a responses stream, digested once for all its rules: items, parts, summaries, and what refers to what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.rule import Rules
from stages.protocols.rules.values import integer, obj, string

RULES = Rules("responses")

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
LIFE = ("response.created", "response.queued", "response.in_progress", *TERMINAL[:3])
HOME = {"output_text": "message", "refusal": "message", "reasoning_text": "reasoning"}
"""The item type that a kind of text stands in."""
FIELD = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text"}
"""The key of a text of that kind: in its done event, in its part."""
ARGUMENTS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "mcp_call": "arguments",
    "code_interpreter_call": "code",
}
"""The key of what an item of a type is called with."""
OURS = ("message", "reasoning", "function_call", "custom_tool_call")
"""The item types that a model writes; the others are of hosted tools."""
_FAMILIES = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
    "response.mcp_call_arguments": "mcp_call",
    "response.code_interpreter_call_code": "code_interpreter_call",
}
_PHASES = tuple(
    f"response.{name}"
    for name in (
        "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done",
    )
)  # fmt: skip
_ITEM_DONE = "response.output_item.done"
_OF_ITEMS = (
    "response.content_part.", "response.output_text.", "response.refusal.",
    "response.reasoning_", "response.function_call_arguments.", "response.custom_tool_call_input.", "response.mcp_",
    "response.file_search_call.", "response.web_search_call.", "response.code_interpreter_call",
    "response.image_generation_call.", "response.compaction.",
)  # fmt: skip


class Part(msgspec.Struct, eq=False):
    """A part of an item's content, or of its summary. ``added``: None where its text came without; ``open``: it was
    added, and is not done; ``texts``: of its deltas; ``logprobs``: entries of its deltas; ``wholes``: its done events
    and their text; ``closes``: its ``content_part.done`` events and their parts."""

    index: int
    kind: str | None
    added: Event | None
    open: bool = False
    texts: list[str] = []
    logprobs: list[Any] = []
    wholes: list[tuple[Event, Any]] = []
    closes: list[tuple[Event, dict[str, Any]]] = []


class Item(msgspec.Struct, eq=False):
    """An output item, as added in ``event``. ``kind``: its type; ``index``: its output index as it stands there;
    ``listed``: it is found by it; ``begun``: parts that were added; ``texts``, ``wholes``: of its arguments, as in
    Part; ``dones``: its ``output_item.done`` events and their items."""

    event: Event
    kind: str | None
    index: Any
    value: dict[str, Any]
    listed: bool = False
    begun: int = 0
    parts: dict[int, Part] = {}
    summary: dict[int, Part] = {}
    texts: list[str] = []
    wholes: list[tuple[Event, Any]] = []
    dones: list[tuple[Event, dict[str, Any]]] = []


class View:
    """A stream. Events behind the terminal one count as references to items, and as nothing else.

    ``events``: JSON objects with their type (that of the block's name where they have none); ``life``: lifecycle events
    with their response; ``terminals``: terminal events with theirs (empty for ``error``); ``added``: items in order;
    ``items``: by output index; ``open``: items not done. The other lists hold events that offend, with what is shown.
    """

    def __init__(self, reading: Reading) -> None:
        self.events: list[tuple[Event, str, dict[str, Any]]] = []
        self.life: list[tuple[Event, str, dict[str, Any]]] = []
        self.terminals: list[tuple[Event, str, dict[str, Any]]] = []
        self.added: list[Item] = []
        self.items: dict[int, Item] = {}
        self.open = 0
        self.lost: list[tuple[Event, Any]] = []  # of no item that was added
        self.alien: list[tuple[Event, Any, Any]] = []  # of an item, by another id
        self.late: list[tuple[Event, str]] = []  # of an item that is done
        self.parallel: list[Event] = []  # begins an item while another is open
        self.misplaced: list[tuple[Event, Any, int]] = []  # adds a part at another place than the next
        self.unparted: list[tuple[Event, Item, str]] = []  # of a part that is not open
        self.mixed: list[tuple[Event, str, str | None]] = []  # of another kind than its item or part
        self.textless: list[tuple[Event, str, Any]] = []  # a piece of text that is no string
        self.unsummed: list[tuple[Event, str]] = []  # of a summary, out of order
        for event in reading.events:
            value = event.value
            if isinstance(value, dict):
                kind = value.get("type")
                self._take(event, kind if isinstance(kind, str) else event.name or "", value)

    def _take(self, event: Event, kind: str, value: dict[str, Any]) -> None:
        self.events.append((event, kind, value))
        take = _TAKES.get(kind)
        if take is not None:
            item = self._item(event, kind, value)
            if item is not None and not self.terminals:
                take[0](self, event, value, item, take[1])
        elif kind == "response.output_item.added":
            if not self.terminals:
                self._add(event, value)
        elif kind in LIFE or kind == "error":
            response = obj(value.get("response"))
            if kind != "error":
                self.life.append((event, kind, response))
            if kind in TERMINAL:
                self.terminals.append((event, kind, response))
        elif "output_index" in value or kind.startswith(_OF_ITEMS):
            self._item(event, kind, value)

    def _add(self, event: Event, value: dict[str, Any]) -> None:
        index = integer(value.get("output_index"))
        added = obj(value.get("item"))
        item = Item(event, string(added.get("type")), value.get("output_index"), added)
        if self.open:
            self.parallel.append(event)
        self.open += 1
        self.added.append(item)
        if index is not None and index not in self.items:
            item.listed = True
            self.items[index] = item

    def _item(self, event: Event, kind: str, value: dict[str, Any]) -> Item | None:
        index = integer(value.get("output_index"))
        item = None if index is None else self.items.get(index)
        if item is None:
            self.lost.append((event, value.get("output_index")))
            return None
        if kind == _ITEM_DONE:
            return item
        mine = item.value.get("id")
        given = value.get("item_id")
        if given != mine and mine is not None and (given is not None or kind.startswith(_OF_ITEMS)):
            self.alien.append((event, given, mine))
        if item.dones:
            self.late.append((event, kind))
        return item


def _item_done(view: View, event: Event, value: dict[str, Any], item: Item, _: str) -> None:
    if not item.dones:
        view.open -= 1
    item.dones.append((event, obj(value.get("item"))))


def _part_added(view: View, event: Event, value: dict[str, Any], item: Item, _: str) -> None:
    index = integer(value.get("content_index"))
    kind = string(obj(value.get("part")).get("type"))
    if index != item.begun:
        view.misplaced.append((event, value.get("content_index"), item.begun))
    item.begun += 1
    if kind is None:
        view.mixed.append((event, "a part without a type", item.kind))
    else:
        _at_home(view, event, f"a part {kind}", HOME.get(kind, item.kind), item)
    if index is not None:
        found = item.parts.setdefault(index, Part(index, kind, event))
        found.added = found.added or event
        found.open = not found.closes


def _part_done(view: View, event: Event, value: dict[str, Any], item: Item, _: str) -> None:
    part = _part(view, event, value, item, None)
    if part is not None:
        closed = obj(value.get("part"))
        if closed.get("type") != part.kind:
            view.mixed.append((event, f"a part {string(closed.get('type'))}", part.kind))
        part.closes.append((event, closed))
        part.open = False


def _text(view: View, event: Event, value: dict[str, Any], item: Item, kind: str) -> None:
    part = _part(view, event, value, item, kind)
    text = value.get("delta")
    if not isinstance(text, str):
        view.textless.append((event, kind, text))
    elif part is not None:
        part.texts.append(text)
        entries = value.get("logprobs")
        if entries and entries.__class__ is list:
            part.logprobs += entries


def _text_done(view: View, event: Event, value: dict[str, Any], item: Item, kind: str) -> None:
    part = _part(view, event, value, item, kind)
    if part is not None:
        part.wholes.append((event, value.get(FIELD[kind])))


def _annotation(view: View, event: Event, value: dict[str, Any], item: Item, kind: str) -> None:
    _part(view, event, value, item, kind)


def _part(view: View, event: Event, value: dict[str, Any], item: Item, kind: str | None) -> Part | None:
    """The part that an event is about. ``kind``: of the event's text; None is returned where the part's is another."""
    index = integer(value.get("content_index"))
    part = None if index is None else item.parts.get(index)
    if part is not None and part.open and part.kind == kind:
        return part
    if kind is not None and not _at_home(view, event, kind, HOME[kind], item):
        return None
    if (part is None or not part.open) and not item.dones:
        why = "is done" if part is not None and part.closes else "was not added"
        view.unparted.append((event, item, f"part {index} {why}"))
    if part is None and kind is not None and index is not None:
        part = item.parts[index] = Part(index, kind, None)
    if part is not None and kind is not None and part.kind != kind:
        view.mixed.append((event, kind, part.kind))
        return None
    return part


def _at_home(view: View, event: Event, what: str, home: str | None, item: Item) -> bool:
    if home == item.kind:
        return True
    view.mixed.append((event, what, item.kind))
    return False


def _arguments(view: View, event: Event, value: dict[str, Any], item: Item, home: str) -> None:
    text = value.get("delta")
    if not isinstance(text, str):
        view.textless.append((event, home, text))
    elif _at_home(view, event, f"{ARGUMENTS[home]} of a {home}", home, item):
        item.texts.append(text)


def _arguments_done(view: View, event: Event, value: dict[str, Any], item: Item, home: str) -> None:
    if _at_home(view, event, f"{ARGUMENTS[home]} of a {home}", home, item):
        item.wholes.append((event, value.get(ARGUMENTS[home])))


def _summary(view: View, event: Event, value: dict[str, Any], item: Item, phase: str) -> None:
    """Added, deltas, text done, part done: each once and in this order, the deltas any number of times."""
    _at_home(view, event, "a summary", "reasoning", item)
    index = integer(value.get("summary_index"))
    if index is None:
        view.unsummed.append((event, "no summary_index"))
        return
    part = item.summary.get(index)
    seen: str | None = None
    if part is None:
        if phase != _PHASES[0]:
            seen = f"summary part {index} was not added"
        elif index != len(item.summary):
            seen = f"summary_index {index} after {len(item.summary)} parts"
        part = item.summary[index] = Part(index, "summary_text", event)
    elif phase == _PHASES[0]:
        seen = f"summary part {index} added again"
    elif part.closes or (part.wholes and phase != _PHASES[3]):
        seen = f"summary part {index} goes on after its text was done"
    elif phase == _PHASES[3] and not part.wholes:
        seen = f"summary part {index} done before its text"
    if seen is not None:
        view.unsummed.append((event, seen))
    _summary_text(view, event, value, part, phase)


def _summary_text(view: View, event: Event, value: dict[str, Any], part: Part, phase: str) -> None:
    if phase == _PHASES[1]:
        text = value.get("delta")
        if isinstance(text, str):
            part.texts.append(text)
        else:
            view.textless.append((event, "summary_text", text))
    elif phase == _PHASES[2]:
        part.wholes.append((event, value.get("text")))
    elif phase == _PHASES[3]:
        part.closes.append((event, obj(value.get("part"))))


_Take: TypeAlias = Callable[[View, Event, "dict[str, Any]", Item, str], None]
_TAKES: dict[str, tuple[_Take, str]] = {
    **{f"response.{kind}.delta": (_text, kind) for kind in HOME},
    **{f"response.{kind}.done": (_text_done, kind) for kind in HOME},
    "response.output_text.annotation.added": (_annotation, "output_text"),
    **{f"{family}.delta": (_arguments, home) for family, home in _FAMILIES.items()},
    **{f"{family}.done": (_arguments_done, home) for family, home in _FAMILIES.items()},
    **{phase: (_summary, phase) for phase in _PHASES},
    "response.content_part.added": (_part_added, ""),
    "response.content_part.done": (_part_done, ""),
    _ITEM_DONE: (_item_done, ""),
}
