"""Sessions to store: openings, batches of all layers, and what must come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stages.events import (
    Block,
    Content,
    Done,
    End,
    Finish,
    FinishInput,
    Head,
    PromptInput,
    Sent,
    Start,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.opening import Ask, EngineFacts, Opening, TokenizerFacts, Tool
from stages.protocols.openai_chat import ChatChunk
from store.api import Batch, Record, SessionWriter, Trace
from store.rules import Key

SECOND = 1_000_000_000
OPENED = 1_760_000_000 * SECOND

WORDS = tuple(
    "The licence of a program says what you may do with it : run it , study how it works , change it , and pass on "
    "copies , changed or not , so that whoever gets one may do the same in turn . Où est passé le thé 茶 ? 🌊 ".split(
        " "
    )
)


def opening(session: str = "0123456789abcdef0123456789abcdef", **fields: Any) -> Opening:
    """An opening with everything in it that is stored apart."""
    made = Opening(
        session=session,
        key="k" * 32,
        response_id="chatcmpl-1",
        created=OPENED // SECOND,
        opened=OPENED,
        model="demo-1",
        request=b'{"model":"demo-1","messages":[{"role":"user","content":"Tell me about licences"}],"stream":true}',
        ask=Ask(stream=True, tools=(Tool("tide", "High tide at a port", {"type": "object"}),)),
        parser="hermes",
        stages={"parser": "parse.hermes@1", "encoder": "chat@1", "framer": "sse@1"},
        engine=EngineFacts(kind="scripted", model="demo-1", versions={"playhead": "0.1.0"}),
        tokenizer=TokenizerFacts(special={"<|im_end|>": 311}, added={"<tool_call>": 300}, eos=(311,)),
    )
    return msgspec.structs.replace(made, **fields)


def words(n: int) -> list[str]:
    """``n`` pieces of real-looking text, each with its space."""
    return [WORDS[at % len(WORDS)] + " " for at in range(n)]


def chunk(text: str) -> ChatChunk:
    """A protocol's chunk with some content."""
    made = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": OPENED // SECOND,
        "model": "demo-1",
        "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}],
    }
    return msgspec.convert(made, ChatChunk)


def batches(pieces: Sequence[str], *, size: int = 1, step_ns: int = 10_000_000, start_ns: int = SECOND) -> list[Batch]:
    """A session of one choice that ends by itself, ``size`` tokens a step: batches of the four layers and the socket.

    The prompt is there at half of ``start_ns``, the first step at ``start_ns``, each other one ``step_ns`` later.
    """
    half = start_ns // 2
    made = [
        Batch("input", "engine", 0, half, [PromptInput((1, 2, 3), "<|im_start|>assistant\n", 3)]),
        Batch("served", "semantic", 0, half, [Start(0, 3)], [0]),
        Batch("served", "frame", 0, half, [Head(200, (("content-type", "text/event-stream"),))], [0]),
    ]
    at, place = start_ns, 0
    for first in range(0, len(pieces), size):
        some = pieces[first : first + size]
        inputs: list[Any] = []
        semantic: list[Any] = []
        for offset, text in enumerate(some):
            data = text.encode()
            ids = (1000 + (first + offset) % 97,)
            inputs.append(TokensInput(0, ids, (data,), text))
            semantic += [Tokens(0, ids), Content(0, text, (place, place + len(data)))]
            place += len(data)
        chunks = [chunk(text) for text in some]
        frames = [Block(b"data: " + msgspec.json.encode(chunk) + b"\n\n") for chunk in chunks]
        steps = range(first, first + len(some))
        made += [
            Batch("input", "engine", 1 + first, at, inputs),
            Batch("served", "semantic", 1 + 2 * first, at, semantic, [1 + step for step in steps for _ in range(2)]),
            Batch("served", "chunk", first, at + 1000, chunks, [2 + 2 * step for step in steps]),
            Batch("served", "frame", 1 + first, at + 2000, frames, [*steps]),
        ]
        at += step_ns
    return [*made, *_end(len(pieces), at)]


def _end(n: int, at: int) -> list[Batch]:
    return [
        Batch("input", "engine", 1 + n, at, [FinishInput(0, "eos", 311), UsageInput(3, n)]),
        Batch("served", "semantic", 1 + 2 * n, at, [Finish(0, "eos", 311), Usage(3, n), End()], [1 + n, 2 + n, 2 + n]),
        Batch("served", "chunk", n, at, [Done()], [2 + 2 * n]),
        Batch("served", "frame", 1 + n, at, [Block(b"data: [DONE]\n\n")], [n]),
        Batch("socket", "frame", 0, at, [Sent(2 + n, 100 * n)], [-1]),
    ]


def record(writer: SessionWriter, made: Iterable[Batch]) -> SessionWriter:
    """Append all of them."""
    for batch in made:
        writer.append(batch)
    return writer


def records(made: Iterable[Batch]) -> dict[Key, list[Record]]:
    """What a store gives back for batches without overlaps."""
    found: dict[Key, list[Record]] = {}
    for batch in made:
        causes = batch.causes or [-1] * len(batch.events)
        rows = zip(causes, batch.events, strict=True)
        found.setdefault((batch.track, batch.layer), []).extend(
            Record(seq, cause, batch.at, event) for seq, (cause, event) in enumerate(rows, batch.first_seq)
        )
    return found


def same(trace: Trace, opened: Opening, made: Iterable[Batch]) -> bool:
    """Whether a loaded session is the one that was recorded."""
    return trace.opening == opened and trace.records == records(made)
