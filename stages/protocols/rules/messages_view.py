"""View: a messages stream, digested once for its rules and for what it says."""

from __future__ import annotations

from typing import Any

import msgspec

from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.values import integer, obj, string
from stages.strict import parse

TOOLS = ("tool_use", "server_tool_use")
DELTAS = {
    "text_delta": (("text",), "text"),
    "citations_delta": (("text",), None),
    "thinking_delta": (("thinking",), "thinking"),
    "signature_delta": (("thinking",), "signature"),
    "input_json_delta": (TOOLS, "partial_json"),
}
"""Of each kind of delta: the blocks it stands in, and the key of its text."""


class Block(msgspec.Struct, eq=False):
    """A content block. ``kind``: its type; ``start``: its object as started; ``deltas``: their events, types, objects;
    ``stop``: the event that stops it."""

    event: Event
    kind: str | None
    start: dict[str, Any]
    deltas: list[tuple[Event, str | None, dict[str, Any]]] = []
    stop: Event | None = None

    def joined(self) -> str:
        """Its partial JSON."""
        return "".join(text for _, _, delta in self.deltas if (text := string(delta.get("partial_json"))))

    def finished(self) -> bool:
        """Its input is whole: nothing, or one JSON object."""
        text = self.joined()
        return not text or isinstance(parse(text)[0], dict)


class View:
    """A stream. Events behind an error or ``message_stop`` are in ``events`` only.

    ``events``: JSON objects with their type (that of the block's name where they have none); ``starts``, ``changes``,
    ``stops``, ``errors``: the ``message_start``, ``message_delta``, ``message_stop``, ``error`` events with their
    objects; ``blocks``: in order. The other lists hold events that offend, with what is shown.
    """

    def __init__(self, reading: Reading) -> None:
        self.events: list[tuple[Event, str, dict[str, Any]]] = []
        self.starts: list[tuple[Event, dict[str, Any]]] = []
        self.changes: list[tuple[Event, dict[str, Any]]] = []
        self.stops: list[tuple[Event, dict[str, Any]]] = []
        self.errors: list[tuple[Event, dict[str, Any]]] = []
        self.blocks: list[Block] = []
        self.open: dict[int, Block] = {}
        self.misplaced: list[tuple[Event, str]] = []  # with an index that is not the next one or of no open block
        self.overlaps: list[tuple[Event, str]] = []  # while another block is open
        self.late: list[Event] = []  # of a block, behind message_delta
        self.textless: list[tuple[Event, str]] = []  # a piece of text that is no string
        for event in reading.events:
            value = event.value
            if isinstance(value, dict):
                kind = value.get("type")
                self._take(event, kind if isinstance(kind, str) else event.name or "", value)

    @property
    def ended(self) -> bool:
        """An error or ``message_stop`` was sent."""
        return bool(self.errors or self.stops)

    def _take(self, event: Event, kind: str, value: dict[str, Any]) -> None:
        self.events.append((event, kind, value))
        if kind == "content_block_delta":
            if not (self.errors or self.stops):
                self._delta(event, value)
        elif kind == "message_stop":
            self._close(event, "message_stop")
            self.stops.append((event, value))
        elif kind == "error":
            self._close(event, "error")
            self.errors.append((event, value))
        elif self.errors or self.stops:
            return
        elif kind == "content_block_start":
            self._start(event, value)
        elif kind == "content_block_stop":
            self._stop(event, value)
        elif kind == "message_delta":
            self._close(event, "message_delta")
            self.changes.append((event, value))
        elif kind == "message_start":
            self.starts.append((event, value))

    def _close(self, event: Event, what: str) -> None:
        """What ends the blocks; reported once for each that is open."""
        if not (self.errors or self.stops or self.changes):
            self.overlaps += [(event, f"{what} while block {index} is open") for index in self.open]

    def _start(self, event: Event, value: dict[str, Any]) -> None:
        index = integer(value.get("index"))
        start = obj(value.get("content_block"))
        if index != len(self.blocks):
            self.misplaced.append((event, f"index {index} after {len(self.blocks)} blocks"))
        if self.open:
            self.overlaps.append((event, f"a block while block {next(iter(self.open))} is open"))
        if self.changes:
            self.late.append(event)
        block = Block(event, string(start.get("type")), start)
        self.blocks.append(block)
        if index is not None:
            self.open[index] = block

    def _delta(self, event: Event, value: dict[str, Any]) -> None:
        block = self._block(event, value)
        delta = obj(value.get("delta"))
        kind = string(delta.get("type"))
        field = DELTAS[kind][1] if kind in DELTAS else None
        if kind is None or (field is not None and delta.get(field).__class__ is not str):
            self.textless.append((event, f"a {kind} without {field or 'a type'}"))
        if block is not None:
            block.deltas.append((event, kind, delta))

    def _stop(self, event: Event, value: dict[str, Any]) -> None:
        block = self._block(event, value)
        if block is not None:
            block.stop = event
            del self.open[value["index"]]

    def _block(self, event: Event, value: dict[str, Any]) -> Block | None:
        index = integer(value.get("index"))
        block = None if index is None else self.open.get(index)
        if block is None:
            self.misplaced.append((event, f"index {index}, of no open block"))
        if self.changes:
            self.late.append(event)
        return block
