"""ChatChoice: one choice of a chat completion stream, as its chunks come, for the rules of the protocol.

What is usual is kept as plain lists. What is not usual has lists of its own, which are mostly empty: rules read those.
Null is like absent everywhere, but where a rule is about just that."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from stages.protocols.rules.reading import Event
from stages.protocols.rules.said import Delta, FinishKind, Kind, SaidCall, SaidChoice, SaidFinish, SaidUsage
from stages.protocols.rules.values import array, integer, obj, string

Object: TypeAlias = dict[str, Any]


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""A key that is not there, where null is not the same."""
_KNOWN: Final = frozenset(
    ("role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls", "function_call")
)
_TEXTS: Final[tuple[tuple[str, Kind], ...]] = (("content", "content"), ("refusal", "refusal"))
_KINDS: Final[dict[str, FinishKind]] = {
    "stop": "stop", "length": "length", "tool_calls": "calls", "content_filter": "filter",
}  # fmt: skip


class Seen(msgspec.Struct, gc=False):
    """Something at a place: ``key`` and ``value`` as they are on the wire."""

    event: Event
    key: str
    value: Any


class End(msgspec.Struct, gc=False):
    """A chunk with a finish reason of any type but null."""

    event: Event
    reason: Any
    delta: Object


class ChatChoice(msgspec.Struct):
    """One choice.

    ``first``, ``last``: its chunks; ``opening``: its first delta, at ``begun``; ``roles``: roles in later deltas;
    ``runs``: where the kind of what is said changes, or a call begins; ``names``: the texts of ``reasoning``, and of
    ``reasoning_content``; ``odd``: known keys with values of a wrong type; ``extra``: unknown keys of deltas;
    ``keyless``: the first chunk without the key ``finish_reason``; ``ends``: chunks with one; ``logprobs`` and
    ``ids``: what is under these keys; ``running``: usage beside this choice alone.

    Of its calls: ``heads``: first entries of an index; ``later``: other entries with anything but arguments; ``gaps``:
    first entries of an index that is too high, with the one that was due (they begin no call); ``back``: entries of a
    call behind entries of a later one, with both indexes; ``bare``: entries without the object of their type;
    ``wrong``: what should be an entry, or the array of them; ``places`` and ``pieces``: index to place among the
    calls, fragments by place."""

    said: SaidChoice
    first: Event
    last: Event
    begun: Event | None = None
    opening: Object = {}
    kind: Kind | None = None
    roles: list[Seen] = []
    runs: list[tuple[Kind, Event]] = []
    names: tuple[list[str], list[str]] = msgspec.field(default_factory=lambda: ([], []))
    odd: list[Seen] = []
    extra: list[Seen] = []
    keyless: Event | None = None
    ends: list[End] = []
    logprobs: list[tuple[Event, Any]] = []
    ids: list[tuple[Event, Any]] = []
    running: list[SaidUsage] = []
    heads: list[tuple[Event, Object]] = []
    later: list[tuple[Event, Object]] = []
    gaps: dict[int, tuple[Event, int]] = {}
    back: list[tuple[Event, int, int]] = []
    bare: list[Event] = []
    wrong: list[Seen] = []
    places: dict[int, int] = {}
    pieces: list[list[str] | None] = []
    turn: int = 0

    def say(self, event: Event, kind: Kind, text: str, call: int = -1) -> None:
        """A piece of text."""
        self.said.deltas.append(Delta(event, kind, text, call))
        if kind is not self.kind:
            self.kind = kind
            self.runs.append((kind, event))

    def take(self, event: Event, item: Object, delta: Object | None) -> bool:
        """A chunk's choice object and its delta (None: it has none). Whether there is anything in it."""
        late = bool(self.ends)
        size = len(self.said.deltas) + len(self.said.calls)
        some = delta is None or self._delta(event, delta)
        tokens = self._tokens(event, item)
        reason = item.get("finish_reason", ABSENT)
        if reason is ABSENT:
            self.keyless = self.keyless or event
        elif reason is not None:
            self._finish(event, item, reason, delta or {})
            some = True
        if late and (tokens or len(self.said.deltas) + len(self.said.calls) > size):
            self.said.after.append(event)
        return some or tokens

    def close(self) -> None:
        """The stream is over."""
        for call, pieces in zip(self.said.calls, self.pieces, strict=True):
            call.arguments = None if pieces is None else "".join(pieces)

    def _finish(self, event: Event, item: Object, reason: Any, delta: Object) -> None:
        self.ends.append(End(event, reason, delta))
        if isinstance(reason, str):
            stop = item.get("stop_reason")
            stop = item.get("matched_stop") if stop is None else stop
            told = stop if stop.__class__ in (str, int) else None
            self.said.finishes.append(SaidFinish(event, reason, _KINDS.get(reason, "other"), told))

    # --- the delta

    def _delta(self, event: Event, delta: Object) -> bool:
        role = delta.get("role")
        first = self.begun is None
        if first:
            self.begun = event
            self.opening = delta
        elif role is not None:
            self.roles.append(Seen(event, "role", role))
        some = self._reasoning(event, delta.get("reasoning"), delta.get("reasoning_content")) or first or bool(role)
        for key, kind in _TEXTS:
            text = delta.get(key)
            if text.__class__ is str:
                if text:
                    some = True
                    self.say(event, kind, text)
            elif text is not None:
                some = True
                self.odd.append(Seen(event, key, text))
        calls = delta.get("tool_calls")
        if calls is not None:
            some = self._calls(event, calls) or some
        for key, value in delta.items():
            if key not in _KNOWN and value is not None:
                some = True
                self.extra.append(Seen(event, key, value))
        return some or bool(delta.get("function_call"))

    def _reasoning(self, event: Event, one: Any, other: Any) -> bool:
        """The same text under both names is said once."""
        some = False
        if one.__class__ is str:
            if one:
                some = True
                self.names[0].append(one)
                self.say(event, "reasoning", one)
        elif one is not None:
            some = True
            self.odd.append(Seen(event, "reasoning", one))
        if other.__class__ is str:
            if other:
                some = True
                self.names[1].append(other)
                if other != one:
                    self.say(event, "reasoning", other)
        elif other is not None:
            some = True
            self.odd.append(Seen(event, "reasoning_content", other))
        return some

    def _tokens(self, event: Event, item: Object) -> bool:
        logprobs, ids = item.get("logprobs"), item.get("token_ids")
        some = False
        if logprobs is not None:
            self.logprobs.append((event, logprobs))
            some = bool(entries_of(logprobs))
        if ids is not None:
            self.ids.append((event, ids))
            some = some or bool(ids)
        if some:
            self.said.tokens.append(event)
        return some

    # --- calls

    def _calls(self, event: Event, entries: Any) -> bool:
        if entries.__class__ is not list:
            self.wrong.append(Seen(event, "tool_calls", entries))
            return True
        some = False
        for entry in array(entries):
            index: Any = entry.get("index", ABSENT) if entry.__class__ is dict else ABSENT
            if index.__class__ is int and index >= 0:
                some = self._entry(event, entry, index) or some
            else:
                some = True
                self.wrong.append(Seen(event, "tool_calls", entry))
        return some

    def going_on(self, entry: Object) -> int | None:
        """The place of the call that an entry with nothing but a part of its arguments goes on with; None: it is not
        such an entry, or not of the call that was told last."""
        index = integer(entry.get("index"))
        place = self.places.get(self.turn) if index == self.turn and len(entry) == 2 else None
        free = place is not None and self.said.calls[place].free
        return None if free or len(obj(entry.get("function"))) != 1 else place

    def _entry(self, event: Event, entry: Object, index: int) -> bool:
        known = self.places.get(index)
        place = len(self.pieces) if known is None else known
        if known is None:
            if index != place:
                self.gaps.setdefault(index, (event, place))
                return True
            self.places[index] = place
            self.pieces.append(None)
            self.heads.append((event, entry))
            self.kind = None  # what follows is said after it
            self.said.calls.append(_call(event, entry))
        if index < self.turn:
            self.back.append((event, index, self.turn))
        self.turn = index
        free = self.said.calls[place].free
        spec: Any = entry.get("custom" if free else "function")
        if known is not None and (len(entry) > 2 or spec.__class__ is not dict or len(spec) > 1):
            self.later.append((event, entry))
        if spec.__class__ is not dict:
            self.bare.append(event)
            return True
        return self._arguments(event, place, spec.get("input" if free else "arguments", ABSENT)) or known is None

    def _arguments(self, event: Event, place: int, text: Any) -> bool:
        if text.__class__ is str:
            pieces = self.pieces[place]
            if pieces is None:
                pieces = self.pieces[place] = []
            if text:
                pieces.append(text)
                self.say(event, "arguments", text, place)
        elif text is not ABSENT:
            self.odd.append(Seen(event, "arguments", text))
        return text is not ABSENT and bool(text)


def entries_of(logprobs: Any) -> list[Any]:
    """All entries of a logprobs object."""
    found = obj(logprobs)
    return [*array(found.get("content")), *array(found.get("refusal"))]


def _call(event: Event, entry: Object) -> SaidCall:
    free = entry.get("type") == "custom"
    name = string(obj(entry.get("custom" if free else "function")).get("name"))
    return SaidCall(event, string(entry.get("id")), name, None, free)
