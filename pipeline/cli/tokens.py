"""A session token by token: what the bytes of each became.

What another server made of them is told by its frames: what it sent with a step stands beside the step's first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import msgspec
from rich.console import Console

from pipeline.cli.rows import show_rows
from pipeline.cli.session_view import by_frame, made_of
from stages.alignment import Aligned, Part, align_session
from stages.events import TokensInput
from store.api import SHADOW, Trace


class _Token(msgspec.Struct, frozen=True):
    """``piece``: None where the engine does not tell; ``frame``: the one that brought it, with the first of them."""

    id: int
    piece: bytes | None
    frame: int


def show_tokens(console: Console, found: Trace) -> None:
    """A table for each choice: number, id, bytes, and what they became, by each track that tells."""
    inputs = found.events("input", "engine")
    tracks = [track for track, layer in found.records if layer == "semantic" and _is_ours(track)]
    upstream = found.records.get(("upstream", "semantic"), [])
    if not tracks and not upstream:
        console.print("The session was recorded without its semantic layer: replay it to see what its tokens became.")
        return
    aligned = {track: align_session(inputs, found.events(track, "semantic")) for track in tracks}
    told = by_frame(upstream, None, made_of)
    for choice, tokens in sorted(_tokens(found).items()):
        by_track = {track: made[choice] for track, made in aligned.items() if choice in made}
        if not by_track and not told:
            console.print(f"choice {choice}: the engine did not tell the bytes of its tokens.")
            continue
        _show(console, choice, tokens, by_track, told)


def _is_ours(track: str) -> bool:
    return track == "served" or track.startswith(SHADOW)


def _tokens(found: Trace) -> dict[int, list[_Token]]:
    tokens: dict[int, list[_Token]] = {}
    for record in found.records.get(("input", "engine"), ()):
        event = record.event
        if isinstance(event, TokensInput):
            known = len(event.pieces) == len(event.ids)
            for place, (number, piece) in enumerate(zip_longest(event.ids, event.pieces if known else ())):
                made = _Token(number, piece if known else None, -1 if place else record.cause)
                tokens.setdefault(event.choice, []).append(made)
    return tokens


def _show(
    console: Console, choice: int, tokens: list[_Token], by_track: dict[str, list[Aligned]], told: dict[int, str]
) -> None:
    written = b"".join(token.piece or b"" for token in tokens)
    heads = ["token", "id", "bytes", *("became" if track == "served" else track for track in by_track)]
    if told:
        heads += ["frame", "what the upstream made of the step"]
    rows = [
        (
            str(number), str(token.id), "" if token.piece is None else _shown(token.piece),
            *(_became(made[number], written) for made in by_track.values()),
            *((str(token.frame) if token.frame >= 0 else "", told.get(token.frame, "")) if told else ()),
        )
        for number, token in enumerate(tokens)
    ]  # fmt: skip
    show_rows(console, f"choice {choice}", heads, rows, right=2)


def _became(token: Aligned, written: bytes) -> str:
    return ", ".join(_named(token.parts, written))


def _named(parts: tuple[Part, ...], written: bytes) -> Iterator[str]:
    for part in parts:
        name = part.kind if part.call < 0 else f"{part.kind} of call {part.call}"
        yield f"{name} {_shown(written[slice(*part.src)])}" if len(parts) > 1 else name


def _shown(data: bytes) -> str:
    """As Python writes it: text where it is whole characters, else bytes."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)
