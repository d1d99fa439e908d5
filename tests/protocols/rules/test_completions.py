"""Rules 80 to 89, each from its own words, and what a completions stream says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.protocols.rules import Evidence, check
from stages.protocols.rules.case import said_in, said_whole
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.values import obj
from tests.protocols.rules.reshaped import body, reshaped, values
from tests.support.wire import ABSENT, Stream, both, breaks, drop, fired, golden, insert, put

PLAIN, ECHO = golden("G07"), golden("G08")


def entry(text: str, index: int = 0, finish: str | None = None, logprobs: Any = None, **more: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    return {"choices": [{"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, **more}]}


def logprobs(values: list[float | None], offsets: list[int]) -> dict[str, Any]:
    """The four arrays, for tokens named a."""
    return {
        "tokens": ["a"] * len(values),
        "token_logprobs": values,
        "top_logprobs": [None if value is None else {"a": value} for value in values],
        "text_offset": offsets,
    }


def stream(*elements: Any, **request: Any) -> Stream:
    """A whole stream of ours, ``[DONE]`` at its end."""
    return Stream("completions", [*elements, "[DONE]"], {"request": {"stream": True, "prompt": "Why", **request}})


def only(rule: int, made: Stream) -> Any:
    """The one finding, of this rule."""
    (found,) = made.report().violations
    assert found.rule == f"INV-{rule:03}"
    return found


# --- each rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key, value", [("id", "cmpl-x"), ("created", 1), ("model", "m"), ("object", "completion")])
def test_the_envelope_stays(key: str, value: Any) -> None:
    found = breaks(80, PLAIN, PLAIN.edited(put(2, key, to=value))).violations[0]
    assert (found.frame, found.severity) == (2, "error")


@pytest.mark.parametrize("key", ["id", "created", "model"])
def test_an_envelope_is_there(key: str) -> None:
    breaks(80, PLAIN, PLAIN.edited(both(*(put(place, key, to=ABSENT) for place in range(4)))))


@pytest.mark.parametrize(
    "prompt, n, count",
    [
        ("one", 1, 1), (["one"], 2, 2), (["one", "two"], 1, 2), (["one", "two"], 2, 4), ([1, 2, 3], 1, 1),
        ([[1], [2, 3]], 2, 4), (None, 1, 1), ([], 1, 1),
    ],
)  # fmt: skip
def test_an_index_is_that_of_a_prompt_and_its_choice(prompt: Any, n: int, count: int) -> None:
    good = stream(*(entry("a", index, "stop") for index in range(count)), prompt=prompt, n=n)
    assert fired(good.report()) == frozenset()
    breaks(81, good, stream(*(entry("a", index, "stop") for index in range(count + 1)), prompt=prompt, n=n))


@pytest.mark.parametrize("index", [-1, True, 0.0, "0", None])
def test_an_index_is_an_integer_from_0(index: Any) -> None:
    breaks(81, PLAIN, PLAIN.edited(put(1, "choices", 0, "index", to=index)))


@pytest.mark.parametrize("text", [None, 5, ["a"], ABSENT])
def test_a_choice_has_a_text(text: Any) -> None:
    breaks(82, PLAIN, PLAIN.edited(put(1, "choices", 0, "text", to=text)))


@pytest.mark.parametrize("choices", [None, {}, "a", [None], ABSENT])
def test_choices_are_an_array_of_choices(choices: Any) -> None:
    breaks(82, PLAIN, PLAIN.edited(put(1, "choices", to=choices)))


def test_a_choice_ends_with_its_finish_reason() -> None:
    report = breaks(83, PLAIN, PLAIN.edited(insert(3, {**entry("!"), "usage": None})))
    assert [one.frame for one in report.violations if one.rule == "INV-083"] == [3]


@pytest.mark.parametrize("own, severity", [(True, "error"), (False, "warning")])
def test_a_finish_reason_of_somebody_else(own: bool, severity: str) -> None:
    made = PLAIN.edited(put(2, "choices", 0, "finish_reason", to="abort")).known(own=own)
    assert [one.severity for one in made.report().violations if one.rule == "INV-083"] == [severity]


def test_a_finish_reason_that_is_no_word() -> None:
    report = PLAIN.edited(put(2, "choices", 0, "finish_reason", to=1)).known(own=False).report()
    assert "INV-083" in {one.rule for one in report.errors}


def test_an_echo_begins_with_the_prompt() -> None:
    good = stream(entry("Why"), entry(" not", finish="stop"), echo=True)
    assert fired(good.report()) == frozenset()
    breaks(84, good, good.edited(put(0, "choices", 0, "text", to="What")))


def test_each_choice_echoes_its_own_prompt() -> None:
    good = stream(entry("B.", 1, "stop"), entry("A.", 0, "stop"), echo=True, prompt=["A", "B"])
    assert fired(good.report()) == frozenset()
    breaks(84, good, good.asking(prompt=["B", "A"]))


def test_a_broken_echo_is_no_other_text() -> None:
    cut = Stream("completions", [entry("Wh")], {"request": {"stream": True, "prompt": "Why", "echo": True}})
    assert 84 not in fired(cut.report())


def test_what_is_echoed_unasked() -> None:
    """That the first logprob is null says that the server wrote it."""
    breaks(84, ECHO, ECHO.asking(echo=False))
    assert "INV-084" in {one.rule for one in ECHO.asking(echo=False).report().errors}


def test_a_model_may_write_the_prompt_itself() -> None:
    assert fired(stream(entry("Why"), entry(" not", finish="stop")).report()) == frozenset()


@pytest.mark.parametrize(
    "bad",
    [
        logprobs([0.1], [0]), logprobs([-10000.0], [0]), logprobs([-0.1, None], [0, 1]), {"tokens": ["a"]}, [], "x",
        {**logprobs([-0.1], [0]), "tokens": [5]}, {**logprobs([-0.1], [0]), "top_logprobs": [{"a": 3}]},
        {**logprobs([-0.1], [0]), "token_logprobs": [True]}, {**logprobs([-0.1], [0]), "top_logprobs": [4]},
    ],
)  # fmt: skip
def test_logprobs_are_four_equal_arrays_of_log_probabilities(bad: Any) -> None:
    good = stream(entry("a", logprobs=logprobs([-0.1], [0])), entry("", finish="stop"), logprobs=1)
    assert fired(good.report()) == frozenset()
    breaks(85, good, good.edited(put(0, "choices", 0, "logprobs", to=bad)))


def test_only_the_first_token_of_an_echo_has_no_logprob() -> None:
    good = stream(entry("Why", finish="stop", logprobs=logprobs([None, -1.0], [0, 1])), echo=True, logprobs=0)
    assert fired(good.report()) == frozenset()
    breaks(85, good, good.asking(echo=False, prompt="What"))
    breaks(85, good, good.edited(put(0, "choices", 0, "logprobs", to=logprobs([None, None], [0, 1]))))
    second = entry("!", finish="stop", logprobs=logprobs([None], [3]))
    breaks(85, good, good.edited(both(put(0, "choices", 0, "finish_reason", to=None), insert(1, second))))


def test_offsets_do_not_fall() -> None:
    good = stream(
        entry("a", logprobs=logprobs([-0.1], [4])), entry("b", finish="stop", logprobs=logprobs([-0.1], [4])),
        logprobs=0,
    )  # fmt: skip
    assert fired(good.report()) == frozenset()
    found = only(86, good.edited(put(1, "choices", 0, "logprobs", "text_offset", 0, to=3)))
    assert (found.severity, found.frame) == ("warning", 1)
    everywhere = good.edited(put(0, "choices", 0, "logprobs", "text_offset", 0, to=-1))
    everywhere = everywhere.edited(put(1, "choices", 0, "logprobs", "text_offset", 0, to=-1))
    assert fired(everywhere.report()) == frozenset()


def test_usage_comes_once_and_last() -> None:
    breaks(87, PLAIN, PLAIN.edited(insert(4, PLAIN.elements[3])))
    breaks(87, PLAIN, PLAIN.edited(lambda ev: [ev[0], ev[3], *ev[1:3], ev[4]]))
    assert 87 not in fired(PLAIN.edited(lambda ev: [ev[0], '{"error":{"message":"lost"}}', ev[4]]).report())


def test_usage_is_null_before_it_comes() -> None:
    made = PLAIN.edited(drop(0, "usage"))
    breaks(87, PLAIN, made)
    assert made.known(own=False).report().errors == ()


def test_usage_that_nobody_asked_for() -> None:
    made = PLAIN.asking(stream_options=ABSENT)
    breaks(87, PLAIN, made)
    assert made.known(own=False).report().errors == ()


def test_continuous_usage() -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    made = PLAIN.edited(put(0, "usage", to=counts))
    breaks(87, PLAIN, made)
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert fired(made.asking(stream_options=options).report()) == frozenset()


def test_the_last_event_is_done() -> None:
    breaks(88, PLAIN, PLAIN.edited(drop(4)))
    breaks(88, PLAIN, PLAIN.edited(insert(4, "[DONE]")))
    breaks(88, PLAIN, PLAIN.edited(insert(5, entry("late"))))


@pytest.mark.parametrize("key", ["delta", "message", "tool_calls", "role"])
def test_text_only(key: str) -> None:
    breaks(89, PLAIN, PLAIN.edited(put(1, "choices", 0, key, to=None)))
    breaks(89, PLAIN, PLAIN.edited(put(1, key, to=None)))


def test_what_needs_the_request_is_not_checked_without() -> None:
    report = ECHO.known(request=None).report()
    assert {81, 84, 87} <= set(report.unchecked)
    assert {80, 82, 83, 85, 86, 88, 89} <= set(report.checked)


# --- what is said ---------------------------------------------------------------------------------------------------


def test_what_a_stream_says() -> None:
    counts = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    made = stream(
        entry("a", 1), entry("b", 0, token_ids=[5]), entry("", 0), entry("c", 1, "stop", stop_reason="END"),
        entry("d", 1), entry("e", 0, "length"), {"choices": [], "usage": counts},
    )  # fmt: skip
    said = said_in("completions", Reading(made.body))
    assert {index: one.text("content") for index, one in said.choices.items()} == {1: "acd", 0: "be"}
    assert [(one.reason, one.kind, one.stop) for one in said.choices[1].finishes] == [("stop", "stop", "END")]
    assert [(one.reason, one.kind) for one in said.choices[0].finishes] == [("length", "length")]
    assert [one.number for one in said.choices[1].after] == [4]
    assert [one.number for one in said.choices[0].tokens] == [1]
    assert [one.number for one in said.empty] == [2]
    assert [one.number for one in said.terminals] == [7]
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.completion, said.usage.total, said.usage.cached) == (3, 4, 7, 2)


def test_an_error_is_no_choice() -> None:
    said = said_in("completions", Reading(stream(entry("a"), '{"error":{"message":"lost"},"choices":[]}').body))
    assert [one.number for one in said.errors] == [1]
    assert said.choices[0].finish is None


def test_a_whole_body_says_the_same() -> None:
    """The texts of a stream, joined, are the text of the body."""
    whole = {
        "choices": [{"index": 0, "text": "Blue sky", "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    streamed, one = said_in("completions", Reading(PLAIN.body)), said_whole("completions", whole)
    for said in (streamed, one):
        assert said.choices[0].text("content") == "Blue sky"
        assert said.choices[0].finish is not None
        assert said.choices[0].finish.kind == "length"
        assert said.usage is not None
        assert (said.usage.prompt, said.usage.completion) == (3, 2)


# --- whatever comes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["G07", "G08"])
@given(data=st.data())
def test_any_json_gets_a_report(name: str, data: st.DataObject) -> None:
    protocol, sent = values(name)
    made = body(protocol, data.draw(reshaped(sent)))
    request = data.draw(st.none() | reshaped(golden(name).request))
    check(Evidence(body=made, protocol=protocol, request=request, own=data.draw(st.booleans())))
    for value in sent:
        said_whole(protocol, obj(data.draw(reshaped(value))))
