"""Streams rebuilt from public reports of other servers (data/public_streams.jsonl), under the rules.

Those reports name what is wrong in words of their own; CODES says which rules report each. A few words have no rule, a
few streams that the reports find right are not so by the protocol's definition, and one the other way round: the
definition stands, and the reason is beside the case.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from replay.cases import Case, read_cases, run_case
from stages import catalog
from stages.events import Block
from stages.protocols.rules import EngineChoice, EngineFacts, Evidence, Protocol, Report, check
from stages.stage import fold
from tests.support.tree import ROOT
from tests.support.wire import compact, fired

Line: TypeAlias = dict[str, Any]

CASES: list[Line] = [
    json.loads(line)
    for line in (ROOT / "tests" / "data" / "public_streams.jsonl").read_text(encoding="utf-8").splitlines()
]

CODES: dict[str, tuple[int, ...]] = {
    "tool_index_reused": (60,),
    "tool_index_missing": (57,),
    "tool_index_not_contiguous": (58,),
    "tool_id_missing": (59,),
    "tool_id_changed": (60,),
    "tool_id_repeated": (60,),
    "tool_name_missing": (59,),
    "tool_name_repeated": (60,),
    "tool_name_empty_string": (60,),
    "tool_type_missing": (59,),
    "tool_args_not_json": (37,),
    "finish_reason_wrong": (66,),
    "finish_reason_duplicate": (33,),
    "finish_reason_absent": (33, 65),
    "finish_reason_key_missing": (63,),
    "finish_reason_invalid_value": (63,),
    "finish_chunk_not_empty": (64,),
    "role_repeated": (51,),
    "role_missing_first": (51,),
    "role_invalid_value": (51,),
    "choice_index_out_of_range": (48,),
    "choices_null": (46,),
    "empty_content_delta": (30,),
    "usage_unrequested": (68,),
    "usage_missing": (67,),
    "usage_choices_missing": (46,),
    "usage_total_wrong": (40, 41),
    "logprobs_missing": (71,),
    "unknown_frame": (44, 46),
    "done_missing": (75,),
    "events_after_done": (24,),
    "resp_order": (92, 96, 97, 98),
    "resp_missing_event": (92, 95, 96, 99, 104),
    "resp_missing_field": (110, 111),
    "resp_seq_not_monotonic": (91,),
    "resp_id_mismatch": (94, 96),
    "resp_usage_shape": (110,),
    "anth_order": (117, 119, 124, 125),
    "anth_index_not_contiguous": (118,),
    "anth_delta_type_mismatch": (120,),
    "anth_block_not_open": (118,),
    "anth_block_overlap": (119,),
    "anth_args_not_json": (123,),
    "anth_stop_reason_wrong": (124, 126),
    "anth_event_after_stop": (24,),
    "anth_no_message_stop": (125,),
    "sse_data_not_json": (20,),
    "sse_no_event": (3,),
    "sse_event_type_lost": (90, 116),
}
"""Words of the reports, each with the rules of which one at least must report it."""

WITHOUT_A_RULE: dict[str, str] = {
    "tool_id_format": "the wire holds no word of the model; which ids its template reads is tested on our parser below",
    "logprobs_misaligned": "entries are promised per choice, not per chunk: a chunk may carry its neighbours'",
    "error_in_stream": "an error event is a legal end of a stream",
    "error_missing": "that the engine failed is nowhere in the stream; without an error it lacks its finish (33, 65)",
    "cumulative_text": "a text that repeats itself may be what was meant; the recorded text tells (26)",
    "anth_empty_block": "an empty text block is what an empty message has to send",
}

LEGAL: dict[str, tuple[str, ...]] = {
    # The protocol's table has `stop` where the request names the function, as the reported stream says.
    "named-tool-choice-finish-reason": ("finish_reason_wrong",),
    # No choice finishes in a stream that an error ends.
    "n-greater-one-chunks-lost-with-logprobs": ("finish_reason_absent",),
    "in-band-error-with-empty-choices": ("finish_reason_absent",),
}
"""What a report finds wrong and the protocol does not."""

LACKING: dict[str, frozenset[int]] = {
    # No `logprobs` array on the text events, no token details in usage: both are required.
    "responses-completed-before-created": frozenset((110, 111)),
    "responses-output-text-done-missing": frozenset((110, 111)),
    "responses-only-three-events": frozenset((110, 111)),
}
"""Streams that a report finds right, with the rules that they break all the same."""

ENGINE: dict[str, EngineFacts] = {
    # Its words are its tokens.
    "usage-counts-only-last-choice": EngineFacts(
        {0: EngineChoice((1, 2, 3), "eos"), 1: EngineChoice((4, 5), "eos")}, prompt=5
    ),
}

BAD = [case for case in CASES if "bad_stream" in case]
GOOD = [case for case in CASES if "good_stream" in case]
IRREGULAR = [case for case in CASES if "client_stream" in case and case["expected"].get("violations")]


def named(case: Line) -> str:
    name: str = case["id"]
    return name


def protocol_of(stream: list[Any]) -> Protocol:
    kind = stream[0].get("type", "")
    return "chat" if not kind else "responses" if kind.startswith("response.") else "messages"


def body_of(stream: list[Any]) -> bytes:
    """Each event as it would be written."""
    text = ""
    for event in stream:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        text += f"{name}data: {event if isinstance(event, str) else compact(event)}\n\n"
    return text.encode()


def called(text: str) -> set[str]:
    """The names of all calls in JSON text, wherever they stand."""
    return set(re.findall(r'"name":"(\w+)"', text))


def asked(case: Line, stream: list[Any]) -> dict[str, Any]:
    """The request. A report that says nothing of tools has them: those that are called."""
    tools: list[Any] = case.get("tools") or [
        {"type": "function", "name": name, "function": {"name": name, "parameters": {}}, "input_schema": {}}
        for name in sorted(called(compact(stream)))
    ]
    return {"stream": True, **({"tools": tools} if tools else {}), **case.get("request", {})}


def judged(case: Line, stream: list[Any], own: bool = False) -> Report:
    return check(
        Evidence(
            body=body_of(stream), protocol=protocol_of(stream), own=own, request=asked(case, stream),
            engine=ENGINE.get(case["id"]),
        )
    )  # fmt: skip


def test_they_are_all_here() -> None:
    assert (len(CASES), len(BAD), len(GOOD), len(IRREGULAR)) == (63, 37, 14, 3)
    ids = {case["id"] for case in CASES}
    assert LEGAL.keys() | LACKING.keys() | ENGINE.keys() <= ids
    assert not CODES.keys() & WITHOUT_A_RULE.keys()


@pytest.mark.parametrize("case", BAD + IRREGULAR, ids=named)
def test_what_is_wrong_is_reported(case: Line) -> None:
    found = fired(judged(case, case.get("bad_stream") or case["client_stream"]))
    for code in case["expected"]["violations"]:
        if code not in WITHOUT_A_RULE and code not in LEGAL.get(case["id"], ()):
            assert found & set(CODES[code]), (code, sorted(found))


@pytest.mark.parametrize("case", BAD, ids=named)
def test_what_has_no_rule_is_all_that_is_wrong(case: Line) -> None:
    codes = set(case["expected"]["violations"])
    if codes <= WITHOUT_A_RULE.keys() | set(LEGAL.get(case["id"], ())) and "error_in_stream" not in codes:
        assert not judged(case, case["bad_stream"]).violations


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
@pytest.mark.parametrize("case", GOOD, ids=named)
def test_what_is_right_is_clean(case: Line, own: bool) -> None:
    report = judged(case, case["good_stream"], own)
    assert fired(report) == LACKING.get(case["id"], frozenset()), report.violations


def parsed(case: Line, parser: str, folder: Path) -> Case:
    """The case's output, as a case of a parser."""
    line = {key: case[key] for key in ("id", "tools", "raw_output")}
    path = folder / "case.jsonl"
    path.write_text(json.dumps({**line, "parser": parser, "expected": {}}), encoding="utf-8")
    (found,) = read_cases(str(path))
    return found


