"""Rules 90 to 101, 108 to 110 and 112 to 115, each from its own words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.rules.outputs import CUSTOM, CUT, FAILED, HOSTED, REFUSAL, SUMMARY, USAGE, WHOLE, broken, of
from tests.support.wire import ABSENT, Stream, both, breaks, drop, fired, insert, put, sub, swap


@pytest.mark.parametrize("made", [SUMMARY, REFUSAL, CUSTOM, HOSTED], ids=["summary", "refusal", "custom", "hosted"])
@pytest.mark.parametrize("own", [True, False])
def test_every_kind_of_item_is_clean(made: Stream, own: bool) -> None:
    assert made.known(own=own).report().violations == ()


# --- events -----------------------------------------------------------------------------------------------------------


def test_a_name_is_the_type() -> None:
    unnamed = WHOLE.reworked(sub(b"event: response.completed\n", b""))
    assert of(90, unnamed) == [(20, "error")]
    broken(90, put(5, to=b'event: response.x\ndata: {"sequence_number":5}\n\n'))


def test_numbers_rise_by_one() -> None:
    """A gap is no error in somebody else's stream; a fall, a repetition, or none is."""
    gap = broken(91, put(9, "sequence_number", to=100), *(put(n, "sequence_number", to=91 + n) for n in range(10, 21)))
    assert of(91, gap) == [(9, "error")]
    assert of(91, gap.known(own=False)) == [(9, "warning")]
    for number in (7, 8, None, 9.0, "9", True, ABSENT):
        made = broken(91, put(9, "sequence_number", to=number)).known(own=False)
        assert (9, "error") in of(91, made)


def test_the_beginning() -> None:
    broken(92, drop(0))
    broken(92, drop(1))
    broken(92, put(0, "response", "status", to="completed"))
    broken(92, put(0, "response", "output", to=None))
    assert 92 not in fired(WHOLE.edited(put(0, "response", "status", to="queued")).report())
    queued = WHOLE.edited(insert(1, {"type": "queued", "response": {"status": "queued"}}))
    assert fired(queued.report()) == frozenset()
    assert of(92, queued.edited(insert(1, queued.elements[1]))) != []


def test_one_end() -> None:
    broken(93, drop(20))
    assert of(93, broken(93, insert(21, WHOLE.elements[20]))) == [(21, "error")]
    assert of(93, broken(93, insert(21, {"type": "output_text.delta", "output_index": 9}))) == [(21, "error")]
    assert of(93, broken(93, insert(21, "[DONE]")).known(own=False)) == [(21, "warning")]


@pytest.mark.parametrize("key, value", [("id", "resp_b"), ("created_at", 5), ("model", "m"), ("id", ABSENT)])
def test_the_response_stays_the_same(key: str, value: Any) -> None:
    assert (1, "error") in of(94, broken(94, put(1, "response", key, to=value)))


def test_a_lifecycle_event_has_its_response() -> None:
    broken(94, put(1, "response", to=dict.fromkeys(("id", "created_at", "model"), ABSENT)))


# --- items ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 2, -1, None, "1", True])
def test_items_are_counted(index: Any) -> None:
    broken(95, put(8, "output_index", to=index))


def test_what_refers_to_an_item() -> None:
    assert of(96, broken(96, put(10, "output_index", to=7))) == [(10, "error")]
    assert of(96, broken(96, drop(10, "output_index"))) == [(10, "error")]
    assert of(96, broken(96, drop(10, "item_id"))) == [(10, "error")]
    assert of(96, broken(96, put(16, "item_id", to="msg_1"))) == [(16, "error")]
    # Shell events have no item id; a new type of event may have none.
    more = {"type": "shell_call_command.delta", "output_index": 2, "command_index": 0, "delta": "ls"}
    assert 96 not in fired(WHOLE.edited(insert(17, more)).report())


def test_an_item_that_is_done_is_left_alone() -> None:
    late = {**WHOLE.elements[17], "delta": ""}
    assert of(97, broken(97, insert(20, late))) == [(20, "error")]


def test_one_item_at_a_time() -> None:
    parallel = WHOLE.edited(swap(14, 15))
    breaks(98, WHOLE, parallel)
    assert of(98, parallel.known(own=False)) == [(14, "warning")]


def test_an_item_is_done_once_as_it_was_added() -> None:
    broken(99, drop(7))
    broken(99, insert(20, WHOLE.elements[19]))
    for key, value in (("type", "message"), ("id", "fc_2"), ("call_id", None)):
        broken(99, put(19, "item", key, to=value))
    assert 99 not in fired(FAILED.report())


