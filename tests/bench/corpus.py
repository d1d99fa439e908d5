"""A corpus for mass replay: a store of many sessions of about 500 tokens.

    python -m tests.bench.corpus corpus.db --sessions 100000 --distinct 2000 --changed 3000

So many ``distinct`` messages are made, from the generators of all families and from the captures, and derived by the
stages that serve. The other sessions say the same again, under ids of their own: the store holds each whole, with hash
chains of its own, as a recorded one. ``changed``: so many were recorded by stages that spoil a character of what they
say, so that a replay finds them changed.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.recorder import SessionRecorder
from replay.derive import Assemble, derive_layers
from replay.resolve import Parser
from stages import catalog
from stages.catalog import Layers
from stages.events import Content, FinishInput, Input, Layer, PromptInput, Reasoning, TokensInput, UsageInput
from stages.opening import Ask, Opening, TokenizerFacts, Tool
from stages.upstream.asked import asked
from store import block, open_store, opening
from store.api import EventStore, Mode
from store.sqlite_rows import insert_message, insert_segments, insert_session, load_opening, select_sessions
from tests.bench.measure import pieces
from tests.support.captures import Capture, captures
from tests.support.generate import families
from tests.support.generate.family import Family, tokenize
from tests.support.generate.message import Invocation, Meant
from tests.support.parse import grouped, session
from tests.support.replay import every, one_character, spoiled
from tests.support.vocabularies import vocabulary

TOKENS = 500
_WORDS = pieces(20_000)
_TOOLS = (
    Tool("tide", "High tide at a port", {"type": "object", "properties": {"code": {"type": "string"}}}),
    Tool("moon", "Phase of the moon"),
)
_SECOND = 10**9


def _words(dice: random.Random, n: int) -> str:
    at = dice.randrange(len(_WORDS) - n)
    return "".join(_WORDS[at : at + n]).strip() or "so"


def _meant(family: Family, dice: random.Random) -> Meant:
    """About TOKENS tokens: reasoning, an answer, perhaps calls."""
    size = dice.randint(TOKENS * 2 // 3, TOKENS * 2)
    thinks = family.limits.reasoning and dice.random() < 0.7
    calls = min(dice.choice((0, 1, 1, 2)), family.limits.calls)
    reasoning = _words(dice, size // 3) if thinks else None
    parts: list[str | Invocation] = []
    if family.limits.before or not calls:
        parts.append(_words(dice, size // 3))
    for _ in range(calls):
        code = _words(dice, size // 4 // calls)
        parts.append(Invocation(dice.choice(("tide", "moon")), {"code": code, "day": dice.randint(1, 31)}))
    return Meant(reasoning, tuple(parts))


def _generated(family: Family, number: int) -> tuple[Opening, list[Input]]:
    dice = random.Random(f"corpus {number}")
    kind = "plain" if "plain" in family.tails else next(iter(family.tails))
    tokens = tokenize(family.output(_meant(family, dice), dice, kind), family.tokenizer, 4)
    made = _opening(number, family.format.name, family.tokenizer, Ask(stream=True, tools=_TOOLS))
    return made, session(grouped(tokens, [1] * len(tokens)), tail=family.tails[kind])


def _captured(capture: Capture, number: int) -> tuple[Opening, list[Input]]:
    """What the engine of a capture said, step by step."""
    assert capture.script is not None
    assert capture.engine is not None
    kept = vocabulary(capture.script.vocabulary)
    facts = TokenizerFacts(special=kept.special, added=kept.added, eos=kept.eos)
    ask = msgspec.structs.replace(asked(capture.protocol, json.dumps(capture.request).encode()), stream=True)
    tail = b"".join(kept.piece(token) for token in capture.engine.prompt_ids[-40:]).decode("utf-8", "ignore")
    inputs: list[Input] = [PromptInput(capture.engine.prompt_ids, tail, capture.engine.prompt or 0)]
    steps = {choice: iter(capture.steps_of(choice)) for choice in capture.engine.choices}
    for choice, _ in capture.script.steps:
        ids = next(steps[choice])
        inputs.append(TokensInput(choice, ids, tuple(kept.piece(token) for token in ids), ""))
    inputs += [FinishInput(choice, "eos") for choice in capture.engine.choices]
    inputs.append(UsageInput(capture.engine.prompt or 0, sum(len(ids) for ids in map(_ids, inputs))))
    return _opening(number, capture.parser or "plain", facts, ask), inputs


def _ids(event: Input) -> tuple[int, ...]:
    return event.ids if isinstance(event, TokensInput) else ()


def _opening(number: int, parser: str, tokenizer: TokenizerFacts, ask: Ask) -> Opening:
    made = Opening(
        session=f"{number:032x}", key=f"{number:032x}", response_id=f"chatcmpl-{number:x}", created=1760000000 + number,
        opened=(1760000000 + number) * _SECOND, model=parser, parser=parser, ask=ask, tokenizer=tokenizer,
    )  # fmt: skip
    return msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))


def sources(distinct: int) -> Iterator[tuple[Opening, list[Input]]]:
    """So many sessions, each with another message: those of the captures first, then the families in turn."""
    number = 0
    for capture in captures().values():
        if capture.script is not None and capture.engine is not None and capture.protocol == "chat":
            if number < distinct:
                yield _captured(capture, number)
            number += 1
    kinds = families()
    for at in range(number, distinct):
        yield _generated(kinds[at % len(kinds)], at)


def _spoil(opened: Opening, parser: Parser | None = None) -> Layers:
    """The stages that serve, but for a wrong first character in each piece of text."""
    picks = every(lambda event: isinstance(event, Content | Reasoning), one_character)
    return spoiled("semantic", picks)(opened, parser)


def _record(store: EventStore, opened: Opening, inputs: list[Input], mode: Mode, assemble: Assemble) -> None:
    """As the server records."""
    recorder = SessionRecorder(store.writer(opened, mode), iter(range(10**6, 10**15, 25_000_000)).__next__)
    derived = derive_layers(opened, inputs, assemble(opened, None))
    recorder.tap("input", "engine")(inputs, [])
    layers: tuple[Layer, ...] = ("semantic", "chunk", "frame")
    for layer in layers:
        track = derived.track(layer)
        recorder.tap("served", layer)(track.events, track.causes)
    recorder.close("closed")


def make(path: Path, sessions: int, distinct: int = 2_000, changed: int = 0, mode: Mode = "full") -> None:
    """Make the store; about ``changed`` of the sessions are so. ``path``: no file yet."""
    distinct = min(distinct, sessions)
    wrong = round(distinct * changed / sessions)
    store = open_store(str(path))
    for number, (opened, inputs) in enumerate(sources(distinct)):
        # From the end: those of the captures, at the beginning, may be too short to have any text.
        assemble = _spoil if number >= distinct - wrong else catalog.layers
        _record(store, opened, inputs, mode, assemble)
        if number % 100 == 99:
            store.flush()
    store.close()
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA synchronous=OFF")
    with conn:
        _copy(conn, distinct, sessions)
    conn.close()


def _copy(conn: sqlite3.Connection, distinct: int, sessions: int) -> None:
    """The same sessions again, under other ids, until there are so many."""
    squeeze = block.Packer()
    for stored in select_sessions(conn, tail="ORDER BY s.opened"):
        name = stored.info.session
        opened = load_opening(conn, name)
        rows = conn.execute(
            "SELECT track, layer, first_seq, epoch, flags, n, schema, codec, crc32, body FROM segments WHERE session=? "
            "ORDER BY track, layer, first_seq", (name,),
        ).fetchall()  # fmt: skip
        for number in range(int(name, 16) + distinct, sessions, distinct):
            mine = f"{number:032x}"
            again = msgspec.structs.replace(opened, session=mine, opened=opened.opened + number * _SECOND)
            info = msgspec.structs.replace(stored.info, session=mine, opened=again.opened)
            row = insert_session(conn, info, None, opening.pack(again, {}), squeeze)
            insert_message(conn, row, info)
            insert_segments(conn, _linked(mine, rows))


def _linked(session: str, rows: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    """Segments of another session as this one's: with its own hash chain."""
    heads: dict[tuple[str, Layer], bytes] = {}
    for track, layer, first, epoch, flags, n, schema, codec, crc32, body in rows:
        head = heads.get((track, layer)) or block.seed(session, track, layer)
        after = heads[track, layer] = block.link(head, body)
        yield [session, track, layer, first, epoch, head, after, flags, n, schema, codec, crc32, body]


def main() -> None:
    """Make one, and say what it is."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("path", type=Path)
    options.add_argument("--sessions", type=int, default=100_000)
    options.add_argument("--distinct", type=int, default=2_000)
    options.add_argument("--changed", type=int, default=0)
    options.add_argument("--mode", choices=("full", "lean"), default="full")
    given = options.parse_args()
    begun = time.monotonic()
    make(given.path, given.sessions, given.distinct, given.changed, given.mode)
    size = given.path.stat().st_size / 1e6
    print(f"{given.sessions} sessions, {size:,.0f} MB, in {time.monotonic() - begun:.0f} s: {given.path}")


if __name__ == "__main__":
    main()
