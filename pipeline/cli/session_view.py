"""A session on a terminal: what is known of it, and its layers event by event; of another server's, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from itertools import groupby
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from pipeline.cli.rows import show_rows
from pipeline.cli.view import plain
from replay import Told, against_served
from replay.text import tag, written
from stages.events import (
    Block,
    Body,
    CallArguments,
    CallStart,
    Comment,
    Content,
    Failure,
    Fault,
    Finish,
    Head,
    Layer,
    Marker,
    PromptInput,
    Reasoning,
    Refusal,
    TokensInput,
    ToldInput,
    Usage,
)
from stages.opening import Ask, Opening, UpstreamFacts
from store.api import SHADOW, Record, SessionInfo, Trace

_LONGEST = 200
_NAMED = 5
"""Names of tools that are shown of a list."""


def show_session(console: Console, found: Trace, layer: Layer | None) -> None:
    """What is known of it and its layers; of one that another server generated, what that server's frames hold beside
    what was made of them, unless one layer is asked for."""
    describe(console, found)
    if layer is None and found.opening.upstream is not None:
        _side_by_side(console, found)
        return
    for (track, of), records in found.records.items():
        if layer is None or of == layer:
            rows = [
                ("" if record.cause < 0 else str(record.cause), f"{record.at / 1e6:.1f}", event_line(record.event))
                for record in records
            ]
            numbered = [(str(record.seq), *row) for record, row in zip(records, rows, strict=True)]
            show_rows(console, f"{track} / {of}", ("seq", "cause", "ms", "event"), numbered, right=3)


def describe(console: Console, found: Trace) -> None:
    """The session's state, stages, upstream, rules and messages, and what shadows make of it."""
    info = found.info
    console.print(Text.assemble((info.session, "bold"), f"  {info.state}  {info.model}  {when(info.opened)}"))
    if found.opening.upstream is not None:
        for line in _upstream(found.opening.upstream, bool(found.events("upstream", "frame"))):
            console.print(Text(line))
    if found.opening.conversation:
        console.print(Text(_conversation(found.opening)))
    wanted = ", ".join(_wanted(found.opening.ask))
    if wanted:
        held = (
            "a grammar held the output to it" if found.opening.ask.constrained else "no grammar of ours held it to that"
        )
        console.print(Text(f"asked for: {wanted}; {held}"))
    console.print(Text("stages: " + "  ".join(f"{k}={v}" for k, v in found.opening.stages.items()), "dim"))
    if info.validated:
        console.print(Text("rules: " + (_rules(info) or "none broken"), "yellow" if info.rules else "green"))
    for index, message in enumerate(info.message):
        console.print(Text(f"choice {index}: {msgspec.json.encode(message).decode()}"))
    for track in dict.fromkeys(track for track, _ in found.records if track.startswith(SHADOW)):
        _shadow(console, track, against_served(found, track))


