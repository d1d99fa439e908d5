"""Rules of all protocols: what they make of what else is known, and what does not break them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stages.message import Message, ToolCall
from stages.protocols.rules import EngineChoice, EngineFacts, Violation
from tests.support.wire import Edit, Stream, both, chunk, drop, golden, insert, put
from tests.support.wire_bases import AGENT, BLOCKS, HIDDEN, ITEMS, PLAIN, STOPPED, TEXT, TOOLS, TWO

CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)


def found(stream: Stream, rule: int) -> list[Violation]:
    report = stream.report()
    assert rule in report.checked, report.unchecked.get(rule)
    return [one for one in report.violations if one.rule == f"INV-{rule:03}"]


def frames(stream: Stream, rule: int) -> list[int]:
    return [one.frame for one in found(stream, rule)]


def says(*messages: Message) -> list[Message]:
    return list(messages)


def text(*pieces: str, finish: str = "stop", **more: Any) -> Stream:
    """A chat stream with this content."""
    ends = chunk({}, finish=finish)
    ends["choices"][0].update(more)
    role = chunk({"role": "assistant", "content": ""})
    return Stream("chat", [role, *(chunk({"content": piece}) for piece in pieces), ends, "[DONE]"], {"request": STREAM})


STREAM = {"stream": True}


def generated(*pieces: str | bytes, reason: str | None = "stop", cap: int | None = None, **more: Any) -> EngineFacts:
    data = tuple(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    return EngineFacts({0: EngineChoice(tuple(range(len(data))), reason, cap, data)}, **more)


# --- what was meant ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "meant", "where"),
    [
        (("Blue", " sky"), "Blue sky", []),
        (("Blue", " sky"), "Blue ski", [2]),
        (("Blue", " sky"), "Blue sky.", [-1]),
        (("Blue", " sky."), "Blue sky", [2]),
        # Each piece repeats all that was before it.
        (("Blue", "Blue sky"), "Blue sky", [2]),
        ((), "Blue", [-1]),
        (("Blue",), None, [1]),
        ((), None, []),
    ],
)  # fmt: skip
def test_26_where_the_text_goes_astray(pieces: tuple[str, ...], meant: str | None, where: list[int]) -> None:
    assert frames(text(*pieces).known(meant=says(Message(0, content=meant))), 26) == where


def test_26_a_choice_that_is_not_there_and_one_that_was_not_meant() -> None:
    assert frames(text("a").known(meant=says(Message(0, content="a"), Message(1, content="b"))), 26) == [-1]
    assert frames(text("a").known(meant=[]), 26) == [1]


@pytest.mark.parametrize("rule", [26, 27, 28])
def test_a_stream_that_breaks_off_is_a_beginning(rule: int) -> None:
    """At every block, with and without a word of whoever recorded it; and it is not any other text."""
    for size in range(1, len(AGENT.elements) - 1):
        cut = Stream(AGENT.protocol, AGENT.elements[:size], AGENT.facts)
        assert found(cut, rule) == []
        assert found(cut.known(marked="client_closed"), rule) == []
    other = says(Message(0, "Think.", "Say.", None, (ToolCall("c", "get_tide", "[]"),)))
    assert found(AGENT.edited(lambda ev: ev[:9]).known(meant=other), rule) != []


def test_26_a_refusal_is_what_was_meant() -> None:
    stream = text("I", " can").edited(both(*(put(n, *DELTA, to={"refusal": "no"}) for n in (1, 2))))
    assert found(stream.known(meant=says(Message(0, refusal="nono"))), 26) == []
    assert frames(stream.known(meant=says(Message(0, refusal="noon"))), 26) == [2]


def test_28_counts_of_calls() -> None:
    calls = AGENT.facts["meant"][0].tool_calls
    message = AGENT.facts["meant"][0]
    fewer, more = (msgspec.structs.replace(message, tool_calls=of) for of in (calls[:1], (*calls, calls[0])))
    assert frames(AGENT.known(meant=[fewer]), 28) == [8]
    assert frames(AGENT.known(meant=[more]), 28) == [-1]


def test_28_in_messages_no_text_is_an_empty_object() -> None:
    message = BLOCKS.facts["meant"][0]
    (call,) = message.tool_calls
    empty = msgspec.structs.replace(message, tool_calls=(msgspec.structs.replace(call, arguments="{}"),))
    assert found(BLOCKS.edited(put(12, "delta", "partial_json", to="")).known(meant=[empty]), 28) == []


# --- characters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "where"),
    [
        (text("Bl\ufffd"), [1]),
        (text("Bl\ufffd").known(meant=says(Message(0, content="Bl\ufffd"))), []),
        (text("B\ufffdl").known(meant=says(Message(0, content="Bl\ufffd"))), [1]),
        (text("Bl\ufffd").known(engine=generated(b"Bl\xe5", b"!")), []),
        # The engine finished the character one step later.
        (text("Bl\ufffd", "\ufffdu").known(engine=generated(b"Bl\xc3", b"\xa5u")), [1, 2]),
        (text("Bl\ufffd", "\ufffd").known(engine=generated(b"Bl\xff", b"")), [2]),
        (text("Blå", "😀"), []),
    ],
    ids=range(7),
)
def test_29_who_wrote_it(stream: Stream, where: list[int]) -> None:
    assert frames(stream, 29) == where


def test_29_nobody_knows_who_wrote_it() -> None:
    """Of a torn recording of ours: the model may have, and we cut no characters."""
    torn = text("Bl\ufffd").known(own=True)
    assert [one.severity for one in found(torn, 29)] == ["warning"]
    assert [one.severity for one in found(torn.known(own=False), 29)] == ["error"]
    assert [one.severity for one in found(torn.known(meant=says(Message(0, content="Bl"))), 29)] == ["error"]


@pytest.mark.parametrize("escape", [b"\\ud83d", b"\\uDE00", b"\\ude00\\ud83d"])
def test_29_half_a_pair_is_nobodys_text(escape: bytes) -> None:
    stream = text("Blue").reworked(lambda body: body.replace(b"Blue", b"Bl" + escape))
    assert frames(stream, 29) == [1]
    whole = text("Blue").reworked(lambda body: body.replace(b"Blue", b"Bl\\ud83d\\ude00"))
    assert found(whole, 29) == []


def test_30_an_empty_delta_with_a_use() -> None:
    base = text("Blue")
    carrier = chunk({}, logprobs={"content": [{"token": "a", "logprob": -1, "bytes": None, "top_logprobs": []}]})
    ids, none = chunk({}), chunk({})
    ids["choices"][0]["token_ids"] = [7]
    none["choices"][0]["token_ids"] = []
    assert found(base.edited(insert(2, carrier, ids)), 30) == []
    nothing: list[dict[str, Any]] = [{}, {"content": ""}, {"content": None, "tool_calls": []}, {"role": None}]
    nothing.append({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})
    for delta in nothing:
        edit = insert(2, chunk(delta))
        stream = AGENT.edited(insert(6, chunk(delta, usage=None))) if "tool_calls" in delta else base.edited(edit)
        assert len(found(stream, 30)) == 1, delta
    assert frames(base.edited(insert(2, none)), 30) == [2]


# --- stop strings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "weights"),
    [
        (text("a STOP b").asking(stop="STOP"), ["error"]),
        (text("a ST", "OP").asking(stop=["x", "STOP"]), ["error"]),
        (text("a STOP").asking(stop="STOP", include_stop_str_in_output=True), []),
        (text("a STOP").asking(stop="STOP", no_stop_trim=True), []),
        (text("a STOP").asking(stop="STOP", stop_scopes=["tools"]), []),
        (text("a STOP").asking(stop=["", None]), []),
        # What the engine wrote has no stop string: something stood between its parts.
        (text("ST", "OP").asking(stop="STOP").known(engine=generated("ST", "<x>", "OP")), []),
        (text("ST", "OP").asking(stop="STOP").known(engine=generated("ST", "OP")), ["error"]),
        # Its beginning may be the text's own.
        (text("a ST", stop_reason="STOP").asking(stop="STOP"), ["warning"]),
        (text("a S", stop_reason="STOP").asking(stop="STOP"), []),
        (text("a ST").asking(stop="STOP"), []),
        (text("a ST", stop_reason="STOP").asking(stop="STOP").known(engine=generated("a ST", "OP")), ["error"]),
        (text("a ST", stop_reason="STOP").asking(stop="STOP").known(engine=generated("a STS", "TOP")), []),
        (text("a ST", stop_reason="STOP").asking(stop="STOP").known(engine=generated("a ST<x>", "STOP")), []),
        # A line may end with what the stop string begins with.
        (text("a\n", stop_reason="\nb").asking(stop="\nb").known(engine=generated("a\n", "\nb")), []),
    ],
    ids=range(15),
)
def test_31_stop_strings(stream: Stream, weights: list[str]) -> None:
    assert [one.severity for one in found(stream, 31)] == weights


def test_31_a_stop_string_does_not_span_what_stands_between() -> None:
    stream = text("ST", "OP").asking(stop="STOP").edited(insert(2, chunk({"reasoning": "hm"})))
    assert found(stream, 31) == []


def test_32_markers() -> None:
    stream = text("see <tool", "_call> there").known(engine=generated(markers=("<think>", "<tool_call>")))
    assert [(one.frame, one.severity) for one in found(stream, 32)] == [(1, "warning")]
    assert found(stream.known(engine=generated()), 32) == []


# --- the finish and calls ---------------------------------------------------------------------------------------------


def test_33_shows_the_second_one() -> None:
    assert frames(text("a").edited(insert(3, chunk({}, finish="stop"))), 33) == [3]


def test_35_the_same_id_in_another_choice_is_a_warning() -> None:
    """Ids of some families are the model's own and count from 0 in each choice; only one choice is answered."""
    entry = {"index": 0, "id": "functions.get_tide:0", "type": "function", "function": {"name": "get_tide"}}
    head = {"tool_calls": [entry]}
    stream = golden("G04").edited(insert(2, chunk(head), chunk(head, 1)))
    assert [(one.frame, one.severity) for one in found(stream, 35)] == [(3, "warning")]


