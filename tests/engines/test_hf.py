"""The engine on a real model: SmolLM2-135M-Instruct on torch."""

from __future__ import annotations

import math
import random
from typing import Any

import anyio
import pytest
import torch

from pipeline.engines.base import FAILED, EngineLoadError, EngineRequest, Sampling
from pipeline.engines.hf import HfEngine
from stages.events import (
    Echo,
    ErrorInput,
    FinishInput,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    TokensInput,
    UsageInput,
)
from tests.support.engines import CONTEXT, ask, collect, collect_all, conversation, drain, ids, tokens, written

pytestmark = [pytest.mark.model, pytest.mark.anyio]

EOS = 2  # <|im_end|> of SmolLM2
FORCED = "Grüße ✅ 👩‍🚀\n<tool_call>{}</tool_call>"


def model_and_tokenizer(engine: HfEngine) -> tuple[Any, Any]:
    """What transformers loaded."""
    # An engine shows nobody what it runs on.
    backend: Any = engine._backend  # pyright: ignore[reportPrivateUsage]  (what it loaded is what is tested)
    return backend._model, backend._tokenizer


# --- without an event loop ------------------------------------------------------------------------------------------


def test_facts(loaded: HfEngine) -> None:
    facts = loaded.facts
    assert (facts.kind, facts.model, facts.dtype) == ("hf", "SmolLM2-135M-Instruct", "float32")
    assert facts.max_tokens == CONTEXT
    assert facts.fingerprint is not None
    assert set(facts.versions) == {"torch", "transformers", "tokenizers", "llguidance"}
    assert facts.constrains
    assert loaded.tokenizer.eos == (EOS,)
    assert loaded.tokenizer.special["<|im_start|>"] == 1
    assert loaded.template is not None
    assert "<|im_start|>" in loaded.template


def test_the_bytes_of_every_id_are_what_the_tokenizer_decodes(loaded: HfEngine) -> None:
    _, tokenizer = model_and_tokenizer(loaded)
    # As above.
    pieces: list[bytes] = loaded._backend.pieces  # pyright: ignore[reportPrivateUsage]  (what it loaded is what is tested)
    assert len(pieces) == len(tokenizer) == 49152
    alone = [token for token in range(len(pieces)) if is_utf8(pieces[token])]
    assert [pieces[token].decode() for token in alone] == [tokenizer.decode([token]) for token in alone]
    rng = random.Random(2)
    compared = 0
    for _ in range(2000):
        some = [rng.randrange(len(pieces)) for _ in range(rng.randint(2, 30))]
        data = b"".join(pieces[token] for token in some)
        if is_utf8(data):
            compared += 1
            assert data.decode() == tokenizer.decode(some)
    assert compared > 1000


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_what_cannot_be_loaded_says_why(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineLoadError, match=r"there is no model in the folder .*missing the tokenizer"):
        HfEngine(tmp_path).load()
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(EngineLoadError, match="cannot load the model"):
        HfEngine(tmp_path).load()
    with pytest.raises(RuntimeError, match="enter the engine"):
        _ = HfEngine(tmp_path).facts


# --- one request ----------------------------------------------------------------------------------------------------


async def test_the_tokenizer_takes_one_thread_at_a_time(engine: HfEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    # As above.
    backend: Any = engine._backend  # pyright: ignore[reportPrivateUsage]  (what it loaded is what is tested)
    _, tokenizer = model_and_tokenizer(engine)
    held: list[bool] = []

    class Watched:
        chat_template = tokenizer.chat_template

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            held.append(backend.tokenizing.locked())
            return tokenizer(*args, **kwargs)

        def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
            held.append(backend.tokenizing.locked())
            return tokenizer.apply_chat_template(*args, **kwargs)

    monkeypatch.setattr(backend, "_tokenizer", Watched())
    said = conversation("Hi")
    [prompt, *_] = await collect(engine, ask("Hi", max_tokens=1))
    assert isinstance(prompt, PromptInput)
    assert await engine.count(said) == prompt.count
    assert held == [True] * 4


async def test_greedy_is_what_transformers_generates(engine: HfEngine) -> None:
    inputs = await collect(engine, ask("Tell me about foxes.", temperature=0.0, max_tokens=24))
    prompt = inputs[0]
    assert isinstance(prompt, PromptInput)
    model, tokenizer = model_and_tokenizer(engine)
    assert prompt.ids == tuple(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "Tell me about foxes."}], add_generation_prompt=True, return_dict=False
        )
    )
    assert prompt.count == len(prompt.ids)
    assert prompt.tail.endswith("<|im_start|>user\nTell me about foxes.<|im_end|>\n<|im_start|>assistant\n")
    given = torch.tensor([prompt.ids])
    expected = model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=24)
    assert ids(inputs) == expected[0, len(prompt.ids) :].tolist()
    assert inputs[1:3] == [ScheduledInput(), PrefillInput(0, prompt.count)]
    assert inputs[-2:] == [FinishInput(0, "length"), UsageInput(prompt.count, 24)]