def when(ns: int) -> str:
    """A moment (unix ns) in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ns / 1e9))


def _conversation(opening: Opening) -> str:
    """The stored conversation that a session belongs to, and what was done to it."""
    line = f"conversation: {opening.conversation}"
    return line if opening.answers else plain(f"{line}  done to it: {opening.request.decode('utf-8', 'replace')}")


def _wanted(ask: Ask) -> Iterator[str]:
    """What the request asked of the form of the output."""
    if ask.tool_choice != "none" and ask.tools:
        if ask.function is not None:
            yield f"a call of {_names([ask.function])}"
        elif ask.tool_choice == "required":
            yield f"a call{f' of {_names(ask.allowed)}' if ask.allowed else ''}"
        strict = [tool.name for tool in ask.tools if tool.strict]
        if strict:
            yield f"arguments by the schema (strict) of {_names(strict)}"
    if ask.answer is not None:
        yield "content by a JSON schema" if ask.answer else "a JSON object as content"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return plain(f"{', '.join(name[:64] for name in names[:_NAMED])}{more}")


def _rules(info: SessionInfo) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in info.rules.items())
    return f"{counts} ({info.rule_errors} of them errors)" if counts else ""


def _upstream(facts: UpstreamFacts, answered: bool) -> Iterator[str]:
    """``answered``: something came of it."""
    relayed = "relayed: the client got its own response" if answered else "it did not answer"
    made = "its answer was translated" if facts.depth == "verbatim" else "its output was parsed here"
    how = relayed if facts.relayed else made
    yield f"upstream: {facts.name}  {facts.url}{facts.path}  {how}"
    known = {
        "tokens": "the model's tokens are known", "text": "the model's raw text is known",
        "verbatim": "only what the upstream made of the model's text is known",
    }  # fmt: skip
    why = f" ({facts.why})" if facts.why else ""
    yield f"depth: {facts.depth}: {known[facts.depth]}{why}"
    if facts.protocol:
        yield f"asked in the protocol {facts.protocol}, which is not the client's, and translated"
    if facts.lost:
        yield f"the upstream was not told: {', '.join(facts.lost)}"
    if facts.taken_out:
        left = "null stands in their place" if facts.taken_out == "null" else "they have no key there"
        yield f"token ids were asked for, and taken out of what the client got: {left}"


def _shadow(console: Console, track: str, told: Told | str) -> None:
    if isinstance(told, str):
        console.print(Text(f"{track}: uncompared: {told}"))
        return
    console.print(Text(f"{track}: {told.verdict}", "" if told.verdict == "same" else "yellow"))
    for item in told.differences[:1]:
        line = item.place or f"{item.field}: {item.recorded!r} → {item.replayed!r}"
        more = f" (and {len(told.differences) - 1} more: playhead replay)" if len(told.differences) > 1 else ""
        console.print(Text(f"  {item.kind.replace('_', ' ')}: {plain(line)}{more}"))


# --- side by side -----------------------------------------------------------------------------------------------------


def _side_by_side(console: Console, found: Trace) -> None:
    """A row for each frame of the upstream: what the model wrote, what the upstream made of it, what shadows do."""
    frames = found.records.get(("upstream", "frame"), [])
    inputs = found.records.get(("input", "engine"), [])
    causes = [record.cause for record in inputs]
    columns: list[tuple[str, dict[int, str]]] = [("the model wrote", by_frame(inputs, None, _wrote))]
    made = found.records.get(("upstream", "semantic"), [])
    columns.append(("the upstream made of it", by_frame(made, None, made_of)))
    for (track, layer), records in found.records.items():
        if layer == "semantic" and (track.startswith(SHADOW) or track == "served"):
            columns.append((track if track != "served" else "served", by_frame(records, causes, made_of)))
    columns = [(name, cells) for name, cells in columns if any(cells.values())]
    numbers = range(-1 if any(-1 in cells for _, cells in columns) else 0, len(frames))
    rows = [
        (
            str(seq) if seq >= 0 else "", f"{frames[seq].at / 1e6:.1f}" if seq >= 0 else "",
            _frame(frames[seq].event) if seq >= 0 else "", *(cells.get(seq, "") for _, cells in columns),
        )
        for seq in numbers
    ]  # fmt: skip
    heads = ("frame", "ms", "of", *(name for name, _ in columns))
    show_rows(console, "upstream's frames", heads, rows, right=2)
    console.print(Text("each layer by itself: --layer engine, semantic, frame", "dim"))


def by_frame(
    records: Iterable[Record], steps: list[int] | None, said: Callable[[Iterable[Any]], str]
) -> dict[int, str]:
    """The words for the records of each frame. ``steps``: the frames of the inputs that are their causes."""

    def frame(record: Record) -> int:
        if steps is None:
            return record.cause
        return steps[record.cause] if 0 <= record.cause < len(steps) else -1

    return {seq: said([record.event for record in group]) for seq, group in groupby(records, key=frame)}


def _frame(event: Any) -> str:
    match event:
        case Head():
            return f"head {event.status}"
        case Block() | Body() | Comment():
            return f"{tag(event)} {len(event.data)}"
        case _:
            return tag(event)


def _wrote(events: Iterable[Any]) -> str:
    words: list[str] = []
    for event in events:
        match event:
            case TokensInput():
                text = written(event)
                ids = " ".join(map(str, event.ids[:4])) + (" …" if len(event.ids) > 4 else "")
                words.append(f"{repr(text) if text or not event.ids else ids}{_of(event.choice)}")
            case PromptInput():
                words.append(f"prompt {event.count}")
            case ToldInput():
                words.append(f"told {made_of([event.event])}".rstrip())
            case _:
                words.append(_short(event))
    return "  ".join(words)


def made_of(events: Iterable[Any]) -> str:
    """Semantic events on one line: what clients see, markers and faults."""
    words: list[str] = []
    for kind, group in groupby(events, key=type):
        for event in _joined(kind, list(group)):
            match event:
                case Reasoning() | Content() | Refusal() | Marker():
                    words.append(f"{tag(event)} {_cut(event.text)}{_of(event.choice)}")
                case CallStart():
                    words.append(f"call {event.index} {event.name}{_of(event.choice)}")
                case CallArguments():
                    words.append(f"arguments {_cut(event.text)}{_of(event.choice)}")
                case Fault():
                    words.append(f"fault {event.code.value}")
                case Finish():
                    words.append(f"finish {event.reason}{_of(event.choice)}")
                case Usage() | Failure():
                    words.append(_short(event))
                case _:
                    pass
    return "  ".join(words)


def _joined(kind: type, events: list[Any]) -> list[Any]:
    """Neighbouring pieces of one text as one."""
    if kind not in (Reasoning, Content, Refusal, Marker, CallArguments):
        return events
    found: list[Any] = []
    for _, group in groupby(events, key=lambda event: (event.choice, getattr(event, "index", -1))):
        pieces = list(group)
        found.append(msgspec.structs.replace(pieces[0], text="".join(piece.text for piece in pieces)))
    return found


def _of(choice: int) -> str:
    return f" of choice {choice}" if choice else ""


def _cut(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}…"


def _short(event: Any) -> str:
    return f"{tag(event)} {' '.join(_fields(event))}".rstrip()


# --- events -----------------------------------------------------------------------------------------------------------


def event_line(event: Any) -> str:
    """An event as one of a layer."""
    data = getattr(event, "data", None)
    if isinstance(data, bytes):
        return f"{type(event).__name__}: {data.decode('utf-8', 'replace').rstrip()}"
    wire = getattr(event, "wire", None)
    if wire is not None:
        try:
            return str(wire().decode())
        except UnicodeEncodeError:  # an unpaired surrogate, which no JSON can hold
            pass
    return f"{type(event).__name__} {' '.join(_fields(event))}".rstrip()


def _fields(event: Any) -> Iterator[str]:
    """What an event says beyond its defaults."""
    for name, default in _defaults(event.__class__):
        value = getattr(event, name)
        if value != default and value not in (None, ()):
            yield f"{name}={value.value if isinstance(value, Enum) else repr(value)}"


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind))
