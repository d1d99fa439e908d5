"""What was made of another server's response, made again: its own parse, and what the client got."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.result import SessionResult
from replay.run import Replayer
from replay.upstream_layers import checked, relay_of
from replay.verdict import Verdict
from stages.events import AbortInput, Block, Body, Content, End, ErrorInput, Frame, Head, Layer
from stages.stage import fold
from stages.upstream.decode import DECODERS
from store import codec
from store.api import Record, Trace
from tests.support.captures import captures
from tests.support.upstream_traces import frames_of, relayed, session, with_opening, with_records

PLAIN = "vllm_plain-plain"
CUT = ErrorInput("engine", "The upstream cut its answer.", "upstream_cut")


def replayed(trace: Trace, **options: Any) -> SessionResult:
    return Replayer(**options).replay(trace)


def verdicts(result: SessionResult) -> tuple[Verdict, Verdict]:
    return result.layers["upstream"], result.layers["relay"]


def tampered(trace: Trace, track: str, layer: Layer, seq: int, **fields: Any) -> Trace:
    records = list(trace.records[track, layer])
    if "cause" in fields:
        records[seq] = msgspec.structs.replace(records[seq], cause=fields["cause"])
    else:
        records[seq] = msgspec.structs.replace(
            records[seq], event=msgspec.structs.replace(records[seq].event, **fields)
        )
    return with_records(trace, track, layer, records)


def lean(trace: Trace) -> Trace:
    """As a lean store gives it back: the facts, and a digest of what was made of them."""
    kept = {key: rows for key, rows in trace.records.items() if key in (("input", "engine"), ("upstream", "frame"))}
    digests = {
        f"{track}/{layer}": codec.digest([row.event for row in rows])
        for (track, layer), rows in trace.records.items()
        if (track, layer) not in kept
    }
    info = msgspec.structs.replace(trace.info, mode="lean", digests=digests)
    return Trace(opening=trace.opening, info=info, records=kept)


@pytest.mark.parametrize("name", captures())
@pytest.mark.parametrize("mode", ["full", "lean"])
def test_every_response_is_made_again(name: str, mode: str) -> None:
    capture = captures()[name]
    left = capture.marked is not None
    trace = relayed(capture, last=AbortInput("client") if left else End(), state="aborted" if left else "closed")
    result = replayed(trace if mode == "full" else lean(trace))
    assert verdicts(result) == ("same", "same")
    assert result.stages == {"parser": (None, result.parser)}


@pytest.mark.parametrize("depth", ["verbatim", "tokens"])
@pytest.mark.parametrize("keep", range(12))
def test_a_response_that_broke_off_is_made_again(keep: int, depth: str) -> None:
    capture = captures()["vllm_hermes-tool_single_delta" if keep < 3 else PLAIN]
    whole = relayed(capture, depth=depth)
    frames = frames_of(capture)[:keep]
    for last in (CUT, AbortInput("client"), End()):
        inputs: list[Any] = [] if isinstance(last, End) else [(last, keep - 1)]
        trace = session(whole.opening, frames, inputs, last, "aborted" if isinstance(last, AbortInput) else "closed")
        assert verdicts(replayed(trace)) == ("same", "same")


@pytest.mark.parametrize("keep", range(12))
def test_a_torn_record_is_the_beginning(keep: int) -> None:
    capture = captures()[PLAIN]
    whole = relayed(capture)
    trace = session(whole.opening, frames_of(capture)[:keep], [], None, "torn")
    for track, layer in (("upstream", "semantic"), ("served", "frame")):
        key: tuple[str, Layer] = (track, "semantic" if layer == "semantic" else "frame")
        shorter = with_records(trace, *key, trace.records.get(key, [])[:-1])
        assert set(replayed(shorter).layers.values()) <= {"same"}


def test_another_parse_is_named_with_its_frame() -> None:
    trace = relayed(captures()[PLAIN])
    events = trace.events("upstream", "semantic")
    seq = next(seq for seq, event in enumerate(events) if isinstance(event, Content))
    cause = trace.records["upstream", "semantic"][seq].cause
    result = replayed(tampered(trace, "upstream", "semantic", seq, text="Or "))
    assert result.layers["upstream"] == "changed"
    assert result.layers["relay"] == "same"
    assert result.verdict == "changed"
    place = checked(tampered(trace, "upstream", "semantic", seq, text="Or ")).first
    assert place is not None
    assert (place.track, place.layer, place.seq, place.frame) == ("upstream", "semantic", seq, cause)
    assert place.detail == "upstream/semantic, text at character 0"
    assert place.recorded is not None
    assert "'Or '" in place.recorded.event


def test_another_cause_is_a_move() -> None:
    result = replayed(tampered(relayed(captures()[PLAIN]), "upstream", "semantic", 3, cause=0), layer="semantic")
    assert result.layers["upstream"] == "moved"
    assert "relay" not in result.layers


def test_bytes_that_the_client_did_not_get_are_named() -> None:
    trace = relayed(captures()[PLAIN])
    block: Block = trace.events("served", "frame")[3]
    result = replayed(tampered(trace, "served", "frame", 3, data=block.data.replace(b"data", b"dada")))
    assert verdicts(result) == ("same", "changed")
    assert result.layers["message"] == "same"
    assert result.first is not None
    assert (result.first.track, result.first.layer, result.first.seq, result.first.frame) == ("served", "frame", 3, 3)
    assert result.first.detail == "served/frame, byte 2"


@pytest.mark.parametrize(("layer", "names"), [
    ("message", {"message"}), ("semantic", {"message", "upstream"}), ("chunk", {"message", "upstream"}),
    ("frame", {"message", "upstream", "relay"}),
])  # fmt: skip
def test_how_deep(layer: Any, names: set[str]) -> None:
    assert set(replayed(relayed(captures()[PLAIN]), layer=layer).layers) == names


def test_only_digests_that_differ() -> None:
    trace = lean(relayed(captures()[PLAIN]))
    other = codec.digest([Head(200, ())])
    digests = {**trace.info.digests, "served/frame": other}
    info = msgspec.structs.replace(trace.info, digests=digests)
    result = replayed(Trace(opening=trace.opening, info=info, records=trace.records))
    assert verdicts(result) == ("same", "changed")
    assert result.first is not None
    assert result.first.kind == "unknown"
    assert result.first.detail.startswith("served/frame: only a digest was recorded")


def test_a_decoder_that_is_another_one_says_so() -> None:
    trace = relayed(captures()[PLAIN])
    name = DECODERS["chat"].id.partition("@")[0]
    old = with_opening(trace, stages={**trace.opening.stages, "decoder": f"{name}@0"})
    assert replayed(old).stages["decoder"] == (f"{name}@0", DECODERS["chat"].id)


def test_token_ids_that_were_taken_out() -> None:
    """The client got none; what it got is made again with none."""
    trace = relayed(captures()[PLAIN], taken_out="null")
    assert b'"token_ids":[' not in b"".join(f.data for f in trace.events("served", "frame") if not isinstance(f, Head))
    assert verdicts(replayed(trace)) == ("same", "same")


def test_what_the_client_got_of_a_lean_session() -> None:
    trace = relayed(captures()[PLAIN], taken_out="null")
    got = relay_of(lean(trace))
    assert [record.event for record in got] == trace.events("served", "frame")
    # At the times of the frames that they came of.
    frames = trace.records["upstream", "frame"]
    assert [record.at for record in got] == [frames[min(record.cause, len(frames) - 1)].at for record in got]


def test_a_compressed_body_is_passed_on_and_not_read() -> None:
    whole = relayed(captures()[PLAIN], depth="verbatim")
    head = Head(200, (("content-type", "text/event-stream"), ("content-encoding", "gzip")))
    body = Body(b"\x1f\x8b\x08 ")
    trace = session(whole.opening, [head, body], [], End(), "closed")
    given: list[Frame | End] = [head, body, End()]
    semantic = fold(DECODERS["chat"].start(whole.opening), given)
    # Neither what it says, nor that it broke off.
    assert semantic == [End()]
    trace = with_records(trace, "upstream", "semantic", [Record(0, 1, 0, End())])
    assert verdicts(replayed(trace)) == ("same", "same")
