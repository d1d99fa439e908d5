"""Streams as lists of JSON values: the golden ones, edited and written back, for tests of the protocol rules.

An element is what stands in ``data/goldens.jsonl``: a JSON object without its protocol's envelope, or the literal text
of a data line. In edited streams it may also be the bytes of a whole block. A key whose value is ABSENT is left out of
what is written, be it of the envelope or of the element.

    base = golden("G01")                                                  # a Stream; .evidence() for check()
    base.edited(lambda ev: ev.pop(-1))                                    # in place, or return the new list
    base.reworked(lambda body: body.replace(b"\n", b"\r\n"))              # its bytes
    base.asking(tools=[…])                                                # fields of the request
    base.known(http=Http(…), own=False)                                   # other fields of Evidence
    breaks(45, base, base.edited(…))                                      # the base does not break 45, the edit does
"""

from __future__ import annotations

import copy
import enum
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from stages.protocols.rules import Evidence, Protocol, Report, check


class _Absent(enum.Enum):
    ABSENT = "absent"


ABSENT = _Absent.ABSENT
"""A value that is left out of its object or list."""

Elements: TypeAlias = list[Any]

CHAT: dict[str, Any] = {
    "id": "chatcmpl-7a1", "object": "chat.completion.chunk", "created": 1760000000, "model": "demo-1",
    "system_fingerprint": "fp_demo",
}  # fmt: skip
COMPLETIONS: dict[str, Any] = {"id": "cmpl-9", "object": "text_completion", "created": 1760000000, "model": "demo-1"}
RESPONSE: dict[str, Any] = {
    "id": "resp_a1", "object": "response", "created_at": 1760000000, "status": "in_progress", "model": "demo-1",
    "output": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
    "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": [], "usage": None,
}  # fmt: skip


_BARE = ("error", "keepalive")
"""Types of the responses protocol that have no prefix."""


# --- writing --------------------------------------------------------------------------------------------------------


def compact(value: Any) -> str:
    """JSON as the golden streams have it."""
    return json.dumps(_without(value), ensure_ascii=False, separators=(",", ":"))


def _without(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _without(one) for key, one in value.items() if one is not ABSENT}
    return [_without(one) for one in value if one is not ABSENT] if value.__class__ is list else value


def full(protocol: Protocol, element: dict[str, Any], position: int) -> dict[str, Any]:
    """The JSON object that an element stands for. ``position``: its number in the stream."""
    if protocol == "chat":
        return {**CHAT, **element}
    if protocol == "completions":
        return {**COMPLETIONS, **element}
    if protocol == "messages":
        return element
    named = element["type"] if element["type"] in _BARE else f"response.{element['type']}"
    made = {**{"type": named, "sequence_number": position}, **element, **{"type": named}}
    if element.get("response").__class__ is dict:
        made["response"] = {**RESPONSE, **element["response"]}
    return made


def block(protocol: Protocol, element: Any, position: int = 0) -> bytes:
    """The bytes of one event."""
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return f"data: {element}\n\n".encode()
    value = full(protocol, element, position)
    name = f"event: {value['type']}\n" if protocol in ("responses", "messages") else ""
    return f"{name}data: {compact(value)}\n\n".encode()


def write(protocol: Protocol, elements: Elements) -> bytes:
    """The body that elements stand for."""
    return b"".join(block(protocol, element, position) for position, element in enumerate(elements))


# --- streams --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """A stream and what is known about it. ``facts``: fields of Evidence, ``body`` only where its bytes were edited."""

    protocol: Protocol
    elements: Elements
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def body(self) -> bytes:
        """Its bytes."""
        edited: bytes | None = self.facts.get("body")
        return write(self.protocol, self.elements) if edited is None else edited

    @property
    def request(self) -> dict[str, Any]:
        """A copy of the request."""
        return copy.deepcopy(self.facts["request"])

    def evidence(self) -> Evidence:
        """For ``check``."""
        facts: dict[str, Any] = {"protocol": self.protocol, "own": True, **self.facts, "body": self.body}
        return Evidence(**facts)

    def report(self) -> Report:
        """What the rules say."""
        return check(self.evidence())

    def edited(self, edit: Callable[[Elements], Any]) -> Stream:
        """The same with its elements edited. ``edit``: gets a deep copy; changes it in place or returns a new list."""
        mine = copy.deepcopy(self.elements)
        made = edit(mine)
        if made.__class__ is list:
            mine = made
        return replace(self, elements=mine, facts={key: one for key, one in self.facts.items() if key != "body"})

    def reworked(self, edit: Callable[[bytes], bytes]) -> Stream:
        """The same with its bytes edited."""
        return self.known(body=edit(self.body))

    def asking(self, **fields: Any) -> Stream:
        """The same with fields of the request set, or taken away (ABSENT)."""
        request = {**self.request, **fields}
        return self.known(request={key: value for key, value in request.items() if value is not ABSENT})

    def known(self, **facts: Any) -> Stream:
        """The same with other fields of Evidence set."""
        return replace(self, facts={**self.facts, **facts})


