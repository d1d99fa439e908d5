"""Recorded sessions as evidence: what is taken from where, and that what we record keeps the rules."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay import ReplayError
from replay.evidence import evidence_of, markers_of
from stages.errors import UnknownName
from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    ErrorInput,
    Head,
    Input,
    Layer,
    PromptInput,
    Sent,
    TokensInput,
    UsageInput,
)
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.rules import Evidence, check
from stages.protocols.rules.reading import Reading
from store import trace as traces
from store.api import Mode, Record, State, Trace
from tests.support.replay import CALLS, SAID, aborted, cut, opening, record, text_steps, tokens, whole

TRACES = Path(__file__).parents[1] / "traces"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("tide", "moon")
]
REQUEST: dict[str, Any] = {
    "model": "demo-1", "messages": [{"role": "user", "content": "When is high tide?"}], "tools": TOOLS, "stream": True,
    "max_tokens": 500,
}  # fmt: skip
STEPS = whole(tokens(SAID))


def opened(**request: Any) -> Opening:
    asked = {**REQUEST, **request}
    ask = {"stream": asked["stream"], "n": asked.get("n", 1)}
    return msgspec.structs.replace(opening(**ask), request=json.dumps(asked).encode())


def session(
    inputs: list[Input] = STEPS, *, state: State = "closed", mode: Mode = "full", sent: int | None = None, **asked: Any
) -> Trace:
    """A session whose socket took the first ``sent`` frames, all by default."""
    made = record(opened(**asked), inputs, state=state)
    frames = made.events("served", "frame")
    took = len(frames) if sent is None else sent
    size = sum(len(frame.data) for frame in frames[:took] if not isinstance(frame, Head))
    socket: dict[tuple[str, Layer], list[Record]] = {("socket", "frame"): [Record(0, -1, 0, Sent(took, size))]}
    made.records = {**made.records, **socket}
    if mode == "lean":
        lean = record(opened(**asked), inputs, state=state, mode="lean")
        lean.records = {**lean.records, **socket}
        return lean
    return made


def data(found: Trace) -> list[bytes]:
    return [frame.data for frame in found.events("served", "frame") if isinstance(frame, Block | Comment | Body)]


def _asking(ask: Ask) -> dict[str, Any]:
    """A request that asks for this: most golden traces have none."""
    tools = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in ask.tools]
    usage = {"include_usage": ask.include_usage}
    asked = {"stream": ask.stream, "n": ask.n, "tools": tools, "stream_options": usage, "logprobs": ask.logprobs}
    return {**asked, "top_logprobs": ask.top_logprobs, "return_token_ids": ask.return_token_ids}


def rules_of(evidence: Evidence) -> set[str]:
    return set(check(evidence).counts)


# --- what is taken from where ---------------------------------------------------------------------------------------


def test_a_streamed_session() -> None:
    found = session()
    evidence = evidence_of(found)
    assert evidence.body == b"".join(data(found))
    assert (evidence.protocol, evidence.own, evidence.marked) == ("chat", True, "complete")
    assert evidence.request == REQUEST
    head = found.events("served", "frame")[0]
    assert evidence.http is not None
    assert (evidence.http.status, evidence.http.headers) == (200, head.headers)
    assert evidence.sent is not None
    assert evidence.sent.size == len(evidence.body)
    assert evidence.sent.sha256 == hashlib.sha256(evidence.body).hexdigest()
    [meant] = list(evidence.meant or ())
    assert [call.name for call in meant.tool_calls] == ["tide", "moon"]
    assert (evidence.whole, evidence.replayed, evidence.effort, evidence.other) == (None, None, None, None)
    report = check(evidence)
    assert report.counts == {}
    assert {26, 27, 28, 41, 136} <= set(report.checked)


def test_frame_numbers_are_those_of_the_records() -> None:
    found = session()
    reading = Reading(evidence_of(found).body, evidence_of(found).first)
    records = found.records["served", "frame"]
    assert [block.number for block in reading.blocks] == [record.seq for record in records[1:]]


def test_what_the_engine_did() -> None:
    inputs = whole(tokens("Two a day."), tokens("One …", 1))
    engine = evidence_of(session(inputs, n=2, tools=[])).engine
    assert engine is not None
    assert (engine.prompt, engine.prompt_ids) == (3, (1, 2, 3))
    for index, text in enumerate(("Two a day.", "One …")):
        ids = [event.ids[0] for event in inputs if isinstance(event, TokensInput) and event.choice == index]
        assert engine.choices[index].ids == tuple(ids)
        assert b"".join(engine.choices[index].pieces) == text.encode()
        assert (engine.choices[index].reason, engine.choices[index].cap) == ("eos", 500)


@pytest.mark.parametrize(
    ("asked", "room", "cap"),
    [
        ({"max_tokens": 5}, None, 5), ({"max_tokens": None}, None, None), ({"max_tokens": 50}, 13, 10),
        ({"max_tokens": None}, 13, 10), ({"max_completion_tokens": 7, "max_tokens": 9}, 100, 7),
    ],
)  # fmt: skip
def test_the_cap_is_what_was_asked_for_or_what_the_context_leaves(
    asked: dict[str, Any], room: int | None, cap: int | None
) -> None:
    found = session(**asked)
    facts = EngineFacts(kind="hf", model="demo-1", max_tokens=room)
    found.opening = msgspec.structs.replace(found.opening, engine=facts)
    engine = evidence_of(found).engine
    assert engine is not None
    assert engine.choices[0].cap == cap
    # A script says what it likes.
    facts = EngineFacts(kind="scripted", model="demo-1", max_tokens=room)
    found.opening = msgspec.structs.replace(found.opening, engine=facts)
    engine = evidence_of(found).engine
    assert engine is not None
    assert engine.choices[0].cap is None


def test_an_engine_without_ids_cannot_be_counted() -> None:
    inputs: list[Input] = [PromptInput((), "", 3), *text_steps("Two a day."), UsageInput(3, 4)]
    evidence = evidence_of(session(inputs))
    assert evidence.engine is None
    assert evidence.meant is not None


def test_markers_are_literals_that_are_no_text_of_their_own() -> None:
    enders = {"<|im_end|>", "<|endoftext|>"}
    assert set(markers_of(opening())) == {"<tool_call>", "</tool_call>", "<think>", "</think>"} | enders
    assert not {"```json", "```", "'", ">"} & set(markers_of(opening(parser="xlam")))
    assert "<function=" not in markers_of(opening(parser="qwen3-xml"))
    assert not enders & set(markers_of(opening(keep_special=True)))
    assert markers_of(msgspec.structs.replace(opening(), parser="mine.py:Parser")) == ()


def test_writes_are_moments() -> None:
    found = session()
    records = found.records["served", "frame"]
    sizes = [len(one) for one in data(found)]
    times = [0, 5, 5, *range(9, 9 + len(records) - 3)]
    changed = [msgspec.structs.replace(one, at=at) for one, at in zip(records, times, strict=True)]
    found.records = {**found.records, ("served", "frame"): changed}
    writes = evidence_of(found, keep_alive=0.5).writes
    assert writes is not None
    assert [(write.at, write.end) for write in writes.items[:2]] == [(5, sum(sizes[:2])), (9, sum(sizes[:3]))]
    assert writes.items[-1].end == sum(sizes)
    assert (writes.begun, writes.ended, writes.keep_alive) == (0, times[-1], 500_000_000)


def test_a_body_that_is_waited_for_has_no_comments() -> None:
    writes = evidence_of(session(stream=False), keep_alive=0.5).writes
    assert writes is not None
    assert writes.keep_alive == 0


def test_a_request_id_twice() -> None:
    found = session()
    assert rules_of(evidence_of(found, seen=frozenset({found.opening.response_id}))) == {"INV-006"}


# --- without streaming, errors --------------------------------------------------------------------------------------


def test_a_session_that_did_not_stream() -> None:
    found = session(stream=False)
    evidence = evidence_of(found, effort=True)
    assert json.loads(evidence.body)["object"] == "chat.completion"
    report = check(evidence)
    assert report.counts == {}
    assert {2, 6, 7, 9, 134, 136} <= set(report.checked)
    assert all("stream" in report.unchecked[number] for number in (10, 26, 44, 75, 132))


def test_an_error_before_the_first_byte() -> None:
    evidence = evidence_of(session([ErrorInput("too_large", "The prompt is too long.")]), effort=True)
    assert evidence.http is not None
    assert evidence.http.status == 413
    assert evidence.whole is None
    report = check(evidence)
    assert report.counts == {}
    assert 2 in report.checked


def test_an_error_in_the_stream() -> None:
    evidence = evidence_of(session([*STEPS[:20], ErrorInput("engine", "out of memory")]), effort=True)
    assert b'"error"' in evidence.body
    assert evidence.marked == "complete"
    assert rules_of(evidence) == set()


# --- how it ended ---------------------------------------------------------------------------------------------------


def test_a_client_that_leaves() -> None:
    evidence = evidence_of(session(aborted(STEPS, 30), state="aborted", sent=12), effort=True)
    assert evidence.marked == "client_closed"
    assert rules_of(evidence) == set()


def test_a_client_that_leaves_while_the_last_frames_are_written() -> None:
    count = len(session().events("served", "frame"))
    for state in ("closed", "detached"):
        evidence = evidence_of(session(sent=count - 2, state=state))
        assert evidence.marked == "client_closed"
        assert evidence.sent is not None
        assert evidence.sent.size < len(evidence.body)
        assert rules_of(evidence) == set()


def test_an_abort_that_the_client_is_told_of() -> None:
    evidence = evidence_of(session([*STEPS[:30], AbortInput("shutdown")], state="aborted"))
    assert evidence.marked == "complete"
    assert evidence.body.endswith(b"data: [DONE]\n\n")
    assert rules_of(evidence) == set()


@pytest.mark.parametrize("state", ["torn", "incomplete", "open"])
def test_of_what_was_cut_only_the_stream_is_judged(state: State) -> None:
    found = cut(session(state=state), "frame", 9)
    evidence = evidence_of(found, effort=True)
    assert evidence.body == b"".join(data(found))
    assert evidence.marked == "truncated"
    assert (evidence.engine, evidence.meant, evidence.sent, evidence.whole, evidence.replayed) == (None,) * 5
    assert rules_of(evidence) == set()


def test_nothing_was_served() -> None:
    evidence = evidence_of(cut(session(state="torn"), "frame", 0))
    assert (evidence.body, evidence.http) == (b"", None)
    assert rules_of(evidence) == set()


# --- lean, again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_lean_session_is_derived_first(stream: bool) -> None:
    full, lean = (
        evidence_of(session(stream=stream), effort=True),
        evidence_of(session(stream=stream, mode="lean"), effort=True),
    )
    assert lean.writes is not None
    assert msgspec.structs.replace(lean, writes=full.writes) == full
    # Its frames have the times of the inputs that they came from.
    assert lean.writes.items[-1].at == 1000 * (len(STEPS) - 1)
    assert rules_of(lean) == set()


def test_a_lean_session_that_cannot_be_had_again() -> None:
    found = session(mode="lean")
    digests = {**found.info.digests, "served/frame": msgspec.structs.replace(found.info.digests["served/frame"], n=1)}
    found.info = msgspec.structs.replace(found.info, digests=digests)
    with pytest.raises(ReplayError, match="do not give the recorded digests"):
        evidence_of(found)
    found.opening = msgspec.structs.replace(found.opening, parser="gone.py:Parser")
    with pytest.raises(ReplayError, match="cannot be had"):
        evidence_of(found)


def test_effort_encodes_again() -> None:
    evidence = evidence_of(session(), effort=True)
    plain = json.loads(evidence_of(session(stream=False)).body)
    assert json.loads(evidence.whole or b"") == plain
    assert evidence.replayed == evidence.body
    assert evidence.effort is True
    report = check(evidence)
    assert report.counts == {}
    assert {23, 132, 134, 137} <= set(report.checked)


def test_a_protocol_that_is_not_known() -> None:
    found = session()
    found.opening = msgspec.structs.replace(found.opening, protocol="other")
    with pytest.raises(UnknownName, match="no protocol 'other'"):
        evidence_of(found)


# --- what is wrong shows --------------------------------------------------------------------------------------------


def test_more_bytes_than_were_recorded() -> None:
    found = session()
    [sent] = found.events("socket", "frame")
    found.records = {**found.records, ("socket", "frame"): [Record(0, -1, 0, Sent(sent.seq, sent.size + 1))]}
    assert rules_of(evidence_of(found)) == {"INV-136"}


def test_a_size_that_the_frames_do_not_have() -> None:
    found = session(aborted(STEPS, 30), state="aborted", sent=12)
    [sent] = found.events("socket", "frame")
    found.records = {**found.records, ("socket", "frame"): [Record(0, -1, 0, Sent(sent.seq, sent.size - 1))]}
    assert rules_of(evidence_of(found)) == {"INV-136"}


def test_a_frame_that_the_encoder_does_not_write() -> None:
    found = session(whole(tokens("Two a day.")))
    rows = list(found.records["served", "frame"])
    spoiled = Block(rows[2].event.data.replace(b'"content":"Two', b'"content":"Ten'))
    assert spoiled != rows[2].event
    rows[2] = msgspec.structs.replace(rows[2], event=spoiled)
    found.records = {**found.records, ("served", "frame"): rows}
    report = check(evidence_of(found, effort=True))
    assert {"INV-026", "INV-132", "INV-134"} <= set(report.counts)
    assert {one.frame for one in report.violations if one.rule == "INV-134"} == {2}


def test_what_a_model_writes_wrong() -> None:
    stray = "Two <tool_call> a day."  # no call: it stays text, marker and all
    unknown = CALLS.replace('"tide"', '"high"')
    for said, rule in ((stray, "INV-032"), (unknown, "INV-036")):
        report = check(evidence_of(session(whole(tokens(said)))))
        assert {one.rule: one.severity for one in report.violations} == {rule: "warning"}


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.iterdir()))
def test_the_golden_traces_keep_the_rules(name: str) -> None:
    for found in traces.read_many(TRACES / name):
        if found.opening.request == b"{}":
            asking = json.dumps(_asking(found.opening.ask)).encode()
            found.opening = msgspec.structs.replace(found.opening, request=asking)
        broken = check(evidence_of(found, effort=True)).violations
        # What the generators wrote is damaged in part, and says things in any order: habits are not kept.
        written = not name.endswith(".zst")
        assert [one for one in broken if written or one.severity == "error"] == []
