"""Rule 133 between what a server sent (data/captures) and what we make of it in another protocol: each says what the
other says."""

from __future__ import annotations

import pytest

from stages.events import Block
from stages.protocols.rules import Evidence, Protocol, check
from tests.support.captures import captures
from tests.upstream.test_translate_captures import PAIRS, inputs_of, opening_of, served

OURS_FAILS = {
    # It ends with the reason "abort", which is no answer: what was asked for never came.
    "sglang_plain-engine_abort_midstream",
    # Its error has a line break or a quote in it and so is no JSON: a client of its own reads no error.
    "transformers_qwen3stub-error_midstream",
    "transformers_qwen3stub-tool_malformed_json",
}
"""Where only we tell an error."""
NO_STREAM = {
    # Its first event is an error: that is our status then, and the body no stream.
    "vllm_hermes-error_before_first_token",
}
SAME = [(name, to) for name, to in PAIRS if captures()[name].marked is None and name not in NO_STREAM]


@pytest.mark.parametrize(("name", "to"), SAME)
def test_both_streams_say_the_same(name: str, to: Protocol) -> None:
    capture = captures()[name]
    opening = opening_of(capture, to)
    _, frames = served(opening, inputs_of(capture, opening))
    ours = (to, b"".join(frame.data for frame in frames if isinstance(frame, Block)))
    theirs = (capture.protocol, capture.data)
    for (protocol, body), other in ((ours, theirs), (theirs, ours)):
        report = check(Evidence(body=body, protocol=protocol, other=other))
        assert 133 in report.checked
        found = [one.seen for one in report.violations if one.rule == "INV-133"]
        assert found == ([f"an error in {to} only"] if name in OURS_FAILS else [])
