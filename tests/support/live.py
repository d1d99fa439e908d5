"""Run a session live over its channels, with inputs grouped as a test wants them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from pipeline.recorder import SessionRecorder
from pipeline.session import Session
from stages import catalog
from stages.events import (
    FinishInput,
    Frame,
    Input,
    Layer,
    PromptInput,
    ScheduledInput,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.opening import Ask, Opening, TokenizerFacts, Tool
from stages.stage import Stage
from store.api import Batch, SessionWriter

TOOLS = (Tool("tide", "the tide", {"type": "object", "properties": {"port": {"type": "string"}}}), Tool("moon"))
# A byte-level toy vocabulary: an id is a byte, markers and specials come after.
ADDED = {"<tool_call>": 300, "</tool_call>": 301, "<think>": 302, "</think>": 303}
SPECIAL = {"<|im_start|>": 310, "<|im_end|>": 311}
VOCABULARY = TokenizerFacts(special=SPECIAL, added=ADDED, eos=(311,))


def opening(
    parser: str = "hermes", *, tokenizer: TokenizerFacts = VOCABULARY, calls: str = "incremental", **ask: Any
) -> Opening:
    """An opening with two tools, streaming unless told otherwise."""
    wanted: dict[str, Any] = {"stream": True, "tools": TOOLS, **ask}
    # A call policy is a Literal; parametrized tests give a str.
    made = Opening(
        session="0" * 31 + "1", key="k" * 32, response_id="chatcmpl-1", created=1760000000, opened=1760000000 * 10**9,
        model="demo-1", ask=Ask(**wanted), parser=parser, tokenizer=tokenizer, calls=calls,  # type: ignore[arg-type]
    )  # fmt: skip
    return msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))


class ListStream:
    """An engine's stream that gives what it was told, group by group, and counts what was taken."""

    def __init__(self, groups: Sequence[list[Input]], *, endless: bool = False) -> None:
        self._groups = list(groups)
        self._endless = endless
        self.taken = 0
        self.aborted = False

    async def receive(self) -> list[Input]:
        """The next group; waits for ever after the last where ``endless``."""
        await anyio.lowlevel.checkpoint()
        if self.aborted:
            raise anyio.EndOfStream
        if not self._groups:
            if self._endless:
                await anyio.sleep_forever()
            raise anyio.EndOfStream
        group = self._groups.pop(0)
        self.taken += len(group)
        return group

    def abort(self) -> None:
        """See EngineStream."""
        self.aborted = True


class Taps:
    """A writer that keeps the batches in memory: what the taps saw."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.incomplete = False
        self.state: str | None = None

    def append(self, batch: Batch) -> None:
        """See SessionWriter."""
        self.batches.append(batch)

    def close(self, state: str) -> None:
        """See SessionWriter."""
        self.state = state

    def committed(self) -> Any:
        """Not asked for here."""
        raise NotImplementedError

    def events(self, layer: Layer) -> list[Any]:
        """All events of a layer; checks that the sequence numbers have no gap."""
        found: list[Any] = []
        for batch in self.batches:
            if batch.layer == layer and batch.track != "socket":
                assert batch.first_seq == len(found)
                found += batch.events
        return found

    def causes(self, layer: Layer) -> list[int]:
        """All causes of a layer."""
        return [cause for batch in self.batches if batch.layer == layer for cause in batch.causes]


async def drained(session: Session) -> list[Frame]:
    """All frames of a session that runs, read to the end."""
    frames: list[Frame] = []
    async with session.frames as reader:
        async for batch in reader:
            frames += batch
    return frames


async def run_live(
    opened: Opening,
    groups: Sequence[list[Input]],
    *,
    channel_size: int = 2,
    writer: SessionWriter | None = None,
    parser: Stage[Any, Any] | None = None,
) -> tuple[list[Frame], Session]:
    """Serve the groups through a session; returns its frames."""
    session = Session(
        opened, catalog.layers(opened, parser), ListStream(groups), SessionRecorder(writer, lambda: 0),
        channel_size=channel_size, keep_alive=0,
    )  # fmt: skip
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        frames += await drained(session)
    return frames, session


def grouped(inputs: Sequence[Input], seed: int, largest: int) -> list[list[Input]]:
    """The inputs in random groups of 1 to ``largest``."""
    rng = random.Random(seed)
    groups: list[list[Input]] = []
    at = 0
    while at < len(inputs):
        size = rng.randint(1, largest)
        groups.append(list(inputs[at : at + size]))
        at += size
    return groups


MARKERS = {**ADDED, **SPECIAL}
OUTPUTS = (
    "Two a day.\n",
    "<think>\nCount the tides — 潮の満ち引き.\n</think>\n\nTwo a day 🌊.",
    (
        'Checking.\n<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>\n<tool_call>\n'
        '{"name": "tide", "arguments": {"port": "Bré\\"st </tool_call>", "n": [1, {"a": null}]}}\n</tool_call>'
    ),
    "Wrap it in <tool_call> tags, <think> it over.",
    "<think>still musing",
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Br',
    '<tool_call>\n{"name": tide}\n</tool_call> sorry STOP here',
    "",
)
"""Outputs that take every turn of the hermes format."""


def tokens(text: str, seed: int, *, choice: int = 0, logprobs: bool = False, largest: int = 5) -> list[Input]:
    """A text as tokens: markers are ids, everything else is cut into 1 to ``largest`` bytes, characters or not."""
    rng = random.Random(seed)
    made: list[Input] = []
    pattern = "|".join(re.escape(marker) for marker in MARKERS)
    for part in re.split(f"({pattern})", text):
        if part in MARKERS:
            made.append(_token(MARKERS[part], part.encode(), choice, logprobs))
            continue
        data = part.encode()
        while data:
            size = rng.randint(1, largest)
            made.append(_token(data[0], data[:size], choice, logprobs))
            data = data[size:]
    return made


def _token(number: int, piece: bytes, choice: int, logprobs: bool) -> TokensInput:
    entries = (TokenLogprob(number, piece, -0.25, (TopLogprob(number, piece, -0.25),)),) if logprobs else ()
    return TokensInput(choice, (number,), (piece,), "", entries)


def whole(steps: Sequence[Sequence[Input]], seed: int = 0, *, reason: Any = "eos") -> list[Input]:
    """A whole session of one or more choices, their steps interleaved at random, each choice's in order."""
    rng = random.Random(seed)
    rest = [
        [*choice, FinishInput(number, reason, 311 if reason == "eos" else None)] for number, choice in enumerate(steps)
    ]
    mixed: list[Input] = []
    while any(rest):
        mixed.append(rng.choice([choice for choice in rest if choice]).pop(0))
    count = sum(len(choice) for choice in steps)
    return [PromptInput((1, 2, 3), "<|im_start|>assistant\n", 3), ScheduledInput(), *mixed, UsageInput(3, count)]
