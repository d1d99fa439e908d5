"""A relayed session as what the rules judge: another server's stream, as its client got it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.evidence import evidence_of
from stages.events import AbortInput, End, ErrorInput, FinishInput, Head, PromptInput, Sent, TokensInput
from stages.opening import EngineFacts
from stages.protocols.rules import Report, check
from store.api import Record, Trace
from tests.support.captures import Capture, captures
from tests.support.upstream_traces import frames_of, relayed, session, with_opening, with_records

PLAIN = "vllm_plain-plain"


def trace_of(capture: Capture, **options: Any) -> Trace:
    if capture.marked is None:
        return relayed(capture, **options)
    return relayed(capture, last=AbortInput("client"), state="aborted", **options)


def places(report: Report, first: int) -> set[tuple[str, int]]:
    """Rules and frames, but for what needs the body without streaming, which no session has."""
    return {(one.rule, one.frame - first) for one in report.violations if one.rule != "INV-132" and one.frame >= 0}


@pytest.mark.parametrize("name", captures())
def test_it_breaks_the_rules_that_the_stream_breaks(name: str) -> None:
    """Neither less nor more, at the same frames: the head is the recording's frame 0."""
    capture = captures()[name]
    mine, theirs = check(evidence_of(trace_of(capture), effort=True)), check(capture.evidence())
    assert set(mine.counts) == set(theirs.counts) - {"INV-132"}
    assert places(mine, 1) == places(theirs, 0)


def test_what_it_is() -> None:
    capture = captures()[PLAIN]
    evidence = evidence_of(trace_of(capture), effort=True)
    assert evidence.body == capture.data
    assert (evidence.own, evidence.first, evidence.marked, evidence.protocol) == (False, 1, "complete", "chat")
    assert evidence.request == capture.request
    # Nothing of our stages was sent.
    assert (evidence.meant, evidence.whole, evidence.replayed) == (None, None, None)
    assert evidence.http is not None
    assert evidence.http.status == 200
    assert evidence.engine is not None
    assert capture.engine is not None
    assert evidence.engine.choices[0].ids == capture.engine.choices[0].ids
    assert evidence.engine.choices[0].cap is None


def test_what_the_client_got_is_judged_not_what_came() -> None:
    """The ids that it did not ask for are not in its stream."""
    trace = trace_of(captures()[PLAIN], taken_out="null")
    body = evidence_of(trace).body
    assert body == b"".join(frame.data for frame in trace.events("served", "frame") if not isinstance(frame, Head))
    assert b'"token_ids":[' not in body


def test_a_lean_session_is_relayed_again() -> None:
    trace = trace_of(captures()[PLAIN], taken_out="null")
    info = msgspec.structs.replace(trace.info, mode="lean")
    kept = {key: rows for key, rows in trace.records.items() if key in (("input", "engine"), ("upstream", "frame"))}
    full, lean = evidence_of(trace), evidence_of(Trace(opening=trace.opening, info=info, records=kept))
    assert (lean.body, lean.marked, lean.engine) == (full.body, full.marked, full.engine)
    assert lean.writes is not None
    assert full.writes is not None
    assert lean.writes.items[-1].end == full.writes.items[-1].end == len(full.body)


def test_behind_a_stop_string_ids_are_not_all_that_were_generated() -> None:
    trace = trace_of(captures()["vllm_plain-stop_string_multitoken"])
    assert any(isinstance(event, FinishInput) and event.reason == "stop" for event in trace.events("input", "engine"))
    engine = evidence_of(trace).engine
    assert engine is not None
    assert {choice.ids for choice in engine.choices.values()} == {()}


def test_a_bound_is_known_with_the_context_only() -> None:
    trace = trace_of(captures()["vllm_plain-length_mid_emoji"])
    asked = captures()["vllm_plain-length_mid_emoji"].request["max_tokens"]
    for context, cap in ((None, None), (100_000, asked)):
        known = with_opening(trace, engine=EngineFacts(kind="upstream", model="", max_tokens=context))
        engine = evidence_of(known).engine
        assert engine is not None
        assert engine.choices[0].cap == cap


def test_a_prompt_that_is_not_told_has_no_count() -> None:
    trace = trace_of(captures()[PLAIN])
    rows = [
        msgspec.structs.replace(row, event=PromptInput((), "", 0)) if isinstance(row.event, PromptInput) else row
        for row in trace.records["input", "engine"]
    ]
    engine = evidence_of(with_records(trace, "input", "engine", rows)).engine
    assert engine is not None
    assert engine.prompt is None


def test_without_ids_nothing_is_counted() -> None:
    trace = trace_of(captures()[PLAIN])
    rows = [
        msgspec.structs.replace(row, event=TokensInput(0, (), (), "text"))
        if isinstance(row.event, TokensInput)
        else row
        for row in trace.records["input", "engine"]
    ]
    assert evidence_of(with_records(trace, "input", "engine", rows)).engine is None
    assert evidence_of(trace_of(captures()[PLAIN], depth="verbatim")).engine is None


@pytest.mark.parametrize("keep", range(12))
def test_a_stream_that_was_cut_breaks_no_rule(keep: int) -> None:
    """The client gets the protocol's error, or was gone."""
    capture = captures()[PLAIN]
    opened = trace_of(capture).opening
    cut = ErrorInput("engine", "The upstream cut its answer.", "upstream_cut")
    for last in (cut, AbortInput("client")):
        state: Any = "aborted" if isinstance(last, AbortInput) else "closed"
        trace = session(opened, frames_of(capture)[:keep], [(last, keep - 1)], last, state)
        report = check(evidence_of(trace, effort=True))
        assert report.errors == (), (keep, last, report.errors)


def test_a_client_that_left_while_the_last_frames_were_written() -> None:
    trace = trace_of(captures()[PLAIN])
    frames = trace.events("served", "frame")
    size = sum(len(frame.data) for frame in frames[:3] if not isinstance(frame, Head))
    left = with_records(trace, "socket", "frame", [Record(0, -1, 0, Sent(3, size))])
    evidence = evidence_of(left)
    assert evidence.marked == "client_closed"
    assert check(evidence).errors == ()


def test_a_torn_session_is_a_cut_stream() -> None:
    capture = captures()[PLAIN]
    trace = session(trace_of(capture).opening, frames_of(capture)[:5], [], None, "torn")
    evidence = evidence_of(trace)
    assert (evidence.marked, evidence.engine) == ("truncated", None)
    assert check(evidence).errors == ()


def test_keep_alive_is_promised_by_nobody() -> None:
    trace = trace_of(captures()[PLAIN])
    writes = evidence_of(trace, keep_alive=1.0).writes
    assert writes is not None
    assert writes.keep_alive == 0


def test_a_refused_connection() -> None:
    opened = trace_of(captures()[PLAIN]).opening
    refused = ErrorInput("overloaded", "The upstream refused the connection.", "upstream_refused")
    trace = session(opened, [], [(refused, -1)], refused, "closed")
    evidence = evidence_of(trace, effort=True)
    assert evidence.http is not None
    assert evidence.http.status >= 500
    assert check(evidence).errors == ()
    assert End() not in trace.events("served", "frame")
