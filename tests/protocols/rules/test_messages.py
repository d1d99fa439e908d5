"""Rules 116 to 131, each from its own words, and what a messages stream says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.protocols.rules import EngineChoice, EngineFacts, Evidence, check
from stages.protocols.rules.case import said_in, said_whole
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.values import obj
from tests.protocols.rules.reshaped import ANY_JSON, body, reshaped, values
from tests.support.wire import ABSENT, Edit, Elements, Stream, both, breaks, drop, fired, golden, insert, put, sub, swap

TOOL = {"name": "get_tide", "input_schema": {"type": "object"}}
WHOLE = golden("G12").asking(tools=[TOOL], stop_sequences=["END"])
ERROR = golden("G13")


def of(rule: int, made: Stream) -> list[tuple[int, str]]:
    """Frame and weight of the findings of a rule."""
    return [(one.frame, one.severity) for one in made.report().violations if one.rule == f"INV-{rule:03}"]


def broken(rule: int, *edits: Edit, base: Stream = WHOLE) -> Stream:
    """The edited stream, which breaks the rule."""
    made = base.edited(both(*edits))
    breaks(rule, base, made)
    return made


def ends(reason: Any, stop: Any = None) -> Edit:
    """Another stop_reason."""
    return put(14, "delta", to={"stop_reason": reason, "stop_sequence": stop})


def without(*places: int) -> Edit:
    """Elements taken away."""

    def edit(elements: Elements) -> None:
        elements[:] = [one for place, one in enumerate(elements) if place not in places]

    return edit


TEXT = WHOLE.edited(both(ends("end_turn"), without(2, 3, 4, 5, 10, 11, 12, 13))).edited(
    lambda ev: [{**one, "index": 0} if "index" in one else one for one in ev]
)
"""Text only: start, ping, a block of four events, message_delta, message_stop."""


def test_text_only_is_clean() -> None:
    assert fired(TEXT.report()) == frozenset()


# --- each rule ------------------------------------------------------------------------------------------------------


def test_a_name_is_the_type() -> None:
    unnamed = WHOLE.reworked(sub(b"event: ping\n", b""))
    assert of(116, unnamed) == [(1, "error")]
    breaks(116, WHOLE, WHOLE.reworked(sub(b"event: ping\n", b"event: pong\n")))
    broken(116, put(1, to=b"event: ping\ndata: {}\n\n"))


@pytest.mark.parametrize(
    "key, value",
    [
        ("type", "text"),
        ("role", ABSENT),
        ("content", None),
        ("content", ["x"]),
        ("stop_reason", "end_turn"),
        ("usage", 1),
    ],
)
def test_a_message_starts_empty(key: str, value: Any) -> None:
    assert (0, "error") in of(117, broken(117, put(0, "message", key, to=value)))


def test_the_start_comes_first_and_once() -> None:
    assert fired(WHOLE.edited(swap(0, 1)).report()) == frozenset()  # a ping may come before
    assert (2, "error") in of(117, broken(117, insert(2, WHOLE.elements[0])))
    broken(117, swap(0, 2))
    broken(117, put(0, "message", "usage", "output_tokens", to=None))
    broken(117, without(*range(16)))
    assert 117 not in fired(ERROR.edited(without(0, 1, 2, 3)).report())  # an error may be all there is
    # Its server died before it said anything.
    assert 117 not in fired(WHOLE.edited(without(*range(16))).known(marked="truncated").report())


@pytest.mark.parametrize("index", [0, 2, None, "1", True, -1])
def test_blocks_are_counted(index: Any) -> None:
    broken(118, put(6, "index", to=index))


@pytest.mark.parametrize("place", [7, 9])
def test_what_is_of_no_open_block(place: int) -> None:
    for index in (0, 2, None, "1", ABSENT):
        assert (place, "error") in of(118, broken(118, put(place, "index", to=index)))
    broken(118, insert(10, WHOLE.elements[place]))


def test_blocks_do_not_overlap() -> None:
    assert of(119, broken(119, swap(9, 10))) == [(9, "error")]
    assert of(119, broken(119, drop(13))) == [(13, "error")]
    assert of(119, broken(119, drop(3), base=ERROR)) == [(3, "error")]
    cut = WHOLE.edited(without(9, *range(10, 16)))
    assert 119 not in fired(cut.report())


@pytest.mark.parametrize(
    "block, place, right",
    [("thinking", 3, {"thinking_delta", "signature_delta"}), ("text", 7, {"text_delta", "citations_delta"}),
     ("tool_use", 12, {"input_json_delta"})],
)  # fmt: skip
def test_a_delta_is_of_its_block_s_kind(block: str, place: int, right: set[str]) -> None:
    keys = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature",
            "input_json_delta": "partial_json", "citations_delta": "citation"}  # fmt: skip
    for kind, key in keys.items():
        made = WHOLE.edited(put(place, "delta", to={"type": kind, key: "x"}))
        assert (120 in fired(made.report())) == (kind not in right), f"{kind} in {block}"


def test_redacted_thinking_has_no_deltas() -> None:
    redacted = {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "eA"}}
    good = WHOLE.edited(both(put(2, to=redacted), without(3, 4)))
    assert fired(good.report()) == frozenset()
    breaks(120, good, good.edited(insert(3, WHOLE.elements[3])))


@pytest.mark.parametrize(
    "delta", [{"type": "text_delta", "text": None}, {"type": "text_delta"}, {"text": "x"}, None, []]
)
def test_a_delta_has_its_text(delta: Any) -> None:
    broken(120, put(7, "delta", to=delta))


@pytest.mark.parametrize(
    "place, key, value",
    [
        (2, "thinking", "x"), (2, "thinking", ABSENT), (6, "text", "x"), (6, "text", None), (6, "type", ABSENT),
        (10, "id", ""), (10, "name", None), (10, "input", {"port": "Brest"}), (10, "input", ""), (10, "input", ABSENT),
    ],
)  # fmt: skip
def test_a_block_starts_empty(place: int, key: str, value: Any) -> None:
    assert (place, "error") in of(121, broken(121, put(place, "content_block", key, to=value)).known(own=False))


def test_a_signature_that_is_left_out() -> None:
    for made, rule in (
        (WHOLE.edited(put(2, "content_block", "signature", to=ABSENT)), 121), (WHOLE.edited(drop(4)), 122),
    ):  # fmt: skip
        breaks(rule, WHOLE, made)
        assert made.known(own=False).report().errors == ()
        assert len(of(rule, made.known(own=False))) == 1


def test_one_signature_at_the_end() -> None:
    assert of(122, broken(122, insert(5, WHOLE.elements[4]))) == [(5, "error")]
    assert of(122, broken(122, insert(5, WHOLE.elements[3])).known(own=False)) == [(5, "error")]


@pytest.mark.parametrize(
    "reason", ["max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use", "end_turn"]
)
def test_input_is_an_object_unless_it_was_cut(reason: str) -> None:
    stop = "END" if reason == "stop_sequence" else None
    for text in ('{"port":', "[]", "5", '{"a":1} x'):
        made = WHOLE.edited(both(put(12, "delta", "partial_json", to=text), ends(reason, stop)))
        assert (123 in fired(made.report())) == (reason in ("tool_use", "end_turn")), text
    assert fired(WHOLE.edited(drop(12)).report()) == frozenset()  # nothing is {}


def test_input_that_an_error_or_an_end_without_reason_cuts() -> None:
    half = put(12, "delta", "partial_json", to='{"port":')
    failed = WHOLE.edited(both(half, put(14, to=ERROR.elements[4]), drop(15)))
    assert fired(failed.report()) == frozenset()
    assert 123 not in fired(WHOLE.edited(both(half, without(14, 15))).report())


def test_what_message_delta_holds() -> None:
    broken(124, drop(14, "delta", "stop_sequence"))
    broken(124, drop(14, "usage"))
    broken(124, put(14, "usage", "output_tokens", to=None))
    broken(124, put(14, "delta", to=None))
    broken(124, swap(13, 14))
    assert 124 not in fired(ERROR.report())


def test_counts_on_the_way() -> None:
    """Every message_delta has its counts; the last one's reason counts."""
    early = {**WHOLE.elements[14], "delta": {"stop_reason": None, "stop_sequence": None}}
    made = WHOLE.edited(insert(14, early))
    assert of(124, made) == [(15, "error")]
    assert made.known(own=False).report().errors == ()
    breaks(124, WHOLE, made.edited(swap(14, 15)).known(own=False))


