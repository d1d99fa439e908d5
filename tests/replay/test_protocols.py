"""Sessions of every protocol, replayed: the same at every layer through their own parser, and through another one what
it changes, in the same words whatever the protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer, against_served
from replay.cut import cuts
from replay.verdict import DEPTHS
from stages.catalog import PROTOCOLS
from stages.events import FinishInput, Input, PromptInput, Semantic, UsageInput
from stages.opening import Opening
from store import MemoryStore
from store.api import Trace
from tests.support.asgi import Exchange, serving
from tests.support.replay import opening, tokens
from tests.support.spoiled import session_of

WRITTEN = [["<think>", "Low ", "water.", "</think>", "\n\nTwo ", "a ", "day."]]
TURNS = [{"role": "user", "content": "When?"}]
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": TURNS},
    "completions": {"prompt": "When?", "max_tokens": 50},
    "responses": {"input": "When?"},
    "messages": {"messages": TURNS, "max_tokens": 50},
}


async def _session(protocol: str, *, stream: bool) -> MemoryStore:
    """A store with one session."""
    store = MemoryStore()
    body = json.dumps({**ASKED[protocol], "stream": stream}).encode()
    async with serving(store, ScriptedEngine(WRITTEN), parser="qwen3") as server:
        exchange = await Exchange(body, path=PROTOCOLS[protocol].path).run(server)
    assert exchange.status == 200
    return store


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_is_the_same_at_every_layer(protocol: str, stream: bool) -> None:
    store = await _session(protocol, stream=stream)
    [info] = store.sessions()
    trace = store.load(info.session)
    for layer in DEPTHS:
        result = Replayer(layer=layer).replay(trace)
        assert (result.verdict, result.differences) == ("same", ()), layer


@pytest.mark.anyio
async def test_no_parser_is_held_against_a_completion() -> None:
    """It is served as it was written, whatever the parser; two parsers can be compared over it."""
    store = await _session("completions", stream=True)
    [info] = store.sessions()
    trace = store.load(info.session)
    for parser in ("hermes", "qwen3", "auto"):
        result = Replayer(parser, splits=("recorded", "one"), cut=True).replay(trace)
        assert (result.verdict, result.layers, result.differences) == ("uncompared", {}, ())
        assert "a completion is what the model wrote" in result.uncompared
    assert Replayer("plain").replay(trace).verdict == "same"
    both = Replayer("qwen3", baseline="plain").replay(trace)
    assert ("reasoning", "Low water.") in {(item.field, item.replayed) for item in both.differences}
    shadow = Trace(
        opening=trace.opening, info=trace.info,
        records={**trace.records, ("shadow:hermes", "semantic"): trace.records["served", "semantic"]},
    )  # fmt: skip
    assert "a completion is what the model wrote" in str(against_served(shadow, "shadow:hermes"))


class _Watched:
    """The inputs that a parser is given."""

    id = "watched@1"

    def __init__(self) -> None:
        self.seen: list[Input] = []

    def start(self, opening: Opening) -> _Watched:
        return self

    def resume(self, opening: Opening, snapshot: object) -> _Watched:
        raise NotImplementedError

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.seen.append(event)

    def snapshot(self) -> object:
        raise NotImplementedError


def test_a_cut_ends_all_choices_of_all_prompts() -> None:
    watched = _Watched()
    written = tokens("ab", 0) + tokens("cd", 3)
    inputs = [PromptInput((1,), "", 5, 2), PromptInput((1, 2), "", 7, 1), *written]
    session = session_of(watched, inputs, opening("s", parser="plain", n=4, prompts=2))
    cuts(session)
    ends = [event for event in watched.seen if isinstance(event, FinishInput)]
    assert ends[:4] == [FinishInput(choice, "length") for choice in range(4)]
    usages = [event for event in watched.seen if isinstance(event, UsageInput)]
    assert usages[0] == UsageInput(12, 0, 3)
    assert usages[-1] == UsageInput(12, len(written), 3)


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "completions"])
async def test_what_another_parser_changes_is_named(protocol: str) -> None:
    store = await _session(protocol, stream=True)
    [info] = store.sessions()
    result = Replayer("plain", layer="frame").replay(store.load(info.session))
    assert result.verdict == "changed"
    assert {(item.field, item.recorded) for item in result.differences} == {
        ("reasoning", "Low water."), ("content", "Two a day."),
    }  # fmt: skip