@pytest.mark.parametrize("case", [case for case in CASES if "raw_output" in case], ids=named)
def test_our_own_stream_of_that_output_is_clean(case: Line, tmp_path: Path) -> None:
    run = parsed(case, "hermes", tmp_path)
    opening = msgspec.structs.replace(
        run.opening, response_id="chatcmpl-1", created=1700000000, model="m",
        ask=msgspec.structs.replace(run.opening.ask, stream=True),
    )  # fmt: skip
    layers = catalog.layers(opening)
    for split in run.splits:
        chunks = fold(layers.encoder.start(opening), run_case(run, split).events)
        frames = fold(layers.framer.start(opening), chunks)
        body = b"".join(frame.data for frame in frames if isinstance(frame, Block))
        assert body.endswith(b"data: [DONE]\n\n")
        assert called(body.decode()) == {call["name"] for call in case["expected"]["tool_calls"]}
        report = check(Evidence(body=body, own=True, request=asked(case, [])))
        assert not report.violations


FORMATS = {
    "mistral-tool-id-format-with-required": ("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {}}]'),
    "kimi-tool-id-round-trip": (
        "kimi_k2",
        "<|tool_call_begin|>functions.exec_command:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ),
}
"""For a family whose template reads ids: our parser, and a call as the model writes it."""


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in FORMATS], ids=named)
def test_ids_are_such_as_the_template_reads(case: Line, tmp_path: Path) -> None:
    parser, output = FORMATS[case["id"]]
    (rule,) = case["expected"]["checks"]
    (good,) = re.findall(r'"id":"([^"]+)","type":"function"', compact(case["good_stream"]))
    (bad,) = re.findall(r'"id":"([^"]+)","type":"function"', compact(case["bad_stream"]))
    assert re.search(rule["value"], good)
    assert not re.search(rule["value"], bad)
    name = called(compact(case["good_stream"])).pop()
    run = parsed(
        {**case, "raw_output": output, "tools": [{"type": "function", "function": {"name": name}}]}, parser, tmp_path
    )
    message = run_case(run, "one").message
    assert message is not None
    (call,) = message.tool_calls
    assert call.name == name
    assert re.search(rule["value"], call.id)
