"""Network bytes rebuilt from public reports of servers, proxies and clients (data/public_streams.jsonl).

The decoder gives the same events however they are cut; the rules tell what a proxy or a recorder spoilt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from stages.protocols.rules import Evidence, Http, Protocol, Report, check
from stages.sse import SseDecoder, SseEvent
from tests.support.tree import ROOT
from tests.support.wire import fired

Line: TypeAlias = dict[str, Any]

CASES: list[Line] = [
    case
    for line in (ROOT / "tests" / "data" / "public_streams.jsonl").read_text(encoding="utf-8").splitlines()
    if "wire_hex" in (case := json.loads(line))
]
SPOILT = [case for case in CASES if "bad_wire_hex" in case]

EVENT_STREAM = Http(
    200,
    (
        ("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"), ("transfer-encoding", "chunked"), ("x-request-id", "chatcmpl-1"),
        ("request-id", "chatcmpl-1"),
    ),
)  # fmt: skip

RULES: dict[str, frozenset[int]] = {
    # What is right here is legal server-sent events, and odd: our own streams are never so.
    "sse-retry-and-id-only-blocks": frozenset((14, 15, 16, 17)),
    "sse-crlf-events-never-found": frozenset((12,)),
    "sse-bare-cr-line-ends": frozenset((12,)),
    "sse-mixed-line-ends": frozenset((12,)),
    "sse-multi-line-data": frozenset((19,)),
    "sse-data-without-space": frozenset((14,)),
    "sse-done-sentinel-with-odd-framing": frozenset((20, 75)),
    "sse-done-without-finish-reason": frozenset((33, 65)),
    "sse-malformed-last-chunk-swallowed": frozenset((20, 33)),
    "sse-comment-reemitted-as-data": frozenset(),
    "sse-comment-taken-for-end-of-stream": frozenset(),
    "sse-several-events-in-one-chunk": frozenset(),
}
"""Framing rules, and those on its end, that must speak of these bytes; none: they are clean."""

SPOILT_RULES: dict[str, int] = {"sse-comment-reemitted-as-data": 20, "recorder-adds-blank-lines-to-every-line": 116}


def named(case: Line) -> str:
    name: str = case["id"]
    return name


def pieces(case: Line, field: str = "wire_hex") -> list[bytes]:
    return [bytes.fromhex(piece) for piece in case[field]]


def cuts(case: Line, field: str = "wire_hex") -> Iterator[list[bytes]]:
    """As it came, whole, byte by byte, and at random."""
    came = pieces(case, field)
    body = b"".join(came)
    yield came
    yield [body]
    yield [body[at : at + 1] for at in range(len(body))]
    dice = random.Random(case["id"])
    for _ in range(20):
        places = sorted(dice.choices(range(len(body) + 1), k=dice.randrange(1, 12)))
        yield [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


def decoded(reads: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for read in reads for event in decoder.feed(read)]


def judged(body: bytes, family: str, own: bool = True) -> Report:
    protocol: Protocol = "messages" if family == "anthropic-protocol" else "chat"
    return check(Evidence(body=body, protocol=protocol, own=own, request={"stream": True}, http=EVENT_STREAM))


def test_they_are_all_here() -> None:
    assert (len(CASES), len(SPOILT)) == (15, 2)
    assert {case["id"] for case in SPOILT} == SPOILT_RULES.keys()


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_events_are_the_same_under_every_cut(case: Line) -> None:
    want = [
        SseEvent(event.get("event", "message"), event["data"], event.get("id", ""))
        for event in case["expected"]["events"]
    ]
    for reads in cuts(case):
        assert decoded(reads) == want


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in RULES], ids=named)
def test_what_the_rules_say_of_it(case: Line) -> None:
    found = fired(judged(b"".join(pieces(case)), case["family"]))
    assert RULES[case["id"]] <= found
    assert RULES[case["id"]] or not found, found


@pytest.mark.parametrize("case", SPOILT, ids=named)
def test_what_was_spoilt_is_reported(case: Line) -> None:
    rule = SPOILT_RULES[case["id"]]
    assert rule not in fired(judged(b"".join(pieces(case)), case["family"]))
    assert rule in fired(judged(b"".join(pieces(case, "bad_wire_hex")), case["family"]))
    right = decoded(pieces(case))
    for reads in cuts(case, "bad_wire_hex"):
        assert decoded(reads) != right


def test_a_ping_may_come_before_the_message() -> None:
    (case,) = (case for case in CASES if case["id"] == "sse-keepalive-must-be-data-for-some-clients")
    body = b"".join(pieces(case))
    report = judged(body, case["family"], own=False)
    assert not fired(report) & {17, 18, 20, 116, 117, 129}
    # The same event is no keep-alive in the chat protocol: its clients read it as a chunk.
    assert fired(judged(body.partition(b"\n\n")[0] + b"\n\n", "openai-protocol")) >= {44, 46, 77}


def test_a_plain_error_body_is_no_stream() -> None:
    (case,) = (case for case in CASES if case["id"] == "sse-raw-json-error-body")
    body = b"".join(pieces(case))
    assert 3 in fired(judged(body, case["family"]))
    assert json.loads(body)["type"] == case["expected"]["error"]["type"]
    # With its status it is an error's body; only, ours have the error in an object of its own.
    http = Http(400, (("content-type", "application/json"), ("x-request-id", "chatcmpl-1")))
    nested = json.dumps({"error": {**json.loads(body), "param": None, "code": "400"}}).encode()
    flat, ours = (
        fired(check(Evidence(body=one, own=True, request={"stream": True}, http=http))) for one in (body, nested)
    )
    assert 2 in flat
    assert 2 not in ours
    assert 3 not in flat | ours
