"""Mutants for the rules of content in all protocols (26-43), written from the rules' text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stages.message import Message
from stages.protocols.rules import EngineChoice, EngineFacts
from tests.support.wire import (
    ABSENT,
    Mutant,
    Stream,
    ask,
    breaks,
    chunk,
    drop,
    els,
    golden,
    insert,
    put,
    raw,
    sub,
    swap,
)
from tests.support.wire_bases import (
    AGENT,
    BLOCKS,
    ERROR,
    HIDDEN,
    ITEMS,
    LONG,
    PLAIN,
    STOPPED,
    TEXT,
    TIDE,
    TOOLS,
    TWO,
    argument,
    entries,
    thought,
    usage,
)

CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)
# Where things stand in LONG: a role, 60 thoughts, 300 words, a header, 102 fragments, finish, usage, [DONE].
WORDS, HEADER, FINISH, USAGE = 61, 361, 464, 465
ANSWER = {"type": "text_delta", "text": ""}


def meaning(stream: Stream, **changes: Any) -> Stream:
    """What the first choice was meant to say, changed."""
    first, *rest = stream.facts["meant"]
    return stream.known(meant=[msgspec.structs.replace(first, **changes), *rest])


def engine(stream: Stream, choice: int = 0, **changes: Any) -> Stream:
    """What the engine did in a choice, changed."""
    facts: EngineFacts = stream.facts["engine"]
    changed = msgspec.structs.replace(facts.choices[choice], **changes)
    return stream.known(engine=msgspec.structs.replace(facts, choices={**facts.choices, choice: changed}))


def strict(schema: dict[str, Any]) -> list[dict[str, Any]]:
    function = {"name": "get_tide", "parameters": schema, "strict": True}
    return [{"type": "function", "function": function}, TOOLS[1]]


def flat(name: str) -> list[dict[str, Any]]:
    return [{"type": "function", "name": name, "parameters": {}}]


def alone(number: int) -> Stream:
    """AGENT with its first call only, and what was meant with it."""
    stream = AGENT.edited(lambda ev: [*ev[:8], *ev[10:]])
    calls = stream.facts["meant"][0].tool_calls
    return meaning(stream, tool_calls=calls[:number])


INTEGER = {"type": "object", "properties": {"port": {"type": "integer"}}}
HELD = AGENT.known(engine=msgspec.structs.replace(AGENT.facts["engine"], constrained=True))
BROKEN = meaning(AGENT.edited(put(3, *DELTA, "content", to="Look\ufffd")), content="Look\ufffd it up.")
"""U+FFFD, where the engine has it."""

TRIMMED = TEXT.asking(stop="sky", max_tokens=9).edited(put(1, *CHOICE, "text", to=" ")).edited(
    put(2, *CHOICE, "finish_reason", to="stop")
).known(engine=EngineFacts({0: EngineChoice((11, 12), "stop", 9)}, 3), meant=[Message(0, content="Blue ")])  # fmt: skip
"""Completions that a stop string ended."""

STOPPED_BLOCKS = engine(
    meaning(
        BLOCKS.asking(stop_sequences=["Tide:"]).edited(lambda ev: [*ev[:10], *ev[14:]]).edited(
            lambda ev: ev[10].update(delta={"stop_reason": "stop_sequence", "stop_sequence": "Tide:"})
        ),
        tool_calls=(), finish_reason="stop",
    ),
    reason="stop",
)  # fmt: skip
"""Messages that a stop string ended, without a call."""

TEXTS = [
    Mutant(26, "a delta is lost, late", LONG, els(drop(WORDS + 290))),
    Mutant(26, "a delta is sent twice", AGENT, els(insert(4, chunk({"content": "Looking"}, usage=None)))),
    Mutant(26, "two deltas change places", PLAIN, els(swap(1, 2))),
    Mutant(26, "the choices change places", TWO, els(put(2, *CHOICE, "index", to=1), put(3, *CHOICE, "index", to=0))),
    Mutant(26, "completions", TEXT, els(put(1, *CHOICE, "text", to="sky"))),
    Mutant(26, "responses", ITEMS, els(drop(11))),
    Mutant(26, "messages", BLOCKS, els(put(8, "delta", "text", to=" it up"))),
    Mutant(26, "nothing was meant", PLAIN, lambda s: meaning(s, content=None)),
    Mutant(27, "a thought is lost", AGENT, els(drop(1))),
    Mutant(27, "a thought is content, late", LONG, els(put(WORDS - 1, *DELTA, to={"content": "t59 "}))),
    Mutant(27, "messages", BLOCKS, els(put(3, "delta", "thinking", to="Need tides"))),
    Mutant(27, "hidden, and sent", HIDDEN, els(insert(1, chunk(thought("The sum of two and two"), usage=None)))),
    Mutant(27, "hidden, and in the logprobs", HIDDEN,
           els(put(0, *CHOICE, "logprobs", to=entries("The", " sum", " of", " two", " and", " two")))),
    Mutant(27, "hidden, and in token ids", HIDDEN, els(put(1, *CHOICE, "token_ids", to=[21, 22, 23, 24]))),
    Mutant(27, "hidden, and in content", HIDDEN, els(put(1, *DELTA, "content", to="The sum of two and twoIt is "))),
    Mutant(28, "a fragment is lost, late", LONG, els(drop(HEADER + 90))),
    Mutant(28, "the calls change places", AGENT, lambda s: meaning(s, tool_calls=s.facts["meant"][0].tool_calls[::-1])),
    Mutant(28, "another call's arguments", AGENT, els(put(9, *CALL, "function", "arguments", to='{"port":"Brest"}'))),
    Mutant(28, "responses", ITEMS, els(put(17, "delta", to='"Bergen"}'))),
    Mutant(28, "messages", BLOCKS, els(put(12, "delta", "partial_json", to='{"port":"Bergen"}'))),
    Mutant(29, "at another place", BROKEN, els(put(4, *DELTA, "content", to=" it\ufffdup."))),
    Mutant(29, "in a thought, late", LONG, els(put(WORDS - 1, *DELTA, to=thought("t59\ufffd")))),
    Mutant(29, "a delta ends inside a pair", PLAIN, raw(sub(b'"content":"Blue"', b'"content":"Blue\\ud83d"'))),
    Mutant(29, "a fragment begins inside a pair", AGENT, raw(sub(b'\\"Brest', b'\\ude00\\"Brest'))),
    Mutant(29, "messages", BLOCKS, els(put(7, "delta", "text", to="\ufffd"))),
    Mutant(30, "an empty text, late", LONG, els(insert(WORDS + 290, chunk({"content": ""}, usage=None)))),
    Mutant(30, "an empty fragment", AGENT, els(insert(7, chunk(argument(""), usage=None)))),
    Mutant(30, "responses", ITEMS, els(insert(11, {**ITEMS.elements[10], "delta": ""}))),
    Mutant(30, "messages", BLOCKS, els(insert(8, {"type": "content_block_delta", "index": 1, "delta": ANSWER}))),
    Mutant(31, "in two deltas", STOPPED, els(insert(3, chunk({"content": "</ans"}), chunk({"content": "wer>"})))),
    Mutant(31, "its beginning was let go", STOPPED, els(put(2, *DELTA, "content", to="42</answ"))),
    Mutant(31, "completions", TRIMMED, els(put(1, *CHOICE, "text", to=" sky"))),
    Mutant(31, "messages", STOPPED_BLOCKS, els(put(8, "delta", "text", to=" it up.Tide:"))),
    Mutant(31, "one of several, asked now", PLAIN, ask(stop=["zzz", " sky"])),
    Mutant(32, "whole", AGENT, els(put(4, *DELTA, "content", to=" it up.<tool_call>"))),
    Mutant(32, "over two deltas, late", LONG,
           els(put(WORDS + 290, *DELTA, "content", to="</thi"), put(WORDS + 291, *DELTA, "content", to="nk>"))),
]  # fmt: skip

ENDS = [
    Mutant(33, "a choice ends twice", TWO, els(insert(11, chunk({}, 1, "stop", usage=usage(9, 4))))),
    Mutant(33, "a choice never ends", TWO, els(drop(9))),
    Mutant(33, "twice, and then an error", ERROR, els(insert(2, chunk({}, finish="stop"), chunk({}, finish="length")))),
    Mutant(33, "completions", TEXT, els(put(1, *CHOICE, "finish_reason", to="stop"))),
    Mutant(34, "a call", AGENT, els(insert(11, chunk(argument(" ", 1), usage=None)))),
    Mutant(34, "a thought, late", LONG, els(insert(USAGE, chunk(thought("hm"), usage=None)))),
    Mutant(34, "logprobs", TWO, els(insert(10, chunk({}, 1, logprobs=entries("!"), usage=usage(9, 4))))),
    Mutant(34, "a refusal", PLAIN, els(insert(4, chunk({"refusal": "no"}, usage=None)))),
    Mutant(34, "completions", TEXT, els(insert(3, {**TEXT.elements[1]}))),
    Mutant(35, "both the same", AGENT, els(put(8, *CALL, "id", to="call_k1"))),
    Mutant(35, "empty", AGENT, els(put(5, *CALL, "id", to=""))),
    Mutant(35, "the same in another choice", golden("G02").asking(n=2), els(
        insert(1, chunk({"role": "assistant", "content": None}, 1)),
        insert(7, chunk(AGENT.elements[8]["choices"][0]["delta"], 1), chunk({}, 1, "tool_calls")),
        put(7, *CALL, "index", to=0))),
    Mutant(35, "messages", BLOCKS, els(put(10, "content_block", "id", to=""))),
    Mutant(36, "a name of its own", AGENT, els(put(8, *CALL, "function", "name", to="get_winds"))),
    Mutant(36, "fewer tools", AGENT, ask(tools=TOOLS[:1])),
    Mutant(36, "responses", ITEMS, ask(tools=flat("get_tides"))),
    Mutant(36, "messages", BLOCKS, els(put(10, "content_block", "name", to="Get_tide"))),
    Mutant(37, "an array", AGENT, els(put(9, *CALL, "function", "arguments", to="[]"))),
    Mutant(37, "two values", AGENT, els(insert(10, chunk(argument("{}", 1), usage=None)))),
    Mutant(37, "its end is missing, late", LONG, els(drop(FINISH - 1))),
    Mutant(37, "not what a strict schema says", AGENT.asking(tools=strict(TIDE)),
           ask(tools=strict(INTEGER))),
    Mutant(38, "another one was named", alone(1).asking(
        tool_choice={"type": "function", "function": {"name": "get_tide"}}).edited(
            put(8, *CHOICE, "finish_reason", to="stop")),
        ask(tool_choice={"type": "function", "function": {"name": "get_wind"}})),
    Mutant(38, "two in parallel", AGENT, ask(parallel_tool_calls=False)),
    Mutant(38, "none, in responses", ITEMS, ask(tool_choice="none")),
    Mutant(38, "another one was named, in responses", ITEMS, ask(tool_choice={"type": "function", "name": "get_wind"})),
    Mutant(38, "one was required, in messages", STOPPED_BLOCKS, ask(tool_choice={"type": "any"})),
    Mutant(39, "length before the cap", PLAIN, els(put(3, *CHOICE, "finish_reason", to="length"))),
    Mutant(39, "the cap was not reached", TWO, lambda s: engine(s, 1, cap=5, reason="eos")),
    Mutant(39, "no stop string was asked for", STOPPED_BLOCKS, ask(stop_sequences=ABSENT)),
    Mutant(39, "calls that are none", BLOCKS, els(drop(13), drop(12), drop(11), drop(10))),
    Mutant(39, "calls that another choice made", golden("G04"), els(put(4, *CHOICE, "finish_reason", to="tool_calls"))),
]  # fmt: skip

THINKING = {"completion_tokens_details": {"reasoning_tokens": 5}}
COUNTS = [
    Mutant(40, "negative", PLAIN, els(put(4, "usage", to=usage(9, -4)))),
    Mutant(40, "a float", PLAIN, els(put(4, "usage", "completion_tokens", to=4.0))),
    Mutant(40, "a boolean", PLAIN, els(put(4, "usage", to={**usage(9, 1), "completion_tokens": True}))),
    Mutant(40, "more thoughts than tokens", PLAIN, els(put(4, "usage", to=usage(9, 4, **THINKING)))),
    Mutant(40, "more cached than there are, late", LONG,
           els(put(USAGE, "usage", "prompt_tokens_details", to={"cached_tokens": 10}))),
    Mutant(40, "a sum that runs is wrong", TWO, els(put(6, "usage", "total_tokens", to=9))),
    Mutant(40, "responses", ITEMS, els(put(20, "response", "usage", "total_tokens", to=20))),
    Mutant(40, "messages", BLOCKS, els(put(14, "usage", "output_tokens_details", "thinking_tokens", to=13))),
    Mutant(41, "the end token is not counted", PLAIN, els(put(4, "usage", to=usage(9, 3)))),
    Mutant(41, "the prompt is counted per choice", TWO, els(put(11, "usage", to=usage(18, 8)))),
    Mutant(41, "the engine made one more, late", LONG, lambda s: engine(s, ids=tuple(range(100, 600)))),
    Mutant(41, "responses", ITEMS,
           lambda s: s.edited(lambda ev: ev[20]["response"]["usage"].update(output_tokens=13, total_tokens=22))),
    Mutant(41, "messages", BLOCKS, els(put(14, "usage", "output_tokens", to=11))),
    Mutant(42, "usage", ERROR, els(insert(3, {"choices": [], "usage": usage(9, 1)}))),
    Mutant(42, "finish", ERROR, els(insert(3, chunk({}, finish="stop")))),
    Mutant(42, "messages", golden("G13"), els(insert(5, BLOCKS.elements[14]))),
    Mutant(43, "nobody says that it was cut", LONG.edited(drop(-1)).known(marked="truncated"),
           lambda s: s.known(marked=None)),
    Mutant(43, "taken for complete", PLAIN.edited(drop(-1)).known(marked="client_closed"),
           lambda s: s.known(marked="complete")),
    Mutant(43, "responses", ITEMS, els(drop(20))),
    Mutant(43, "messages", BLOCKS, raw(lambda body: body[:-30])),
    Mutant(43, "completions", TEXT, raw(lambda body: body[:-1])),
]  # fmt: skip

MUTANTS = [*TEXTS, *ENDS, *COUNTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.rule}-{one.what}")
def test_a_mutant_breaks_its_rule(mutant: Mutant) -> None:
    breaks(mutant.rule, mutant.base, mutant.change(mutant.base))


def test_each_rule_has_two() -> None:
    rules = [mutant.rule for mutant in MUTANTS]
    assert all(rules.count(number) >= 2 for number in range(26, 44))


@pytest.mark.parametrize("stream", [BROKEN, TRIMMED, STOPPED_BLOCKS, HELD, alone(1)], ids=range(5))
def test_the_bases_are_clean(stream: Stream) -> None:
    assert {one.rule for one in stream.report().violations} <= {"INV-041", "INV-079"}  # tokens that were cut out


@pytest.mark.parametrize(
    ("stream", "weight"),
    [
        (AGENT, "warning"),
        (HELD, "error"),
        (AGENT.asking(tools=strict(TIDE)), "error"),
    ],
)
def test_37_weighs_more_where_the_output_was_constrained(stream: Stream, weight: str) -> None:
    report = stream.edited(put(7, *CALL, "function", "arguments", to='"Brest"')).report()
    assert [one.severity for one in report.violations if one.rule == "INV-037"] == [weight]


@pytest.mark.parametrize(
    "stream",
    [
        STOPPED.asking(include_stop_str_in_output=True).edited(put(2, *DELTA, "content", to="42</answer>")),
        STOPPED.asking(no_stop_trim=True).edited(put(2, *DELTA, "content", to="42</answer>")),
        STOPPED.asking(stop=None),
    ],
)
def test_31_stop_strings_that_may_stay(stream: Stream) -> None:
    assert "INV-031" not in stream.report().counts


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_37_and_38_excuse_what_was_cut(reason: str) -> None:
    cut = AGENT.asking(tool_choice="required").edited(lambda ev: [*ev[:7], *ev[10:]])
    report = cut.edited(put(7, *CHOICE, "finish_reason", to=reason)).report()
    assert {"INV-037", "INV-038"}.isdisjoint(report.counts)
