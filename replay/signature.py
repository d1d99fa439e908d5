"""signature: what kind of divergence this is, so that thousands of changed sessions show as a few kinds.

What varies between sessions of one kind never gets into it: no text, number, name, id or length. What stays is what a
message has otherwise, the names of the events at which the sides part, where the grammar stood there, and the literal
of the format before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replay.derive import StageFailure, Track
from replay.diff import Session
from replay.errors import BadSplit
from replay.message_place import place_of_worst, worst_of
from replay.result import Finding, Signature, SplitPair
from replay.split import regroup
from replay.verdict import Difference, Divergence, Side
from replay.whereabouts import NOWHERE, Place, byte_of, place_of, place_of_byte
from stages.catalog import Layers
from stages.events import Input, TokensInput

_NONE: Final = frozenset(("same", "uncompared", "restyled"))
"""Verdicts that are no kind of divergence."""
_EVENTS: Final = (
    ("arguments", "call_arguments"),
    ("name", "call_start"),
    ("]", "call_start"),
    ("finish_reason", "fin"),
)
"""How a field of a message ends, and what the events are called that bring it; of a text as the text is."""
EARLIER: Final = "earlier"
"""The layer of what is not as an earlier report has it: both sides are signatures in words, each against the record."""


def signature(
    session: Session, finding: Finding, layers: Layers, recorded: Track | None = None, replayed: Track | None = None
) -> Signature | None:
    """The kind of a finding; None for one that says ``same``, ``uncompared`` or ``restyled``.

    ``recorded``, ``replayed``: the semantic events of both sides, where they are at hand: they tell where the model
    wrote what differs, which no grouping of its tokens changes. Runs the parser again up to there, to ask it where it
    stands; where it cannot tell (a user's own, another engine's), the parser that the session was recorded with is
    asked. Raises nothing.
    """
    if finding.verdict in _NONE:
        return None
    if finding.error is not None and finding.verdict == "failed":
        return _failed(session, finding, finding.error, layers)
    first, pair = finding.first, finding.split_pair
    if first is None or first.split != "recorded":
        return _by_split(session, finding, first, pair, layers)
    if first.track == "upstream":
        recorded = None
    first = _worst(session, finding, first, recorded, replayed)
    place = _at(session, layers, first, recorded, replayed)
    one, other = ("" if side is None else side.type for side in (first.recorded, first.replayed))
    return Signature(
        verdict=finding.verdict, kind=first.worst or first.kind, layer=first.layer, recorded=one, replayed=other,
        state=place.state, marker=place.marker,
    )  # fmt: skip


def in_words(signature: Signature) -> str:
    """A signature on one line: ``call lost, semantic: call_start → content · in call: name · after <tool_call>``."""
    if signature.layer == EARLIER:
        if signature.recorded == signature.replayed:
            return f"{signature.recorded}, as before, but not in the same way"
        return f"was {signature.recorded}; now {signature.replayed}"
    kind = signature.kind.replace("_", " ") or signature.verdict
    if signature.verdict == "failed":
        parts = [f"failed: {kind}{f' at {signature.replayed}' if signature.replayed else ''}"]
    elif signature.layer in ("", "split", "one_shot"):
        where = {"": "", "split": " under another split", "one_shot": " in one shot"}[signature.layer]
        parts = [f"{kind}{where}"]
    else:
        sides = " → ".join((signature.recorded or "nothing", signature.replayed or "nothing"))
        told = signature.recorded or signature.replayed
        layer = "" if signature.layer == "semantic" else f", {signature.layer}"
        parts = [f"{kind}{layer}{f' ({sides})' if told else ''}"]
    if signature.verdict in ("moved", "rechunked"):
        parts.insert(0, signature.verdict)
    parts += [f"in {signature.state}"] if signature.state else []
    parts += [f"after {signature.marker}"] if signature.marker else []
    return " · ".join(parts)


# --- kinds ------------------------------------------------------------------------------------------------------------


def _failed(session: Session, finding: Finding, error: StageFailure, layers: Layers) -> Signature:
    choice = 0
    if 0 <= error.step < len(session.inputs):
        choice = getattr(session.inputs[error.step], "choice", 0)
    place = place_of(session.opening, layers, session.inputs, error.step, choice)
    where = error.where.replace("\\", "/").rpartition("/")[2]
    return Signature(
        verdict=finding.verdict, kind=error.type, layer=error.layer, replayed=where, state=place.state,
        marker=place.marker,
    )  # fmt: skip


def _by_split(
    session: Session, finding: Finding, first: Divergence | None, pair: SplitPair | None, layers: Layers
) -> Signature:
    """Of a message that differs only under another grouping of the tokens."""
    said = pair.differences if pair is not None and pair.differences else finding.differences
    kind: str = worst_of(said).kind if said else "split"
    if first is not None:
        kind = first.worst or first.kind
    layer = "one_shot" if first is not None and first.split == "one_shot" else "split"
    at_once = any(item.oracle == "one_shot" and item.choice is None for item in finding.breaches)
    if at_once and first is None and not said:
        kind, layer = "raises", "one_shot"  # it says nothing that could differ
    place = NOWHERE
    if pair is not None and (groups := (*pair.groups, *pair.other)):
        found = _token(session, pair.choice, min(start for start, _ in groups))
        if found is not None:
            place = place_of(session.opening, layers, *found, pair.choice)
    return Signature(verdict=finding.verdict, kind=kind, layer=layer, state=place.state, marker=place.marker)


def _token(session: Session, choice: int, number: int) -> tuple[list[Input], int] | None:
    """The inputs token by token, and the seq there of a choice's n-th token."""
    try:
        inputs = regroup(session.inputs, "token", session.opening.tokenizer)
    except BadSplit:
        return None
    seqs = [seq for seq, event in enumerate(inputs) if isinstance(event, TokensInput) and event.choice == choice]
    return (inputs, seqs[number]) if 0 <= number < len(seqs) else None


