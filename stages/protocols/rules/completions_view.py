"""View: a completions stream, digested once for its rules and for what it says."""

from __future__ import annotations

from typing import Any

import msgspec

from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.values import array, integer, obj, string


class Choice(msgspec.Struct, eq=False):
    """A choice. ``entries``: its objects in order; ``texts``: its texts; ``finish``: the first block that has a finish
    reason; ``after``: the first one behind that."""

    entries: list[tuple[Event, dict[str, Any]]] = []
    texts: list[str] = []
    finish: Event | None = None
    after: Event | None = None


class View:
    """A stream up to its first ``[DONE]``. ``errors``: error events; ``chunks``: the other objects; ``entries``: their
    choices, in order; ``odd``: what stands for choices and is none; ``choices``: by index; ``usages``: objects with a
    usage object; ``dones``: all ``[DONE]`` events."""

    def __init__(self, reading: Reading) -> None:
        self.errors: list[Event] = []
        self.chunks: list[tuple[Event, dict[str, Any]]] = []
        self.entries: list[tuple[Event, dict[str, Any]]] = []
        self.odd: list[tuple[Event, Any]] = []
        self.choices: dict[int, Choice] = {}
        self.usages: list[tuple[Event, dict[str, Any], bool]] = []
        self.dones = [event for event in reading.events if event.text == "[DONE]"]
        end = self.dones[0].number if self.dones else None
        for event, value in reading.chunks:
            if end is not None and event.number > end:
                break
            if value.get("error"):
                self.errors.append(event)
            else:
                self._chunk(event, value)

    def _chunk(self, event: Event, value: dict[str, Any]) -> None:
        self.chunks.append((event, value))
        choices = value.get("choices")
        usage = value.get("usage")
        if isinstance(usage, dict):
            self.usages.append((event, obj(usage), choices == []))
        if not isinstance(choices, list):
            self.odd.append((event, choices))
        for entry in array(choices):
            if isinstance(entry, dict):
                self._entry(event, obj(entry))
            else:
                self.odd.append((event, entry))

    def _entry(self, event: Event, entry: dict[str, Any]) -> None:
        placed = (event, entry)
        self.entries.append(placed)
        index = integer(entry.get("index"))
        if index is None:
            return
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
        choice.entries.append(placed)
        text = string(entry.get("text"))
        if text:
            choice.texts.append(text)
        if choice.finish is not None:
            choice.after = choice.after or event
        elif entry.get("finish_reason") is not None:
            choice.finish = event
