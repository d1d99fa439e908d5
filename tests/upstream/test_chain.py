"""Playhead in front of Playhead: with the same session key nothing differs but the ids and times of a response."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from stages.events import FinishInput, PromptInput, TokensInput, UsageInput
from tests.support.proxies import bytes_of, post, proxied, session_of
from tests.support.server import MESSAGES, Running, serve

STEPS = [
    "<think>", "They", " mean", " Brest.", "</think>", "\n\n", "High tide", " is at ", "noon.",
    "<tool_call>", '\n{"name": "tide", ', '"arguments": {"port": "Brest"}}\n', "</tool_call>",
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
CHANGES = re.compile(rb'"(id|created|call_id)":("[^"]*"|\d+)')


def fixed(body: bytes) -> bytes:
    """Without what differs between two responses to one request."""
    return CHANGES.sub(rb'"\1":0', body)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    with serve(tmp_path_factory.mktemp("origin"), "--parser", "hermes", script=STEPS) as running:
        yield running


@pytest.fixture(scope="module")
def front(origin: Running, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    with proxied(tmp_path_factory.mktemp("front"), origin.address) as running:
        yield running


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"stream": True, "tools": TOOLS},
        {"stream": True, "n": 3},
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"stream": True, "logprobs": True, "top_logprobs": 2},
        {"stream": True, "return_token_ids": True},
        {"stream": True, "include_reasoning": False},
        {"stream": True, "stop": ["is at"]},
        {"stream": True, "tools": TOOLS, "tool_choice": "none", "include_metrics": False},
        {},
        {"n": 2, "tools": TOOLS},
        {"return_token_ids": True},
        {"logprobs": True},
    ],
    ids=str,
)
def test_the_same_bytes(origin: Running, front: Running, fields: dict[str, Any]) -> None:
    body = json.dumps({"model": origin.model, "messages": MESSAGES, **fields}).encode()
    direct = post(origin.address, "/v1/chat/completions", body)
    got = post(front.address, "/v1/chat/completions", body)
    assert (got.status, fixed(got.body)) == (200, fixed(direct.body))
    trace = session_of(front, got)
    assert bytes_of(trace, "served") == got.body
    facts = trace.opening.upstream
    assert facts is not None
    hidden = fields.get("include_reasoning") is False
    assert facts.depth == ("verbatim" if hidden else "tokens")
    assert facts.taken_out == ("" if hidden or "return_token_ids" in fields else "absent")


def test_what_is_recorded_of_the_tokens(origin: Running, front: Running) -> None:
    """The engine's inputs there are the inputs here, but for what a response does not tell."""
    body = json.dumps({"model": origin.model, "messages": MESSAGES, "stream": True, "n": 2}).encode()
    got = post(front.address, "/v1/chat/completions", body)
    ours = session_of(front, got).events("input", "engine")
    first = json.loads(got.body.partition(b"data: ")[2].partition(b"\n")[0])
    theirs = origin.recorded(first["id"]).events("input", "engine")

    def told(events: list[Any]) -> list[Any]:
        found: list[Any] = []
        for event in events:
            match event:
                case PromptInput():
                    found.append(("prompt", event.ids))
                case TokensInput() if event.ids:
                    found.append((event.choice, event.ids))
                case FinishInput():
                    found.append((event.choice, event.reason))
                case UsageInput():
                    found.append(("usage", event.prompt, event.completion))
                case _:
                    pass
        return found

    assert told(ours) == told(theirs)


def test_two_proxies_in_a_row(origin: Running, front: Running, tmp_path: Path) -> None:
    body = json.dumps({"model": origin.model, "messages": MESSAGES, "stream": True, "tools": TOOLS}).encode()
    direct = post(origin.address, "/v1/chat/completions", body)
    with proxied(tmp_path, front.address) as second:
        got = post(second.address, "/v1/chat/completions", body)
        trace = session_of(second, got)
    assert fixed(got.body) == fixed(direct.body)
    assert trace.opening.upstream is not None
    assert trace.opening.upstream.depth == "tokens"