def _at(session: Session, layers: Layers, first: Divergence, recorded: Track | None, replayed: Track | None) -> Place:
    """Where the sides part: where the model wrote what the event says, or else the input that caused it."""
    choice = first.choice or 0
    inputs = session.inputs
    came = 0 <= first.cause < len(inputs) and isinstance(inputs[first.cause], TokensInput)
    sides = ((recorded, first.recorded), (replayed, first.replayed)) if first.layer == "semantic" else ()
    for track, side in sides:
        if track is None or side is None or not 0 <= side.seq < len(track.events):
            continue
        byte = byte_of(track, side.seq, choice) if came else None
        if byte is None and session.foreign:
            byte = _written(inputs[: side.cause + 1], track.events[side.seq], choice)
        place = None if byte is None else place_of_byte(session.opening, layers, inputs, byte, choice)
        if place is not None:
            return place
    return place_of(session.opening, layers, inputs, first.cause, choice)


def _written(inputs: Sequence[Input], event: Any, choice: int) -> int | None:
    """Where a choice wrote what an event without a byte range says, however late it says so: the last such place. None
    where there is none."""
    text = getattr(event, "text", None)
    if not isinstance(text, str) or not text:
        return None
    own = (each for each in inputs if isinstance(each, TokensInput) and each.choice == choice)
    wrote = b"".join(b"".join(each.pieces) or each.text.encode("utf-8", "surrogatepass") for each in own)
    at = wrote.rfind(text.encode("utf-8", "surrogatepass"))
    return at if at >= 0 else None


def _worst(
    session: Session, finding: Finding, first: Divergence, recorded: Track | None, replayed: Track | None
) -> Divergence:
    """Where what differs most does: the kind is of that place, whatever differs before it."""
    if first.worst is None or not finding.differences:
        return first
    if first.track == "upstream":
        return _of_upstream(worst_of(finding.differences), first)
    if recorded is None or replayed is None:
        return first
    return place_of_worst(session.inputs, recorded, replayed, finding.differences, first)


def _of_upstream(item: Difference, first: Divergence) -> Divergence:
    """The place of a difference to another server's message, which says itself where it is."""
    if item.place == first.detail and item.choice == first.choice:
        return first
    name = next((name for end, name in _EVENTS if item.field.endswith(end)), item.field)
    one, other = (None if text is None else Side(-1, item.step, "", name) for text in (item.recorded, item.replayed))
    return Divergence(
        layer="semantic", kind=item.kind, seq=-1, cause=item.step, choice=item.choice, recorded=one, replayed=other,
        worst=item.kind, track=first.track,
    )  # fmt: skip