def test_the_last_event_is_message_stop() -> None:
    broken(125, insert(16, {"type": "ping"}))
    broken(125, insert(15, {"type": "message_stop"}))
    stopped = ERROR.edited(insert(5, {"type": "message_stop"}))
    assert of(125, stopped) == [(5, "error")]
    assert of(125, stopped.known(own=False)) == [(5, "warning")]
    assert of(128, stopped) == []


@pytest.mark.parametrize("reason, stop", [
    ("stop", None), (5, None), ("tool_use", "END"), ("stop_sequence", None), ("max_tokens", "END"), (None, "END"),
    ("end_turn", None), ("stop_sequence", "END"), ("stop_sequence", 5),
])  # fmt: skip
def test_a_stop_reason_that_does_not_fit_whole_calls(reason: Any, stop: Any) -> None:
    broken(126, ends(reason, stop))


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"])
def test_a_stop_reason_that_may_follow_calls(reason: str) -> None:
    assert 126 not in fired(WHOLE.edited(ends(reason)).report())


def test_a_stop_reason_that_fits_text() -> None:
    breaks(126, TEXT, TEXT.edited(put(6, "delta", "stop_reason", to="tool_use")))
    for reason, stop in (("end_turn", None), ("stop_sequence", "END"), ("max_tokens", None), ("refusal", None)):
        made = TEXT.edited(put(6, "delta", to={"stop_reason": reason, "stop_sequence": stop}))
        assert 126 not in fired(made.report())


