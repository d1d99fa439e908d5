"""What a responses stream says, and that any JSON in it gets a report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.protocols.rules import Evidence, check
from stages.protocols.rules.case import said_in, said_whole
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.values import obj
from tests.protocols.rules.outputs import CUSTOM, CUT, FAILED, REFUSAL, SUMMARY, WHOLE
from tests.protocols.rules.reshaped import body, reshaped, values
from tests.support.wire import Stream, golden, insert


def test_what_a_stream_says() -> None:
    said = said_in("responses", Reading(WHOLE.body))
    choice = said.choices[0]
    assert (choice.text("reasoning"), choice.text("content"), choice.text("refusal")) == (
        "Need tides.",
        "Looking it up.",
        None,
    )
    assert [(one.id, one.name, one.arguments, one.free) for one in choice.calls] == [
        ("call_k1", "get_tide", '{"port":"Brest"}', False)
    ]
    assert [(one.event.number, one.text, one.call) for one in choice.deltas[-2:]] == [
        (16, '{"port":', 0),
        (17, '"Brest"}', 0),
    ]
    assert [(one.reason, one.kind) for one in choice.finishes] == [("completed", "stop")]
    assert said.usage is not None
    counts = said.usage
    assert (counts.prompt, counts.completion, counts.total, counts.cached, counts.reasoning) == (9, 12, 21, 0, 5)
    assert [one.number for one in said.terminals] == [20]
    assert (said.errors, said.empty, choice.after) == ([], [], [])


def test_a_cut_and_a_failed_response() -> None:
    (cut,) = said_in("responses", Reading(CUT.body)).choices[0].finishes
    assert (cut.reason, cut.kind) == ("max_output_tokens", "length")
    failed = said_in("responses", Reading(FAILED.body))
    assert failed.choices[0].finishes == []
    assert [one.number for one in failed.errors] == [one.number for one in failed.terminals] == [3]


def test_a_summary_is_said_where_the_reasoning_is_not() -> None:
    assert said_in("responses", Reading(SUMMARY.body)).choices[0].text("reasoning") == "Tides."
    both_said = WHOLE.edited(insert(7, {"type": "reasoning_summary_text.delta", "output_index": 0, "delta": "x"}))
    assert said_in("responses", Reading(both_said.body)).choices[0].text("reasoning") == "Need tides."


def test_a_custom_call_s_input_is_free_text() -> None:
    (call,) = said_in("responses", Reading(CUSTOM.body)).choices[0].calls
    assert (call.id, call.name, call.arguments, call.free) == ("call_1", "sql", "select 1", True)


def test_arguments_that_came_in_no_delta() -> None:
    made = WHOLE.edited(lambda ev: [one for place, one in enumerate(ev) if place not in (16, 17)])
    assert said_in("responses", Reading(made.body)).choices[0].calls[0].arguments == '{"port":"Brest"}'


@pytest.mark.parametrize(
    "made", [WHOLE, CUT, SUMMARY, REFUSAL, CUSTOM], ids=["whole", "cut", "summary", "refusal", "custom"]
)
def test_a_whole_body_says_the_same(made: Stream) -> None:
    """The response of the terminal event is the body without streaming."""
    streamed = said_in("responses", Reading(made.body))
    one = said_whole("responses", made.elements[-1]["response"])
    for kind in ("content", "reasoning", "refusal", "arguments"):
        assert streamed.choices[0].text(kind) == one.choices[0].text(kind)
    calls = [
        [(call.id, call.name, call.arguments, call.free) for call in said.choices[0].calls] for said in (streamed, one)
    ]
    assert calls[0] == calls[1]
    ends = [[(end.reason, end.kind) for end in said.choices[0].finishes] for said in (streamed, one)]
    assert ends[0] == ends[1]
    assert streamed.usage is not None and one.usage is not None
    assert streamed.usage.raw == one.usage.raw


# --- whatever comes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["G09", "G10", "G11"])
@given(data=st.data())
def test_any_json_gets_a_report(name: str, data: st.DataObject) -> None:
    protocol, sent = values(name)
    made = body(protocol, data.draw(reshaped(sent)))
    request = data.draw(st.none() | reshaped(golden(name).request))
    check(Evidence(body=made, protocol=protocol, request=request, own=data.draw(st.booleans())))
    said_whole(protocol, obj(data.draw(reshaped(sent[-1]["response"]))))