def test_36_a_request_without_tools_says_nothing_about_names() -> None:
    assert found(golden("G02").asking(tools=[]), 36) == []
    assert frames(golden("G02").asking(tools=[{"name": "get_tide"}]), 36) == [4]
    assert found(golden("G02").asking(tools=[], functions=[{"name": "get_tide"}, {"name": "get_wind"}]), 36) == []


FUNCTION: dict[str, Any] = {**AGENT.request["tools"][0]["function"], "strict": True}
STRICT: list[dict[str, Any]] = [{"type": "function", "function": FUNCTION}, TOOLS[1]]
BAD = put(7, *CALL, "function", "arguments", to='"Brest"')
MISFIT = both(put(6, *CALL, "function", "arguments", to='{"harbour":'), put(7, *CALL, "function", "arguments", to="1}"))
HELD = msgspec.structs.replace(AGENT.facts["engine"], constrained=True)


@pytest.mark.parametrize(
    ("stream", "edit", "weights"),
    [
        (AGENT, BAD, ["warning"]),
        (AGENT.asking(tools=STRICT), BAD, ["error"]),
        (AGENT.known(engine=HELD), BAD, ["error"]),
        (AGENT, MISFIT, []),
        (AGENT.asking(tools=STRICT), MISFIT, ["error"]),
        (AGENT, put(10, *CHOICE, "finish_reason", to="length"), []),
        (AGENT, both(BAD, put(10, *CHOICE, "finish_reason", to="length")), []),
        (AGENT, both(BAD, put(10, *CHOICE, "finish_reason", to="content_filter")), []),
        (AGENT, both(BAD, put(10, *CHOICE, "finish_reason", to="abort")), []),
        (AGENT, both(BAD, drop(10)), []),
        # A stop string may cut the last call, and no other.
        (AGENT.asking(stop="}"), both(BAD, put(10, *CHOICE, "finish_reason", to="stop")), ["warning"]),
        (AGENT.asking(stop="}").known(meant=None),
         both(put(9, *CALL, "function", "arguments", to="{"), put(10, *CHOICE, "finish_reason", to="stop")), []),
        (AGENT, both(put(9, *CALL, "function", "arguments", to="{"), put(10, *CHOICE, "finish_reason", to="stop")),
         ["warning"]),
    ],
    ids=range(13),
)  # fmt: skip
def test_37_arguments(stream: Stream, edit: Edit, weights: list[str]) -> None:
    assert [one.severity for one in found(stream.edited(edit), 37)] == weights


