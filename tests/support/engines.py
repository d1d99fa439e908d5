"""Asking an engine for inputs, and reading them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio

from pipeline.engines.base import Conversation, Engine, EngineRequest, EngineStream, Sampling, Watch
from stages.constraint import Constraint
from stages.events import Input, TokensInput

CONTEXT = 160
"""Tokens that the real model is given room for."""


def conversation(text: str = "Name three rivers.", **fields: Any) -> Conversation:
    """One user message."""
    return Conversation(messages=({"role": "user", "content": text},), **fields)


def ask(
    text: str = "Name three rivers.",
    *,
    session: str = "s",
    n: int = 1,
    logprobs: int | None = None,
    watch: Watch | None = None,
    constraint: Constraint | None = None,
    **sampling: Any,
) -> EngineRequest:
    """A request with one user message; what is left over goes to Sampling."""
    return EngineRequest(
        session=session,
        conversation=conversation(text),
        sampling=Sampling(**sampling),
        n=n,
        logprobs=logprobs,
        watch=watch,
        constraint=constraint,
    )


async def drain(stream: EngineStream) -> list[Input]:
    """All that a stream still gives."""
    inputs: list[Input] = []
    while True:
        try:
            inputs += await stream.receive()
        except anyio.EndOfStream:
            return inputs


async def collect(engine: Engine, request: EngineRequest) -> list[Input]:
    """All inputs of a request."""
    return await drain(engine.submit(request))


async def collect_all(engine: Engine, requests: Iterable[EngineRequest]) -> list[list[Input]]:
    """All inputs of several requests that run side by side, in the requests' order."""
    streams = [engine.submit(request) for request in requests]
    found: list[list[Input]] = [[] for _ in streams]

    async def read(index: int) -> None:
        found[index] = await drain(streams[index])

    async with anyio.create_task_group() as tasks:
        for index in range(len(streams)):
            tasks.start_soon(read, index)
    return found


def tokens(inputs: Iterable[Input], choice: int = 0) -> list[TokensInput]:
    """A choice's TokensInputs."""
    return [event for event in inputs if isinstance(event, TokensInput) and event.choice == choice]


def ids(inputs: Iterable[Input], choice: int = 0) -> list[int]:
    """A choice's token ids, end token included."""
    return [token for event in tokens(inputs, choice) for token in event.ids]


def written(inputs: Iterable[Input], choice: int = 0) -> bytes:
    """The bytes that a choice wrote."""
    return b"".join(piece for event in tokens(inputs, choice) for piece in event.pieces)
