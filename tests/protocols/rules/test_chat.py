"""Rules of chat completions: where a breach is shown, how it weighs, and what a rule makes of what else is known."""

from __future__ import annotations

from typing import Any

import pytest

from stages.message import Message, ToolCall
from stages.protocols.rules import EngineChoice, EngineFacts, Violation
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.said_chat import of_stream
from tests.support.wire import ABSENT, Edit, Stream, both, chunk, drop, golden, insert, put, sub

CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)
NAMED = {"type": "function", "function": {"name": "get_tide"}}


def found(stream: Stream, rule: int) -> list[Violation]:
    report = stream.report()
    assert rule in report.checked
    return [one for one in report.violations if one.rule == f"INV-{rule:03}"]


def frames(stream: Stream, rule: int) -> list[int]:
    return [one.frame for one in found(stream, rule)]


def call(index: int, **entry: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": index, **entry}]})


ONE_CALL = golden("G02").edited(lambda ev: [*ev[:4], ev[6], ev[7]])
"""Only the first call."""
PARTED = golden("G03").edited(
    lambda ev: [
        *ev[:1], chunk({"reasoning": "2+"}), chunk({"reasoning_content": "2+2 is"}),
        chunk({"reasoning": "2 is 4", "reasoning_content": " 4"}), *ev[3:],
    ]
)  # fmt: skip
"""The two fields cut the same thoughts at different places."""
FP = "system_fingerprint"

WHERE: list[tuple[int, Stream, Edit, list[int]]] = [
    # Each chunk that is wrong is shown; one that is like the first again is not.
    (44, golden("G01"), both(*(put(n, "object", to="x") for n in (1, 3))), [1, 3]),
    (45, golden("G01"), put(2, "model", to="other"), [2]),
    (45, golden("G01"), both(*(put(n, "model", to="other") for n in (2, 3, 4))), [2]),
    (46, golden("G01"), put(4, "choices", to=None), [4]),
    (48, golden("G04"), put(2, *CHOICE, "index", to=2), [2]),
    (49, golden("G01"), put(1, *CHOICE, to="Blue"), [1]),
    (50, golden("G04").asking(n=3), put(0, *CHOICE, "index", to=2), [0]),
    (51, golden("G04"), put(3, *DELTA, "role", to=""), [3]),
    (52, golden("G03"), drop(0), [0]),
    (53, golden("G02"), put(2, *CALL, "function", "arguments", to=7), [2]),
    (55, golden("G02"), insert(2, chunk({"content": "hm"})), [2]),
    (55, golden("G03"), insert(4, chunk({"reasoning": "?", "content": "!"})), [4]),
    (57, golden("G02"), put(2, *DELTA, "tool_calls", to={"0": {}}), [2]),
    # An index that is too high is shown once, however many entries it has.
    (58, ONE_CALL, both(*(put(n, *CALL, "index", to=3) for n in (1, 2, 3))), [1]),
    (59, golden("G02"), put(4, *CALL, "function", to={}), [4]),
    (60, golden("G02"), put(3, *CALL, "id", to=""), [3]),
    (61, golden("G02"), put(1, *CALL, "function", to=None), [1]),
    (62, golden("G02"), insert(6, call(0, function={"arguments": " "})), [6]),
    (63, golden("G01"), both(*(drop(n, *CHOICE, "finish_reason") for n in (0, 1, 2))), [0]),
    (64, golden("G03"), put(4, *DELTA, "reasoning", to="!"), [4]),
    (65, golden("G04"), drop(4), [2]),
    (65, golden("G01").asking(n=3), lambda _: None, [-1]),
    (67, golden("G01"), drop(4), [-1]),
    (68, golden("G01"), both(drop(1, "usage"), drop(2, "usage")), [1]),
    (70, golden("G01"), put(4, FP, to=ABSENT), [4]),
    (71, golden("G06").asking(logprobs=False), lambda _: None, [1]),
    (73, golden("G06"), put(2, *CHOICE, "logprobs", to=[]), [2]),
    (75, golden("G01"), drop(5), [-1]),
    (78, golden("G01"), both(*(put(n, *DELTA, "part", to=n) for n in (1, 2))), [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "base", "edit", "where"), WHERE, ids=[f"{row[0]}-{n}" for n, row in enumerate(WHERE)])
def test_where_a_breach_is_shown(rule: int, base: Stream, edit: Edit, where: list[int]) -> None:
    assert frames(base.edited(edit), rule) == where


def test_the_byte_is_where_the_block_begins() -> None:
    stream = golden("G01").edited(put(2, "object", to="x"))
    (one,) = found(stream, 44)
    assert stream.body[one.byte :].startswith(b"data: ")
    assert b'"object":"x"' in stream.body[one.byte :].split(b"\n\n")[0]


@pytest.mark.parametrize(
    ("rule", "stream"),
    [
        (47, golden("G01").edited(insert(2, {"choices": [], "usage": None}))),
        (52, golden("G01").edited(drop(0)).edited(put(0, *DELTA, "role", to="assistant"))),
        (64, golden("G01").edited(put(3, *DELTA, "content", to="!"))),
        (68, golden("G01").asking(stream_options=None)),
        (70, golden("G01").edited(put(2, FP, to="other"))),
        (77, golden("G01").reworked(sub(b"data: {", b"event: chunk\ndata: {"))),
    ],
    ids=[47, 52, 64, 68, 70, 77],
)
def test_what_only_our_encoders_must_not_do_is_a_warning_in_others_streams(rule: int, stream: Stream) -> None:
    assert {one.severity for one in found(stream, rule)} == {"error"}
    assert {one.severity for one in found(stream.known(own=False), rule)} == {"warning"}


# --- the envelope and the end -----------------------------------------------------------------------------------------


def test_what_follows_the_end_marker_is_not_read_as_chunks() -> None:
    """No client decodes it: it is one breach, not as many as there are rules about chunks."""
    report = golden("G01").edited(insert(6, chunk({"content": 5}, 7, "stop"), "[DONE]")).report()
    assert set(report.counts) == {"INV-024", "INV-075"}


@pytest.mark.parametrize("marked", ["truncated", "client_closed"])
def test_a_stream_that_is_marked_as_cut_lacks_nothing(marked: Any) -> None:
    cut = golden("G01").edited(lambda ev: ev[:2])
    assert set(cut.known(marked=marked).report().counts) == set()
    assert {"INV-033", "INV-065", "INV-067", "INV-075"} <= set(cut.known(marked="complete").report().counts)


def test_a_usage_that_no_server_sends_at_the_error_is_not_expected() -> None:
    assert (
        not golden("G05")
        .asking(stream_options={"include_usage": True})
        .edited(both(put(0, "usage", to=None), put(1, "usage", to=None)))
        .report()
        .counts
    )


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        ('{"error":{"message":"","type":"server_error"}}', 'an error whose message is ""'),
        ('{"error":"Unauthorized"}', 'error "Unauthorized"'),
        ('{"error":{"message":"lost"},"choices":[]}', "an error beside choices"),
    ],
)
def test_errors(error: str, seen: str) -> None:
    (one,) = found(golden("G05").edited(put(2, to=error)), 76)
    assert (one.frame, one.seen) == (2, seen)


