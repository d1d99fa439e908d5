"""Mutants for the rules of chat completions (44-79), written from the rules' text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stages.protocols.rules import EngineFacts
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
    ERROR,
    HEAD,
    HIDDEN,
    KEPT,
    LONG,
    PLAIN,
    PROMPT_IDS,
    REFUSED,
    ROLE,
    TWO,
    argument,
    entries,
    thought,
    usage,
)

CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)
ENTRY = ("choices", 0, "logprobs", "content", 0)
# Where things stand in LONG: a role, 60 thoughts, 300 words, a header, 102 fragments, finish, usage, [DONE].
WORDS, HEADER, FINISH, USAGE = 61, 361, 464, 465


def every(key: str, value: Any) -> Any:
    """A key of every chunk."""

    def edit(elements: list[Any]) -> None:
        for element in elements[:-1]:
            element[key] = value

    return els(edit)


def foreign(stream: Stream) -> Stream:
    return stream.known(own=False)


def tokens(stream: Stream, **changes: Any) -> Stream:
    """What the engine did in choice 0, changed."""
    facts: EngineFacts = stream.facts["engine"]
    changed = msgspec.structs.replace(facts.choices[0], **changes)
    return stream.known(engine=msgspec.structs.replace(facts, choices={**facts.choices, 0: changed}))


def scored(*alternatives: float) -> list[dict[str, Any]]:
    return [{"token": f"a{place}", "logprob": value, "bytes": None} for place, value in enumerate(alternatives)]


def several(elements: list[Any]) -> None:
    """Both calls' last fragments in one chunk, the second call's first."""
    entries_ = [argument("", 1)["tool_calls"][0], argument('"Brest"}')["tool_calls"][0]]
    header = elements.pop(4)
    elements[3:3] = [header]
    elements[4] = chunk({"tool_calls": entries_})


def without_choice_1(elements: list[Any]) -> list[Any]:
    return [one for one in elements if one == "[DONE]" or one["choices"][0]["index"] != 1]


def in_one_chunk(elements: list[Any]) -> list[Any]:
    """The three role chunks as one."""
    return [{"choices": [one["choices"][0] for one in elements[:3]]}, *elements[3:]]


THREE = golden("G04").asking(n=3).edited(
    lambda ev: [*ev[:2], chunk(ROLE, 2), *ev[2:7], chunk({}, 2, "stop"), ev[7]]
)  # fmt: skip
TOGETHER = THREE.edited(in_one_chunk)
NAMED = AGENT.asking(tool_choice={"type": "function", "function": {"name": "get_tide"}}).edited(
    lambda ev: [*ev[:8], *ev[10:]]
).edited(put(8, *CHOICE, "finish_reason", to="stop"))  # fmt: skip
SILENT = PLAIN.asking(stream_options=ABSENT).edited(
    lambda ev: [{key: one for key, one in element.items() if key != "usage"} for element in ev[:4]] + [ev[5]]
)
"""Usage was not asked for."""
CARRIED = TWO.edited(put(10, *CHOICE, "logprobs", to=entries("<|end|>"))).edited(put(10, *ENTRY, "bytes", to=None))
"""The end token has an entry, too."""
UNMARKED = every("system_fingerprint", ABSENT)(PLAIN)
EXTENDED = foreign(PLAIN).edited(insert(4, {"choices": [], "usage": None, "sglext": {"cached": 0}}))
FAR = {"tool_calls": [{**HEAD[1], "index": 7}]}

ENVELOPES = [
    Mutant(44, "none on the usage chunk", PLAIN, els(put(4, "object", to=ABSENT))),
    Mutant(44, "the other endpoint's, late", LONG, els(put(WORDS + 290, "object", to="text_completion"))),
    Mutant(44, "null, between comments", KEPT, raw(sub(b'"object":"chat.completion.chunk"', b'"object":null'))),
    Mutant(45, "created changes", PLAIN, els(put(3, "created", to=1760000001))),
    Mutant(45, "model changes, late", LONG, els(put(USAGE, "model", to="demo-2"))),
    Mutant(45, "no id", PLAIN, every("id", "")),
    Mutant(45, "id is missing once", AGENT, els(put(5, "id", to=ABSENT))),
    Mutant(45, "created is a float", TWO, every("created", 1760000000.5)),
    Mutant(46, "null on the usage chunk", PLAIN, els(put(4, "choices", to=None))),
    Mutant(46, "missing, late", LONG, els(put(WORDS + 290, "choices", to=ABSENT))),
    Mutant(46, "an object", TWO, els(lambda ev: ev[4].update(choices=ev[4]["choices"][0]))),
    Mutant(47, "first", PLAIN, els(insert(0, {"choices": [], "usage": None}))),
    Mutant(47, "an extension, of our own", LONG, els(insert(USAGE, {"choices": [], "usage": None, "sglext": {}}))),
    Mutant(47, "foreign, and no extension", foreign(PLAIN), els(insert(2, {"choices": [], "usage": None}))),
    Mutant(48, "beyond n", TWO, els(put(3, *CHOICE, "index", to=2))),
    Mutant(48, "negative, late", LONG, els(put(FINISH, *CHOICE, "index", to=-1))),
    Mutant(48, "text", PLAIN, els(put(1, *CHOICE, "index", to="0"))),
    Mutant(48, "missing", REFUSED, els(drop(1, *CHOICE, "index"))),
    Mutant(48, "boolean", PLAIN, els(put(1, *CHOICE, "index", to=False))),
    Mutant(49, "missing on the finish", PLAIN, els(drop(3, *CHOICE, "delta"))),
    Mutant(49, "text, late", LONG, els(put(WORDS + 290, *CHOICE, "delta", to="w290 "))),
    Mutant(49, "an array", TWO, els(put(9, *CHOICE, "delta", to=[]))),
    Mutant(50, "2 before 1", THREE, els(swap(1, 2))),
    Mutant(50, "falling in one chunk", TOGETHER, els(lambda ev: ev[0]["choices"].reverse())),
    Mutant(50, "a gap", THREE, els(without_choice_1)),
    Mutant(51, "none", PLAIN, els(drop(0, *DELTA, "role"))),
    Mutant(51, "user", TWO, els(put(1, *DELTA, "role", to="user"))),
    Mutant(51, "again, late", LONG, els(put(FINISH, *DELTA, "role", to="assistant"))),
    Mutant(51, "null first", REFUSED, els(put(0, *DELTA, "role", to=None))),
    Mutant(51, "another one later", AGENT, els(put(5, *DELTA, "role", to="tool"))),
    Mutant(52, "text", PLAIN, els(put(0, *DELTA, "content", to="Oh. "))),
    Mutant(52, "a call", AGENT, els(put(0, *DELTA, "tool_calls", to=[HEAD[0]]), drop(5))),
    Mutant(52, "a thought", LONG, els(put(0, *DELTA, to={**ROLE, **thought("t")}))),
    Mutant(53, "reasoning", AGENT, els(put(1, *DELTA, "reasoning", to=["Need "]))),
    Mutant(53, "refusal", REFUSED, els(put(1, *DELTA, "refusal", to=True))),
    Mutant(53, "arguments, late", LONG, els(put(HEADER + 90, *CALL, "function", "arguments", to={"port": 1}))),
    Mutant(53, "reasoning_content", LONG, els(put(5, *DELTA, "reasoning_content", to=4))),
    Mutant(54, "one word differs, late", LONG, els(put(WORDS - 1, *DELTA, "reasoning", to="t58 "))),
    Mutant(54, "one is missing once", AGENT, els(drop(2, *DELTA, "reasoning_content"))),
    Mutant(55, "text behind a call", AGENT, els(insert(8, chunk({"content": "Now the wind."}, usage=None)))),
    Mutant(55, "a thought between words, late", LONG, els(insert(WORDS + 290, chunk(thought("hm"), usage=None)))),
    Mutant(56, "a refusal at the end, late", LONG, els(put(FINISH - 1, *DELTA, to={"refusal": "no"}))),
    Mutant(56, "text in a refusal", REFUSED, els(insert(2, chunk({"content": "Well. "})))),
    Mutant(56, "both in one delta", TWO, els(put(5, *DELTA, "refusal", to="no"))),
]  # fmt: skip

CALLS = [
    Mutant(57, "an object", AGENT, els(put(6, *DELTA, "tool_calls", to=argument('{"port":')["tool_calls"][0]))),
    Mutant(57, "text as an entry", AGENT, els(put(6, *CALL, to="x"))),
    Mutant(57, "null as an entry, late", LONG, els(put(HEADER + 90, *CALL, to=None))),
    Mutant(57, "an index as text", AGENT, els(put(5, *CALL, "index", to="0"))),
    Mutant(57, "an index below 0", AGENT, els(put(9, *CALL, "index", to=-1))),
    Mutant(57, "no index", LONG, els(drop(HEADER + 90, *CALL, "index"))),
    Mutant(58, "a gap behind the first", AGENT, els(put(8, *CALL, "index", to=2), put(9, *CALL, "index", to=2))),
    Mutant(58, "the second one first", AGENT, els(drop(5), drop(5), drop(5))),
    Mutant(58, "far away, late", LONG, els(insert(FINISH, chunk(FAR, usage=None)))),
    Mutant(59, "no name", AGENT, els(put(8, *CALL, "function", "name", to=""))),
    Mutant(59, "no type", AGENT, els(drop(5, *CALL, "type"))),
    Mutant(59, "no arguments, late", LONG, els(drop(HEADER, *CALL, "function", "arguments"))),
    Mutant(59, "an id that is null", AGENT, els(put(5, *CALL, "id", to=None))),
    Mutant(60, "id again", AGENT, els(put(6, *CALL, "id", to="call_k1"))),
    Mutant(60, "name again, late", LONG, els(put(HEADER + 90, *CALL, "function", "name", to="get_tide"))),
    Mutant(60, "another id", AGENT, els(put(9, *CALL, "id", to="call_k3"))),
    Mutant(61, "null", AGENT, els(put(7, *CALL, "function", to=None))),
    Mutant(61, "text", AGENT, els(put(9, *CALL, "function", to="{}"))),
    Mutant(61, "missing, late", LONG, els(drop(HEADER + 90, *CALL, "function"))),
    Mutant(62, "back at the end", AGENT, els(insert(10, chunk(argument(" "), usage=None)))),
    Mutant(62, "falling in one chunk", golden("G02"), els(several)),
    Mutant(63, "aborted", PLAIN, els(put(3, *CHOICE, "finish_reason", to="abort"))),
    Mutant(63, "a chunk behind it", AGENT, els(insert(11, chunk({}, usage=None)))),
    Mutant(63, "not null on the way, late", LONG, els(put(WORDS + 290, *CHOICE, "finish_reason", to=""))),
    Mutant(63, "false", TWO, els(put(10, *CHOICE, "finish_reason", to=False))),
    Mutant(64, "a fragment, late", LONG, els(put(FINISH, *DELTA, to=argument(" ")))),
    Mutant(64, "a thought", HIDDEN, els(put(3, *DELTA, to=thought("hm")))),
    Mutant(64, "a role", TWO, els(put(9, *DELTA, "role", to="assistant"))),
    Mutant(65, "one of two", TWO, els(drop(9))),
    Mutant(65, "three were asked for", TWO, ask(n=3)),
    Mutant(65, "behind [DONE], late", LONG, els(lambda ev: [*ev[:FINISH], *ev[USAGE:], ev[FINISH]])),
    Mutant(66, "a function was named", NAMED, els(put(8, *CHOICE, "finish_reason", to="tool_calls"))),
    Mutant(66, "the other choice called", golden("G04"), els(put(4, *CHOICE, "finish_reason", to="tool_calls"))),
    Mutant(66, "stop, though calls were required", AGENT.asking(tool_choice="required"),
           els(put(10, *CHOICE, "finish_reason", to="stop"))),
]  # fmt: skip

FP = "system_fingerprint"
COUNTS = [
    Mutant(67, "two", PLAIN, els(insert(5, {"choices": [], "usage": usage(9, 4)}))),
    Mutant(67, "none", TWO, els(drop(11))),
    Mutant(67, "not the last, late", LONG, els(insert(USAGE + 1, {"choices": [], "usage": None, "sglext": {}}))),
    Mutant(67, "on the finish chunk", PLAIN, els(put(3, "usage", to=usage(9, 4)), drop(4))),
    Mutant(68, "no null, late", LONG, els(drop(WORDS + 290, "usage"))),
    Mutant(68, "running, unasked", PLAIN, els(put(2, "usage", to=usage(9, 3)))),
    Mutant(68, "null, unasked", SILENT, els(put(2, "usage", to=None))),
    Mutant(69, "the prompt changes", TWO, els(put(7, "usage", to=usage(10, 3)))),
    Mutant(69, "one choice falls", TWO, els(put(8, "usage", to=usage(9, 2)))),
    Mutant(69, "the end is not the sum", TWO, els(put(11, "usage", to=usage(9, 7)))),
    Mutant(70, "another in the middle, late", LONG, els(put(WORDS + 290, FP, to="fp_other"))),
    Mutant(70, "not on the last chunk", PLAIN, els(put(4, FP, to=ABSENT))),
    Mutant(70, "null on the last chunk", TWO, els(put(11, FP, to=None))),
    Mutant(70, "on the first chunk only", UNMARKED, els(put(0, FP, to="fp_demo"))),
    Mutant(71, "one choice has none", TWO, els(*(put(place, *CHOICE, "logprobs", to=None) for place in (3, 5, 7, 8)))),
    Mutant(71, "unasked, late", LONG, els(put(WORDS + 290, *CHOICE, "logprobs", to=entries("w290 ")))),
    Mutant(71, "asked not to", TWO, ask(logprobs=False)),
    Mutant(72, "two are lost", TWO, els(put(4, *CHOICE, "logprobs", to=None), put(6, *CHOICE, "logprobs", to=None))),
    Mutant(72, "one is doubled", TWO, els(put(8, *CHOICE, "logprobs", to=entries(" too", " too")))),
    Mutant(72, "hidden", HIDDEN, els(put(1, *CHOICE, "logprobs", to=entries("It", " is")))),
    Mutant(72, "one more than tokens", CARRIED, lambda s: tokens(s, ids=(31, 32, 33))),
    Mutant(73, "below the floor", TWO, els(put(2, *ENTRY, "logprob", to=-10000.0))),
    Mutant(73, "no byte", TWO, els(put(3, *ENTRY, "bytes", to=[83, 256, 97]))),
    Mutant(73, "bytes as text", TWO, els(put(4, *ENTRY, "bytes", to=" is"))),
    Mutant(73, "a token as a number", TWO, els(put(5, *ENTRY, "token", to=44))),
    Mutant(73, "rising alternatives", TWO, els(put(6, *ENTRY, "top_logprobs", to=scored(-2.0, -1.0)))),
    Mutant(73, "too many alternatives", TWO, els(put(7, *ENTRY, "top_logprobs", to=scored(-1.0, -2.0, -3.0, -4.0)))),
    Mutant(73, "no alternatives", TWO, els(put(8, *ENTRY, "top_logprobs", to=None))),
    Mutant(73, "an alternative above 0", TWO, els(put(2, *ENTRY, "top_logprobs", to=scored(0.5, -2.0)))),
    Mutant(73, "a logprob as text", TWO, els(put(2, *ENTRY, "logprob", to="-0.5"))),
    Mutant(73, "a logprob is missing", golden("G06"), els(drop(2, *ENTRY, "logprob"))),
    Mutant(73, "the entries are an object", TWO, els(put(7, *CHOICE, "logprobs", "content", to={"0": None}))),
    Mutant(74, "of the display text", TWO, els(put(2, *ENTRY, "bytes", to=list("\ufffd".encode())))),
    Mutant(74, "a space is lost", TWO, els(put(5, *ENTRY, "bytes", to=list(b"is")))),
    Mutant(75, "the usage chunk is behind it", PLAIN, els(swap(4, 5))),
    Mutant(75, "none behind an error", ERROR, els(drop(3))),
    Mutant(75, "one in the middle, late", LONG, els(insert(WORDS + 290, "[DONE]"))),
    Mutant(76, "an empty message", ERROR, raw(sub(b"engine lost the request", b""))),
    Mutant(76, "text", ERROR, els(put(2, to='{"error":"engine lost the request"}'))),
    Mutant(76, "named", ERROR, raw(sub(b'data: {"error"', b'event: error\ndata: {"error"'))),
    Mutant(76, "beside choices, late", LONG, els(put(FINISH, "error", to={"code": 500}))),
    Mutant(76, "a message that is no text", ERROR, els(put(2, to='{"error":{"message":{"text":"lost"}}}'))),
    Mutant(77, "the end is named", PLAIN, raw(sub(b"data: [DONE]", b"event: done\ndata: [DONE]"))),
    Mutant(77, "a vendor's ids, late", LONG, els(insert(FINISH, b'event: sglext_ids\ndata: {"ids":[1]}\n\n'))),
    Mutant(78, "a number", AGENT, els(put(3, *DELTA, "score", to=1))),
    Mutant(78, "a boolean, late", LONG, els(put(WORDS + 290, *DELTA, "partial", to=True))),
    Mutant(78, "text, then a list", PLAIN, els(put(1, *DELTA, "note", to="a"), put(2, *DELTA, "note", to=["b"]))),
    Mutant(78, "an index as text", TWO, els(put(3, *DELTA, "notes", to=[{"index": "0", "text": "a"}]))),
    Mutant(79, "another id", AGENT, els(put(7, *CHOICE, "token_ids", to=[99]))),
    Mutant(79, "one is lost", AGENT, els(put(10, *CHOICE, "token_ids", to=ABSENT))),
    Mutant(79, "two change places", AGENT, els(put(2, *CHOICE, "token_ids", to=[23, 22]))),
    Mutant(79, "the prompt's twice", AGENT, els(put(5, "prompt_token_ids", to=list(PROMPT_IDS)))),
    Mutant(79, "another prompt's", AGENT, els(put(0, "prompt_token_ids", to=list(PROMPT_IDS[1:])))),
]  # fmt: skip

MUTANTS = [*ENVELOPES, *CALLS, *COUNTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.rule}-{one.what}")
def test_a_mutant_breaks_its_rule(mutant: Mutant) -> None:
    breaks(mutant.rule, mutant.base, mutant.change(mutant.base))


def test_each_rule_has_two() -> None:
    rules = [mutant.rule for mutant in MUTANTS]
    assert all(rules.count(number) >= 2 for number in range(44, 80))


def test_47_extension_chunks_of_others() -> None:
    assert "INV-047" not in EXTENDED.report().counts
    assert "INV-047" in EXTENDED.known(own=True).report().counts


@pytest.mark.parametrize(("own", "weight"), [(True, "error"), (False, "warning")])
def test_63_other_words_of_others(own: bool, weight: str) -> None:
    report = PLAIN.known(own=own).edited(put(3, *CHOICE, "finish_reason", to="abort")).report()
    assert [one.severity for one in report.violations if one.rule == "INV-063"] == [weight]


@pytest.mark.parametrize(
    "stream",
    [
        AGENT.edited(put(6, *CALL, "id", to=None)),
        AGENT.edited(put(7, *CALL, "function", "name", to=None)),
        AGENT.edited(put(4, *DELTA, "role", to=None)),
        AGENT.edited(put(4, *DELTA, "tool_calls", to=None)),
        AGENT.edited(put(4, *DELTA, "refusal", to=None)),
        TOGETHER,
        CARRIED,
        EXTENDED.edited(drop(4)).known(own=True),
    ],
    ids=range(8),
)
def test_what_is_right(stream: Stream) -> None:
    assert stream.report().counts == {}
