"""Comparing with a track that our stages did not serve: another server's own parse, or a shadow's. Messages only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from replay import loose, message_place
from replay.baseline import is_open, tracked
from replay.clock import Clock
from replay.derive import Derived, Track
from replay.diff import Session, compare
from replay.message_diff import differences, in_words
from replay.result import Finding
from replay.turned import RAW
from replay.upstream_diff import Sides, Told, told_apart
from replay.upstream_layers import Checked, checked, relayed, translated
from replay.verdict import Difference, Divergence, worst
from stages import catalog
from stages.catalog import Layers
from stages.events import (
    AbortInput,
    Block,
    CallStart,
    Content,
    ErrorInput,
    Failure,
    Frame,
    Input,
    Reasoning,
    Refusal,
    TokensInput,
    Usage,
)
from stages.message import collect
from stages.opening import Opening
from stages.parse.told import TOLD
from stages.protocols.lenient import value_of
from stages.sse import SseDecoder
from store import codec
from store.api import SHADOW, Digest, Trace

Judge: TypeAlias = Callable[[Track], Told]
"""Compares what a parser makes of a session's tokens with a recorded track."""


def default_track(opening: Opening) -> str:
    """What a replay is compared with: what the client got."""
    return "upstream" if relayed(opening) else "served"


UNPARSED: Final = "a completion is what the model wrote, whatever parser serves"
"""Why a parser is not held against what the client of completions got."""
_RAW: Final = catalog.parser(RAW).id


class Other(msgspec.Struct):
    """A recorded track that our stages did not serve. ``judge``: compares a replay with it; ``track``: its events, by
    the engine's steps; None: only a digest was recorded."""

    judge: Judge
    track: Track | None = None


def other(session: Session, trace: Trace, track: str, theirs: Track | None) -> Other | str:
    """The track to compare a replay with; or why nothing can. ``theirs``: the upstream's own parse."""
    if track == "served":
        return "the client got the upstream's own response: what is compared with is the track upstream"
    if track == "upstream":
        if theirs is None or session.opening.upstream is None:
            return "no track upstream was recorded"
        if told(session.layers):
            return _upstream(session, trace, theirs)
        return unknown(trace) or untold(trace, theirs) or _upstream(session, trace, theirs)
    if (track, "semantic") in trace.records:
        recorded = tracked(trace, track, "semantic")
        return unknown(trace) or Other(lambda made: _shadow(session, track, recorded, made), recorded)
    want = trace.info.digests.get(f"{track}/semantic")
    if want is None:
        return f"no track {track} was recorded"
    if loose.is_foreign_track(track) and not loose.is_foreign(session.layers.parts["parser"]):
        return f"only a digest of {track} was recorded, and another engine's events differ"
    return unknown(trace) or Other(_digested(session, track, want))


def against_served(trace: Trace, track: str) -> Told | str:
    """What a shadow's message is, against what the client got; or why they cannot be compared. Messages only."""
    if (track, "semantic") not in trace.records:
        digest = f"{track}/semantic" in trace.info.digests
        return f"only a digest of {track} was recorded" if digest else f"no track {track} was recorded"
    made = tracked(trace, track, "semantic")
    if translated(trace.opening):
        return unknown(trace)
    if trace.opening.protocol == "completions" and track != f"{SHADOW}{RAW}":
        return UNPARSED
    if relayed(trace.opening):
        theirs = checked(trace, "message").theirs
        if theirs is None:
            return "no track upstream was recorded"
        clock, name = Clock(trace.records.get(("input", "engine"), ())), track.removeprefix(SHADOW)
        foreign = loose.is_foreign_track(track)
        sides = Sides(theirs, made, clock, _name(name), trace.opening.tokenizer, _cut(trace), foreign)
        return unknown(trace) or told_apart(sides, trace.events("input", "engine"))
    served = trace.events("served", "semantic")
    if not served:
        return "the session was recorded without its semantic layer"
    if loose.is_foreign_track(track):
        apart = loose.said(trace.opening, tracked(trace, "served", "semantic"), made)
        return Told(loose.verdict_of(apart), apart)
    named = trace.opening.ask.named
    said = differences(collect(served, named=named), made.messages(named=named), served, trace.opening.tokenizer)
    return Told("changed" if said else "same", said)