@pytest.mark.parametrize("error", [None, "", 0, False, {}, []])
def test_an_error_that_is_nothing_is_none(error: Any) -> None:
    """SDKs raise for what is true."""
    assert not golden("G01").edited(put(2, "error", to=error)).report().counts


# --- choices ----------------------------------------------------------------------------------------------------------


def test_an_index_beyond_n_is_no_choice_that_was_introduced_out_of_order() -> None:
    assert frames(golden("G01").edited(put(0, *CHOICE, "index", to=4)), 50) == []
    assert frames(golden("G01").known(request=None).edited(put(0, *CHOICE, "index", to=4)), 50) == [0]


def test_reasoning_fields_are_compared_as_text_not_by_their_deltas() -> None:
    assert found(PARTED, 54) == []
    assert len(found(PARTED.edited(put(3, *DELTA, "reasoning_content", to=" 5")), 54)) == 1


def test_the_same_text_under_both_names_is_said_once() -> None:
    stream = golden("G03")
    said = of_stream(Reading(stream.body)).choices[0]
    assert (said.text("reasoning"), said.text("content")) == ("2+2 is 4", "4")


def test_any_number_of_choices_can_be_asked_for() -> None:
    assert len(found(golden("G01").asking(n=10**18), 65)) == 1


# --- calls ------------------------------------------------------------------------------------------------------------


