"""Streams with the same deltas in other portions: what says the same must be understood the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from stages.protocols.rules.evidence import Protocol
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.values import array, obj, string


class _Slot(msgspec.Struct, frozen=True):
    """Where a chunk that does nothing but add text to one place has it. ``key``: the place; ``holders``: objects with
    the text, all the same, each under a key."""

    key: tuple[Any, ...]
    holders: tuple[tuple[dict[str, Any], str], ...]

    @property
    def text(self) -> str:
        """The text."""
        holder, key = self.holders[0]
        text: str = holder[key]
        return text


_Find: TypeAlias = Callable[[dict[str, Any]], _Slot | None]
_TEXTS = ("content", "refusal", "reasoning", "reasoning_content")
_BLOCKS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def merged(protocol: Protocol, reading: Reading) -> bytes:
    """The stream with neighbouring deltas of one place as one."""
    find = _FIND[protocol]
    found = [(event, _slot(find, event)) for event in reading.events]
    pieces: list[bytes] = []
    for _, group in groupby(_numbered(found), key=lambda item: item[0]):
        run = [(event, slot) for _, event, slot in group]
        event, slot = run[0]
        if slot is None:
            pieces += (_written(one) for one, _ in run)
        else:
            text = "".join(one.text for _, one in run if one is not None)
            pieces.append(_with(find, event, text))
    return b"".join(pieces)


def split(protocol: Protocol, reading: Reading) -> bytes:
    """The stream with every delta of more than one character as its first one, its last one and what is between."""
    find = _FIND[protocol]
    pieces: list[bytes] = []
    for event in reading.events:
        slot = _slot(find, event)
        if slot is None or len(slot.text) < 2:
            pieces.append(_written(event))
        else:
            text = slot.text
            pieces += (_with(find, event, part) for part in (text[0], text[1:-1], text[-1]) if part)
    return b"".join(pieces)


def _numbered(
    found: list[tuple[Event, _Slot | None]],
) -> Iterator[tuple[int, Event, _Slot | None]]:
    """Neighbours of one place get one number."""
    number = 0
    last: tuple[Any, ...] | None = None
    for event, slot in found:
        key = None if slot is None else slot.key
        if key is None or key != last:
            number += 1
        last = key
        yield number, event, slot


def _slot(find: _Find, event: Event) -> _Slot | None:
    return find(event.value) if isinstance(event.value, dict) else None


def _with(find: _Find, event: Event, text: str) -> bytes:
    made = Event(event.number, event.byte, event.name, event.text, copy.deepcopy(event.value))
    slot = _slot(find, made)
    for holder, key in () if slot is None else slot.holders:
        holder[key] = text
    return _written(made)


def _written(event: Event) -> bytes:
    name = "" if event.name is None else f"event: {event.name}\n"
    # All but ASCII is escaped, so that half a surrogate pair can be written, and what makes a whole one is one.
    text = json.dumps(event.value) if isinstance(event.value, dict) else event.text or ""
    return f"{name}data: {text.replace(chr(10), chr(10) + 'data: ')}\n\n".encode()


def _of_chat(chunk: dict[str, Any]) -> _Slot | None:
    choice = _lone(chunk)
    delta = obj(choice.get("delta"))
    said = {key: value for key, value in delta.items() if value is not None}
    entries = array(said.get("tool_calls"))
    if len(said) == 1 and len(entries) == 1:
        entry = obj(entries[0])
        function = obj(entry.get("function"))
        if entry.get("id") is None and function.get("name") is None and function.get("arguments").__class__ is str:
            return _Slot((choice.get("index"), "call", entry.get("index")), ((function, "arguments"),))
        return None
    texts = set(map(string, said.values()))
    if not said or not said.keys() <= set(_TEXTS) or len(texts) != 1 or None in texts:
        return None
    return _Slot((choice.get("index"), *said), tuple((delta, key) for key in said))


def _of_completions(chunk: dict[str, Any]) -> _Slot | None:
    choice = _lone(chunk)
    return _Slot((choice.get("index"),), ((choice, "text"),)) if choice.get("text").__class__ is str else None


def _lone(chunk: dict[str, Any]) -> dict[str, Any]:
    """The chunk's only choice, where the chunk has nothing else to say."""
    choices = array(chunk.get("choices"))
    choice = obj(choices[0]) if len(choices) == 1 else {}
    others = ("finish_reason", "logprobs", "token_ids")
    return {} if chunk.get("usage") or chunk.get("error") or any(map(choice.get, others)) else choice


def _of_responses(chunk: dict[str, Any]) -> _Slot | None:
    kind = string(chunk.get("type"))
    if kind is None or not kind.endswith(".delta") or chunk.get("delta").__class__ is not str or chunk.get("logprobs"):
        return None
    where = ("output_index", "item_id", "content_index", "summary_index")
    return _Slot((kind, *map(chunk.get, where)), ((chunk, "delta"),))


def _of_messages(chunk: dict[str, Any]) -> _Slot | None:
    delta = obj(chunk.get("delta"))
    kind = string(delta.get("type"))
    key = None if kind is None else _BLOCKS.get(kind)
    if chunk.get("type") != "content_block_delta" or key is None or delta.get(key).__class__ is not str:
        return None
    return _Slot((chunk.get("index"), kind), ((delta, key),))


_FIND: dict[Protocol, _Find] = {
    "chat": _of_chat,
    "completions": _of_completions,
    "responses": _of_responses,
    "messages": _of_messages,
}
