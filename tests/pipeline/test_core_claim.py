"""The core claim: live through channels ≡ fold ≡ replay ≡ the non-streaming answer, whatever the grouping."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay import Replayer, collect, derive
from stages import catalog
from stages.events import AbortInput, Block, Body, Comment, ErrorInput, Frame, Head, Input, Layer, Tick, TokensInput
from stages.opening import Opening
from stages.protocols.openai_chat import Accumulator
from stages.sse import SseDecoder
from stages.stage import Machine
from store import open_store
from tests.support.live import OUTPUTS, Taps, grouped, opening, run_live, tokens, whole

LAYERS: tuple[Layer, ...] = ("semantic", "chunk", "frame")
ASKS: tuple[dict[str, Any], ...] = (
    {},
    {"include_usage": True, "continuous_usage": True, "return_token_ids": True},
    {"stop": ("STOP", "day"), "logprobs": True, "top_logprobs": 1},
    {"parallel": False, "include_reasoning": False},
    {"tool_choice": "none"},
)


def sessions() -> list[tuple[Opening, list[Input]]]:
    """Sessions over all outputs, requests, policies and ends."""
    made: list[tuple[Opening, list[Input]]] = []
    asks = itertools.cycle(ASKS)
    for seed, (text, parser, calls) in enumerate(
        itertools.product(OUTPUTS, ("hermes", "plain"), ("incremental", "whole"))
    ):
        ask = next(asks)
        steps = tokens(text, seed, logprobs=bool(ask.get("logprobs")))
        made.append((opening(parser, calls=calls, **ask), whole([steps], seed)))
    many = [tokens(text, seed, choice=seed) for seed, text in enumerate(OUTPUTS[:4])]
    made.append((opening(n=4, include_usage=True), whole(many, 5)))
    made.append((opening(n=4, stream=False, logprobs=True), whole(many, 6, reason="length")))
    cut = whole([tokens(OUTPUTS[2], 3)], 7)[:30]
    ends: tuple[Input, ...] = (AbortInput("client"), AbortInput("shutdown"), ErrorInput("engine", "it broke"))
    made += [(opening(stream=stream), [*cut, Tick(), end]) for end in ends for stream in (True, False)]
    made.append((opening(), [ErrorInput("bad_request", "too long", "context_length_exceeded", "messages")]))
    made.append((opening(), [Tick(), ErrorInput("bad_request", "too long")]))
    return made


SESSIONS = sessions()


@pytest.mark.anyio
@pytest.mark.parametrize("channel_size", [0, 1, 7, 64])
async def test_live_is_fold(channel_size: int) -> None:
    for number, (opened, inputs) in enumerate(SESSIONS):
        folded = derive(opened, inputs)
        for largest in (1, 4, 300):
            taps = Taps()
            frames, _ = await run_live(opened, grouped(inputs, number, largest), channel_size=channel_size, writer=taps)
            assert taps.events("engine") == inputs
            for layer in LAYERS:
                track = folded.track(layer)
                assert taps.events(layer) == track.events
                assert taps.causes(layer) == track.causes
            assert frames == folded.frame.events


@pytest.mark.anyio
async def test_replay_is_live(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "sessions.db"))
    for number, (opened, inputs) in enumerate(SESSIONS):
        opened = msgspec.structs.replace(opened, session=f"{number:032x}")
        writer = store.writer(opened)
        await run_live(opened, grouped(inputs, number, 9), writer=writer)
        writer.close("aborted" if isinstance(inputs[-1], AbortInput) else "closed")
    store.flush()
    results = list(Replayer().replay_many(store.load(info.session) for info in store.sessions()))
    store.close()
    assert len(results) == len(SESSIONS)
    assert [result.first for result in results if result.verdict != "same"] == []


def test_the_answer_that_does_not_stream_is_the_collected_stream() -> None:
    for opened, inputs in SESSIONS:
        streaming = msgspec.structs.replace(
            opened, ask=msgspec.structs.replace(opened.ask, stream=True, include_usage=True)
        )
        once = msgspec.structs.replace(opened, ask=msgspec.structs.replace(opened.ask, stream=False))
        answer = derive(once, inputs).frame.events
        if isinstance(inputs[-1], AbortInput | ErrorInput):
            assert not any(isinstance(frame, Head) and frame.status == 200 for frame in answer)
            continue
        accumulator = Accumulator()
        for chunk in derive(streaming, inputs).chunk.events[:-1]:
            accumulator.add(chunk)
        head, body = answer
        assert isinstance(head, Head) and head.status == 200
        assert isinstance(body, Body) and body.data == accumulator.completion().wire()
        assert ("content-length", str(len(body.data))) in head.headers


def test_a_stream_is_one_event_a_block_and_ends_with_done() -> None:
    for opened, inputs in SESSIONS:
        frames = derive(opened, inputs).frame.events
        if not opened.ask.stream or isinstance(inputs[0], ErrorInput):
            continue
        assert isinstance(frames[0], Head) and frames[0].status == 200
        decoder = SseDecoder()
        events = [event for frame in frames[1:] for event in decoder.feed(_data(frame))]
        assert all(json.loads(event.data) for event in events if event.data != "[DONE]")
        ended_by_client = inputs[-1] == AbortInput("client")
        assert [event.data == "[DONE]" for event in events] == [False] * (len(events) - 1) + [not ended_by_client]


def _data(frame: Frame) -> bytes:
    assert isinstance(frame, Block | Comment)
    return frame.data


def test_every_stage_resumes_after_every_event() -> None:
    for opened, inputs in SESSIONS:
        layers = catalog.layers(opened)
        events: list[Any] = inputs
        for stage in (layers.semantic, layers.encoder, layers.framer):
            outputs: list[list[Any]] = []
            snapshots: list[Any] = []
            machine = stage.start(opened)
            for event in events:
                snapshots.append(machine.snapshot())
                step: list[Any] = []
                machine.step(event, step)
                outputs.append(step)
            for at, snapshot in enumerate(snapshots):
                resumed: Machine[Any, Any] = stage.resume(opened, snapshot)
                rest: list[Any] = []
                for event in events[at:]:
                    resumed.step(event, rest)
                assert rest == [made for step in outputs[at:] for made in step], (stage.id, at)
            events = [made for step in outputs for made in step]


def test_the_interleaving_of_choices_changes_no_choice() -> None:
    texts = OUTPUTS[:5]
    steps = [tokens(text, seed, choice=seed, logprobs=True) for seed, text in enumerate(texts)]
    asks: tuple[dict[str, Any], ...] = ({}, {"stop": ("day",)}, {"include_reasoning": False})
    for ask in asks:
        opened = opening(n=len(texts), logprobs=True, return_token_ids=True, **ask)
        seen: list[dict[tuple[str, int], list[Any]]] = []
        for seed in range(6):
            derived = derive(opened, whole(steps, seed))
            per: dict[tuple[str, int], list[Any]] = {}
            for event in derived.semantic.events:
                if hasattr(event, "choice"):
                    per.setdefault(("semantic", event.choice), []).append(event)
            for chunk in derived.chunk.events[:-1]:
                for choice in chunk.choices:
                    per.setdefault(("chunk", choice.index), []).append(choice)
            seen.append(per)
        assert len(seen[0]) == 2 * len(texts)
        assert all(per == seen[0] for per in seen[1:])


@given(st.text(max_size=60), st.lists(st.integers(1, 6), min_size=1, max_size=40), st.sampled_from(["plain", "hermes"]))
@settings(max_examples=60, deadline=None)
def test_grouping_tokens_into_steps_changes_no_message(text: str, sizes: list[int], parser: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    alone = tokens(f"<think>{text}</think>{text}", 1)
    opened = opening(parser)
    wanted = collect(derive(opened, whole([alone])).semantic.events)
    assert collect(derive(opened, whole([_joined(alone, sizes)])).semantic.events) == wanted


def _joined(steps: list[Any], sizes: list[int]) -> list[Input]:
    joined: list[Input] = []
    for size in itertools.cycle(sizes):
        part, steps = steps[:size], steps[size:]
        if not part:
            return joined
        ids = tuple(number for step in part for number in step.ids)
        joined.append(TokensInput(0, ids, tuple(piece for step in part for piece in step.pieces), ""))
    raise AssertionError("unreachable: sizes is not empty")
