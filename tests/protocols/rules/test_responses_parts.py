"""Rules 102 to 107 and 111, of the parts of responses, each from its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.protocols.rules.outputs import CUSTOM, CUT, HOSTED, REFUSAL, SUMMARY, WHOLE, broken, of
from tests.support.wire import ABSENT, Edit, Elements, Stream, both, breaks, drop, fired, insert, put, swap


def test_parts_are_counted_and_open() -> None:
    broken(102, insert(10, WHOLE.elements[9]))
    broken(102, drop(9))
    broken(102, swap(11, 13))
    broken(102, put(10, "content_index", to=1))
    broken(102, drop(10, "content_index"))


def bare(stream: Stream) -> Stream:
    """The reasoning without its part events."""
    return stream.edited(lambda ev: [one for place, one in enumerate(ev) if place not in (3, 6)]).edited(renumbered)


def renumbered(elements: Elements) -> None:
    for element in elements:
        element.pop("sequence_number", None)


def test_reasoning_without_part_events_is_somebody_elses_habit() -> None:
    assert {102, 104} <= fired(bare(WHOLE).report())
    report = bare(WHOLE).known(own=False).report()
    assert report.errors == ()
    assert [one.rule for one in report.violations] == ["INV-104"]


def test_an_event_is_of_its_item_s_kind() -> None:
    broken(103, put(16, "type", to="custom_tool_call_input.delta"))
    broken(103, put(10, "type", to="refusal.delta"))
    broken(103, put(9, "part", "type", to="refusal"))
    broken(103, put(13, "part", "type", to="refusal"))
    broken(103, put(3, "part", "type", to="output_text"))
    broken(
        103, put(10, to={"type": "reasoning_summary_text.delta", "output_index": 1, "summary_index": 0, "delta": "x"})
    )


def test_a_part_is_finished_before_its_item() -> None:
    broken(104, drop(12))
    broken(104, insert(13, WHOLE.elements[12]))
    broken(104, swap(12, 13))
    broken(104, swap(13, 14))
    broken(104, insert(14, WHOLE.elements[13]))
    broken(104, lambda ev: [one for place, one in enumerate(ev) if place not in range(9, 14)])


@pytest.mark.parametrize(
    "edit",
    [
        put(5, "text", to="Need"), put(6, "part", "text", to="Need"), put(7, "item", "content", 0, "text", to="Need"),
        put(20, "response", "output", 0, "content", 0, "text", to="Need"), drop(10), put(12, "text", to=None),
        put(10, "delta", to=None), put(14, "item", "content", to=[]),
    ],
)  # fmt: skip
def test_a_text_is_the_same_everywhere(edit: Edit) -> None:
    broken(105, edit)


def test_a_refusal_is_a_text() -> None:
    breaks(105, REFUSAL, REFUSAL.edited(put(6, "refusal", to="Yes.")))


@pytest.mark.parametrize(
    "edit",
    [
        put(18, "arguments", to="{}"), put(19, "item", "arguments", to="{}"), drop(17), drop(18),
        put(20, "response", "output", 2, "arguments", to="{}"), put(16, "delta", to={}),
        insert(19, WHOLE.elements[18]),
    ],
)  # fmt: skip
def test_arguments_are_the_same_everywhere(edit: Edit) -> None:
    broken(106, edit)


def test_an_input_is_the_same_everywhere() -> None:
    breaks(106, CUSTOM, CUSTOM.edited(put(4, "input", to="select 2")))
    breaks(106, HOSTED, HOSTED.edited(put(8, "arguments", to="{")))


def test_a_call_that_was_cut_need_not_be_said_to_be_done() -> None:
    added, delta, done = (WHOLE.elements[place] for place in (15, 16, 19))
    item = {**done["item"], "arguments": '{"port":', "status": "incomplete"}
    cut: Elements = [
        *CUT.elements[:2],
        *({**one, "output_index": 0} for one in (added, delta, {**done, "item": item})),
    ]
    end = {**CUT.elements[8]["response"], "output": [item]}
    made = CUT.edited(lambda _: [*cut, {"type": "incomplete", "response": end}])
    assert made.report().violations == ()


@pytest.mark.parametrize(
    "edit",
    [
        drop(3), put(3, "summary_index", to=1), insert(4, SUMMARY.elements[3]), put(6, "text", to="T"), drop(6),
        drop(7), swap(6, 7), put(7, "part", "text", to="T"), put(8, "item", "summary", 0, "text", to="T"),
        drop(4, "summary_index"), put(8, "item", "summary", to=[]), put(4, "delta", to=1),
        insert(7, SUMMARY.elements[4]),
    ],
)  # fmt: skip
def test_a_summary_comes_in_order_and_is_the_same_everywhere(edit: Edit) -> None:
    breaks(107, SUMMARY, SUMMARY.edited(edit))


ENTRY: dict[str, Any] = {"token": "Looking", "logprob": -0.5, "top_logprobs": []}
MORE: dict[str, Any] = {"token": " it up.", "logprob": -0.1, "top_logprobs": []}
ASKED = WHOLE.asking(include=["message.output_text.logprobs"], top_logprobs=1)


def with_logprobs(done: list[Any]) -> Callable[[Elements], None]:
    """Entries on the text's deltas, on its done event as given, on its part wherever that is."""

    def edit(elements: Elements) -> None:
        elements[10]["logprobs"], elements[11]["logprobs"], elements[12]["logprobs"] = [ENTRY], [MORE], done
        for part in (
            elements[13]["part"],
            elements[14]["item"]["content"][0],
            elements[20]["response"]["output"][1]["content"][0],
        ):
            part["logprobs"] = [ENTRY, MORE]

    return edit


def test_logprobs_are_an_array() -> None:
    for place in (10, 12):
        for value in (None, "x", ABSENT):
            assert of(111, broken(111, put(place, "logprobs", to=value)).known(own=False)) == [(place, "error")]


def test_logprobs_that_are_nowhere_are_somebody_elses_habit() -> None:
    made = WHOLE.edited(both(*(put(place, "logprobs", to=ABSENT) for place in (10, 11, 12))))
    assert of(111, made) == [(10, "error"), (11, "error"), (12, "error")]
    assert of(111, made.known(own=False)) == [(10, "warning")]


def test_logprobs_come_when_asked_for_and_are_the_part_s() -> None:
    good = ASKED.edited(with_logprobs([ENTRY, MORE]))
    assert good.report().violations == ()
    assert of(111, good.asking(include=[])) != []
    assert good.known(request=None).report().violations == ()
    breaks(111, good, good.edited(put(13, "part", "logprobs", to=[ENTRY])))
    breaks(111, good, good.edited(put(13, "part", "logprobs", to=None)))
    empty = ASKED.edited(with_logprobs([]))
    assert of(111, empty) == [(12, "error")]
    assert of(111, empty.known(own=False)) == [(12, "warning")]
