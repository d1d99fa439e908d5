"""What a comparison says: verdicts, the first divergence, differences of the message."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stages.events import Layer

Verdict: TypeAlias = Literal["same", "uncompared", "rechunked", "moved", "restyled", "changed", "failed"]
"""``uncompared``: nothing was compared. ``rechunked``: equal once adjacent deltas of the same kind, choice and call are
merged within a step of the engine. ``moved``: equal once they are merged over all steps: the same, emitted earlier or
later. ``restyled``: another server's message, equal but for white space around texts and how the JSON of arguments is
written. ``changed``: at the depth compared, something else differs. ``failed``: a stage raised."""
VERDICTS: tuple[Verdict, ...] = ("same", "uncompared", "rechunked", "moved", "restyled", "changed", "failed")

Depth: TypeAlias = Literal["message", "semantic", "chunk", "frame"]
"""How deep the comparison goes that decides the verdict; each depth includes those before it."""
DEPTHS: tuple[Depth, ...] = ("message", "semantic", "chunk", "frame")

MessageKind: TypeAlias = Literal[
    "call_lost", "call_added", "call_name", "call_arguments", "boundary", "marker_leaked", "text", "call_complete",
    "call_id", "finish_reason", "fault", "spelling", "white_space",
]  # fmt: skip
"""What differs in a message, most telling first. ``boundary``: the same text, cut elsewhere between reasoning and
content. ``marker_leaked``: markup that was consumed is now text. Only of another server's message: ``spelling``: the
arguments are the same JSON value, written otherwise; ``white_space``: a text has more or less of it around it."""
MESSAGE_KINDS: tuple[MessageKind, ...] = (
    "call_lost", "call_added", "call_name", "call_arguments", "boundary", "marker_leaked", "text", "call_complete",
    "call_id", "finish_reason", "fault", "spelling", "white_space",
)  # fmt: skip
STYLE: frozenset[MessageKind] = frozenset(("spelling", "white_space"))
"""The kinds that are a matter of style: a message that differs in nothing else is ``restyled``."""

EventKind: TypeAlias = Literal[
    "start", "tokens", "call_index", "choice", "marker", "dropped", "src", "fault_detail", "finish_detail", "usage",
    "failure", "end", "tick", "order", "event", "chunk", "frame", "chunking", "timing", "cause", "unknown",
]  # fmt: skip
"""What differs where no message does. ``chunking``, ``timing``: of verdicts rechunked and moved; ``cause``: only the
recorded cause; ``unknown``: only digests were recorded."""

Oracle: TypeAlias = Literal["split", "one_shot", "retracted", "leaked", "arguments"]
"""What holds of every right parser, whatever was recorded. ``split``: the message does not depend on how tokens are
grouped; ``one_shot``: streaming says what parsing the whole text at once says; ``retracted``: nothing that was sent is
taken back or contradicted; ``leaked``: no markup reaches a text without a fault that says so; ``arguments``: those of a
complete call are a JSON object."""
ORACLES: tuple[Oracle, ...] = ("split", "one_shot", "retracted", "leaked", "arguments")

Mark: TypeAlias = Oracle | Literal["failed", "differs", "fault", "rule"]
"""What can be wrong with one side of a comparison: it ``failed``; its message ``differs`` from the recorded one; it has
a ``fault``; it breaks a ``rule`` of the protocol; it breaks an oracle."""
MARKS: tuple[Mark, ...] = ("failed", "differs", *ORACLES, "rule", "fault")

Kind: TypeAlias = MessageKind | EventKind
"""Of a divergence: what differs at that place. A message kind there is one of the delta's own: ``text``,
``call_arguments``, ``call_name``, ``call_id``, ``call_complete``, or ``boundary``, content against reasoning."""


class Side(msgspec.Struct, frozen=True):
    """An event on one side of a divergence: its seq, the engine-layer input it came from, the event in words, and what
    it is called."""

    seq: int
    cause: int
    event: str
    type: str


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The first place where recorded and replayed differ.

    ``kind``: what differs there, ``worst``: the most telling difference of the message, which may come later;
    ``seq``: of the recorded event, or of the replayed one where none was recorded; ``cause``: seq of the engine-layer
    input at which the sides part (-1: unknown), ``input``: that input in words; ``detail``: where inside the event,
    how far moved. A side is None where it has no event there.

    ``track``: the recorded side, where it is not the served track's; ``frame``: the frame of another server's response
    at which it parts, its seq in ``upstream/frame`` (-1: not of one, or unknown).
    """

    layer: Layer
    kind: Kind
    seq: int
    cause: int
    input: str = ""
    choice: int | None = None
    detail: str = ""
    recorded: Side | None = None
    replayed: Side | None = None
    split: str = "recorded"
    worst: MessageKind | None = None
    track: str = ""
    frame: int = -1


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a choice's message says otherwise.

    ``field``: of the message, such as ``content`` or ``tool_calls[1].arguments``; ``recorded`` and ``replayed``: what
    it says, as plain text, around the first difference and cut (…) where it is long; None: nothing. Of another server's
    message: ``frame`` and ``step``: where its stream parts from the parser's, a seq in ``upstream/frame`` and one in
    ``input/engine`` (-1: unknown); ``place``: that place in words, both sides.
    """

    choice: int
    kind: MessageKind
    field: str
    recorded: str | None
    replayed: str | None
    frame: int = -1
    step: int = -1
    place: str = ""


def worst(*verdicts: Verdict) -> Verdict:
    """The verdict furthest from ``same``."""
    return VERDICTS[max((VERDICTS.index(verdict) for verdict in verdicts), default=0)]