def test_a_stop_string_inside_a_call() -> None:
    made = WHOLE.edited(both(put(12, "delta", "partial_json", to='{"port":'), ends("stop_sequence", "END")))
    assert 126 not in fired(made.report())


def test_counts_do_not_fall_and_input_stays() -> None:
    assert of(127, broken(127, put(14, "usage", "output_tokens", to=0))) == [(14, "error")]
    assert of(127, broken(127, put(14, "usage", "input_tokens", to=8))) == [(14, "error")]
    assert fired(WHOLE.edited(put(14, "usage", "input_tokens", to=None)).report()) == frozenset()


def test_input_with_what_was_cached_is_the_prompt() -> None:
    known = WHOLE.known(engine=EngineFacts({0: EngineChoice(tuple(range(12)), "eos")}, prompt=15))
    cached = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}
    good = known.edited(put(0, "message", "usage", to=cached))
    assert of(127, good) == []
    assert of(127, known) == [(14, "error")]
    assert of(127, known.known(engine=EngineFacts({0: EngineChoice(())}))) == []


@pytest.mark.parametrize("error", [{"type": "x", "message": "m"}, {"type": "api_error", "message": ""}, {}, None, "x"])
def test_an_error_has_a_type_and_a_message(error: Any) -> None:
    broken(128, put(4, "error", to=error), base=ERROR)


def test_an_error_is_the_last_event() -> None:
    assert of(128, broken(128, insert(5, {"type": "ping"}), base=ERROR)) == [(5, "error")]


def test_a_ping_is_bare() -> None:
    broken(129, put(1, "usage", to={}))
    broken(129, put(1, to=b'event: ping\ndata: {"type":"pong"}\n\n'))


def test_there_is_no_done() -> None:
    assert of(130, broken(130, insert(16, "[DONE]"))) == [(16, "error")]


def test_there_is_a_block() -> None:
    empty = TEXT.edited(without(2, 3, 4, 5))
    breaks(131, TEXT, empty)
    assert of(131, empty.known(own=False)) == [(-1, "warning")]
    assert 131 not in fired(TEXT.edited(without(*range(2, 8))).report())  # it was cut before


# --- what is said ---------------------------------------------------------------------------------------------------


def test_what_a_stream_says() -> None:
    said = said_in("messages", Reading(WHOLE.body))
    choice = said.choices[0]
    assert (choice.text("reasoning"), choice.text("content")) == ("Need tides.", "Looking it up.")
    assert [(one.id, one.name, one.arguments) for one in choice.calls] == [("toolu_k1", "get_tide", '{"port":"Brest"}')]
    assert [(one.event.number, one.call) for one in choice.deltas if one.kind == "arguments"] == [(12, 0)]
    assert [(one.reason, one.kind, one.stop) for one in choice.finishes] == [("tool_use", "calls", None)]
    assert [one.number for one in said.terminals] == [15]
    assert (said.errors, said.empty, choice.after) == ([], [], [])  # the first partial_json may be empty
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.completion, said.usage.reasoning) == (9, 12, 5)


