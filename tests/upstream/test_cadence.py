"""What a client sees in time is the same whether it is recorded or not."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from tests.support.proxies import proxied
from tests.support.server import PATIENCE
from tests.support.upstreams import STREAM, Peer, chunk, upstream, value

STEPS = 60


def step(number: int, *, ids: bool) -> bytes:
    choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
    told = {"token_ids": [number] if ids else None}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice | told]}
    return b"data: %b\n\n" % json.dumps(chunk).encode()


@pytest.mark.parametrize("depth", ["verbatim", "auto"])
@pytest.mark.parametrize("record", ["full", "off"])
def test_each_step_is_seen_before_the_next_one_is_made(tmp_path: Path, depth: str, record: str) -> None:
    """A recorder that waits for more, or for the disk, would wait for ever: another program holds the store's lock, and
    the upstream goes on when the client has seen what there is."""
    go = threading.Semaphore(0)

    def answer(peer: Peer) -> None:
        while True:
            asked = peer.asked()
            if asked.method != "POST":
                peer.send(value({}, 404))
                continue
            probes = asked.json.get("max_tokens") == 2
            peer.send(STREAM)
            for number in range(1 if probes else STEPS):
                assert probes or go.acquire(timeout=PATIENCE)
                peer.send(chunk(step(number, ids=b"return_token_ids" in asked.body)))
            peer.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    with upstream(answer) as server, proxied(tmp_path, server.url, "--depth", depth, "--record", record) as running:
        running.http.post("/v1/chat/completions", json={**body, "max_tokens": 2}).raise_for_status()
        lock = None if record == "off" else closing(sqlite3.connect(running.store, PATIENCE, isolation_level=None))
        with lock or nullcontext() as held:
            if held is not None:
                held.execute("begin immediate")
            with running.http.stream("POST", "/v1/chat/completions", json=body) as response:
                reads, seen = response.iter_raw(), b""
                for number in range(STEPS):
                    assert seen.count(b"word") == number
                    go.release()
                    while b"word%d " % number not in seen:
                        seen += next(reads)
                assert (seen + b"".join(reads)).endswith(b"data: [DONE]\n\n")