@pytest.mark.parametrize(
    "place, key, value",
    [
        (2, "status", "completed"), (2, "summary", [{"type": "summary_text", "text": "x"}]),
        (2, "content", [{"type": "reasoning_text", "text": "x"}]), (8, "status", None), (8, "content", ABSENT),
        (8, "content", [{"type": "output_text", "text": "x"}]), (15, "arguments", "{"), (15, "arguments", ABSENT),
        (15, "status", ABSENT), (15, "type", ABSENT),
    ],
)  # fmt: skip
def test_an_item_begins_in_progress_and_empty(place: int, key: str, value: Any) -> None:
    broken(100, put(place, "item", key, to=value))


def test_reasoning_may_begin_without_content_or_status() -> None:
    assert 100 not in fired(WHOLE.edited(put(2, "item", "content", to=None)).report())
    assert of(100, WHOLE.edited(drop(2, "item", "status")).known(own=False)) == [(2, "warning")]


def test_only_the_last_item_may_be_incomplete_and_only_in_a_cut_response() -> None:
    assert of(101, broken(101, put(19, "item", "status", to="incomplete"))) == [(19, "error")]
    broken(101, put(14, "item", "status", to=ABSENT))
    more = [
        {**one, "output_index": 1, "item": {**one["item"], "id": "msg_2"}} for one in (CUT.elements[2], CUT.elements[7])
    ]
    assert of(101, CUT.edited(insert(8, *more))) == [(7, "error")]


def test_the_output_is_what_was_done() -> None:
    broken(108, put(20, "response", "output", 1, "phase", to="final_answer"))
    broken(108, put(20, "response", "output", to=None))
    broken(108, both(swap(0, 0), lambda ev: ev[20]["response"]["output"].reverse()))
    broken(108, put(20, "response", "output", 0, "summary", to=False))


def test_a_failed_response_may_leave_its_output_out() -> None:
    made = CUT.edited(
        put(
            8,
            to={"type": "failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "x"}}},
        )
    )
    assert of(108, made) == [(8, "error")]
    assert of(108, made.known(own=False)) == [(8, "warning")]


def test_ids_are_unique_and_tell_the_type() -> None:
    def renamed(old: str, new: str) -> Stream:
        return WHOLE.reworked(lambda body: body.replace(old.encode(), new.encode()))

    breaks(112, WHOLE, renamed("fc_1", "msg_1"))
    assert of(112, renamed("fc_1", "msg_1")) == [(15, "error")]
    assert of(112, renamed("fc_1", "call_1").known(own=False)) == [(15, "warning")]
    assert of(112, renamed("fc_1", "call_1")) == [(15, "error")]
    assert of(112, renamed('"id":"fc_1",', "").known(own=False)) == [(15, "warning")]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, value", [("error", {"code": "x"}), ("incomplete_details", {"reason": "x"}), ("status", None)]
)
def test_a_completed_response(key: str, value: Any) -> None:
    broken(109, put(20, "response", key, to=value))


@pytest.mark.parametrize("key, value", [("status", "completed"), ("incomplete_details", {"reason": "tired"})])
def test_an_incomplete_response(key: str, value: Any) -> None:
    broken(109, put(8, "response", key, to=value), base=CUT)


@pytest.mark.parametrize("error", [None, {"code": "server_error"}, {"message": "x"}, {"code": 1, "message": "x"}, "x"])
def test_a_failed_response(error: Any) -> None:
    broken(109, put(3, "response", "error", to=error), base=FAILED)
    cancelled = FAILED.edited(put(3, "response", to={"status": "cancelled", "error": error}))
    assert of(109, cancelled.known(own=False)) == [(3, "warning")]


def test_usage_is_in_the_end_and_whole() -> None:
    broken(110, put(1, "response", "usage", to=USAGE))
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        broken(110, drop(20, "response", "usage", key))
        broken(110, put(20, "response", "usage", key, to=1.5))
    made = broken(110, drop(20, "response", "usage", "input_tokens_details", "cache_write_tokens"))
    assert of(110, made) == [(20, "error")]
    assert of(110, made.known(own=False)) == [(20, "warning")]


def test_an_error_has_its_message_and_nothing_else_is_one() -> None:
    flat = {"type": "error", "code": "server_error", "message": "lost", "param": None}
    made = WHOLE.edited(put(20, to=flat))
    assert fired(made.report()) == frozenset()
    for value in (ABSENT, "", None, 5):
        breaks(113, made, made.edited(put(20, "message", to=value)))
    broken(113, put(20, "error", to={"message": "x"}))


def test_keepalives() -> None:
    """OpenAI sends them, numbered, once the response is created."""
    made = WHOLE.edited(insert(5, {"type": "keepalive"}))
    assert of(114, made) == [(5, "error")]
    assert made.known(own=False).report().violations == ()
    assert of(114, made.known(own=False).edited(put(5, "sequence_number", to=ABSENT))) == [(5, "warning")]


def test_one_response() -> None:
    broken(115, put(10, "choices", to=[]))
    broken(115, put(20, "response", "n", to=2))
    broken(115, put(20, "response", "choices", to=[]))
