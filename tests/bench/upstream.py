"""A server to measure a proxy with: chats as vLLM streams them, a token a frame and a frame a write, on time.

``python -m tests.bench.upstream TOKENS.json PACE PORT``; the file has a list of ``[id, text]``. ``GET /sent/ID`` tells
when each frame of that response was written (unix ns). A server with an engine would use the cores that the proxy and
the clients need.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import uvloop

_EOS = 151645


class Script:
    """What every stream says. ``sent``: response → when its frames were written."""

    def __init__(self, path: Path, pace: float) -> None:
        self.tokens: list[tuple[int, str]] = [(number, text) for number, text in json.loads(path.read_text())]
        self.pace = pace
        self.sent: dict[str, list[int]] = {}
        self._count = itertools.count(1)

    def frames(self, asked: dict[str, Any]) -> tuple[str, list[bytes]]:
        """A response's id and its frames, in vLLM's form."""
        name = f"chatcmpl-{next(self._count):032x}"
        ids = asked.get("return_token_ids") is True
        tokens = self.tokens[: asked.get("max_tokens") or None]
        whole = len(tokens) == len(self.tokens)
        first = {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        made = [_frame(name, first, prompt_token_ids=[1, 2, 3] if ids else None)]
        for number, text in tokens:
            choice = {"delta": {"content": text}, "finish_reason": None, "token_ids": [number] if ids else None}
            made.append(_frame(name, choice))
        last: dict[str, Any] = {"delta": {}, "finish_reason": "stop" if whole else "length", "stop_reason": None}
        made.append(_frame(name, {**last, "token_ids": [_EOS] if ids and whole else None}))
        self.sent[name] = []
        return name, [*made, b"data: [DONE]\n\n"]


def _frame(name: str, choice: dict[str, Any], **more: Any) -> bytes:
    made = {"id": name, "object": "chat.completion.chunk", "created": 1760000000, "model": "bench"}
    choices = [{"index": 0, "logprobs": None, **choice}]
    return b"data: " + json.dumps({**made, "choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"


class Connection(asyncio.Protocol):
    """One client; requests come one after the other, and whole."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._read = b""
        self._closes = False
        self._transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Answer when the request is whole."""
        self._read += data
        head, gap, body = self._read.partition(b"\r\n\r\n")
        if not gap or len(body) < _length(head):
            return
        self._read = b""
        self._closes = b"connection: close" in head.lower()
        method, target = head.split(b" ", 2)[:2]
        if method == b"POST" and target == b"/v1/chat/completions":
            self._stream(json.loads(body))
        else:
            self._tell(target.decode())

    def _tell(self, target: str) -> None:
        """What is no chat: enough to be known as vLLM."""
        models = {"object": "list", "data": [{"id": "bench", "object": "model", "owned_by": "vllm"}]}
        known: dict[str, Any] = {"/version": {"version": "0.33.0"}, "/v1/models": models, "/health": {}}
        answer = self._script.sent.get(target.removeprefix("/sent/"), known.get(target))
        data = json.dumps(answer or {}).encode()
        status = b"404 Not Found" if answer is None else b"200 OK"
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (status, len(data)) + data)

    def _stream(self, asked: dict[str, Any]) -> None:
        name, frames = self._script.frames(asked)
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._transport.write(head)
        self._write(name, frames, 0, asyncio.get_running_loop().time())

    def _write(self, name: str, frames: list[bytes], at: int, begun: float) -> None:
        """A frame, and the next one in time. What is behind the last token comes with it."""
        if self._transport.is_closing():
            return
        frame = frames[at]
        self._script.sent[name].append(time.time_ns())
        self._transport.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        if at + 1 == len(frames):
            self._transport.write(b"0\r\n\r\n")
            if self._closes:
                self._transport.close()
            return
        loop = asyncio.get_running_loop()
        loop.call_at(begun + (at + 1) * self._script.pace, self._write, name, frames, at + 1, begun)


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


async def serve(script: Script, port: int) -> None:
    """Until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(script), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve."""
    path, pace, port = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Script(Path(path), float(pace)), int(port)))


if __name__ == "__main__":
    main()
