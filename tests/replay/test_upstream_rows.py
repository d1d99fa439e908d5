"""What three servers lost or spoilt of their models' output (data/captures), named at the frame where it is missing.

Frames are counted as in a recording: the head is 0, the first block 1. Where a stream tells the ids of its tokens, the
frame is the one that brought the tokens whose text is missing, or the one that has what was never written; where it
tells none, what is missing is missing where the message goes on.
"""

from __future__ import annotations

import pytest

from replay.result import SessionResult
from replay.run import Replayer
from replay.verdict import Difference
from tests.support.captures import captures
from tests.support.upstream_traces import relayed

ROWS = [
    ("vllm_dsv31-tool_multitoken", 6, "call_arguments", '{"city": "Paris", "unit": "celsius', '"}'),
    ("vllm_dsv31-tool_multitoken_b", 2, "text", None, "Let me check."),
    ("vllm_dsv31-tool_multitoken_b", 10, "call_arguments", '"airlines": ["AF", "JL', '"]}}'),
    ("vllm_dsv31-tool_multitoken_b", 11, "call_lost", None, 'get_weather {"city": "Tokyo"}'),
    ("vllm_llama3_json-tool_single_delta", 2, "call_lost", None, 'get_weather {"city": "Paris", "unit": "celsius"}'),
    ("vllm_hermes-marker_as_text_tools", 6, "text", "The tag is `", "<tool_call>` in hermes."),
    ("vllm_llama3_json-json_content_not_tool", 2, "text", None, '{"answer": "Paris"}'),
    ("vllm_hermes-tool_then_content", 29, "text", None, "I have asked for the weather."),
    ("vllm_kimik2-text_after_section", 25, "text", None, "Done."),
    ("vllm_qwen3_hermes-tool_name_last", 36, "call_arguments", '{"city": "Paris"}, "name": "get_weather"', "Paris"),
    ("vllm_hermes-tool_parameters_key", 14, "call_arguments", None, '{"city": "Paris"}'),
    ("vllm_hermes-tool_malformed_json", 20, "call_arguments", "unit: celsius}}", '{"city": "Paris", '),
    ("vllm_qwen3_hermes-reasoning_not_emitted", 2, "boundary", "Paris is the capital.", None),
    ("vllm_kimik2-plain", 2, "boundary", "Paris.", None),
    ("vllm_qwen3_hermes-tool_stop_string", 19, "text", "<tool", None),
    ("sglang_gptoss-commentary_preamble_tool", 12, "text", "weather.I will check", "I will check the weather."),
    ("sglang_gptoss-tool_parallel", 11, "text", '{"city": "Paris", "unit": "celsius"}{"city"', None),
    ("sglang_gptoss-tool_parallel", 11, "call_lost", None, "get_weather"),
    ("sglang_qwen25-tool_multitoken_b", 2, "text", None, "Sure."),
    ("sglang_glm45-tool_multitoken", 4, "text", "Sure", "Sure."),
    ("sglang_dsv31-tool_multitoken_b", 2, "text", None, "Let me check."),
    ("sglang_qwen25-tool_unknown_function", 2, "text", '"arguments": {"path": "/"}}', None),
    ("sglang_qwen25-tool_no_newlines", 2, "marker_leaked", "<tool_call>", None),
    ("sglang_qwen25-tool_args_null", 3, "call_arguments", None, "{}"),
    ("sglang_qwen25-tool_single_delta", 3, "call_arguments", None, '{"city": "Paris", "unit": "celsius"}'),
    ("sglang_qwen25-tool_single_delta", 3, "call_lost", None, "get_weather"),
    ("sglang_qwen3_qwen25-reasoning_tool_inside_think", 15, "text", "now.\n</think>", "Done."),
    ("sglang_qwen25-tool_stop_string", 5, "call_arguments", '"unit": ""}', '"unit": "'),
    ("transformers_qwen3stub-tool_missing_close", 2, "call_lost", None, "get_weather"),
]
"""Capture, frame, kind; what the server made of it and what the model wrote, or parts of them."""


def replayed(name: str) -> SessionResult:
    return Replayer().replay(relayed(captures()[name]))


def holds(text: str | None, part: str | None) -> bool:
    return text is None if part is None else text is not None and part in text


