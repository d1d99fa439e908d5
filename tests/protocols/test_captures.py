"""Streams that other servers sent (data/captures), under the rules: which ones each breaks, and why that is right.

vLLM 0.33, SGLang 0.5.23 and transformers serve 5.24 sent them, over a socket. What the engine was to say was scripted,
so its tokens are known. Where the same tokens were asked for without streaming too, that body is the oracle.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec
import pytest

from stages.protocols.rules import Report, check
from stages.protocols.rules.reading import Reading
from tests.support.captures import Capture, captures, kept

Numbers: TypeAlias = "set[int]"

V: Final[Numbers] = {5, 6}
"""vLLM and SGLang forbid no proxy to keep the stream or to hold it back, and give no request id."""
S: Final[Numbers] = {*V, 68}
"""SGLang, asked for no usage: ``usage: null`` in some chunks (ids of tokens, fragments of calls)."""
H: Final[Numbers] = {5, 68}
"""transformers serve: as vLLM, but for its request id; usage that was not asked for, beside the finish."""
T: Final[Numbers] = {43, 63, 75}
"""transformers serve, chat: no ``[DONE]``, no key ``finish_reason`` before the end."""

EXPECTED: dict[str, tuple[Numbers, Numbers, str]] = {
    # --- vLLM: what is right, or what no rule can see
    "vllm_plain-plain": (set(), V, "each chunk has the ids of its tokens, and together they are the engine's"),
    "vllm_plain-stop_string_multitoken": (
        set(), {*V, 64}, "no ids behind the stop string, though the engine went on in that step; text at the finish",
    ),
    "vllm_qwen3_hermes-reasoning_hidden": (set(), V, "no reasoning, and no ids at all"),
    "vllm_plain-client_abort": (set(), V, "the client left: what the end lacks was never sent"),
    "vllm_plain-usage_continuous": (set(), V, "running usage was asked for"),
    "vllm_plain-logprobs": (set(), V, "an entry for each token; chunks that only carry entries are not empty"),
    "vllm_plain-tools_auto_rejected": (set(), {6}, "status 400, and one JSON object"),
    "vllm_pythonic-tool_single": (set(), V, "null for id and name in later fragments says nothing"),
    "vllm_pythonic-tool_required_multitoken": (set(), V, "the same where the output was held to a grammar"),
    "vllm_qwen3_hermes-reasoning_multitoken": (set(), {*V, 64}, "reasoning and content in one delta are in order"),
    "vllm_qwen3_hermes-reasoning_not_emitted": (set(), V, "the answer as reasoning, without streaming too"),
    "vllm_plain-completions_logprobs": (set(), V, "the four arrays are as long as each other"),
    "vllm_plain-messages_plain": (set(), V, "nothing"),
    # --- vLLM: around the text
    "vllm_plain-n2": ({79}, V, "the prompt's ids again, for the second choice"),
    "vllm_plain-usage_token_ids": (set(), {*V, 68}, "usage was asked for: other chunks have no usage: null"),
    "vllm_plain-completions": (set(), {*V, 87}, "the same"),
    "vllm_keepalive-forced_usage": (set(), {*V, 68}, "usage on every chunk, unasked"),
    "vllm_keepalive-slow_first_token": (set(), {*V, 68}, "the same; comments before the first chunk are right"),
    "vllm_plain-error_midstream": (set(), {*V, 68}, "an error, [DONE], no finish: right, but for usage: null"),
    "vllm_hermes-error_before_first_token": ({76}, V, "an error whose message is empty"),
    "vllm_plain-length_mid_emoji_no_token_ids": (set(), {*V, 30, 64}, "an empty text for a character half done"),
    "vllm_mistral-tool_parallel_no_token_ids": ({59}, {*V, 30}, "a chunk with an empty delta"),
    "vllm_hermes-tool_parallel_false_offgrammar_no_token_ids": (
        {59}, {*V, 30}, "the second call is taken out, and leaves chunks with content: null",
    ),
    "vllm_gptoss-responses_final": ({108}, V, "an item's status is completed when it is done, null at the end"),
    "vllm_qwen3_hermes-messages_tool": ({132}, {*V, 121}, "blank lines before the call; thinking begins with null"),
    "vllm_qwen3_hermes-responses_tool": ({132}, V, "blank lines before the call"),
    # --- vLLM: calls
    "vllm_hermes-tool_then_content": ({59}, V, "no arguments in the first entry; text behind the call is lost, always"),
    "vllm_hermes-tool_choice_named": ({59}, V, "as before; the named call finishes with stop, which is right"),
    "vllm_hermes-tool_single_delta": ({59}, {*V, 64}, "as before; everything in the chunk of the finish"),
    "vllm_qwen3_hermes-tool_multitoken": ({59, 132}, V, "as before; blank lines before the call"),
    "vllm_qwen3_hermes-tool_unknown_function": ({59, 132}, {*V, 36}, "as before; a tool that nobody declared"),
    "vllm_hermes-tool_no_newlines": ({59, 132}, V, "as before; arguments are spaced otherwise without streaming"),
    "vllm_qwen3_coder-tool_then_content": ({59, 132}, {*V, 55}, "text behind a call, in the stream only"),
    "vllm_hermes-tool_choice_required_offgrammar": ({38}, V, "the script has no call, where one is required"),
    "vllm_qwen3_hermes-reasoning_twice": ({132}, {*V, 32}, "a second <think> is content; </think> in the stream only"),
    # --- vLLM: what is lost
    "vllm_dsv31-tool_multitoken": ({59, 132}, {*V, 37}, "arguments lose their end"),
    "vllm_dsv31-tool_multitoken_b": ({59, 132}, {*V, 37}, "the text and the second call are lost"),
    "vllm_llama3_json-tool_single_delta": ({132}, V, "the only call is lost"),
    "vllm_llama3_json-json_content_not_tool": ({132}, V, "an answer in JSON is lost"),
    "vllm_hermes-marker_as_text_tools": ({132}, V, "a marker in prose ends what is sent"),
    "vllm_qwen3_hermes-tool_name_last": ({59, 132}, {*V, 37}, "the name is inside the arguments"),
    "vllm_hermes-tool_parameters_key": ({59, 132}, {*V, 37}, "a call without arguments, which is content otherwise"),
    "vllm_hermes-tool_malformed_json": ({59, 132}, {*V, 37}, "the same with arguments that are no JSON"),
    "vllm_hermes-tool_truncated_name": ({132}, V, "half a call is hidden, and content otherwise"),
    "vllm_hermes-tool_truncated_args": ({59, 132}, {*V, 64}, "half a call is sent, and content otherwise"),
    "vllm_qwen3_hermes-tool_stop_string": (
        {59, 132}, {*V, 37, 64}, "a stop string inside a call: finish tool_calls, half the arguments",
    ),
    # --- SGLang
    "sglang_plain-plain": (set(), S, "the chunk of token ids has no choices, which is right, and usage: null"),
    "sglang_plain-plain_no_token_ids": (set(), V, "nothing"),
    "sglang_plain-client_abort": (set(), V, "the client left"),
    "sglang_plain-usage_continuous": (set(), V, "running usage was asked for"),
    "sglang_plain-usage": (set(), S, "usage was asked for: other chunks have no usage: null"),
    "sglang_plain-completions_plain": (set(), V, "nothing"),
    "sglang_plain-responses_plain": (set(), V, "nothing"),
    "sglang_plain-rejected_return_token_ids": (set(), {6}, "status 400, and an error object without an outer one"),
    "sglang_plain-unknown_model": (set(), S, "no rule knows which models there are"),
    "sglang_plain-tools_auto_rejected": (set(), S, "tools without a parser are accepted, and nothing comes of them"),
    "sglang_plain-n2": ({45}, S, "each choice has an id of its own"),
    "sglang_plain-error_midstream": ({42}, S, "usage follows the error"),
    "sglang_plain-engine_abort_midstream": (set(), {*S, 63}, "the finish reason abort"),
    "sglang_plain-logprobs": ({132}, V, "the entry of the end token is missing in the stream"),
    "sglang_plain-messages_plain": ({124}, V, "message_delta has no stop_sequence"),
    "sglang_qwen25-tool_single_no_token_ids": (
        set(), {*S, 132}, "type again, null for id and name say nothing; matched_stop in the stream only",
    ),
    "sglang_qwen25-tool_choice_named": (set(), {*S, 132}, "finish tool_calls for a named function: servers differ"),
    "sglang_qwen3_qwen25-tool_choice_required_offgrammar": ({38}, S, "the script has no call"),
    "sglang_gptoss-commentary_preamble_tool": ({132}, {*S, 132}, "the text before the call comes twice"),
    "sglang_gptoss-tool_parallel": ({132}, {*S, 132}, "calls come as content, twice"),
    "sglang_qwen25-tool_multitoken_b": ({132}, {*S, 132}, "text in the step of the marker is lost"),
    "sglang_glm45-tool_multitoken": ({132}, {*S, 132}, "the same"),
    "sglang_qwen25-tool_unknown_function": ({132}, S, "the rest of the call comes as content"),
    "sglang_qwen25-tool_no_newlines": ({132}, {*S, 32}, "the call comes as content, without its end marker"),
    "sglang_qwen25-tool_args_null": ({132}, {*S, 37, 132}, "no arguments, where they are null otherwise"),
    "sglang_qwen25-tool_single_delta": ({132}, {*S, 37, 132}, "no arguments, and no second call"),
    "sglang_qwen25-tool_stop_string": ({132}, S, "half a call, closed, finish tool_calls; no call otherwise"),
    "sglang_qwen3_qwen25-reasoning_tool_inside_think": (
        {132}, {*S, 32, 55}, "a call inside the reasoning: </think> as content behind it, the answer lost",
    ),
    # --- transformers serve
    "transformers_smollm2-chat_plain": ({*T, 45}, H, "created is when each chunk was made"),
    "transformers_smollm2-chat_n2": ({*T, 45, 65}, H, "n is ignored"),
    "transformers_smollm2-chat_client_abort": ({45, 63}, {5}, "the client left before the end"),
    "transformers_qwen3stub-tool_single": ({*T, 45, 132}, H, "blank lines around the reasoning"),
    "transformers_qwen3stub-tool_missing_close": ({*T, 45}, H, "the answer is lost, and without streaming an error"),
    "transformers_qwen3stub-tool_malformed_json": (
        {*T, 20, 33, 65}, {5, 14}, "the error is no JSON, and has line breaks: nobody sees that it is one",
    ),
    "transformers_qwen3stub-error_midstream": ({*T, 20, 33, 65}, {5, 14}, "the same"),
    "transformers_qwen3stub-responses_reasoning": ({90}, {5, 104}, "events without names; reasoning without parts"),
    # --- one of each format and server, whose tokens are known too (tests/upstream)
    "vllm_qwen3_coder-tool_multitoken": ({59}, {*V, 64}, "no arguments in the first entry; a call at the finish"),
    "vllm_qwen3_qwen3coder-reasoning_tool_n2": ({59, 79}, V, "the same; the prompt's ids again"),
    "vllm_qwen3_hermes_si5-content_tool_parallel": ({59}, {*V, 68}, "the same; usage asked for; five steps a chunk"),
    "vllm_hermes-tool_parallel_false_offgrammar": ({59}, V, "the second call is taken out; its chunks have ids"),
    "vllm_dsv4-tool_parallel": ({59}, V, "no arguments in the first entry"),
    "vllm_glm45-tool_multitoken": ({59, 132}, {*V, 55, 64}, "the same; line breaks behind the text, and a call behind"),
    "vllm_gptoss-tool_parallel": (set(), V, "nothing"),
    "vllm_gptoss-tool_multitoken": (set(), {*V, 64}, "a call at the finish"),
    "vllm_kimik2-plain": (set(), V, "the answer as reasoning, without streaming too"),
    "vllm_kimik2-text_after_section": (set(), V, "text behind the calls is lost, without streaming too"),
    "vllm_kimik2-tool_multitoken": (set(), {*V, 64}, "a call at the finish"),
    "vllm_kimik2_norp-tool_single": (set(), V, "nothing"),
    "vllm_llama3_json-tool_single": ({59}, {*V, 64}, "no arguments in the first entry; a call at the finish"),
    "vllm_mistral-tool_parallel": ({59}, V, "the same"),
    "vllm_pythonic-tool_parallel": (set(), V, "nothing"),
    "vllm_plain-length_mid_emoji": (set(), {*V, 64}, "half a character at the finish"),
    "vllm_plain-logprobs_token_ids": (set(), V, "an entry and an id for each token"),
    "vllm_plain-unicode_multitoken": (set(), {*V, 64}, "text at the finish"),
    "sglang_dsv31-tool_multitoken_b": ({132}, {*S, 132}, "the text is lost"),
    "sglang_kimik2-plain": (set(), S, "nothing"),
    "sglang_kimik2-tool_multitoken": (set(), {*S, 132}, "matched_stop in the stream only"),
    "sglang_llama3-tool_single": (set(), {*S, 132}, "the same"),
    "sglang_qwen25_incr-tool_multitoken": (set(), {*S, 132}, "the same"),
    "sglang_qwen3_coder-tool_multitoken": ({132}, {*S, 55, 132}, "a line break behind the call is content"),
    "transformers_tinyqwen3-chat_plain": (T, H, "no [DONE], no finish_reason before the end"),
    # --- vLLM, the same without token ids: as with them, but that their own faults are not there
    "vllm_plain-plain_no_token_ids": (set(), V, "nothing"),
    "vllm_plain-n2_no_token_ids": (set(), V, "no ids, so none come again"),
    "vllm_plain-usage_continuous_no_token_ids": (set(), V, "running usage was asked for"),
    "vllm_plain-stop_string_multitoken_no_token_ids": (set(), {*V, 64}, "text at the finish"),
    "vllm_plain-error_midstream_no_token_ids": (set(), {*V, 68}, "usage was asked for: no usage: null before"),
    "vllm_plain-logprobs_token_ids_no_token_ids": (set(), V, "an entry for each token"),
    "vllm_plain-unicode_multitoken_no_token_ids": (set(), {*V, 64}, "text at the finish"),
    "vllm_dsv31-tool_multitoken_no_token_ids": ({59}, {*V, 37}, "arguments lose their end"),
    "vllm_dsv31-tool_multitoken_b_no_token_ids": ({59}, {*V, 37}, "the text and the second call are lost"),
    "vllm_dsv4-tool_parallel_no_token_ids": ({59}, V, "no arguments in the first entry"),
    "vllm_glm45-tool_multitoken_no_token_ids": ({59}, {*V, 55, 64}, "the same; line breaks, and a call behind"),
    "vllm_gptoss-tool_parallel_no_token_ids": (set(), V, "nothing"),
    "vllm_gptoss-tool_multitoken_no_token_ids": (set(), {*V, 64}, "a call at the finish"),
    "vllm_hermes-marker_as_text_tools_no_token_ids": (set(), V, "a marker in prose ends what is sent"),
    "vllm_hermes-tool_malformed_json_no_token_ids": ({59}, {*V, 37}, "arguments that are no JSON"),
    "vllm_kimik2-tool_multitoken_no_token_ids": (set(), {*V, 64}, "a call at the finish"),
    "vllm_pythonic-tool_parallel_no_token_ids": (set(), V, "nothing"),
    "vllm_pythonic-tool_required_multitoken_no_token_ids": (set(), V, "nothing"),
    "vllm_qwen3_coder-tool_multitoken_no_token_ids": ({59}, {*V, 64}, "no arguments in the first entry"),
    "vllm_qwen3_hermes-reasoning_multitoken_no_token_ids": (set(), {*V, 64}, "text at the finish"),
    "vllm_qwen3_hermes-tool_multitoken_no_token_ids": ({59}, V, "no arguments in the first entry"),
}  # fmt: skip


@cache
def judged(name: str) -> Report:
    """What the rules say of a capture."""
    return check(captures()[name].evidence(), keep=1000)


def numbers(report: Report, severity: Literal["error", "warning"]) -> Numbers:
    """The rules that are broken."""
    return {int(one.rule[4:]) for one in report.violations if one.severity == severity}


def test_every_capture_has_its_expectation() -> None:
    assert kept() == EXPECTED.keys()
    assert {capture.protocol for capture in captures().values()} == {"chat", "completions", "responses", "messages"}
    assert len({capture.server for capture in captures().values()}) == 3


@pytest.mark.parametrize("name", EXPECTED)
def test_the_rules_that_it_breaks(name: str) -> None:
    errors, warnings, why = EXPECTED[name]
    report = judged(name)
    assert (numbers(report, "error"), numbers(report, "warning")) == (errors, warnings), (why, report.violations)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("transformers")])
def test_vllm_and_sglang_write_one_block_at_a_time(name: str) -> None:
    capture = captures()[name]
    if capture.writes is not None:
        starts = [block.byte for block in Reading(capture.body.encode()).blocks]
        assert [end for _, end in capture.writes] == [*starts[1:], len(capture.body.encode())]
        assert 25 in judged(name).checked


def _broken(capture: Capture, old: str, new: str) -> Report:
    assert old in capture.body
    return check(msgspec.structs.replace(capture, body=capture.body.replace(old, new, 1)).evidence(), keep=1000)


def test_a_changed_token_id_is_seen() -> None:
    capture = captures()["vllm_plain-plain"]
    assert capture.engine is not None
    first = capture.engine.choices[0].ids[0]
    report = _broken(capture, f'"token_ids":[{first}]', f'"token_ids":[{first + 1}]')
    assert 79 in numbers(report, "error")


def test_a_changed_prompt_id_is_seen() -> None:
    capture = captures()["vllm_plain-plain"]
    assert capture.engine is not None
    first = capture.engine.prompt_ids[0]
    report = _broken(capture, f'"prompt_token_ids":[{first},', f'"prompt_token_ids":[{first + 1},')
    assert 79 in numbers(report, "error")


def test_a_write_inside_a_block_is_seen() -> None:
    capture = captures()["vllm_plain-plain"]
    assert capture.writes is not None
    (at, end), *rest = capture.writes
    report = check(msgspec.structs.replace(capture, writes=((at, end - 9), *rest)).evidence())
    assert 25 in numbers(report, "warning")


def test_a_lost_word_is_seen() -> None:
    capture = captures()["sglang_plain-plain_no_token_ids"]
    assert capture.whole is not None
    assert 132 in numbers(_broken(capture, '"content":" Paris"', '"content":""'), "error")


def test_what_stopped_a_choice_is_a_warning_in_other_servers_streams_only() -> None:
    evidence = captures()["sglang_qwen25-tool_single_no_token_ids"].evidence()
    assert 132 in numbers(check(evidence), "warning")
    assert 132 in numbers(check(msgspec.structs.replace(evidence, own=True)), "error")


def test_a_cut_stream_is_seen() -> None:
    report = _broken(captures()["vllm_plain-plain"], "data: [DONE]\n\n", "")
    assert numbers(report, "error") == {43, 75}
