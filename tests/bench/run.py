"""make bench: what a token costs, step by step. Prints a table and, with --json F, writes it.

Every figure is the median of several rounds in one run, in CPU µs of the process (all threads) per token unless said
otherwise. The first line is a bare skeleton of the three steps, so that figures of different machines can be compared
as ratios to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from pipeline.recorder import SessionRecorder
from pipeline.session import Session
from replay.derive import derive_layers
from stages import catalog
from stages.events import FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.opening import Opening
from stages.stage import fold
from store import open_store
from store.api import EventStore
from tests.bench.grammars import bench_grammars
from tests.bench.held import bench_held
from tests.bench.measure import TOKENS, Rows, per_token, pieces
from tests.bench.proxy import bench_proxy
from tests.bench.replay import bench_replay
from tests.bench.rules import bench_rules
from tests.support.live import ListStream, opening


def inputs(n: int, *, before: str = "") -> list[Input]:
    """One choice of n tokens, a token a step."""
    texts = [*([before] if before else ()), *pieces(n)]
    steps: list[Input] = [TokensInput(0, (abs(hash(text)) % 49000 + 1000,), (text.encode(),), text) for text in texts]
    return [PromptInput((1, 2, 3), "<|im_start|>assistant\n", 3), *steps, FinishInput(0, "eos", 311), UsageInput(3, n)]


# --- fold -----------------------------------------------------------------------------------------------------------


class _Text(msgspec.Struct, frozen=True, gc=False):
    text: str


class _Chunk(msgspec.Struct, frozen=True, gc=False):
    id: str
    choices: tuple[_Text, ...]


def skeleton(steps: list[Input]) -> list[bytes]:
    """The least that three steps can do: decode, wrap, encode."""
    encode = msgspec.json.Encoder().encode
    semantic = [_Text(step.pieces[0].decode()) for step in steps if type(step) is TokensInput]
    chunks = [_Chunk("chatcmpl-1", (event,)) for event in semantic]
    return [b"data: " + encode(chunk) + b"\n\n" for chunk in chunks]


def bench_fold(rows: Rows) -> None:
    """The pure part."""
    steps = inputs(TOKENS)
    rows.append(("bare skeleton of the three steps", per_token(lambda: skeleton(steps)), "µs/token"))
    for name, parser, given in (
        ("fold, plain content", "plain", steps),
        ("fold, hermes content", "hermes", steps),
        ("fold, hermes reasoning", "hermes", inputs(TOKENS, before="<think>")),
    ):
        opened = opening(parser)
        layers = catalog.layers(opened)
        rows.append((name, per_token(partial(folded, opened, given, layers)), "µs/token"))
    opened = opening("hermes")
    layers = catalog.layers(opened)
    semantic = derive_layers(opened, steps, layers).semantic.events
    chunks = derive_layers(opened, steps, layers).chunk.events
    for name, stage, events in (
        ("  of which parse (hermes)", layers.semantic, steps),
        ("  of which chunk", layers.encoder, semantic),
        ("  of which frame", layers.framer, chunks),
    ):
        rows.append((name, per_token(partial(_fold, stage, opened, events)), "µs/token"))


def _fold(stage: Any, opened: Opening, events: list[Any]) -> list[Any]:
    return fold(stage.start(opened), events)


def folded(opened: Opening, steps: list[Input], layers: catalog.Layers) -> list[Any]:
    """Parse, chunk and frame."""
    semantic = fold(layers.semantic.start(opened), steps)
    return fold(layers.framer.start(opened), fold(layers.encoder.start(opened), semantic))


# --- live -----------------------------------------------------------------------------------------------------------


AHEAD = "live, engine running ahead"
AWAITED = "live, every token awaited"
LOCKSTEP = "live, a token only when the last one's frame is read"


class Lockstep(ListStream):
    """Gives the next input only when the frame of the one before was read."""

    def __init__(self, groups: list[list[Input]]) -> None:
        super().__init__(groups[::-1])
        self._go = anyio.Event()

    def read(self) -> None:
        """A frame was read."""
        self._go.set()

    async def receive(self) -> list[Input]:
        if not self._groups:
            raise anyio.EndOfStream
        group = self._groups.pop()
        if type(group[0]) is TokensInput:
            await self._go.wait()
            self._go = anyio.Event()
        return group


async def _live(opened: Opening, steps: list[Input], store: EventStore | None, mode: str) -> None:
    size = 256 if mode == AHEAD else 1
    groups = [steps[i : i + size] for i in range(0, len(steps), size)]
    stream = Lockstep(groups) if mode == LOCKSTEP else ListStream(groups)
    writer = store.writer(opened) if store is not None else None
    recorder = SessionRecorder(writer, lambda: time.monotonic_ns() - start)
    start = time.monotonic_ns()
    session = Session(opened, catalog.layers(opened), stream, recorder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        async with session.frames as frames:
            async for _ in frames:
                if isinstance(stream, Lockstep):
                    stream.read()
    recorder.close("closed")


async def _bare_chain(n: int, hops: int = 4) -> None:
    """What the event loop and anyio's streams take by themselves: one item at a time through four channels."""

    async def carry(inbox: Any, outbox: Any) -> None:
        async with inbox, outbox:
            async for item in inbox:
                await outbox.send(item)

    ends = [anyio.create_memory_object_stream[int](2) for _ in range(hops)]
    async with anyio.create_task_group() as tasks:
        for (_, inbox), (outbox, _) in pairwise(ends):
            tasks.start_soon(carry, inbox, outbox)
        async with ends[0][0] as first, ends[-1][1] as last:
            for item in range(n):
                await first.send(item)
                await last.receive()