@pytest.mark.parametrize(
    ("stream", "asked", "broken"),
    [
        (AGENT, {"tool_choice": "auto"}, False),
        (AGENT, {"tool_choice": "none"}, True),
        (AGENT, {"tool_choice": "required"}, False),
        (AGENT, {"tool_choice": {"type": "function", "function": {"name": "get_wind"}}}, True),
        (AGENT, {"parallel_tool_calls": False}, True),
        (PLAIN, {"tool_choice": "required"}, True),
        (PLAIN, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}, True),
        (PLAIN, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, False),
        (PLAIN.edited(put(3, *CHOICE, "finish_reason", to="length")), {"tool_choice": "required"}, False),
        (PLAIN.edited(put(3, *CHOICE, "finish_reason", to="content_filter")), {"tool_choice": "required"}, False),
        (golden("G05"), {"tool_choice": "required"}, False),
        (ITEMS, {"tool_choice": "none"}, True),
        (ITEMS, {"tool_choice": {"type": "function", "name": "get_tide"}}, False),
        (ITEMS, {"tool_choice": {"type": "function", "name": "get_wind"}}, True),
        (BLOCKS, {"tool_choice": {"type": "none"}}, True),
        (BLOCKS, {"tool_choice": {"type": "any"}}, False),
        (BLOCKS, {"tool_choice": {"type": "tool", "name": "get_wind"}}, True),
        (BLOCKS, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, False),
        (BLOCKS, {"tool_choice": 5}, False),
    ],
    ids=range(19),
)
def test_38_what_the_tool_choice_wants(stream: Stream, asked: dict[str, Any], broken: bool) -> None:
    assert bool(found(stream.asking(**asked), 38)) is broken