CALLS_MEANT = (ToolCall("call_k1", "get_tide", '{"port":"Brest"}'), ToolCall("call_k2", "get_wind", "{}"))
CUT = (CALLS_MEANT[0], ToolCall("call_k2", "get_wind", "{}", complete=False))


def meant(calls: tuple[ToolCall, ...], reason: str) -> list[Message]:
    return [Message(0, tool_calls=calls, finish_reason=reason)]


TOOL_CALLS, STOP = golden("G02"), golden("G02").edited(put(6, *CHOICE, "finish_reason", to="stop"))


@pytest.mark.parametrize(
    ("stream", "holds"),
    [
        (TOOL_CALLS, True),
        (STOP, False),
        (TOOL_CALLS.known(meant=meant(CALLS_MEANT, "tool_calls")), True),
        # A call that was cut off, though its arguments can be read.
        (TOOL_CALLS.known(meant=meant(CUT, "stop")), False),
        (STOP.known(meant=meant(CUT, "stop")), True),
        (TOOL_CALLS.known(meant=meant(CALLS_MEANT, "length")), False),
        (STOP.edited(put(5, *CALL, "function", "arguments", to="{")), True),
        # A stop string may have matched inside the last call: only the recording tells.
        (STOP.asking(stop="}"), True),
        (STOP.asking(stop="}").edited(put(6, *CHOICE, "stop_reason", to="}")), True),
        (STOP.asking(stop="}").edited(put(6, *CHOICE, "stop_reason", to=151645)), False),
        (STOP.asking(stop="}").known(meant=meant(CALLS_MEANT, "tool_calls")), False),
        # A named function: ours says stop unless the request wants it otherwise, others say either.
        (ONE_CALL.asking(tool_choice=NAMED), False),
        (ONE_CALL.asking(tool_choice=NAMED).known(own=False), True),
        (ONE_CALL.asking(tool_choice=NAMED, named_finish_reason="tool_calls"), True),
        (ONE_CALL.asking(tool_choice=NAMED).edited(put(4, *CHOICE, "finish_reason", to="stop")), True),
        (ONE_CALL.asking(tool_choice=NAMED).edited(put(4, *CHOICE, "finish_reason", to="length")), True),
        (TOOL_CALLS.edited(put(6, *CHOICE, "finish_reason", to="length")), True),
    ],
    ids=range(17),
)
def test_66_which_finish_goes_with_calls(stream: Stream, holds: bool) -> None:
    assert (found(stream, 66) == []) is holds


CUSTOM = golden("G02").asking(tools=[{"type": "custom", "custom": {"name": "sql"}}]).edited(
    lambda ev: [
        ev[0], call(0, id="c1", type="custom", custom={"name": "sql", "input": ""}),
        call(0, custom={"input": "select 1"}), *ev[6:],
    ]
)  # fmt: skip


def test_the_input_of_a_custom_tool_is_no_json() -> None:
    assert not CUSTOM.report().counts
    assert frames(CUSTOM.edited(drop(1, *CALL, "custom", "name")), 59) == [1]
    assert frames(CUSTOM.edited(put(2, *CALL, "custom", "name", to="sql")), 60) == [2]


def test_a_type_may_be_repeated() -> None:
    assert not golden("G02").edited(put(2, *CALL, "type", to="function")).report().counts


# --- usage ------------------------------------------------------------------------------------------------------------


def test_68_running_usage_of_others_needs_no_final_one() -> None:
    stream = golden("G01").asking(stream_options={"continuous_usage_stats": True})
    assert found(stream.known(own=False), 68) == []
    assert found(stream, 68) != []


