"""The captures as data: that what they say of the tokens is right, and that there is one of everything."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stages import catalog
from stages.events import FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.message import Message, collect
from stages.opening import Opening, TokenizerFacts
from stages.stage import fold
from stages.upstream.asked import asked
from tests.support.captures import TWIN, Capture, Wrote, captures, normalised, twin, without_ids
from tests.support.vocabularies import vocabulary

SAID = [
    name
    for name, capture in captures().items()
    if capture.script is not None and not name.endswith(TWIN) and any(capture.script.wrote)
]
TWINS = [name for name in captures() if twin(name) is not None]
LOST = {
    "1": "vllm_dsv31-tool_multitoken", "2": "vllm_dsv31-tool_multitoken_b", "3": "vllm_llama3_json-tool_single_delta",
    "4": "vllm_hermes-marker_as_text_tools", "5": "vllm_llama3_json-json_content_not_tool",
    "6": "vllm_hermes-tool_then_content", "6, kimi": "vllm_kimik2-text_after_section",
    "7": "vllm_qwen3_hermes-tool_name_last", "8": "vllm_hermes-tool_parameters_key",
    "9": "vllm_hermes-tool_malformed_json", "10": "vllm_hermes-tool_truncated_name",
    "10, arguments": "vllm_hermes-tool_truncated_args", "12": "vllm_qwen3_hermes-reasoning_not_emitted",
    "12, kimi": "vllm_kimik2-plain", "14": "sglang_gptoss-commentary_preamble_tool",
    "14, parallel": "sglang_gptoss-tool_parallel", "15": "sglang_qwen25-tool_multitoken_b",
    "15, glm": "sglang_glm45-tool_multitoken", "16": "sglang_qwen25-tool_unknown_function",
    "17": "sglang_qwen25-tool_no_newlines", "18": "sglang_qwen25-tool_args_null",
    "18, one step": "sglang_qwen25-tool_single_delta", "19": "sglang_qwen3_qwen25-reasoning_tool_inside_think",
    "20": "sglang_qwen25-tool_stop_string", "21": "transformers_qwen3stub-tool_missing_close",
    "22": "transformers_qwen3stub-error_midstream", "22, before": "transformers_qwen3stub-tool_malformed_json",
}  # fmt: skip
"""Streams in which a server lost or broke what its model wrote, by the number of the fault in the report on them."""
GROUPS = {
    "vllm": {
        "plain", "hermes", "qwen3_hermes", "qwen3_hermes_si5", "qwen3_coder", "qwen3_qwen3coder", "keepalive", "dsv31",
        "dsv4", "gptoss", "llama3_json", "pythonic", "mistral", "glm45", "kimik2", "kimik2_norp",
    },
    "sglang": {
        "plain", "qwen25", "qwen3_qwen25", "qwen25_incr", "qwen3_coder", "dsv31", "gptoss", "kimik2", "glm45", "llama3",
    },
    "transformers": {"smollm2", "tinyqwen3", "qwen3stub"},
}  # fmt: skip
"""By server, how it was started: which parsers it ran."""


def test_there_is_one_of_every_server_and_parser() -> None:
    found: dict[str, set[str]] = {}
    for name in captures():
        server, _, group = name.partition("-")[0].partition("_")
        found.setdefault(server, set()).add(group)
    assert found == GROUPS


def test_there_is_one_of_every_known_loss() -> None:
    assert set(LOST.values()) <= captures().keys()


@pytest.mark.parametrize("name", captures())
def test_the_steps_are_those_of_the_engine(name: str) -> None:
    capture = captures()[name]
    if capture.script is None or capture.engine is None:
        return
    kept = vocabulary(capture.script.vocabulary)
    for choice, facts in capture.engine.choices.items():
        steps = capture.steps_of(choice)
        assert tuple(token for step in steps for token in step) == facts.ids
        assert all(kept.piece(token) for token in facts.ids)
    assert len(capture.script.wrote) == len(capture.engine.choices)


@pytest.mark.parametrize("name", TWINS)
def test_ids_taken_out_are_the_stream_that_never_had_any(name: str) -> None:
    other = twin(name)
    assert other is not None
    theirs = other.data
    if name == "vllm_mistral-tool_parallel":
        # It has a chunk with an empty delta of its own, which the rule takes out.
        own = (b'"delta":{},', b'"finish_reason":null')
        theirs = b"".join(chunk for chunk in other.chunks() if not all(part in chunk for part in own))
    assert normalised(b"".join(without_ids(captures()[name]))) == normalised(theirs)


@pytest.mark.parametrize("name", SAID)
def test_our_parse_of_the_tokens_is_what_the_model_wrote(name: str) -> None:
    capture = captures()[name]
    assert capture.script is not None
    for wrote, message in zip(capture.script.wrote, parsed(capture), strict=True):
        if wrote is not None:
            assert agrees(wrote, message), (wrote, message)


def parsed(capture: Capture) -> list[Message]:
    """What the format's parser makes of the engine's own steps."""
    assert capture.script is not None
    assert capture.engine is not None
    kept = vocabulary(capture.script.vocabulary)
    ask = asked(capture.protocol, json.dumps(capture.request).encode())
    opening = Opening(
        session="s", key="k", response_id="r", created=0, opened=0, model="m", parser=capture.parser or "plain",
        # What a client wants to see of it is not the question.
        ask=msgspec.structs.replace(ask, parallel=True, include_reasoning=True),
        tokenizer=TokenizerFacts(special=kept.special, added=kept.added, eos=kept.eos),
    )  # fmt: skip
    tail = b"".join(kept.piece(token) for token in capture.engine.prompt_ids[-40:]).decode("utf-8", "ignore")
    if capture.script.vocabulary == "dsv31" and not capture.engine.prompt_ids:
        tail = "<think>" if (capture.script.wrote[0] or Wrote()).reasoning else "</think>"
    steps = {choice: iter(capture.steps_of(choice)) for choice in capture.engine.choices}
    inputs: list[Input] = [PromptInput(capture.engine.prompt_ids, tail, capture.engine.prompt or 0)]
    for choice, _ in capture.script.steps:
        ids = next(steps[choice])
        inputs.append(TokensInput(choice, ids, tuple(kept.piece(token) for token in ids), ""))
    reasons: dict[int, Any] = {choice: facts.reason for choice, facts in capture.engine.choices.items()}
    inputs += [FinishInput(choice, reason or "eos") for choice, reason in reasons.items()]
    inputs.append(UsageInput(capture.engine.prompt or 0, len(capture.script.steps)))
    return collect(fold(catalog.layers(opening).semantic.start(opening), inputs))


def agrees(wrote: Wrote, message: Message) -> bool:
    """Text is the same but for white space at its ends. Arguments are the same value; where what was written is none,
    as much of it as could be sent, and nothing that was not written."""
    texts = [(wrote.reasoning, message.reasoning), (wrote.content, message.content)]
    return (
        all((one or "").strip() == (other or "").strip() for one, other in texts)
        and [name for name, _ in wrote.calls] == [call.name for call in message.tool_calls]
        and all(
            _same(written, call.arguments) for (_, written), call in zip(wrote.calls, message.tool_calls, strict=True)
        )
    )


def _same(written: str, sent: str) -> bool:
    try:
        want: Any = json.loads(written)
    except ValueError:
        return written.startswith(sent)
    return bool(json.loads(sent) == want)