@pytest.mark.parametrize(
    ("stream", "broken"),
    [
        (text("a", finish="length"), False),
        (text("a", finish="length").known(engine=generated("a", reason="length")), False),
        (text("a", finish="length").known(engine=generated("a", reason="length", cap=1)), False),
        (text("a", finish="length").known(engine=generated("a", reason="length", cap=2)), True),
        (text("a", finish="length").known(engine=generated("a", reason="context", cap=2)), False),
        (text("a", finish="length").known(engine=generated("a", reason="eos")), True),
        (text("a", stop_reason="b"), True),
        (text("a", stop_reason="b").asking(stop="b"), False),
        (text("a", stop_reason="b").asking(stop="c"), True),
        (text("a", stop_reason="b").asking(stop="c").known(own=False), False),
        (text("a", stop_reason="b").known(request=None), False),
        (text("a", stop_reason=151645), False),
        (text("a", finish="tool_calls"), True),
    ],
    ids=range(13),
)
def test_39_why_it_ended(stream: Stream, broken: bool) -> None:
    assert bool(found(stream, 39)) is broken


# --- usage ------------------------------------------------------------------------------------------------------------


USED: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


@pytest.mark.parametrize(
    ("usage", "seen"),
    [
        (USED, None),
        ({**USED, "prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None}}, None),
        ({**USED, "prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 0}}, None),
        ({**USED, "cost": 0.25, "service": "x", "prompt_tokens_details": {"multimodal_tokens": {"image": 2}}}, None),
        ({**USED, "total_tokens": 14}, "total 14 of input 9 and output 4"),
        ({**USED, "completion_tokens": -1, "total_tokens": 8}, "completion_tokens -1"),
        ({**USED, "completion_tokens": 4.0}, "completion_tokens 4.0"),
        ({**USED, "prompt_tokens": True}, "prompt_tokens true"),
        ({**USED, "prompt_tokens_details": {"cached_tokens": 10}}, "cached_tokens 10 of prompt_tokens 9"),
        ({**USED, "completion_tokens_details": {"reasoning_tokens": 5}}, "reasoning_tokens 5 of completion_tokens 4"),
        ({**USED, "completion_tokens_details": {"audio_tokens": "1"}}, 'audio_tokens "1"'),
        ({**USED, "reasoning_tokens": 5}, "reasoning_tokens 5 of output 4"),
        ({"prompt_tokens": 9, "completion_tokens": 4}, "no total tokens"),
        ({"completion_tokens": 4, "total_tokens": 13}, "no input tokens"),
    ],
)  # fmt: skip
def test_40_numbers(usage: dict[str, Any], seen: str | None) -> None:
    broken = found(golden("G01").edited(put(4, "usage", to=usage)), 40)
    assert seen in [one.seen for one in broken] if seen else not broken


@pytest.mark.parametrize(
    ("facts", "seen"),
    [
        (EngineFacts({0: EngineChoice((1, 2, 3, 4))}, 9), []),
        (EngineFacts({0: EngineChoice((1, 2)), 1: EngineChoice((3, 4))}), []),
        (EngineFacts({0: EngineChoice((1, 2, 3))}, 9), ["output 4"]),
        (EngineFacts({0: EngineChoice((1, 2, 3, 4))}, 8), ["input 9"]),
        # An engine that gives no ids has not generated nothing.
        (EngineFacts({0: EngineChoice(())}, 9), []),
    ],
    ids=range(5),
)
def test_41_counts_of_the_engine(facts: EngineFacts, seen: list[str]) -> None:
    assert [one.seen for one in found(golden("G01").known(engine=facts), 41)] == seen


# --- the end ----------------------------------------------------------------------------------------------------------


def test_42_shows_each_event_behind_the_error() -> None:
    usage: dict[str, Any] = {"choices": [], "usage": USED}
    assert frames(golden("G05").edited(insert(3, chunk({}, finish="stop"), usage)), 42) == [3, 4]


@pytest.mark.parametrize(
    ("marked", "broken"), [(None, True), ("complete", True), ("truncated", False), ("client_closed", False)]
)
def test_43_a_stream_without_its_end(marked: Any, broken: bool) -> None:
    for name in ("G01", "G07", "G09", "G12"):
        stream = golden(name)
        cut = stream.edited(lambda ev: ev[:-1]).known(marked=marked)
        assert bool(found(cut, 43)) is broken, name
        assert not found(stream.known(marked=marked), 43), name


@pytest.mark.parametrize("name", ["G11", "G13"])
def test_43_an_error_ends_a_stream_that_has_no_other_marker_then(name: str) -> None:
    assert not found(golden(name), 43)


def test_27_hidden_reasoning_is_told_by_nothing() -> None:
    told = HIDDEN.edited(put(1, *CHOICE, "token_ids", to=[7]))
    assert frames(told, 27) == [1]
    assert found(told.asking(include_reasoning=True).known(meant=[Message(0, content="It is 4.")]), 27) == []


@pytest.mark.parametrize("stream", [AGENT, BLOCKS, HIDDEN, ITEMS, PLAIN, STOPPED, TEXT, TWO], ids=range(8))
@pytest.mark.parametrize("rule", range(26, 44))
def test_what_is_right_breaks_nothing(rule: int, stream: Stream) -> None:
    report = stream.report()
    assert f"INV-{rule:03}" not in report.counts