async def test_a_long_prompt_is_computed_in_chunks_and_changes_nothing(engine: HfEngine) -> None:
    inputs = await collect(engine, ask("river " * 110, temperature=0.0, max_tokens=4))
    prompt = inputs[0]
    assert isinstance(prompt, PromptInput)
    assert prompt.count > 128
    assert [event for event in inputs if isinstance(event, PrefillInput)] == [
        PrefillInput(0, 128),
        PrefillInput(128, prompt.count),
    ]
    model, _ = model_and_tokenizer(engine)
    given = torch.tensor([prompt.ids])
    expected = model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=4)
    assert ids(inputs) == expected[0, prompt.count :].tolist()


async def test_forced_text_takes_the_real_path_and_gives_exact_bytes(engine: HfEngine) -> None:
    inputs = await collect(engine, ask(forced_text=FORCED, logprobs=2))
    assert written(inputs) == f"{FORCED}<|im_end|>".encode()
    steps = tokens(inputs)
    # Characters are cut over tokens: text lags, and no step has half a character.
    assert not all(is_utf8(step.pieces[0]) for step in steps)
    assert "".join(step.text for step in steps) == FORCED
    assert ids(inputs)[-1] == EOS
    assert inputs[-2] == FinishInput(0, "eos", EOS)
    assert isinstance(inputs[-1], UsageInput)
    assert inputs[-1].completion == len(steps)
    # The logprobs are the model's own view of these ids, not of the forced choice.
    assert all(step.logprobs[0].logprob < 0 for step in steps)
    assert any(step.logprobs[0].logprob < -5 for step in steps)


async def test_forced_ids_end_where_a_stop_does(engine: HfEngine) -> None:
    stopped = await collect(engine, ask(forced_ids=(100, 200, 300), stop_token_ids=(200,)))
    assert ids(stopped) == [100, 200]
    assert stopped[-2] == FinishInput(0, "stop_token", 200)
    through = await collect(engine, ask(forced_ids=(100, EOS, 300), ignore_eos=True, max_tokens=3))
    assert ids(through) == [100, EOS, 300]
    assert through[-2] == FinishInput(0, "length")


async def test_logprobs_are_of_the_raw_logits(engine: HfEngine) -> None:
    asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": 3}
    inputs = await collect(engine, ask(logprobs=5, logit_bias={500: 100.0}, **asked))
    prompt = inputs[0]
    assert isinstance(prompt, PromptInput)
    model, _ = model_and_tokenizer(engine)
    with torch.inference_mode():
        raw = model(torch.tensor([prompt.ids])).logits[0, -1].log_softmax(-1)
    first = tokens(inputs)[0]
    [entry] = first.logprobs
    assert (entry.id, entry.piece) == (500, first.pieces[0])  # the bias decides
    assert math.isclose(entry.logprob, float(raw[500]), abs_tol=1e-3)  # and does not show
    best = raw.topk(5)
    assert [other.id for other in entry.top] == best.indices.tolist()
    for step in tokens(inputs):
        assert len(step.logprobs) == len(step.ids) == 1
        values = [other.logprob for other in step.logprobs[0].top]
        assert values == sorted(values, reverse=True)
        assert values[0] <= 0
        assert sum(map(math.exp, values)) <= 1.0001
    assert tokens(await collect(engine, ask(logprobs=0, **asked)))[0].logprobs[0].top == ()
    assert tokens(await collect(engine, ask(**asked)))[0].logprobs == ()


