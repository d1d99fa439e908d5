"""Streams of the responses protocol, with every kind of item; and edits that such streams need."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tests.protocols.rules.richer import Edit, Fields, put
from tests.support.wire import Elements, Stream

USAGE: Fields = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}, "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 21,
}  # fmt: skip
Piece: TypeAlias = str | tuple[str, list[Fields]]
"""A text, or a text and its logprobs."""
_NONE: list[Fields] = []
_EMPTY: dict[str, Fields] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
}


class Responding:
    """Writes a stream of the responses protocol, an item at a time. ``output``: the items that are done."""

    def __init__(self, queued: bool = False) -> None:
        first: Fields = {"status": "queued"} if queued else {}
        self.elements: Elements = [{"type": "created", "response": first}]
        if queued:
            self.elements.append({"type": "queued", "response": {"status": "queued"}})
        self.elements.append({"type": "in_progress", "response": {}})
        self.output: list[Fields] = []

    def _send(self, kind: str, **fields: Any) -> None:
        self.elements.append(copy.deepcopy({"type": kind, "output_index": len(self.output), **fields}))

    def item(self, added: Fields, status: str, fill: Callable[[Fields], None]) -> Responding:
        """An item, from its beginning to its end. ``fill``: sends what is in it, and gives the item that."""
        item = added if added["type"] == "custom_tool_call" else {**added, "status": "in_progress"}
        self._send("output_item.added", item=item)
        fill(item)
        if "status" in item:
            item["status"] = status
        self._send("output_item.done", item=item)
        self.output.append(item)
        return self

    def parts(self, added: Fields, *parts: tuple[str, Sequence[Piece]], status: str = "completed") -> Responding:
        """An item of parts: of each its kind and its pieces."""

        def fill(item: Fields) -> None:
            item["content"] = [self._part(item["id"], index, *part) for index, part in enumerate(parts)]

        return self.item(added, status, fill)

    def _part(self, item: str, index: int, kind: str, pieces: Sequence[Piece]) -> Fields:
        part: Fields = {"type": kind, **copy.deepcopy(_EMPTY[kind])}
        said = "refusal" if kind == "refusal" else "text"
        place = {"item_id": item, "content_index": index}
        self._send("content_part.added", **place, part=part)
        for piece in pieces:
            text, entries = piece if isinstance(piece, tuple) else (piece, _NONE)
            self._send(f"{kind}.delta", **place, delta=text, **({"logprobs": entries} if kind == "output_text" else {}))
            part[said] += text
            if kind == "output_text":
                part["logprobs"] += entries
        extra: Fields = {"logprobs": part["logprobs"]} if kind == "output_text" else {}
        self._send(f"{kind}.done", **place, **{said: part[said]}, **extra)
        self._send("content_part.done", **place, part=part)
        return part

    def summary(self, id: str, *parts: list[str]) -> Responding:
        """A reasoning item that has a summary only."""

        def fill(item: Fields) -> None:
            for index, pieces in enumerate(parts):
                place = {"item_id": id, "summary_index": index}
                self._send("reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
                for piece in pieces:
                    self._send("reasoning_summary_text.delta", **place, delta=piece)
                part = {"type": "summary_text", "text": "".join(pieces)}
                self._send("reasoning_summary_text.done", **place, text=part["text"])
                self._send("reasoning_summary_part.done", **place, part=part)
                item["summary"] = [*item["summary"], part]

        return self.item({"id": id, "type": "reasoning", "summary": []}, "completed", fill)

    def call(self, id: str, call: str, name: str, *pieces: str, status: str = "completed") -> Responding:
        """A function call."""
        added = {"id": id, "type": "function_call", "call_id": call, "name": name, "arguments": ""}
        return self._called(added, "arguments", "function_call_arguments", pieces, status)

    def custom(self, id: str, call: str, name: str, *pieces: str) -> Responding:
        """A call of a tool that takes plain text."""
        added = {"id": id, "type": "custom_tool_call", "call_id": call, "name": name, "input": ""}
        return self._called(added, "input", "custom_tool_call_input", pieces, "completed")

    def _called(self, added: Fields, said: str, kind: str, pieces: tuple[str, ...], status: str) -> Responding:
        def fill(item: Fields) -> None:
            for piece in pieces:
                self._send(f"{kind}.delta", item_id=item["id"], delta=piece)
            item[said] = "".join(pieces)
            self._send(f"{kind}.done", item_id=item["id"], **{said: item[said]})

        return self.item(added, status, fill)

    def end(self, status: str, **fields: Any) -> Stream:
        """The terminal event, and the stream."""
        response = {"status": status, "output": copy.deepcopy(self.output), "usage": USAGE, **fields}
        return self.stream({"type": status, "response": response})

    def stream(self, *terminal: Fields) -> Stream:
        """The stream, with an end of its own."""
        tools: list[Fields] = [
            {"type": "function", "name": name, "parameters": {}} for name in ("get_tide", "get_wind")
        ]
        request: Fields = {"stream": True, "tools": [*tools, {"type": "custom", "name": "run"}]}
        return Stream("responses", [*self.elements, *terminal], {"request": request})


def reasoning(id: str) -> Fields:
    return {"id": id, "type": "reasoning", "summary": []}


def message(id: str) -> Fields:
    return {"id": id, "type": "message", "role": "assistant", "content": []}


# --- streams ---


def entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "top_logprobs": [{"token": token, "logprob": logprob}]}


PORT = '{"port":"Brest"}'
RICH = (
    Responding()
    .parts(reasoning("rs_1"), ("reasoning_text", ["Need ", "tides."]))
    .parts(message("msg_1"), ("output_text", ["Looking", " it up."]))
    .call("fc_1", "call_k1", "get_tide", '{"port":', '"Brest"}')
    .call("fc_2", "call_k2", "get_wind", "{}")
    .end("completed")
)
REFUSAL = (
    Responding().parts(message("msg_1"), ("output_text", ["Well", "."]), ("refusal", ["No", " way."])).end("completed")
)
SUMMARY = (
    Responding()
    .summary("rs_1", ["Tides", " first."], ["Then wind."])
    .parts(message("msg_1"), ("output_text", ["So."]))
    .end("completed")
)
CUSTOM = (
    Responding()
    .custom("ctc_1", "call_k1", "run", "ls ", "-l")
    .call("fc_1", "call_k2", "get_wind", "{}")
    .end("completed")
)
CUT = (
    Responding()
    .parts(message("msg_1"), ("output_text", ["Hm."]))
    .call("fc_1", "call_k1", "get_tide", '{"po', status="incomplete")
    .end("incomplete", incomplete_details={"reason": "max_output_tokens"})
)
FAILED = (
    Responding()
    .parts(message("msg_1"), ("output_text", ["Hm."]))
    .end("failed", usage=None, error={"code": "server_error", "message": "engine lost the request"})
)
ERROR = Responding().stream({"type": "error", "code": "server_error", "message": "lost", "param": None})
QUEUED = Responding(queued=True).parts(message("msg_1"), ("output_text", ["Hm."])).end("completed")
SCORED = (
    Responding()
    .parts(message("msg_1"), ("output_text", [("Hm", [entry("Hm", -0.5)]), ("", [entry(".", -0.1)]), "."]))
    .end("completed")
    .asking(include=["message.output_text.logprobs"], top_logprobs=1)
)
KEPT = RICH.edited(put(4, {"type": "keepalive"})).known(own=False)
"""Somebody else's."""