def test_69_tokens_behind_a_stop_string_are_counted_in_the_end() -> None:
    def running(*counts: int) -> Edit:
        def edit(elements: list[Any]) -> None:
            for element, count in zip(elements, counts, strict=False):
                element["usage"] = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}

        return edit

    asked = golden("G01").asking(stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert found(asked.edited(running(0, 1, 4, 4, 4)), 69) == []
    assert frames(asked.edited(running(0, 1, 3, 3, 4)), 69) == [4]
    assert found(asked.asking(stop="!").edited(running(0, 1, 3, 3, 4)), 69) == []
    assert frames(asked.asking(stop="!").edited(running(0, 1, 3, 5, 4)), 69) == [4]
    # Where the chunk with the finish has no count, nobody knows the last one.
    assert found(asked.edited(running(0, 1, 3)), 69) == []


# --- tokens -----------------------------------------------------------------------------------------------------------


def generated(ids: tuple[int, ...], pieces: tuple[bytes, ...] = (), prompt: tuple[int, ...] = ()) -> EngineFacts:
    return EngineFacts({0: EngineChoice(ids, "eos", None, pieces)}, None, prompt)


SCORED = golden("G06")
IDS = golden("G01").asking(return_token_ids=True).edited(
    both(put(1, *CHOICE, "token_ids", to=[5, 6]), put(3, *CHOICE, "token_ids", to=[7]))
)  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "holds"),
    [
        (SCORED.known(engine=generated((1, 2, 3))), True),
        (SCORED.known(engine=generated((1, 2, 3, 4))), True),
        (SCORED.known(engine=generated((1, 2, 3, 4, 5))), False),
        (SCORED.known(engine=generated((1, 2))), False),
        (SCORED.known(engine=generated(())), True),
        (SCORED.asking(stop="!").known(engine=generated((1, 2, 3, 4, 5))), True),
        (SCORED.asking(stop="!").known(engine=generated((1, 2))), False),
        (golden("G01").asking(logprobs=True).known(engine=generated((1, 2, 3))), False),
        (golden("G01").known(engine=generated((1, 2, 3))), True),
        (SCORED.asking(include_reasoning=False).known(engine=generated((1, 2, 3))), False),
    ],
    ids=range(10),
)
def test_72_an_entry_for_each_token(stream: Stream, holds: bool) -> None:
    assert (found(stream, 72) == []) is holds


@pytest.mark.parametrize(
    ("pieces", "holds"),
    [
        ((b"Blue", b" s", b"ky"), True),
        ((b"Blue", b" s", b"ky", b"<eos>"), True),
        ((b"Blu", b"e s", b"ky"), True),
        # The engine wrote more than the content: something was parsed away, and nothing follows.
        ((b"<x>", b"Blue", b" s", b"ky"), True),
        ((), True),
    ],
    ids=range(5),
)
def test_74_bytes_of_the_entries(pieces: tuple[bytes, ...], holds: bool) -> None:
    known = SCORED.known(engine=generated(tuple(range(len(pieces) or 3)), pieces))
    assert (found(known, 74) == []) is holds
    fragment = known.edited(put(2, *CHOICE, "logprobs", "content", 0, "bytes", to=[0xEF, 0xBF, 0xBD]))
    content = b"".join(pieces).startswith(b"Blue")
    assert (found(fragment, 74) != []) is content


def test_71_74_the_end_token_may_have_a_text_and_no_entry() -> None:
    """The request keeps stops in the text, and leaves the token that ended the choice out of the logprobs."""
    kept: dict[str, Any] = {"include_stop_str_in_output": True, "end_token_logprob": False}
    ended = SCORED.asking(**kept).edited(put(4, *CHOICE, "stop_reason", to=7))
    last = ended.edited(put(3, *CHOICE, "logprobs", to=None)).known(
        engine=generated((1, 2, 7), (b"Blue", b" s", b"ky"))
    )
    assert found(last, 74) == []
    assert frames(last.edited(put(2, *CHOICE, "logprobs", "content", 0, "bytes", to=list(b"xx"))), 74) == [4]
    alone = [drop(place, *CHOICE, "logprobs") for place in (1, 2, 3)]
    assert found(ended.edited(both(*alone)), 71) == []
    assert frames(ended.asking(end_token_logprob=True).edited(both(*alone)), 71) == [1]


@pytest.mark.parametrize(
    ("stream", "where"),
    [
        (IDS.known(engine=generated((5, 6, 7))), []),
        (IDS.known(engine=generated((5, 8, 7))), [1]),
        (IDS.known(engine=generated((5, 6, 7, 8))), [1]),
        (IDS.asking(stop="!").known(engine=generated((5, 6, 7, 8))), []),
        (IDS.edited(put(0, "prompt_token_ids", to=[1, 2])).known(engine=generated((5, 6, 7), prompt=(1, 2))), []),
        (IDS.edited(put(0, "prompt_token_ids", to=[1, 3])).known(engine=generated((5, 6, 7), prompt=(1, 2))), [0]),
        (golden("G01").known(engine=generated((5, 6, 7))), []),
    ],
    ids=range(7),
)
def test_79_token_ids(stream: Stream, where: list[int]) -> None:
    assert frames(stream, 79) == where