async def test_an_echo_has_the_logprobs_of_the_prompt(engine: HfEngine) -> None:
    """Those of one pass over all of it, however it was cut into chunks; a prompt of one token has none."""
    model, tokenizer = model_and_tokenizer(engine)
    text = "The tide comes in twice a day. " * 17
    prompt = tuple(tokenizer(text)["input_ids"])
    assert 128 < len(prompt) < CONTEXT - 1
    request = EngineRequest(
        session="s", conversation=None, sampling=Sampling(max_tokens=2, temperature=0), prompts=(text, (1,), prompt),
        echo=True, logprobs=2, n=3,
    )  # fmt: skip
    inputs = await collect(engine, request)
    told, one, again = (event for event in inputs if isinstance(event, Echo))
    with torch.inference_mode():
        want = model(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
    assert (told.text, again.text, told.first) == (text, text, tokenizer.decode(prompt[:1]).encode())
    assert [entry.id for entry in told.logprobs] == [*prompt[1:]]
    for entry, row in zip(told.logprobs, want, strict=False):
        assert entry.logprob == pytest.approx(float(row[entry.id]), abs=1e-3)
        assert [top.logprob for top in entry.top] == pytest.approx(row.topk(2).values.tolist(), abs=1e-3)
    assert told.logprobs == again.logprobs
    assert (one.text, one.first, one.logprobs) == ("<|im_start|>", b"<|im_start|>", ())
    # Text and ids of the same prompt go on alike, whatever was between them.
    assert ids(inputs, 0) == ids(inputs, 2)
    assert inputs[-1] == UsageInput(2 * len(prompt) + 1, 6)


async def test_sampling_parameters_act(engine: HfEngine) -> None:
    greedy = ids(await collect(engine, ask(temperature=0.0, max_tokens=4)))
    wild: dict[str, Any] = {"max_tokens": 4, "temperature": 1.5, "seed": 1}
    narrowed: list[dict[str, Any]] = [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-3}]
    for narrow in narrowed:
        assert ids(await collect(engine, ask(**{**wild, **narrow}))) == greedy
    banned = ids(await collect(engine, ask(temperature=0.0, max_tokens=1, logit_bias={greedy[0]: -100.0})))
    assert banned != greedy[:1]
    # A bias that makes one token certain, and a penalty that outweighs it once the token is there.
    penalties: list[dict[str, Any]] = [
        {"presence_penalty": 200.0}, {"frequency_penalty": 200.0}, {"repetition_penalty": 1e6},
    ]  # fmt: skip
    for penalty in penalties:
        first, second = ids(
            await collect(engine, ask(temperature=0.0, max_tokens=2, logit_bias={500: 100.0}, **penalty))
        )
        assert first == 500
        assert (second == 500) == ("repetition_penalty" in penalty)  # it is a factor on the logit, before the bias
    # Penalties that leave the range of floats.
    for extreme in (1e-300, 1e300):
        assert len(ids(await collect(engine, ask(seed=1, max_tokens=2, repetition_penalty=extreme)))) in (1, 2)
    certain: dict[str, Any] = {"temperature": 0.0, "logit_bias": {EOS: 100.0}, "max_tokens": 6}
    assert ids(await collect(engine, ask(**certain))) == [EOS]
    patient = ids(await collect(engine, ask(min_tokens=2, **certain)))
    assert len(patient) == 3
    assert EOS not in patient[:2]


# --- ends and refusals ----------------------------------------------------------------------------------------------


async def test_the_context_ends_a_choice_and_refuses_a_prompt(engine: HfEngine) -> None:
    full = await collect(engine, ask("river " * 110, temperature=0.0, logit_bias={500: 100.0}))
    usage = full[-1]
    assert isinstance(usage, UsageInput)
    assert usage.prompt + usage.completion == CONTEXT
    assert full[-2] == FinishInput(0, "context")
    [refused] = await collect(engine, ask("river " * 500))
    assert isinstance(refused, ErrorInput)
    assert (refused.kind, refused.code, refused.param) == ("bad_request", "context_length_exceeded", "messages")
    assert f"holds {CONTEXT}," in refused.message