def unknown(trace: Trace) -> str:
    """Why what the model wrote is not known; "" where it is."""
    bare = next((event for event in _tokens(trace) if _is_bare(event)), None)
    if bare is not None and trace.opening.tokenizer.hash is not None:
        return f"its tokenizer lacks ids that the upstream told (in a step of {len(bare.ids)}: {_some(bare.ids)})"
    if bare is not None:
        return "the bytes of its tokens are not known: playhead import --tokenizer joins them"
    upstream = trace.opening.upstream
    if upstream is None or not verbatim(trace):
        return ""
    return f"recorded verbatim: what the model wrote is not known{f' ({upstream.why})' if upstream.why else ''}"


def told(layers: Layers) -> bool:
    """What is parsed is what another server says that its model meant."""
    return layers.parts["parser"].id == TOLD.id


def unread(trace: Trace, layers: Layers) -> str:
    """Why nothing of a session that our stages served is there for this parser to read; "" where something is."""
    return unknown(trace) if translated(trace.opening) and not told(layers) else ""


def unparsed(opening: Opening, layers: Layers) -> str:
    """Why no client of this session would get what this parser makes of it; "" where one might."""
    if opening.protocol != "completions" or layers.parts["parser"].id == _RAW:
        return ""
    return UNPARSED


def _is_bare(event: TokensInput) -> bool:
    """Its text is not known. Of an id that was not told (-1) there is none to be known: the text is all there is."""
    return not event.pieces and not event.text and any(token >= 0 for token in event.ids)


def _some(ids: Sequence[int]) -> str:
    return ", ".join([*map(str, ids[:5]), *["…"][: len(ids) > 5]])


def verbatim(trace: Trace) -> bool:
    """Nothing is recorded of what the model wrote, and nothing could have been."""
    upstream = trace.opening.upstream
    return upstream is not None and upstream.depth == "verbatim" and not _tokens(trace)


def _tokens(trace: Trace) -> list[TokensInput]:
    return [event for event in trace.events("input", "engine") if isinstance(event, TokensInput)]


def untold(trace: Trace, theirs: Track | None) -> str:
    """Why what the model wrote is not there at all; "" where it is, or where nothing was said."""
    if theirs is None or _tokens(trace):
        return ""
    said = any(isinstance(event, Reasoning | Content | Refusal | CallStart) for event in theirs.events)
    return "the response does not tell what the model wrote" if said else ""


def take(found: Finding, told: Told, checks: Checked | None) -> None:
    """Put a comparison, and what else was derived again, into a finding."""
    found.layers = {"message": told.verdict}
    found.verdict = told.verdict
    found.differences = told.differences
    found.first = told.first
    if checks is not None:
        add(found, checks)


def add(found: Finding, checks: Checked) -> None:
    """Put into a finding what the other server's layers show."""
    if checks.layers:
        found.layers = {**found.layers, **checks.layers}
        verdict = worst(*checks.layers.values())
        if checks.first is not None and worst(found.verdict, verdict) != found.verdict:
            found.first = checks.first
        found.first = found.first or checks.first
        found.verdict = worst(found.verdict, verdict)
    found.notes += checks.notes


def told_by_upstream(trace: Trace, theirs: Track) -> tuple[str, ...]:
    """What is to be known of an upstream's stream beside its message: its errors, with their frames; how many of its
    tokens are known."""
    notes: list[str] = []
    for event, cause in zip(theirs.events, theirs.causes, strict=True):
        if isinstance(event, Failure):
            place = _malformed(trace.events("upstream", "frame")) if event.code == "malformed_event" else cause
            where = f"at the upstream's frame {place}" if place >= 0 else "before any frame of the upstream's"
            notes.append(f"the stream has an error, {where}: {event.message} ({event.code or event.kind})")
    tokens = _tokens(trace)
    known = sum(len(event.ids) for event in tokens)
    counted = next((event.completion for event in reversed(theirs.events) if isinstance(event, Usage)), known)
    if all(event.ids for event in tokens) and 0 < known < counted:
        notes.append(f"the upstream tells {known} of its {counted} tokens")
    return tuple(notes)


