"""Streams that are nearly right: each was once let pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.evidence import evidence_of
from stages.protocols.rules import Evidence, check
from tests.support.invariants import request_of, session_of
from tests.support.parse import opening, session, tokens
from tests.support.wire import ABSENT, Edit, golden, put

CHOICE = ("choices", 0)
ENTRY = (*CHOICE, "logprobs", "content", 0)
FUNCTION = (*CHOICE, "delta", "tool_calls", 0, "function")


@pytest.mark.parametrize(
    ("rule", "name", "edit"),
    [
        (45, "G01", put(2, "created", to=1760000000.0)),
        (53, "G02", put(2, *FUNCTION, "arguments", to=None)),
        (64, "G01", put(3, *CHOICE, "delta", to={"content": ""})),
        (73, "G06", put(1, *ENTRY, "top_logprobs", to=ABSENT)),
    ],
    ids=["a time of another type", "null arguments", "an empty text beside the finish", "no alternatives"],
)
def test_it_is_seen(rule: int, name: str, edit: Edit) -> None:
    assert f"INV-{rule:03}" not in golden(name).report().counts
    assert f"INV-{rule:03}" in golden(name).edited(edit).report().counts


@pytest.mark.parametrize(("strict", "weight"), [(True, "error"), (False, "warning")])
def test_a_call_that_the_model_broke_off_is_seen_in_a_recorded_session_too(strict: bool, weight: str) -> None:
    """That the parser knows of it changes nothing: no stop string and no length cut it."""
    made = opening(stream=True)
    asked: dict[str, Any] = request_of(made.ask)
    for tool in asked["tools"]:
        tool["function"]["strict"] = strict
    trace = session_of(made, session(tokens('<tool_call>\n{"name": "tide", "arguments": {"port": "Br')))
    given = evidence_of(trace)
    given = msgspec.structs.replace(given, request=asked)
    [found] = [one for one in check(given).violations if one.rule == "INV-037"]
    assert found.severity == weight


@pytest.mark.parametrize("asks", [{"tools": ()}, {"tool_choice": "none"}])
def test_markers_of_calls_are_text_where_no_call_may_be(asks: dict[str, Any]) -> None:
    trace = session_of(opening(stream=True, **asks), session(tokens("They go in <tool_call> tags.")))
    report = check(evidence_of(trace))
    assert 32 in report.checked
    assert "INV-032" not in report.counts


def test_a_whole_body_alone_is_no_broken_stream() -> None:
    report = check(Evidence(body=b'{"id":"c","object":"chat.completion","choices":[]}'))
    assert report.violations == ()
    assert report.unchecked[75] == ("stream",)
