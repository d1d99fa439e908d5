"""Comments from acceptance to the end, over a real socket. (tests/pipeline/test_ticks.py: when exactly one is due.)"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from replay import Replayer
from stages.events import PrefillInput, Tick, TokensInput
from tests.support.server import Running, blocks, objects, serve

KEEP_ALIVE = ": keep-alive"
LONG = 12
PREFILL: list[Any] = [
    ["prompt", list(range(LONG)), "", LONG, 0],
    ["scheduled"],
    *[["prefill", at, at + 1] for at in range(LONG)],
    ["tokens", 0, [1], ["VHdv"], "Two", []],
    ["finish", 0, "eos", 1],
    ["usage", LONG, 1, 0],
]
HELD = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]


def kinds(wire: bytes) -> list[str]:
    """What each block is."""
    return ["comment" if block == KEEP_ALIVE else "data" for block in blocks(wire)]


@pytest.fixture(scope="module")
def prefill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An iteration of a long prefill every 0.1 s, then a word. The server's own interval is never reached."""
    with serve(tmp_path_factory.mktemp("prefill"), "--pace", "0.1", script=PREFILL) as running:
        yield running


def test_comments_through_a_long_prefill(prefill: Running) -> None:
    """The engine reports more often than comments are due, and the client hears nothing of that."""
    with prefill.stream(stream_options={"keep_alive": 0.25}) as wire:
        found = kinds(wire.rest())
    last = len(found) - 1 - found[::-1].index("comment")
    assert found[0] == "data"
    assert found[1 : last + 1] == ["comment"] * last
    assert last >= 3
    assert blocks(wire.read)[-1] == "data: [DONE]"
    trace = prefill.recorded(wire.id)
    inputs = trace.events("input", "engine")
    assert inputs.count(Tick()) == found.count("comment")
    assert sum(isinstance(event, PrefillInput) for event in inputs) == LONG
    assert Replayer().replay(trace).verdict == "same"


@pytest.mark.parametrize("asked", [{}, {"keep_alive": None}, {"keep_alive": 0}, {"keep_alive": 60}])
def test_a_request_without_an_interval_or_with_a_longer_one(prefill: Running, asked: dict[str, Any]) -> None:
    with prefill.stream(stream_options=asked) as wire:
        assert "comment" not in kinds(wire.rest())


def test_a_request_may_ask_for_silence(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", "0.3", "--keep-alive", "0.05", script=["Two ", "a day."]) as running:
        with running.stream(stream_options={"keep_alive": 0}) as wire:
            assert "comment" not in kinds(wire.rest())
        with running.stream(stream_options={"keep_alive": 60}) as wire:
            assert "comment" not in kinds(wire.rest())
        with running.stream(stream_options={"include_usage": True}) as wire:
            assert "comment" in kinds(wire.rest())


def test_comments_while_text_is_withheld(tmp_path: Path) -> None:
    """A call that only comes out whole: tokens arrive all the time."""
    script = [HELD[at : at + 4] for at in range(0, len(HELD), 4)]
    options = ("--pace", "0.05", "--keep-alive", "0.2", "--parser", "hermes", "--calls", "whole")
    with serve(tmp_path, *options, script=script) as running:
        with running.stream(tools=TOOLS) as wire:
            found = kinds(wire.rest())
        trace = running.recorded(wire.id)
    assert found[:3] == ["data", "comment", "comment"]
    calls = [call for chunk in objects(wire.read) for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(call["function"].get("arguments", "") for call in calls) == '{"port": "Brest"}'
    inputs = trace.events("input", "engine")
    between = inputs[inputs.index(Tick()) :][:8]
    assert any(isinstance(event, TokensInput) for event in between)


@pytest.mark.parametrize("bad", [-1, 3601, "15", True, [1]])
def test_an_interval_that_is_none(prefill: Running, bad: object) -> None:
    answer = prefill.post(stream=True, stream_options={"keep_alive": bad})
    assert answer.status_code == 400
    assert "keep_alive" in answer.json()["error"]["param"]


def test_a_request_cannot_ask_for_a_flood(prefill: Running) -> None:
    """Ten comments a second are the most."""
    with prefill.stream(stream_options={"keep_alive": 1e-9}) as wire:
        assert kinds(wire.rest()).count("comment") >= 5
    records = prefill.recorded(wire.id).records["input", "engine"]
    ticks = [record.at for record in records if record.event == Tick()]
    # The one clock that wakes is coarser than the other that is read.
    assert min(after - before for before, after in pairwise(ticks)) >= 98_000_000


def test_the_sdk_does_not_mind(prefill: Running) -> None:
    with prefill.client() as client:
        stream = prefill.create(client, stream=True, extra_body={"stream_options": {"keep_alive": 0.1}})
        texts = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert "".join(text or "" for text in texts) == "Two"