@pytest.mark.parametrize(("name", "frame", "kind", "theirs", "ours"), ROWS)
def test_the_offence_is_named_at_its_frame(
    name: str, frame: int, kind: str, theirs: str | None, ours: str | None
) -> None:
    result = replayed(name)
    assert result.verdict == result.layers["message"] == "changed"
    # What the server made of its frames, and what it sent, are what they were.
    assert (result.layers["upstream"], result.layers["relay"]) == ("same", "same")
    found = [item for item in result.differences if (item.kind, item.frame) == (kind, frame)]
    assert any(holds(item.recorded, theirs) and holds(item.replayed, ours) for item in found), result.differences
    assert all(item.place.startswith(f"upstream's frame {frame}: ") for item in found)


@pytest.mark.parametrize("name", dict.fromkeys(row[0] for row in ROWS))
def test_first_is_the_earliest_of_them(name: str) -> None:
    result = replayed(name)
    assert result.first is not None
    telling = [item for item in result.differences if item.kind not in ("white_space", "spelling")]
    assert result.first.frame == min(item.frame for item in telling)
    assert result.first.track == "upstream"
    assert result.first.worst == result.differences[0].kind


def test_the_input_that_it_came_from() -> None:
    """The tokens of frame 6 of the first row are the fourth step's after the prompt: they hold the end of the call."""
    trace = relayed(captures()["vllm_dsv31-tool_multitoken"])
    first = Replayer().replay(trace).first
    assert first is not None
    event = trace.records["input", "engine"][first.cause]
    assert event.cause == 6
    assert event.event.pieces[0] == b'"}'
    assert first.replayed is not None
    assert first.replayed.cause == first.cause


FAILED = [
    ("transformers_qwen3stub-error_midstream", 16, "malformed_event"),
    ("transformers_qwen3stub-tool_malformed_json", 2, "malformed_event"),
    ("vllm_plain-error_midstream", 8, "500"),
    ("sglang_plain-engine_abort_midstream", 16, "abort"),
]


@pytest.mark.parametrize(("name", "frame", "code"), FAILED)
def test_an_error_in_the_stream_is_named_at_its_frame(name: str, frame: int, code: str) -> None:
    [note] = [note for note in replayed(name).notes if note.startswith("the stream has an error")]
    assert note.startswith(f"the stream has an error, at the upstream's frame {frame}: ")
    assert note.endswith(f"({code})")


FORCED = "vllm_pythonic-tool_required_multitoken"
CHANGED = {row[0] for row in ROWS} | {FORCED, "vllm_kimik2-tool_multitoken"}
"""Preamble of a model that was asked to think, and did not, is reasoning to vLLM: as in the rows above."""
TELLING = sorted(
    name
    for name, capture in captures().items()
    if capture.script is not None and capture.marked is None and not name.endswith("_no_token_ids")
)


@pytest.mark.parametrize("name", TELLING)
def test_no_other_stream_is_blamed(name: str) -> None:
    result = replayed(name)
    assert result.unreplayed == ""
    if name in CHANGED:
        assert result.verdict == "changed"
    else:
        assert result.verdict in ("same", "restyled"), result.differences


@pytest.mark.parametrize("name", TELLING)
def test_no_parse_depends_on_the_split(name: str) -> None:
    """How a server grouped its tokens is chance: the blame is the same under any split."""
    splits = ("recorded", "one", "token", "rand:1:5")
    result = Replayer(splits=splits).replay(relayed(captures()[name]))
    assert result.split_groups == ()
    assert len(set(result.splits.values())) == 1


def test_a_call_that_was_forced_in_another_form_is_said_to_be_one() -> None:
    """vLLM held the model to bare JSON, which is no call in the model's own format."""
    notes = replayed(FORCED).notes
    assert any(note.startswith("the request forced a call (tool_choice required)") for note in notes)


def test_a_difference_in_words() -> None:
    [lost, *_] = replayed("vllm_dsv31-tool_multitoken_b").differences
    assert lost == Difference(
        0, "call_lost", "tool_calls[1]", None, 'get_weather {"city": "Tokyo"}', frame=11, step=10,
        place="upstream's frame 11: no call; parser deepseek_v3+deepseek_v31: call 1 of 'get_weather'",
    )  # fmt: skip