def _malformed(frames: Sequence[Frame]) -> int:
    """The first frame with an event that is no JSON."""
    for seq, frame in enumerate(frames):
        if isinstance(frame, Block):
            for event in SseDecoder().feed(frame.data):
                if event.data.strip() != "[DONE]" and not isinstance(value_of(event.data), dict):
                    return seq
    return len(frames) - 1


def told_by_parser(opening: Opening, made: Track, said: Sequence[Difference]) -> tuple[str, ...]:
    """What is to be known of the parser's reading: what the model wrote wrong, which no server tells; and that a call
    may have been forced in another form."""
    faults = [code for message in collect(made.events) for code in message.faults]
    notes: tuple[str, ...] = (f"what the model wrote wrong, to the parser: {', '.join(faults)}",) if faults else ()
    choice = opening.ask.tool_choice
    if choice not in ("none", "auto") and any(item.kind == "call_added" for item in said):
        form = "a server may then have calls written as bare JSON, which is no call in the parser's format"
        notes += (f"the request forced a call (tool_choice {choice}): {form}",)
    return notes


def _upstream(session: Session, trace: Trace, theirs: Track) -> Other:
    clock = Clock(trace.records.get(("input", "engine"), ()))
    name = _name(session.layers.parts["parser"].id)
    cut, custom, opening = _cut(trace), session.custom, session.opening
    by_step = Track(theirs.events, theirs.causes, lambda: [clock.step_at(frame) for frame in theirs.causes])

    def judge(made: Track) -> Told:
        if custom.compare is None:
            sides = Sides(theirs, made, clock, name, opening.tokenizer, cut, session.foreign)
            return told_apart(sides, session.inputs, custom)
        named = opening.ask.named
        found = custom.compared(loose.bare(theirs.messages(named=named)), loose.bare(made.messages(named=named)))
        if not found:
            return Told("same")
        first = msgspec.structs.replace(message_place.place(session.inputs, by_step, made, found), track="upstream")
        return Told("changed", found, first)

    return Other(judge, by_step)


def _name(parser: str) -> str:
    """A parser's name, of the id of its stage."""
    return parser.removeprefix("parse.").partition("@")[0]


def _cut(trace: Trace) -> bool:
    """The stream was cut by somebody: it owes nothing that its server held back."""
    inputs: list[Input] = trace.events("input", "engine")
    return is_open(trace.info.state) or isinstance(inputs[-1] if inputs else None, ErrorInput | AbortInput)


def _digested(session: Session, track: str, want: Digest) -> Judge:
    """Of a shadow in a lean session: what gives the recorded digest stands for the record."""
    recorded: Track | None = None

    def judge(made: Track) -> Told:
        nonlocal recorded
        if recorded is not None:
            return _shadow(session, track, recorded, made)
        if codec.digest(made.events) != want:
            return _unlike(track)
        recorded = made
        return Told("same")

    return judge


def _shadow(session: Session, track: str, recorded: Track, made: Track) -> Told:
    if session.foreign:
        found = loose.compare(session, recorded, made, "message")
    else:
        none = Track([], [], [])
        found = compare(session, Derived(recorded, none, none), Derived(made, none, none), "message")
    first = found.first and msgspec.structs.replace(found.first, track=track)
    return Told(found.verdict, found.differences, first)


def _unlike(track: str) -> Told:
    detail = f"{track}/semantic: only a digest was recorded: which event differs is unknown"
    return Told(
        "changed", (), Divergence(layer="semantic", kind="unknown", seq=-1, cause=-1, detail=detail, track=track)
    )


def split_place(told: Told, split: str) -> Divergence | None:
    """The first difference under a split: seqs in a regrouped stream are not those of the record."""
    if not told.differences:
        return told.first and msgspec.structs.replace(told.first, split=split)
    item = message_place.worst_of(told.differences)
    return Divergence(
        layer="semantic", kind=item.kind, seq=-1, cause=item.step, choice=item.choice, split=split,
        detail=item.place or in_words(item), worst=item.kind, frame=item.frame,
        track="upstream" if item.place else "",
    )  # fmt: skip
