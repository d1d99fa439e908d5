"""Record sessions in a program of your own, without a server.

    python examples/record.py sessions.db "When is high tide?" "And low tide?"

Each question becomes a session in the store. The engine here is the scripted one; HfEngine() runs a real model.

Commands are in ``.venv/bin``: ``. .venv/bin/activate``, or write ``.venv/bin/python``.
"""

import json
import sys
from functools import partial

import anyio

from pipeline.config import Config
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http import plans
from pipeline.http.app import Server
from pipeline.recorder import Recorder
from stages.events import Block
from store import open_store


async def ask(server: Server, question: str) -> None:
    """Run one session to its end. What it would have sent to a client comes as frames; here they are printed."""
    request = {"messages": [{"role": "user", "content": question}], "stream": True}
    body = json.dumps(request).encode()
    session = server.session("chat", plans.plan("chat", body, server.model), body)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        async with session.frames as frames:
            async for batch in frames:
                for frame in batch:
                    if isinstance(frame, Block):
                        print(frame.data.decode(), end="")
    session.recorder.close("closed")


async def main(path: str, questions: list[str]) -> None:
    """An engine, a store, and between them a server that has no socket."""
    store = open_store(path)
    async with ScriptedEngine() as engine, anyio.create_task_group() as tasks:
        server = Server(Config(), engine, Recorder(store))
        for question in questions:
            tasks.start_soon(ask, server, question)
    store.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python examples/record.py STORE QUESTION...")
    anyio.run(partial(main, sys.argv[1], sys.argv[2:]))
