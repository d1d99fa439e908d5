"""The scripted engine: what it plays, how requests shape it, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from pipeline.engines.base import DEAD, FAILED, SHUTDOWN, EngineRequest, Sampling
from pipeline.engines.scripted import BATCH, ScriptedEngine
from pipeline.engines.scripts import Scripts, Step
from pipeline.engines.toy import CHATML, ToyTokenizer, rendered
from stages.errors import RequestError
from stages.events import (
    Echo,
    ErrorInput,
    FinishInput,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    Tick,
    TokensInput,
    UsageInput,
)
from tests.support.engines import ask, collect, collect_all, conversation, drain, ids, tokens, written

pytestmark = pytest.mark.anyio

TOY = ToyTokenizer()
EOS = TOY.eos


async def play(steps: Sequence[Step], **asked: Any) -> list[Input]:
    """All inputs of one request to an engine with one script."""
    async with ScriptedEngine([steps]) as engine:
        return await collect(engine, ask(**asked))


async def test_the_inputs_of_a_request_in_order() -> None:
    inputs = await play(["Hello", " world"])
    prompt = "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n"
    count = len(TOY.encode(prompt))
    hello, world = TOY.token(b"Hello"), TOY.token(b" world")
    assert inputs == [
        PromptInput(tuple(token for token, _ in TOY.encode(prompt)), prompt, count),
        ScheduledInput(),
        PrefillInput(0, count),
        TokensInput(0, (hello,), (b"Hello",), "Hello"),
        TokensInput(0, (world,), (b" world",), " world"),
        TokensInput(0, (EOS,), (b"<|im_end|>",), ""),
        FinishInput(0, "eos", EOS),
        UsageInput(count, 3),
    ]


def raw(*prompts: Any, n: int = 1, **fields: Any) -> EngineRequest:
    """A request with raw prompts; what EngineRequest does not have goes to Sampling."""
    own = {name: fields.pop(name) for name in ("echo", "logprobs", "watch") if name in fields}
    return EngineRequest(
        session="s", conversation=None, sampling=Sampling(**fields), prompts=prompts, n=n * len(prompts), **own
    )


async def test_several_raw_prompts() -> None:
    async with ScriptedEngine([["a"], ["b"], ["c"], ["d"]]) as engine:
        inputs = await collect(engine, raw("Tides?", (84, 256), n=2, echo=True))
    tide, rest = TOY.token(b"Tide"), TOY.token(b"s?")
    assert inputs[:7] == [
        PromptInput((tide, rest), "Tides?", 2),
        PromptInput((84, 256), "T<|im_start|>", 2),
        ScheduledInput(),
        PrefillInput(0, 2),
        PrefillInput(0, 2),
        Echo(0, "Tides?"),
        Echo(1, "T<|im_start|>"),
    ]
    assert [written(inputs, choice) for choice in range(4)] == [b"%c<|im_end|>" % letter for letter in b"abcd"]
    assert inputs[-1] == UsageInput(4, 8)


async def test_an_echo_has_logprobs_where_they_are_asked_for() -> None:
    async with ScriptedEngine([["a"]]) as engine:
        inputs = await collect(engine, raw("Tides? No", echo=True, logprobs=2, max_tokens=0))
    [echo] = [event for event in inputs if isinstance(event, Echo)]
    assert (echo.text, echo.first) == ("Tides? No", b"Tide")
    assert [(entry.piece, len(entry.top)) for entry in echo.logprobs] == [(b"s? N", 2), (b"o", 2)]
    assert inputs[-2:] == [FinishInput(0, "length"), UsageInput(3, 0)]


async def test_raw_prompts_that_cannot_be_served() -> None:
    async with ScriptedEngine([["a"]], context=3) as engine:
        for prompts, param, code in (
            (("Tides? 1234",), "prompt", "context_length_exceeded"),
            (("a", (5, 1 << 40)), "prompt[1]", None),
        ):
            [error] = await collect(engine, raw(*prompts))
            assert isinstance(error, ErrorInput)
            assert (error.kind, error.param, error.code) == ("bad_request", param, code)


async def test_the_default_script_quotes_each_prompt() -> None:
    async with ScriptedEngine() as engine:
        inputs = await collect(engine, raw("high tide", (1, 2), n=2))
    said = [written(inputs, choice).decode() for choice in range(4)]
    assert said == [
        f"This is the scripted engine. You said: {what}<|im_end|>" for what in ("high tide",) * 2 + ("1, 2",) * 2
    ]


async def test_markers_in_a_text_are_tokens_of_their_own() -> None:
    [step, _] = tokens(await play(["<think>why</think>"]))
    assert step.pieces == (b"<think>", b"why", b"</think>")
    assert step.ids == (TOY.added["<think>"], TOY.token(b"why"), TOY.added["</think>"])


async def test_bytes_are_one_token_and_text_waits_for_whole_characters() -> None:
    emoji = "✅".encode()
    first, second, third, _ = tokens(await play([emoji[:1], emoji[1:], ([7, 8], [b"\xff", b"!"])]))
    assert (first.pieces, first.text) == ((emoji[:1],), "")
    assert first.ids == (emoji[0],)
    assert (second.pieces, second.text) == ((emoji[1:],), "✅")
    assert (third.ids, third.text) == ((7, 8), "\ufffd!")


async def test_inputs_in_a_script_are_played_for_the_choice_that_plays_them() -> None:
    steps: list[Step] = ["a", Tick(), FinishInput(0, "filter")]
    async with ScriptedEngine([steps]) as engine:
        inputs = await collect(engine, ask(n=2))
    assert [event for event in inputs if isinstance(event, FinishInput)] == [
        FinishInput(0, "filter"),
        FinishInput(1, "filter"),
    ]
    assert inputs.count(Tick()) == 2


async def test_choices_take_turns_and_scripts_go_round() -> None:
    async with ScriptedEngine([["a", "b"], ["x"]]) as engine:
        inputs = await collect(engine, ask(n=3))
        assert [written(inputs, choice) for choice in range(3)] == [b"ab<|im_end|>", b"x<|im_end|>", b"ab<|im_end|>"]
        order = [event.choice for event in inputs if isinstance(event, TokensInput)]
        assert order == [0, 1, 2, 0, 1, 2, 0, 2]
        assert inputs[-1] == UsageInput(inputs[-1].prompt if isinstance(inputs[-1], UsageInput) else 0, 8)
        # The next request goes on with the second script.
        assert written(await collect(engine, ask())) == b"x<|im_end|>"


async def test_a_function_chooses_by_request() -> None:
    def scripts(request: EngineRequest) -> list[list[Step]]:
        assert request.conversation is not None
        return [[str(request.conversation.messages[0]["content"])]]

    async with ScriptedEngine(scripts) as engine:
        assert written(await collect(engine, ask("echo this"))) == b"echo this<|im_end|>"


async def test_the_default_script_answers() -> None:
    async with ScriptedEngine() as engine:
        assert engine.alive
        assert b"You said: hi there" in written(await collect(engine, ask("hi there")))


async def test_max_tokens_cuts_inside_a_step() -> None:
    inputs = await play([([1, 2, 3], [b"a", b"b", b"c"])], max_tokens=2)
    [step] = tokens(inputs)
    assert (step.ids, step.pieces, step.text) == ((1, 2), (b"a", b"b"), "ab")
    assert inputs[-2] == FinishInput(0, "length")
    assert isinstance(inputs[-1], UsageInput)
    assert inputs[-1].completion == 2


async def test_stop_token_ids_end_the_choice_with_the_token_in_it() -> None:
    inputs = await play([([1, 2, 3], [b"a", b"b", b"c"])], stop_token_ids=(2,))
    assert ids(inputs) == [1, 2]
    assert inputs[-2] == FinishInput(0, "stop_token", 2)


async def test_ignore_eos_plays_on() -> None:
    inputs = await play([([EOS, 5], [b"<|im_end|>", b"x"]), "y"], ignore_eos=True, max_tokens=3)
    assert ids(inputs) == [EOS, 5, TOY.token(b"y")]
    assert inputs[-2] == FinishInput(0, "length")
    assert (await play(["y"], ignore_eos=True))[-2] == FinishInput(0, "length")


async def test_the_context_ends_a_choice_and_refuses_a_prompt() -> None:
    room = len(TOY.encode(rendered(conversation())))
    async with ScriptedEngine([["a", "b", "c"]], context=room + 2) as engine:
        inputs = await collect(engine, ask())
        assert ids(inputs) == [TOY.token(b"a"), TOY.token(b"b")]
        assert inputs[-2] == FinishInput(0, "context")
    async with ScriptedEngine([["a"]], context=room) as engine:
        [refused] = await collect(engine, ask())
    assert isinstance(refused, ErrorInput)
    assert (refused.kind, refused.code, refused.param) == ("bad_request", "context_length_exceeded", "messages")
    assert f" {room} tokens" in refused.message
    assert f"holds {room}," in refused.message


async def test_watch_sees_every_input_in_order_and_ends_its_choice() -> None:
    seen: list[Input] = []

    def watch(event: Input) -> str | None:
        seen.append(event)
        return "STOP" if isinstance(event, TokensInput) and "b" in event.text and event.choice == 0 else None

    async with ScriptedEngine([["a", "b", "c"]]) as engine:
        inputs = await collect(engine, ask(n=2, watch=watch))
    assert seen == inputs[:-1]
    assert written(inputs, 0) == b"ab"
    assert written(inputs, 1) == b"abc<|im_end|>"
    at = inputs.index(FinishInput(0, "stop", "STOP"))
    assert inputs[at - 1] == TokensInput(0, (TOY.token(b"b"),), (b"b",), "b")


async def test_logprobs_are_parallel_and_the_same_every_time() -> None:
    steps: list[Step] = [([9, 10], [b"a", b"b"])]
    inputs = await play(steps, logprobs=3)
    [step, end] = tokens(inputs)
    assert [entry.id for entry in step.logprobs] == [9, 10]
    assert [entry.piece for entry in step.logprobs] == [b"a", b"b"]
    for entry in (*step.logprobs, *end.logprobs):
        values = [other.logprob for other in entry.top]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert max(values) < 0
        assert (entry.top[0].id, entry.top[0].logprob) == (entry.id, entry.logprob)
    assert await play(steps, logprobs=3) == inputs
    assert tokens(await play(steps, logprobs=0))[0].logprobs[0].top == ()


async def test_forced_text_and_ids_are_what_is_written() -> None:
    assert (
        written(await play(["no"], forced_text="<think>so ✅</think>yes"))
        == "<think>so ✅</think>yes<|im_end|>".encode()
    )
    assert ids(await play(["no"], forced_ids=(72, 105))) == [72, 105, EOS]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (RuntimeError("secret"), FAILED),
        (RequestError("no such thing", param="x", code="y"), ErrorInput("bad_request", "no such thing", "y", "x")),
    ],
)
async def test_an_exception_fails_that_request_alone(failure: Exception, error: ErrorInput) -> None:
    async with ScriptedEngine([["a", failure, "b"], ["fine"]]) as engine:
        bad, good = await collect_all(engine, [ask(), ask()])
        assert bad[-1] == error
        assert written(bad) == b"a"
        assert isinstance(good[-1], UsageInput)
        assert engine.alive


async def test_a_refusal_that_comes_first_replaces_the_prompt() -> None:
    assert await play([RequestError("not this")]) == [ErrorInput("bad_request", "not this")]


async def test_a_watch_that_raises_fails_the_request() -> None:
    def watch(event: Input) -> str | None:
        raise ValueError("the parser broke")

    assert (await play(["a"], watch=watch)) == [FAILED]


async def test_a_whole_session_is_played_as_it_is() -> None:
    session: list[Step] = [PromptInput((), "", 7), TokensInput(1, (), (), "text only"), UsageInput(7, 1)]
    assert await play(session) == session
    assert await play([ErrorInput("overloaded", "busy")]) == [ErrorInput("overloaded", "busy")]


async def test_a_whole_session_without_an_end_stays_open_until_it_is_aborted() -> None:
    async with ScriptedEngine([[PromptInput((), "", 1)]]) as engine:
        stream = engine.submit(ask())
        assert await stream.receive() == [PromptInput((), "", 1)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain, stream)
            await anyio.wait_all_tasks_blocked()
            stream.abort()


async def test_abort_and_leaving_end_what_runs() -> None:
    async with ScriptedEngine([["a"] * 1000]) as engine:
        aborted, running = engine.submit(ask()), engine.submit(ask())
        assert engine.live == 2
        await aborted.receive()
        aborted.abort()
        aborted.abort()
        with pytest.raises(anyio.EndOfStream):
            await aborted.receive()
        assert engine.live == 1
        await running.receive()
    assert await drain(running) == [SHUTDOWN]
    assert not engine.alive
    assert await collect(engine, ask()) == [DEAD]


async def test_a_dead_engine_fails_what_runs() -> None:
    async with ScriptedEngine([["a"] * 1000]) as engine:
        running = engine.submit(ask())
        await running.receive()
        engine.die()
        assert not engine.alive
        assert await drain(running) == [DEAD]


async def test_nothing_is_lost_to_a_cancelled_receive() -> None:
    async with ScriptedEngine([["a", "b"]], awaited=True) as engine:
        expected = await collect(engine, ask())
        stream = engine.submit(ask())
        inputs: list[Input] = []
        while not inputs or not isinstance(inputs[-1], UsageInput):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await stream.receive()
            assert scope.cancelled_caught
            inputs += await stream.receive()
    assert inputs == expected


async def test_running_ahead_and_awaited() -> None:
    async with ScriptedEngine([["a"] * 1000]) as engine:
        stream = engine.submit(ask())
        assert len(await stream.receive()) == BATCH
    async with ScriptedEngine([["a"] * 10], awaited=True) as engine:
        stream = engine.submit(ask())
        assert [type(event) for event in await stream.receive()] == [PromptInput, ScheduledInput, PrefillInput]
        assert [type(event) for event in await stream.receive()] == [TokensInput]


async def test_pace_gives_a_step_at_a_time() -> None:
    async with ScriptedEngine([["a"] * 3], pace=0.002) as engine:
        begun = anyio.current_time()
        inputs = await collect(engine, ask())
        # Prompt at once, then three tokens, the end and the usage: five steps after the first.
        assert anyio.current_time() - begun >= 0.009
        assert [type(event) for event in inputs[-2:]] == [FinishInput, UsageInput]
        stream = engine.submit(ask())
        await stream.receive()
        stream.abort()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


def test_facts_and_template() -> None:
    engine = ScriptedEngine([["a"]], template="T", model="demo")
    assert (engine.facts.kind, engine.facts.model, engine.template) == ("scripted", "demo", "T")
    assert engine.tokenizer.eos == (engine.tokenizer.special["<|im_end|>"],)
    assert set(engine.tokenizer.added) >= {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    assert ScriptedEngine().template == CHATML


def test_the_prompt_opens_reasoning_where_it_is_asked_for() -> None:
    assert rendered(conversation("q", template_kwargs={"enable_thinking": True})).endswith(
        "<|im_start|>assistant\n<think>\n"
    )
    assert rendered(conversation("q", continue_final_message=True)) == "<|im_start|>user\nq"


def test_scripts_may_be_a_list_or_a_function() -> None:
    shapes: list[Scripts] = [[["a"]], lambda request: [["a"]]]
    assert [type(ScriptedEngine(scripts)) for scripts in shapes] == [ScriptedEngine, ScriptedEngine]
