"""The loop thread, over a backend whose every forward pass a test can hold and count."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import pytest

from pipeline.engines.base import DEAD, FAILED, SHUTDOWN, EngineRequest, Sampling
from pipeline.engines.loop import EngineLoop
from pipeline.engines.stream import UNREAD
from stages.errors import RequestError
from stages.events import (
    Echo,
    ErrorInput,
    FinishInput,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    TokenLogprob,
    TokensInput,
    UsageInput,
)
from tests.support.counter import CHUNK, PROMPT, Counter, counted, refuse_the_last, running
from tests.support.engines import ask, drain, ids

pytestmark = pytest.mark.anyio


async def test_the_inputs_of_a_request_in_order() -> None:
    async with running(Counter()) as loop:
        inputs = await drain(loop.submit(ask(max_tokens=3)))
    assert inputs[:5] == [
        PromptInput(tuple(range(PROMPT)), "tail", PROMPT),
        ScheduledInput(),
        PrefillInput(0, 2),
        PrefillInput(2, 4),
        PrefillInput(4, 6),
    ]
    assert ids(inputs) == [0, 1, 2]
    assert inputs[-2:] == [FinishInput(0, "length"), UsageInput(PROMPT, 3)]
    assert loop.steps == 3 + 3


async def test_requests_share_iterations_and_a_prefill_takes_one_chunk_of_each() -> None:
    gate = threading.Semaphore(0)
    backend = Counter(gate=gate)
    backend.prepare_hook = refuse_the_last
    async with running(backend) as loop:
        first = loop.submit(ask(session="a", max_tokens=20))
        gate.release(PROMPT // CHUNK + 2)
        await counted(backend.begun, PROMPT // CHUNK + 3)
        others = [loop.submit(ask(session=name, max_tokens=4)) for name in "bc"]
        await collect_from(loop, ask(session="last"))
        gate.release(1000)
        for stream in (first, *others):
            await drain(stream)
    after = "".join(backend.passes[PROMPT // CHUNK + 2 :])
    # One pass of a was under way. Then an iteration is one token of each live choice and one chunk of one prefill:
    # b's three chunks first, then c's beside b's tokens.
    assert after.startswith("a" + "ababab" + "abcabcabc" + "abcac")


def raw(*prompts: str, n: int = 1, **fields: Any) -> EngineRequest:
    """Prompts of digits, which are their ids."""
    sampling = Sampling(max_tokens=fields.pop("max_tokens", 2))
    return EngineRequest(
        session="s", conversation=None, sampling=sampling, prompts=prompts, n=n * len(prompts), **fields
    )


async def test_prompts_are_admitted_together_and_worked_on_one_after_the_other() -> None:
    seen: list[Input] = []

    def watch(event: Input) -> str | None:
        seen.append(event)
        # The first choice of the second prompt stops on its first token.
        return "!" if isinstance(event, TokensInput) and event.choice == 2 else None

    async with running(Counter()) as loop:
        inputs = await drain(loop.submit(raw("123", "45", n=2, echo=True, watch=watch)))
    assert [event for event in inputs if not isinstance(event, TokensInput)] == [
        PromptInput((1, 2, 3), "tail", 3),
        PromptInput((4, 5), "tail", 2),
        ScheduledInput(),
        PrefillInput(0, 2),
        PrefillInput(2, 3),
        Echo(0, "123"),
        FinishInput(0, "length"),
        FinishInput(1, "length"),
        PrefillInput(0, 2),
        Echo(1, "45"),
        FinishInput(2, "stop", "!"),
        FinishInput(3, "length"),
        UsageInput(5, 2 + 2 + 1 + 2),
    ]
    assert [event.choice for event in inputs if isinstance(event, TokensInput)] == [0, 1, 0, 1, 2, 3, 3]
    # The watch is told all of it, in order.
    assert seen == inputs


async def test_a_prompt_alone_is_told_back_and_nothing_is_written() -> None:
    async with running(Counter()) as loop:
        inputs = await drain(loop.submit(raw("123", "4", n=2, echo=True, logprobs=0, max_tokens=0)))
        assert loop.steps == 2 + 1
    two, three = (TokenLogprob(token, b"%d" % token, -0.5) for token in (2, 3))
    assert [event for event in inputs if isinstance(event, Echo)] == [
        Echo(0, "123", b"1", (two, three)),
        Echo(1, "4", b"4"),
    ]
    assert [event.choice for event in inputs if isinstance(event, FinishInput)] == [0, 1, 2, 3]
    assert inputs[-1] == UsageInput(4, 0)


async def test_abort_stops_within_one_step_and_releases_the_request() -> None:
    gate = threading.Semaphore(0)
    backend = Counter(gate=gate)
    async with running(backend) as loop:
        stream = loop.submit(ask())
        gate.release(10)
        await counted(backend.made, 10)
        stream.abort()
        gate.release(100)
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        # The loop serves on. Ten passes were made, and one may have begun when the abort came.
        assert isinstance((await collect_from(loop, ask(session="next", max_tokens=9)))[-1], UsageInput)
        assert backend.passes.count("s") in (10, 11)
        assert loop.live <= 1  # "next" itself leaves after its reader has seen its end


async def collect_from(loop: EngineLoop, request: EngineRequest) -> list[Input]:
    return await drain(loop.submit(request))


async def test_abort_before_admission_and_while_waiting_for_a_place() -> None:
    gate = threading.Semaphore(0)
    backend = Counter(gate=gate)
    async with running(backend, max_live=1) as loop:
        first, second, third = (loop.submit(ask(session=name, max_tokens=2)) for name in "abc")
        third.abort()
        assert isinstance((await second.receive())[0], PromptInput)
        second.abort()
        gate.release(1000)
        assert isinstance((await drain(first))[-1], UsageInput)
    assert set(backend.passes) == {"a"}


async def test_no_more_than_max_live_are_worked_on() -> None:
    backend = Counter()
    async with running(backend, max_live=1) as loop:
        streams = [loop.submit(ask(session=name, max_tokens=2)) for name in "ab"]
        for stream in streams:
            assert isinstance((await drain(stream))[-1], UsageInput)
    assert "".join(backend.passes) == "aaaaabbbbb"


async def test_a_slow_reader_is_left_out_of_the_steps_until_it_reads() -> None:
    backend = Counter()
    async with running(backend) as loop:
        slow = loop.submit(ask(session="slow", max_tokens=1000))
        quick = await collect_from(loop, ask(session="quick", max_tokens=2000))
        assert len(ids(quick)) == 2000
        before = backend.passes.count("slow")
        assert UNREAD - 10 <= before <= UNREAD + 10
        inputs = await slow.receive()
        assert len(inputs) <= UNREAD + 10
        inputs += await drain(slow)
        assert ids(inputs) == [index % 9 for index in range(1000)]


async def test_one_failing_request_beside_a_healthy_one(caplog: pytest.LogCaptureFixture) -> None:
    backend = Counter()

    def fail(session: str) -> None:
        if session == "bad" and backend.passes.count("bad") == 5:
            raise RuntimeError("out of memory")

    backend.step_hook = fail
    async with running(backend) as loop:
        bad, good = [loop.submit(ask(session=name, max_tokens=20)) for name in ("bad", "good")]
        found = await drain(bad)
        assert ids(found) == [0]
        assert found[-1] == FAILED
        assert ids(await drain(good)) == [index % 9 for index in range(20)]
        assert loop.alive
    assert [record.name for record in caplog.records] == ["playhead.engine"]
    assert caplog.records[0].exc_info is not None


async def test_admission_refuses_and_fails_one_request_alone() -> None:
    def check(request: EngineRequest) -> None:
        if request.session == "refused":
            raise RequestError("too long", param="messages", code="context_length_exceeded")
        if request.session == "broken":
            raise KeyError("x")

    backend = Counter()
    backend.prepare_hook = check
    async with running(backend) as loop:
        assert await collect_from(loop, ask(session="refused")) == [
            ErrorInput("bad_request", "too long", "context_length_exceeded", "messages")
        ]
        assert await collect_from(loop, ask(session="broken")) == [FAILED]
        assert isinstance((await collect_from(loop, ask(max_tokens=1)))[-1], UsageInput)
        assert loop.live == 0


async def test_watch_sees_every_input_in_order_and_ends_its_choice_on_that_step() -> None:
    seen: list[Input] = []

    def watch(event: Input) -> str | None:
        seen.append(event)
        return "STOP" if getattr(event, "text", "") == "4" and getattr(event, "choice", 0) == 1 else None

    async with running(Counter()) as loop:
        inputs = await collect_from(loop, ask(n=2, max_tokens=7, watch=watch))
    assert seen == inputs
    assert ids(inputs, 0) == [0, 1, 2, 3, 4, 5, 6]
    assert ids(inputs, 1) == [0, 1, 2, 3, 4]
    at = inputs.index(FinishInput(1, "stop", "STOP"))
    assert getattr(inputs[at - 1], "text", "") == "4"
    assert inputs[-1] == UsageInput(PROMPT, 12)


async def test_a_watch_that_raises_fails_its_request_alone() -> None:
    def watch(event: Input) -> str | None:
        if getattr(event, "text", "") == "2":
            raise ValueError
        return None

    async with running(Counter()) as loop:
        streams = [loop.submit(ask(max_tokens=5, watch=watch)), loop.submit(ask(max_tokens=5))]
        assert (await drain(streams[0]))[-1] == FAILED
        assert isinstance((await drain(streams[1]))[-1], UsageInput)


async def test_stop_token_ids_and_context() -> None:
    async with running(Counter(context=PROMPT + 4)) as loop:
        stopped = await collect_from(loop, ask(stop_token_ids=(2,)))
        assert ids(stopped) == [0, 1, 2]
        assert stopped[-2] == FinishInput(0, "stop_token", 2)
        full = await collect_from(loop, ask())
        assert ids(full) == [0, 1, 2, 3]
        assert full[-2] == FinishInput(0, "context")


async def test_leaving_ends_what_runs_and_what_waits() -> None:
    gate = threading.Semaphore(0)
    async with running(Counter(gate=gate), max_live=1) as loop:
        streams = [loop.submit(ask(session=name)) for name in "ab"]
        gate.release(5)
        for stream in streams:
            assert isinstance((await stream.receive())[0], PromptInput)
    for stream in streams:
        assert (await drain(stream))[-1] == SHUTDOWN
    assert await drain(loop.submit(ask())) == [DEAD]


async def test_a_dead_loop_fails_everything_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    backend = Counter()

    def die(session: str) -> None:
        if session == "fatal":
            raise SystemExit("not one request's failure")

    async with running(backend) as loop:
        other = loop.submit(ask(session="other"))
        await other.receive()
        backend.step_hook = die
        fatal = loop.submit(ask(session="fatal"))
        assert (await drain(fatal))[-1] == DEAD
        assert (await drain(other))[-1] == DEAD
        assert not loop.alive
        assert await drain(loop.submit(ask())) == [DEAD]
    assert caplog.records[-1].levelno == logging.CRITICAL


async def test_many_requests_side_by_side_are_all_served() -> None:
    backend = Counter()

    async with running(backend, max_live=4) as loop:
        streams = [loop.submit(ask(session=str(index), n=1 + index % 3, max_tokens=index)) for index in range(1, 30)]
        for index, stream in enumerate(streams, 1):
            inputs = await drain(stream)
            assert inputs[-1] == UsageInput(PROMPT, index * (1 + index % 3))