async def test_what_the_request_gets_wrong_is_refused(engine: HfEngine) -> None:
    nothing = EngineRequest(
        session="s", conversation=conversation(template_kwargs={"tokenize": True}), sampling=Sampling()
    )
    [kwargs] = await collect(engine, nothing)
    assert isinstance(kwargs, ErrorInput)
    assert (kwargs.kind, kwargs.param) == ("bad_request", "chat_template_kwargs.tokenize")
    [bias] = await collect(engine, ask(logit_bias={49152: 1.0}))
    assert isinstance(bias, ErrorInput)
    assert (bias.kind, bias.param) == ("bad_request", "logit_bias")


async def test_a_watch_ends_its_choice_on_the_step_that_completes_the_stop(engine: HfEngine) -> None:
    text: list[str] = []

    def watch(event: Input) -> str | None:
        if isinstance(event, TokensInput):
            text.append(event.text)
        return "ü" if "ü" in "".join(text) else None

    inputs = await collect(engine, ask(forced_text=FORCED, watch=watch))
    assert inputs[-2] == FinishInput(0, "stop", "ü")
    assert written(inputs) in ("Grü".encode(), "Grüß".encode(), "Grüße".encode())
    assert "".join(text).count("ü") == 1


# --- several requests -----------------------------------------------------------------------------------------------


async def test_the_same_seed_gives_the_same_tokens_alone_and_beside_others(engine: HfEngine) -> None:
    asked: dict[str, Any] = {"seed": 7, "temperature": 1.2, "max_tokens": 8}
    alone = await collect(engine, ask(session="alone", **asked))
    both, other, unseeded = await collect_all(
        engine,
        [
            ask(session="both", n=2, **asked),
            ask(session="other", seed=8, temperature=1.2, max_tokens=8),
            ask(session="alone", temperature=1.2, max_tokens=8),
        ],
    )
    assert ids(both, 0) == ids(alone)
    assert ids(both, 1) != ids(alone)
    assert ids(other) != ids(alone)
    assert ids(unseeded) != ids(alone)
    # Without a seed the session decides.
    again, elsewhere = await collect_all(
        engine, [ask(session=name, temperature=1.2, max_tokens=8) for name in ("alone", "elsewhere")]
    )
    assert ids(again) == ids(unseeded) != ids(elsewhere)


async def test_streams_progress_together(engine: HfEngine) -> None:
    order: list[str] = []

    async def read(name: str) -> None:
        stream = engine.submit(ask(session=name, max_tokens=6, temperature=0.0, logit_bias={500: 100.0}))
        while True:
            try:
                got = await stream.receive()
            except anyio.EndOfStream:
                return
            order.extend(name for event in got if isinstance(event, TokensInput))

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(read, name)
    assert len(order) == 18
    # Nobody is more than an iteration ahead of anybody once all have begun.
    begun = max(order.index(name) for name in "abc")
    for end in range(begun, 18):
        counts = [order[:end].count(name) for name in "abc"]
        assert max(counts) - min(counts) <= 3, order


async def test_abort_stops_within_one_step(engine: HfEngine) -> None:
    stream = engine.submit(ask(session="aborted", temperature=0.0, logit_bias={500: 100.0}))
    seen: list[Input] = []
    while len(ids(seen)) < 3:
        seen += await stream.receive()
    before = engine.steps
    stream.abort()
    inputs = await collect(engine, ask(session="next", forced_ids=(100, 200)))
    assert ids(inputs) == [100, 200, EOS]
    # One prefill chunk and three tokens of the next one; of the aborted one at most the step that had begun, and one
    # that was made between the reading of ``steps`` and the abort.
    assert engine.steps - before <= 1 + 3 + 2
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()


async def test_one_failing_request_beside_a_healthy_one(engine: HfEngine) -> None:
    def broken(event: Input) -> str | None:
        if isinstance(event, TokensInput):
            raise RuntimeError("the parser broke")
        return None

    bad, good = await collect_all(engine, [ask(session="bad", watch=broken), ask(session="good", forced_ids=(5, 6))])
    assert bad[-1] == FAILED
    assert ids(good) == [5, 6, EOS]
    assert engine.alive


async def test_leaving_ends_what_runs(loaded: HfEngine) -> None:
    async with loaded:
        stream = loaded.submit(ask(temperature=0.0, logit_bias={500: 100.0}))
        await stream.receive()
    inputs = await drain(stream)
    assert isinstance(inputs[-1], ErrorInput)
    assert inputs[-1].kind == "cancelled"
    assert not loaded.alive
