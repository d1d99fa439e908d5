"""played: the response of a recorded session once more, in its own protocol or in another.

In its own protocol the frames are those that were recorded; of a lean session, derived again. In another, what the
session meant goes through that protocol's encoder and framer, under an opening that is turned over: its protocol, its
id, what it asks (streaming, with usage), and its request as that protocol would have it. What the other protocol has no
words for is lost: docs/play.md lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from replay.baseline import is_open
from replay.derive import Track, run
from replay.errors import NotAvailable
from replay.evidence import layers_of
from replay.relayed import unknown
from replay.resolve import Parser, resolve
from replay.turned import SINGLE, turned
from replay.upstream_layers import checked, relayed, translated
from stages import catalog
from stages.catalog import PROTOCOLS
from stages.events import AbortInput, Frame, Input, Layer, Start, TokensInput, Usage, UsageInput
from stages.opening import Opening
from stages.sse import FRAMER
from store.api import Trace


class Played(msgspec.Struct, frozen=True):
    """A response. ``ats``: beside each frame, when it was made, ns since the opening; ``notes``: what is not as it was,
    for people."""

    opening: Opening
    frames: Sequence[Frame]
    ats: Sequence[int]
    notes: tuple[str, ...] = ()


def played(trace: Trace, protocol: str | None = None, choice: int | None = None) -> Played:
    """The response, in ``protocol`` (None: its own). ``choice``: which one, for a protocol with one only; None: the
    first.

    Raises NotAvailable (and what else ``resolve`` raises) where what the session meant cannot be had, or there is no
    such choice; UnknownName for a protocol that does not exist.
    """
    opening = trace.opening
    if not opening.answers:
        raise NotAvailable(f"session {opening.session}: no response: something was done to {opening.conversation}")
    if protocol is None or protocol == opening.protocol:
        if choice is not None:
            raise NotAvailable(f"session {opening.session}: a choice is picked for a protocol that has one only")
        _, frames, ats = layers_of(trace)
        return Played(opening, frames, ats, _cut(trace))
    picked = _picked(opening, protocol, choice)
    parser = None if protocol == "completions" or relayed(opening) else resolve(opening.parser, opening)
    target, notes = turned(opening, protocol)
    meant, ats = _meant(trace, target, parser, picked)
    events, steps = meant.events, meant.steps
    if picked is not None:
        events, steps = _single(events, steps, picked, prompts=opening.ask.prompts)
        notes = (f"choice {picked} of {opening.ask.n}: {protocol} has one only", *notes)
    made = _made(target, events, steps)
    times = [ats[step] if 0 <= step < len(ats) else 0 for step in made.steps]
    return Played(target, made.events, times, (*_cut(trace), *notes))


def _cut(trace: Trace) -> tuple[str, ...]:
    state = trace.info.state
    if is_open(state):
        return (f"the session is {state}: what followed is not here",)
    left = trace.events("input", "engine")[-1:] == [AbortInput("client")]
    return ("its client left before the end: the response has none",) if left else ()


def _picked(opening: Opening, protocol: str, choice: int | None) -> int | None:
    """The choice that is kept; None: all."""
    n = opening.ask.n
    if choice is not None and (protocol not in SINGLE or not 0 <= choice < n):
        what = f"{protocol} has them all" if protocol not in SINGLE else f"it has choices 0 to {n - 1}"
        raise NotAvailable(f"session {opening.session}: no choice {choice} can be picked: {what}")
    return (choice or 0) if protocol in SINGLE and n > 1 else None


# --- what was meant ---------------------------------------------------------------------------------------------------


def _meant(trace: Trace, target: Opening, parser: Parser | None, picked: int | None) -> tuple[Track, list[int]]:
    """The semantic events, and the times that their steps count in. Raises NotAvailable."""
    opening = trace.opening
    if target.protocol == "completions":
        if translated(opening) or (opening.upstream is not None and opening.upstream.depth == "verbatim"):
            raise NotAvailable(
                f"session {opening.session}: what its model wrote is not known, only what the upstream made of it"
            )
        if why := unknown(trace):
            raise NotAvailable(f"session {opening.session}: what its model wrote is not known: {why}")
        source, layers = target, catalog.layers(target)
    elif relayed(opening):
        theirs = checked(trace, "message").theirs
        if theirs is None:
            raise NotAvailable(f"session {opening.session}: what the upstream meant is not recorded")
        return Track(theirs.events, theirs.causes, theirs.causes), _ats(trace, "upstream", "frame")
    else:
        source, layers = opening, catalog.layers(opening, parser)
    inputs: list[Input] = trace.events("input", "engine")
    ats = _ats(trace, "input", "engine")
    if picked is not None:
        kept = [at for at, event in enumerate(inputs) if getattr(event, "choice", picked) == picked]
        inputs, ats = _only([inputs[at] for at in kept]), [ats[at] for at in kept]
    made, failed = run(layers.semantic, "semantic", source, inputs, range(len(inputs)))
    if failed is not None:
        raise NotAvailable(f"session {opening.session}: {failed.stage} failed: {failed.type}: {failed.message}")
    return made, ats


def _ats(trace: Trace, track: str, layer: Layer) -> list[int]:
    return [record.at for record in trace.records.get((track, layer), ())]


def _only(inputs: list[Input]) -> list[Input]:
    """The inputs of one choice, with a usage of what it generated, where that is known."""
    count = sum(len(event.ids) for event in inputs if isinstance(event, TokensInput))
    return [
        msgspec.structs.replace(event, completion=count) if isinstance(event, UsageInput) and count else event
        for event in inputs
    ]


def _single(
    events: Sequence[Any], steps: Sequence[int], picked: int, *, prompts: int
) -> tuple[list[Any], list[int]]:  # fmt: skip
    """One choice's events, as of the only one. ``prompts``: how many the request had; then the usage is of its own."""
    made: list[Any] = []
    kept: list[int] = []
    start: Start | None = None
    for event, step in zip(events, steps, strict=True):
        if getattr(event, "choice", picked) != picked:
            continue
        if isinstance(event, Start):
            start = event
        if isinstance(event, Usage) and start is not None and prompts > 1:
            event = msgspec.structs.replace(event, prompt=start.prompt_tokens, cached=start.cached)
        made.append(msgspec.structs.replace(event, choice=0) if hasattr(event, "choice") else event)
        kept.append(step)
    return made, kept


def _made(target: Opening, events: Sequence[Any], steps: Sequence[int]) -> Track:
    """The frames. Raises NotAvailable where the events are none that an encoder takes."""
    chunks, failed = run(PROTOCOLS[target.protocol].encoder, "chunk", target, events, steps)
    if failed is not None:
        raise NotAvailable(f"session {target.session}: {failed.stage} failed: {failed.type}: {failed.message}")
    frames, _ = run(FRAMER, "frame", target, chunks.events, chunks.steps)
    return frames