def test_counts_that_are_not_repeated_stay() -> None:
    first = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}
    made = WHOLE.edited(both(put(0, "message", "usage", to=first), put(14, "usage", to={"output_tokens": 12})))
    said = said_in("messages", Reading(made.body))
    assert [(one.prompt, one.completion, one.cached, one.final) for one in said.usages] == [
        (15, 1, 4, False), (15, 12, 4, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reason, kind",
    [
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("refusal", "refusal"),
        ("model_context_window_exceeded", "length"), ("pause_turn", "other"), ("x", "other"),
    ],
)  # fmt: skip
def test_how_it_finished(reason: str, kind: str) -> None:
    made = TEXT.edited(put(6, "delta", to={"stop_reason": reason, "stop_sequence": "END"}))
    assert [(one.kind, one.stop) for one in said_in("messages", Reading(made.body)).choices[0].finishes] == [
        (kind, "END")
    ]


def test_a_call_without_arguments_has_empty_ones() -> None:
    said = said_in("messages", Reading(WHOLE.edited(drop(12)).body))
    assert said.choices[0].calls[0].arguments == "{}"
    cut = said_in("messages", Reading(WHOLE.edited(without(12, 13, 14, 15)).body))
    assert cut.choices[0].calls[0].arguments == ""


def test_an_error_ends_it() -> None:
    said = said_in("messages", Reading(ERROR.body))
    assert [one.number for one in said.errors] == [one.number for one in said.terminals] == [4]
    assert said.choices[0].finishes == []


def test_empty_pieces_and_late_ones() -> None:
    empty = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
    assert [one.number for one in said_in("messages", Reading(TEXT.edited(insert(3, empty)).body)).empty] == [3]
    late = TEXT.edited(swap(5, 6)).edited(insert(6, TEXT.elements[3]))
    assert [one.number for one in said_in("messages", Reading(late.body)).choices[0].after] == [6]


def test_a_whole_body_says_the_same() -> None:
    whole = {
        "type": "message", "role": "assistant", "stop_reason": "tool_use", "stop_sequence": None,
        "content": [
            {"type": "thinking", "thinking": "Need tides.", "signature": "c2ln"},
            {"type": "text", "text": "Looking it up."},
            {"type": "tool_use", "id": "toolu_k1", "name": "get_tide", "input": {"port": "Brest"}},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 12, "output_tokens_details": {"thinking_tokens": 5}},
    }  # fmt: skip
    streamed, one = said_in("messages", Reading(WHOLE.body)), said_whole("messages", whole)
    for kind in ("content", "reasoning", "arguments"):
        assert streamed.choices[0].text(kind) == one.choices[0].text(kind)
    assert streamed.choices[0].finish is not None and one.choices[0].finish is not None
    assert streamed.choices[0].finish.kind == one.choices[0].finish.kind
    assert streamed.usage is not None and one.usage is not None
    assert (streamed.usage.prompt, streamed.usage.completion) == (one.usage.prompt, one.usage.completion)


def test_a_whole_error_says_so() -> None:
    said = said_whole("messages", {"type": "error", "error": {"type": "api_error", "message": "lost"}})
    assert len(said.errors) == 1
    assert said.choices == {}


# --- whatever comes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["G12", "G13"])
@given(data=st.data())
def test_any_json_gets_a_report(name: str, data: st.DataObject) -> None:
    protocol, sent = values(name)
    made = body(protocol, data.draw(reshaped(sent)))
    request = data.draw(st.none() | reshaped(golden(name).request))
    facts = EngineFacts({0: EngineChoice((1, 2))}, prompt=9)
    check(Evidence(body=made, protocol=protocol, request=request, engine=facts, own=data.draw(st.booleans())))


@given(body=st.dictionaries(st.sampled_from(("type", "content", "usage", "stop_reason")), ANY_JSON))
def test_any_whole_body_says_something(body: dict[str, Any]) -> None:
    said_whole("messages", body)
    said_whole("messages", {**body, "content": [obj(body.get("content")), body]})
