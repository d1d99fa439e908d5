"""whereabouts: where the grammar stands at a place of what a choice wrote, and the marker there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from replay.derive import Track
from replay.evidence import literals_of
from replay.leaks import vocabulary
from stages import catalog
from stages.catalog import Layers
from stages.errors import UnknownName
from stages.events import CallEnd, CallStart, Input, Marker, TokensInput
from stages.opening import Opening
from stages.parse.lexicon import trie
from stages.parse.parser import Parser as OurParser
from stages.stage import Stage

_LIKE: Final = re.compile(r"<[^\s<>=\"'0-9]{1,40}>?|\[/?[A-Z_]{2,32}\]")
"""What markers look like, where the format is not known."""
_LONGEST: Final = 40
_STATES: Final[dict[str, str]] = {
    **dict.fromkeys(("lead", "second", "after", "answered", "between", "between_open"), "content"),
    **dict.fromkeys(("content_open", "ended"), "content"),
    **dict.fromkeys(("reasoning_lead", "label"), "reasoning"), "repair": "call: end", "skip": "call: broken",
}  # fmt: skip
"""Modes of our parsers that stand for one place of a message: what they tell apart is white space, or
whether a token that ends the turn was sent."""


class Place(msgspec.Struct, frozen=True):
    """``state``: where the parser stood right before, "" where nobody can tell; ``marker``: the one at the place, or
    else the last one before it."""

    state: str = ""
    marker: str = ""


NOWHERE: Final = Place()


def byte_of(track: Track, seq: int, choice: int) -> int | None:
    """Where the model wrote what an event says: a byte of the choice. Of an event that is not written, the last byte
    before it. None where the events of this track do not tell."""
    if not 0 <= seq < len(track.events):
        return None
    src = getattr(track.events[seq], "src", None)
    if src is not None and src[1]:
        start: int = src[0]
        return start
    for event in reversed(track.events[:seq]):
        src = getattr(event, "src", None)
        if src is not None and src[1] and event.choice == choice:
            end: int = src[1]
            return max(0, end - 1)
    return None


def place_of_byte(opening: Opening, layers: Layers, inputs: Sequence[Input], byte: int, choice: int) -> Place | None:
    """The place of a byte of what a choice wrote, whatever the steps in which it came; None beyond the end."""
    at = 0
    for seq, event in enumerate(inputs):
        if not isinstance(event, TokensInput) or event.choice != choice:
            continue
        size = _size(event)
        if byte < at + size:
            parts = _parts(event, byte - at, opening)
            before = [*inputs[:seq], *parts[:-1]]
            return place_of(opening, layers, [*before, parts[-1]], len(before), choice)
        at += size
    return None


def place_of(opening: Opening, layers: Layers, inputs: Sequence[Input], step: int, choice: int) -> Place:
    """The place right before an input; nowhere, where there is none."""
    if step < 0:
        return NOWHERE
    stage = _teller(opening, layers)
    state, events = _run(stage, opening, inputs[:step], choice)
    find = _finder(opening, stage, inputs, choice)
    inside = _inside(opening, inputs[step], choice, find) if step < len(inputs) else ""
    return Place(state, (inside or _last(events, inputs[:step], choice, find))[:_LONGEST])


def _size(event: TokensInput) -> int:
    return sum(map(len, event.pieces)) or len(event.text.encode("utf-8", "surrogatepass"))


def _parts(event: TokensInput, byte: int, opening: Opening) -> list[Input]:
    """The tokens of a step up to the one that holds a byte of it; of a text, what is before the byte and the rest."""
    if not event.pieces:
        data = event.text.encode("utf-8", "surrogatepass")
        before, rest = (part.decode("utf-8", "replace") for part in (data[:byte], data[byte:]))
        made: list[Input] = [msgspec.structs.replace(event, text=before)] if before else []
        return [*made, msgspec.structs.replace(event, text=rest)]
    known = vocabulary(opening.tokenizer)
    parts: list[Input] = []
    at = 0
    for number, piece in zip(event.ids, event.pieces, strict=False):
        token = TokensInput(event.choice, (number,), (piece,), "")
        cut = byte - at
        if cut < len(piece):
            if cut and number not in known.special and number not in known.added:
                # A token may end one part of a message and begin the next.
                parts.append(msgspec.structs.replace(token, pieces=(piece[:cut],)))
                token = msgspec.structs.replace(token, pieces=(piece[cut:],))
            return [*parts, token]
        parts.append(token)
        at += len(piece)
    return parts


# --- the parser -------------------------------------------------------------------------------------------------------


def _teller(opening: Opening, layers: Layers) -> Stage[Any, Any] | None:
    """The parser that can tell where it stands: the replaying one, or else the one of the record."""
    parser = layers.parts.get("parser")
    try:
        if parser is not None and callable(getattr(parser.start(opening), "state", None)):
            return parser
    except (Exception, SystemExit):  # a user's parser may raise anything
        pass
    try:
        return catalog.parser(opening.parser)
    except UnknownName:
        return None


def _run(
    stage: Stage[Any, Any] | None, opening: Opening, inputs: Iterable[Input], choice: int
) -> tuple[str, list[Any]]:
    """Where the stage stands after the inputs, and what it said of them."""
    out: list[Any] = []
    if stage is None:
        return "", out
    try:
        machine: Any = stage.start(opening)
        for event in inputs:
            machine.step(event, out)
        told: Any = machine.state(choice)
    except (Exception, SystemExit):  # a user's parser may raise anything
        return "", out
    if not isinstance(stage, OurParser):
        return (told[:_LONGEST] if isinstance(told, str) else ""), out
    mode = str(told).partition(":")[0]
    return f"call: {_part(out, choice)}" if mode == "call" else _STATES.get(mode, mode), out


def _part(events: Sequence[Any], choice: int) -> str:
    """The part of a call: what an engine of ours calls its states is finer, and differs from format to format."""
    for event in reversed(events):
        if isinstance(event, CallStart | CallEnd) and event.choice == choice:
            return "arguments" if isinstance(event, CallStart) else "header"
    return "header"


# --- the marker -------------------------------------------------------------------------------------------------------


def _finder(opening: Opening, stage: Stage[Any, Any] | None, inputs: Iterable[Input], choice: int) -> re.Pattern[str]:
    """Finds the literals of the format, and what the choice has of the vocabulary."""
    texts = {
        text
        for event in inputs
        if isinstance(event, TokensInput) and event.choice == choice
        for number in event.ids
        if (text := _text(opening, number))
    }
    if isinstance(stage, OurParser):
        ends = {text for text, number in opening.tokenizer.special.items() if number in opening.tokenizer.eos}
        texts.update(text for text in literals_of(stage.format, opening) if text not in ends)
        return re.compile(trie(sorted(texts), partial=False) if texts else "(?!)")
    return re.compile(f"{trie(sorted(texts), partial=False)}|{_LIKE.pattern}") if texts else _LIKE


def _text(opening: Opening, number: int) -> str:
    """The text of a token of the vocabulary, but for those that end the output: these are there or not by chance."""
    known = vocabulary(opening.tokenizer)
    text = known.special.get(number) or known.added.get(number)
    return "" if text is None or number in opening.tokenizer.eos else text


def _inside(opening: Opening, event: Input, choice: int, find: re.Pattern[str]) -> str:
    """The first marker in a step; of a text, the one that it begins with."""
    if not isinstance(event, TokensInput) or event.choice != choice:
        return ""
    if event.ids:
        return next((text for number in event.ids if (text := _text(opening, number))), "")
    found = find.match(event.text.lstrip())
    return "" if found is None else found[0]


def _last(events: Sequence[Any], inputs: Sequence[Input], choice: int, find: re.Pattern[str]) -> str:
    """The last marker: one that the parser still holds, or else one that it consumed."""
    own = [event for event in inputs if isinstance(event, TokensInput) and event.choice == choice]
    written = b"".join(b"".join(event.pieces) or event.text.encode("utf-8", "surrogatepass") for event in own)
    read = max((event.src[1] for event in events if _wrote(event, choice)), default=0)
    held = find.findall(written[read:].decode("utf-8", "replace"))
    if held:
        return str(held[-1])
    for event in reversed(events):
        if isinstance(event, Marker) and event.choice == choice:
            found = find.findall(event.text)
            if found:
                return str(found[-1])
    return ""


def _wrote(event: Any, choice: int) -> bool:
    return getattr(event, "src", None) is not None and event.choice == choice