@dataclass(frozen=True)
class _Row:
    what: str
    protocol: Protocol
    request: dict[str, Any]
    elements: Elements


@cache
def _rows() -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    path = Path(__file__).parent.parent / "data" / "goldens.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        protocol: Protocol = "messages" if row["proto"] == "anthropic" else row["proto"]
        body = write(protocol, row["ev"])
        assert (len(body), hashlib.sha256(body).hexdigest()[:16]) == (row["len"], row["sha"])
        rows[row["g"]] = _Row(row["what"], protocol, {**row.get("req", {}), "stream": True}, row["ev"])
    return rows


GOLDENS = tuple(f"G{number:02}" for number in range(1, 14))
"""Their names."""


def golden(name: str) -> Stream:
    """A golden stream, as one of our own, with its request; a copy."""
    row = _rows()[name]
    return Stream(row.protocol, copy.deepcopy(row.elements), {"request": copy.deepcopy(row.request)})


# --- edits of elements, for Stream.edited -----------------------------------------------------------------------------


Edit: TypeAlias = Callable[[Elements], Any]


def put(*path: Any, to: Any) -> Edit:
    """Set the value at a path of positions and keys."""

    def edit(elements: Elements) -> None:
        _at(elements, path[:-1])[path[-1]] = copy.deepcopy(to)

    return edit


def drop(*path: Any) -> Edit:
    """Take what is at a path away. What the envelope adds goes by ``put(…, to=ABSENT)``."""

    def edit(elements: Elements) -> None:
        del _at(elements, path[:-1])[path[-1]]

    return edit


def insert(at: int, *more: Any) -> Edit:
    """Put elements before position ``at``; the length of the stream is its end."""

    def edit(elements: Elements) -> None:
        elements[at:at] = copy.deepcopy(more)

    return edit


def swap(one: int, other: int) -> Edit:
    """Change two elements' places."""

    def edit(elements: Elements) -> None:
        elements[one], elements[other] = elements[other], elements[one]

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after another."""

    def edit(elements: Elements) -> None:
        for one in edits:
            made = one(elements)
            if made.__class__ is list:
                elements[:] = made

    return edit


def sub(old: bytes, new: bytes, count: int = 1) -> Callable[[bytes], bytes]:
    """For Stream.reworked: put ``new`` where ``old`` stands, the first ``count`` times (-1: everywhere)."""

    def edit(body: bytes) -> bytes:
        assert old in body
        return body.replace(old, new, count)

    return edit


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def chunk(delta: Any, index: int = 0, finish: str | None = None, logprobs: Any = None, **top: Any) -> dict[str, Any]:
    """A chat chunk with one choice. ``top``: keys beside ``choices``."""
    return {"choices": [{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}], **top}


# --- judging --------------------------------------------------------------------------------------------------------


def fired(report: Report) -> frozenset[int]:
    """The numbers of the rules that are broken."""
    return frozenset(int(name.removeprefix("INV-")) for name in report.counts)


@dataclass(frozen=True)
class Mutant:
    """``base`` does not break ``rule``; what ``change`` makes of it does."""

    rule: int
    what: str
    base: Stream
    change: Callable[[Stream], Stream]


def els(*edits: Edit) -> Callable[[Stream], Stream]:
    """A change of elements, one edit after another."""
    return lambda stream: stream.edited(both(*edits))


def raw(edit: Callable[[bytes], bytes]) -> Callable[[Stream], Stream]:
    """A change of bytes."""
    return lambda stream: stream.reworked(edit)


def ask(**fields: Any) -> Callable[[Stream], Stream]:
    """A change of the request."""
    return lambda stream: stream.asking(**fields)


def breaks(rule: int, base: Stream, mutant: Stream) -> Report:
    """Assert that ``rule`` is checked on both, holds in ``base`` and is broken in ``mutant``; the mutant's report."""
    before, after = base.report(), mutant.report()
    assert rule in before.checked, f"{rule} not checked on the base: {before.unchecked.get(rule)}"
    assert rule in after.checked, f"{rule} not checked on the mutant: {after.unchecked.get(rule)}"
    assert rule not in fired(before), [one for one in before.violations if one.rule == f"INV-{rule:03}"]
    assert rule in fired(after), f"{rule} holds; broken: {sorted(fired(after))}"
    return after
