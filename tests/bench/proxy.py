"""What the recording proxy costs, in front of a scripted server that writes as real ones do: a token at a time.

Upstream, proxy and clients are processes of their own, on the same cores. CPU is that of the proxy's process, all
threads, whatever a request costs included, divided by the frames that passed. The time of a frame is that between its
writing by the upstream and its arrival at the client; what a proxy adds is the difference to the same run without one.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from store import open_store
from store.api import EventStore
from tests.bench.measure import Rows, pieces
from tests.peers import models
from tests.support.oracle_vocabularies import qwen3

STREAMS = 100
RATE = 50
TOKENS = 250
ROUNDS = 3
SETTLES = 2.0
"""Seconds after which all is written that a run leaves to write."""
MODES: dict[str, tuple[str, ...]] = {
    "nothing recorded": ("--record", "off"),
    "recorded as it is": ("--depth", "verbatim"),
    "recorded with token ids": ("--shadow", "none"),
    "with token ids and a shadow": (),
    "our parser's response": ("--parser", "hermes", "--shadow", "none"),
}
BARE = "bare forwarding"


class Server(NamedTuple):
    """A process that listens. ``store``: where it records, if its responses' ids are its own."""

    pid: int
    port: int
    store: Path | None = None


class Run(NamedTuple):
    """``cpu``: µs a frame; ``delays``: ms a frame; ``first``: median ms from the request to the second frame, the first
    with text."""

    cpu: float
    delays: list[float]
    first: float


def bench_proxy(rows: Rows) -> None:
    """Several rounds of every mode in turn, so that what else the machine does meets all alike."""
    found: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        upstream = stack.enter_context(_upstream(folder))
        servers = {"": upstream, BARE: stack.enter_context(_bare(upstream))}
        for mode, options in MODES.items():
            servers[mode] = stack.enter_context(_proxy(folder, upstream, mode, options))
        for server in servers.values():
            _load(server, 4)
        for _ in range(ROUNDS):
            for mode, server in servers.items():
                found.setdefault(mode, []).append(_run(server, upstream))
    rows.extend(_table(found))


def _table(found: dict[str, list[Run]]) -> Rows:
    cpu = {mode: statistics.median(run.cpu for run in runs) for mode, runs in found.items() if mode}
    rows: Rows = [(f"proxy, {mode}", value, "CPU µs/frame") for mode, value in cpu.items()]
    rows += [
        (f"proxy, {mode}, on top of bare", value - cpu[BARE], "CPU µs/frame")
        for mode, value in cpu.items()
        if mode != BARE
    ]
    for part, text in ((50, "p50"), (99, "p99")):
        direct = _part(found[""], part)
        rows.append((f"time of a frame without a proxy, {text}", direct, "ms"))
        rows += [
            (f"added by the proxy, {mode}, {text}", _part(runs, part) - direct, "ms")
            for mode, runs in found.items() if mode
        ]  # fmt: skip
    direct = statistics.median(run.first for run in found[""])
    rows += [
        (f"added to the first token, {mode}", statistics.median(run.first for run in runs) - direct, "ms")
        for mode, runs in found.items() if mode
    ]  # fmt: skip
    return rows


def _part(runs: list[Run], part: int) -> float:
    """Median over the runs of a percentile of theirs."""
    return statistics.median(statistics.quantiles(run.delays, n=100)[part - 1] for run in runs)


# --- one run ---------------------------------------------------------------------------------------------------------


def _run(server: Server, upstream: Server) -> Run:
    before = _cpu(server.pid)
    streams = _load(server, STREAMS)
    time.sleep(SETTLES)
    frames = sum(len(stream["came"]) for stream in streams)
    cpu = (_cpu(server.pid) - before) * 1e6 / frames
    delays = [delay for stream in streams for delay in _delays(stream, server, upstream)]
    first = statistics.median((stream["came"][1] - stream["asked"]) / 1e6 for stream in streams)
    return Run(cpu, delays, first)


@contextmanager
def _opened(path: Path) -> Generator[EventStore]:
    store = open_store(str(path), create=False)
    try:
        yield store
    finally:
        store.close()


def _delays(stream: dict[str, Any], server: Server, upstream: Server) -> list[float]:
    """ms between the writing of each frame and its arrival. Where the response is the proxy's own, its record has the
    upstream's id."""
    name: str = stream["id"]
    if server.store is not None:
        with _opened(server.store) as store:
            blocks = store.load(name.removeprefix("chatcmpl-")).events("upstream", "frame")
            name = json.loads(blocks[1].data.removeprefix(b"data: "))["id"]
    sent: list[int] = httpx2.get(f"http://127.0.0.1:{upstream.port}/sent/{name}").json()
    assert len(sent) == len(stream["came"]), (len(sent), len(stream["came"]))
    return [(came - at) / 1e6 for came, at in zip(stream["came"], sent, strict=True)]


def _load(server: Server, streams: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.bench.load", str(server.port), str(streams), "bench"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _cpu(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used, as Linux tells."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- servers ---------------------------------------------------------------------------------------------------------


@contextmanager
def _upstream(folder: Path) -> Generator[Server]:
    tokens = qwen3().tokens("".join(pieces(2 * TOKENS)))[:TOKENS]
    script = folder / "tokens.json"
    script.write_text(json.dumps([[number, piece.decode()] for number, piece in tokens]))
    models.write(folder / "model")
    with _listening("-m", "tests.bench.upstream", str(script), str(1 / RATE), port=_free()) as server:
        yield server


@contextmanager
def _proxy(folder: Path, upstream: Server, mode: str, options: tuple[str, ...]) -> Generator[Server]:
    where = f"http://127.0.0.1:{upstream.port}"
    store = ("--store", str(folder / f"{mode.replace(' ', '-')}.db"), "--tokenizer", str(folder / "model"))
    serve = ("-m", "pipeline.cli", "serve", "--engine", "upstream", "--upstream", where, *store, *options, "--port")
    with _listening(*serve, port=_free()) as server:
        yield server._replace(store=Path(store[1])) if "--parser" in options else server


@contextmanager
def _bare(upstream: Server) -> Generator[Server]:
    with _listening("-m", "tests.bench.bare", f"http://127.0.0.1:{upstream.port}", port=_free()) as server:
        yield server


@contextmanager
def _listening(*command: str, port: int) -> Generator[Server]:
    """A Python process with the port as its last argument, once it answers."""
    with subprocess.Popen(
        [sys.executable, *command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    httpx2.get(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                except httpx2.TransportError:
                    assert process.poll() is None and time.monotonic() < until, command
                    time.sleep(0.1)
            yield Server(process.pid, port)
        finally:
            process.terminate()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