def _sessions() -> Iterator[Opening]:
    number = 0
    while True:
        number += 1
        yield msgspec.structs.replace(opening("hermes"), session=f"{number:032x}")


def bench_live(rows: Rows) -> None:
    """Through the channels, on the event loop that the server uses."""
    # Every step makes a frame: a line feed would be held back, and in lockstep nothing would follow it.
    steps = [step for step in inputs(TOKENS) if not (isinstance(step, TokensInput) and step.text.isspace())]
    fresh = _sessions()
    uvloop = {"use_uvloop": True}
    bare = per_token(lambda: anyio.run(_bare_chain, TOKENS, backend_options=uvloop))
    rows.append(("bare chain of four channels, an item at a time", bare, "µs/token"))
    for recording in (False, True):
        for mode in (AHEAD, AWAITED, LOCKSTEP):
            with tempfile.TemporaryDirectory() as folder:
                store = open_store(str(Path(folder) / "bench.db")) if recording else None

                def work(store: EventStore | None = store, mode: str = mode) -> None:
                    anyio.run(
                        lambda: _live(next(fresh), steps, store, mode),
                        backend_options={"use_uvloop": True},
                    )
                    if store is not None:
                        store.flush()

                work()
                rows.append((f"{mode}, {'recorded' if recording else 'not recorded'}", per_token(work), "µs/token"))
                if store is not None:
                    store.close()


# --- bytes ----------------------------------------------------------------------------------------------------------


def bench_bytes(rows: Rows, n: int = 500, sessions: int = 40) -> None:
    """What the store's file grows by."""
    steps = inputs(n)
    for mode in ("full", "lean"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.db"
            for opened in (next(found) for found in [_sessions()] for _ in range(sessions)):
                store = open_store(str(path))
                _record(store, opened, steps, mode)
                store.close()
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            rows.append((f"stored, {mode}, sessions of {n} tokens", size / n / sessions, "bytes/token"))


def _record(store: EventStore, opened: Opening, steps: list[Input], mode: Any) -> None:
    recorder = SessionRecorder(store.writer(opened, mode), iter(range(10**6, 10**12, 35_000_000)).__next__)
    derived = derive_layers(opened, steps, catalog.layers(opened))
    recorder.tap("input", "engine")(steps, [])
    for layer in ("semantic", "chunk", "frame"):
        track = derived.track(layer)
        recorder.tap("served", layer)(track.events, track.causes)
    recorder.close("closed")


# --- HTTP -----------------------------------------------------------------------------------------------------------


@contextmanager
def server(record: str, folder: str) -> Generator[str]:
    """A real server process with the scripted engine; gives its host:port."""
    script = Path(folder) / "script.json"
    script.write_text(json.dumps({"scripts": [{"steps": pieces(500)}]}))
    port = "18431"
    command = [
        sys.executable, "-m", "pipeline.cli", "serve", "--engine", "scripted", "--script", str(script), "--port", port,
        "--store", str(Path(folder) / f"{record}.db"), "--record", record,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Stop with" in line:
                    break
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


async def _client(address: str, body: bytes) -> int:
    host, _, port = address.partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        await stream.send(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        blocks = 0
        try:
            while True:
                blocks += (await stream.receive(1 << 16)).count(b"data: ")
        except anyio.EndOfStream:
            return blocks


async def _clients(address: str, clients: int, each: int) -> float:
    body = msgspec.json.encode({"stream": True, "messages": [{"role": "user", "content": "go"}]})
    counts: list[int] = []

    async def one() -> None:
        counts.extend([await _client(address, body) for _ in range(each)])

    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(one)
    assert min(counts) >= 500, counts
    return sum(counts) / (time.perf_counter() - start)


def bench_http(rows: Rows) -> None:
    """Tokens/s (wall) that leave a real server process for raw sockets; client and server share the machine."""
    for record in ("off", "full"):
        with tempfile.TemporaryDirectory() as folder, server(record, folder) as address:
            for clients, each in ((1, 10), (32, 2)):
                anyio.run(_clients, address, clients, 1)
                rates = [anyio.run(_clients, address, clients, each) for _ in range(5)]
                rows.append((f"HTTP, {clients} clients, record {record}", statistics.median(rates), "tokens/s"))


def main() -> None:
    """Run all and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument(
        "--only", choices=["fold", "grammars", "rules", "live", "bytes", "http", "proxy", "replay", "held"]
    )
    chosen = options.parse_args()
    rows: Rows = []
    parts = {
        "fold": bench_fold,
        "grammars": bench_grammars,
        "rules": bench_rules,
        "live": bench_live,
        "bytes": bench_bytes,
        "http": bench_http,
        "proxy": bench_proxy,
        "replay": bench_replay,
        "held": bench_held,
    }
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(rows)
    table = Table(box=None, header_style="dim")
    table.add_column("what")
    table.add_column("median", justify="right")
    table.add_column("unit")
    for what, value, unit in rows:
        table.add_row(what, f"{value:,.0f}" if value >= 100 else f"{value:.2f}", unit)
    Console().print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps([{"what": w, "value": v, "unit": u} for w, v, u in rows], indent=1))


if __name__ == "__main__":
    main()