BASES = {
    "RICH": RICH, "REFUSAL": REFUSAL, "SUMMARY": SUMMARY, "CUSTOM": CUSTOM, "CUT": CUT, "FAILED": FAILED,
    "ERROR": ERROR, "QUEUED": QUEUED, "SCORED": SCORED, "KEPT": KEPT,
}  # fmt: skip


# --- edits ---


def renumbered(start: int, *, jump: int = -1, step: int = 1) -> Edit:
    """Number all events from ``start``; from place ``jump`` on, ``step`` more than one further."""

    def edit(elements: list[Any]) -> None:
        for place, element in enumerate(elements):
            element["sequence_number"] = place + start + (step - 1 if 0 <= jump <= place else 0)

    return edit


def reindexed(old: int, new: int) -> Edit:
    """Give an item another output_index, throughout."""

    def edit(elements: list[Any]) -> None:
        for element in elements:
            if element.get("output_index") == old:
                element["output_index"] = new

    return edit


def recounted(old: int, new: int) -> Edit:
    """Give a part another content_index, throughout."""

    def edit(elements: list[Any]) -> None:
        for element in elements:
            if element.get("content_index") == old:
                element["content_index"] = new

    return edit


def spelt(old: str, new: str) -> Callable[[Stream], Stream]:
    """Every occurrence in the bytes."""
    return lambda stream: stream.reworked(lambda body: body.replace(old.encode(), new.encode()))
