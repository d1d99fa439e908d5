"""Header-and-JSON formats: what the worked examples cannot say. Ids on the wire, what waits for what, resuming."""

from __future__ import annotations

import re

import msgspec
import pytest

from stages.events import CallArguments, CallStart, Content, Input, Reasoning, Semantic
from stages.opening import Tool
from stages.stage import fold
from tests.support.format_checks import POLICIES, Policy, Subject, splits, text_splits
from tests.support.generate.family import Family, tokenize
from tests.support.generate.header_json import (
    BEGIN,
    CALL,
    CLOSE,
    END,
    FAMILIES,
    K_ARGS,
    K_BEGIN,
    K_CALL,
    K_CLOSE,
    K_END,
    SEP,
)
from tests.support.parse import TOOLS, Collected, check_resume, grouped, merged, message, session, texts

NINE = re.compile(r"[a-zA-Z0-9]{9}")
OFF = "<think></think>"
BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}


def subject(family: str, raw: str, tail: str = "", tools: tuple[Tool, ...] = TOOLS) -> Subject:
    """An output of a family: ``deepseek_v3``, ``mistral/v11``."""
    return Subject(BY_NAME[family], raw, tail, tools)


def run(family: str, raw: str, calls: Policy = "incremental", tail: str = "",
        tools: tuple[Tool, ...] = TOOLS) -> list[Semantic]:  # fmt: skip
    """The events of an output; the same under every split, with ids and without."""
    it = subject(family, raw, tail, tools)
    first: list[Semantic] = []
    for split, steps in (*splits(it), *text_splits(it)):
        got = it.events(steps, calls)
        first = first or got
        assert merged(got) == merged(first), split
    return first


def stepped(family: str, raw: str, tail: str = "", size: int = 4) -> list[Input]:
    """A session with a step for each token."""
    pieces = tokenize(raw, BY_NAME[family].tokenizer, size)
    return session(grouped(pieces, [1] * len(pieces)), tail=tail)


def ids(found: list[Semantic]) -> list[str]:
    return [event.id for event in found if isinstance(event, CallStart)]


def kimi(*calls: tuple[str, str]) -> str:
    return K_BEGIN + "".join(f"{K_CALL}{head}{K_ARGS}{body}{K_CLOSE}" for head, body in calls) + K_END


# --- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", POLICIES)
def test_kimi_ids_are_the_headers_unchanged(calls: Policy) -> None:
    raw = kimi(("functions.tide:4", "{}"), (" functions.sea.tide:5\n", "{}"), ("moon:6", "{}"), ("moon", "{}"))
    found = run("kimi_k2", raw, calls, OFF)
    assert ids(found) == ["functions.tide:4", "functions.sea.tide:5", "moon:6", "moon"]
    assert [call.name for call in message(found).calls] == ["tide", "sea.tide", "moon", "moon"]


@pytest.mark.parametrize("calls", POLICIES)
def test_kimi_ids_that_repeat_are_told_apart(calls: Policy) -> None:
    raw = kimi(("functions.tide:0", "{}"), ("functions.tide:0", "{}")) + "A" + kimi(("functions.tide:0", "{}"))
    raw += kimi(("tide", "{}"), ("tide", "{}"))
    found = run("kimi_k2", raw, calls, OFF)
    assert ids(found) == ["functions.tide:0", "functions.tide:02", "functions.tide:03", "tide", "tide:2"]
    assert [call.name for call in message(found).calls] == ["tide"] * 5


def test_kimi_id_of_a_call_that_was_taken_back_is_free() -> None:
    raw = kimi(("functions.tide:0", "{x}"), ("functions.tide:0", "{}"))
    whole = run("kimi_k2", raw, "whole", OFF)
    assert ids(whole) == ["functions.tide:0"]
    sent = run("kimi_k2", raw, "incremental", OFF)
    assert ids(sent) == ["functions.tide:0", "functions.tide:02"]


@pytest.mark.parametrize("calls", POLICIES)
def test_kimi_digits_only_keep_their_id_and_get_the_tool_that_fits(calls: Policy) -> None:
    tools = tuple(
        Tool(name, parameters={"type": "object", "properties": {key: {} for key in keys}, "required": keys[:1]})
        for name, keys in (("get_weather", ["city", "unit"]), ("get_time", ["tz"]))
    )
    raw = kimi(("3 ", '{"city": "Os\nlo"}'), ("4", '"{\\"tz\\": \\"UTC\\"}"'))
    found = run("kimi_k2", raw, calls, OFF, tools)
    got = message(found)
    assert ids(found) == ["3", "4"]
    assert [(call.name, call.value()) for call in got.calls] == [
        ("get_weather", {"city": "Os\nlo"}),
        ("get_time", {"tz": "UTC"}),
    ]
    assert got.faults == []


GET = tuple(
    Tool(name, parameters={"type": "object", "properties": {key: {}}, "required": [key]})
    for name, key in (("get_weather", "city"), ("get_time", "tz"))
)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("{}", "malformed_call"),
        ('{"tz": 1, "city": 2}', "malformed_call"),
        ("[]", "bad_arguments"),
        ("{x", "bad_arguments"),
    ],
)
def test_kimi_digits_only_that_fit_nothing_come_back_as_text(body: str, fault: str) -> None:
    raw = kimi(("3", body), ("functions.get_time:4", '{"tz": "UTC"}'))
    got = message(run("kimi_k2", raw, "incremental", OFF, GET))
    assert got.content == f"{K_CALL}3{K_ARGS}{body}{K_CLOSE}"
    assert [call.name for call in got.calls] == ["get_time"]
    assert got.faults == [fault]


def test_kimi_digits_only_with_arguments_too_deep_to_look_into() -> None:
    raw = kimi(("3", '{"tz": ' + "[" * 99999 + "]" * 99999 + "}"))
    it = subject("kimi_k2", raw, OFF, GET)
    got = message(fold(it.stage("incremental").start(it.opened("incremental")), stepped("kimi_k2", raw, OFF, 1000)))
    assert (got.content, got.calls) == (raw.removeprefix(K_BEGIN).removesuffix(K_END), [])
    assert got.faults == ["malformed_call"]


@pytest.mark.parametrize("calls", POLICIES)
def test_mistral_keeps_nine_letters_from_the_wire_and_makes_them_else(calls: Policy) -> None:
    heads = ("a1B2c3D4e", "call_123", "a1B2c3D4e", "functions.x:1", "123456789")
    raw = "".join(f"[TOOL_CALLS]moon[CALL_ID]{number}[ARGS]{{}}" for number in heads)
    found = ids(run("mistral/v11", raw, calls))
    assert (found[0], found[4]) == ("a1B2c3D4e", "123456789")
    assert all(NINE.fullmatch(number) for number in found)
    assert len(dict.fromkeys(found)) == 5


@pytest.mark.parametrize("calls", POLICIES)
def test_mistral_array_ids_are_nine_letters(calls: Policy) -> None:
    raw = '[TOOL_CALLS] [{"name": "moon", "arguments": {}, "id": "k3Jd9aQ2x"}, {"id": "l3Jd9aQ2x", "name": "moon"}]'
    found = ids(run("mistral/array", raw, calls))
    assert [bool(NINE.fullmatch(number)) for number in found] == [True, True]
    assert found[1] == "l3Jd9aQ2x"


def test_mistral_id_may_stand_before_lost_args_marker() -> None:
    found = run("mistral/v11", '[TOOL_CALLS]tide[CALL_ID]a1B2c3D4e{"day": 3}')
    assert ids(found) == ["a1B2c3D4e"]
    assert message(found).calls[0].value() == {"day": 3}


# --- when things go out -----------------------------------------------------------------------------------------------


def sent(family: str, raw: str) -> list[Semantic]:
    """What has gone out when the output has come this far, and goes on."""
    it = subject(family, raw)
    return fold(it.stage("incremental").start(it.opened("incremental")), stepped(family, raw, size=1)[:-2])


@pytest.mark.parametrize(
    ("family", "before", "end"),
    [
        ("deepseek_v3", f"{BEGIN}{CALL}function{SEP}tide", "\n"),
        ("deepseek_v31", f"{BEGIN}{CALL}tide", SEP),
        ("kimi_k2", f"{K_BEGIN}{K_CALL}functions.tide:0", K_ARGS),
        ("mistral", "[TOOL_CALLS]tide", "[ARGS]"),
        ("mistral/v11", "[TOOL_CALLS]tide[CALL_ID]a1B2c3D4e", "[ARGS]"),
        ("llama_function", "<function=tide", ">"),
    ],
)
def test_the_name_goes_out_at_its_end(family: str, before: str, end: str) -> None:
    assert not any(isinstance(event, CallStart) for event in sent(family, before))
    started = [event for event in sent(family, before + end) if isinstance(event, CallStart)]
    assert [event.name for event in started] == ["tide"]


@pytest.mark.parametrize("raw", [f"{BEGIN}{CALL}function{SEP}tide\n```json\n", f"{BEGIN}{CALL}tide{SEP}"])
def test_arguments_go_out_as_they_come(raw: str) -> None:
    parser = "deepseek_v3" if "json" in raw else "deepseek_v31"
    for arguments in ("{", '{"a', '{"a": [1, ', '{"a": "b\\u00'):
        found = [event for event in sent(parser, raw + arguments) if isinstance(event, CallArguments)]
        assert "".join(event.text for event in found) == arguments


def test_text_goes_out_while_it_cannot_be_a_marker() -> None:
    found = [event for event in sent("deepseek_v3", "a <｜tool▁x") if isinstance(event, Content)]
    assert "".join(event.text for event in found) == "a <｜tool▁x"


# --- what looks like one thing and is another ------------------------------------------------------------------------


def test_a_marker_token_inside_a_string_is_text() -> None:
    # The token itself, not its letters: the string decides.
    raw = f'{K_BEGIN}{K_CALL}functions.tide:0{K_ARGS}{{"a": "x{K_CLOSE}{K_END}y"}}{K_CLOSE}{K_END}'
    got = message(run("kimi_k2", raw, tail=OFF))
    assert [call.value() for call in got.calls] == [{"a": f"x{K_CLOSE}{K_END}y"}]
    assert got.content is None


@pytest.mark.parametrize("calls", POLICIES)
def test_a_call_that_breaks_leaves_its_neighbours(calls: Policy) -> None:
    bad = f"{CALL}function{SEP}tide\n```json\n{{'a': 1}}\n```{CLOSE}"
    good = f"{CALL}function{SEP}moon\n```json\n{{}}\n```{CLOSE}"
    got = message(run("deepseek_v3", f"x{BEGIN}{good}{bad}{good}{END}y", calls))
    assert [call.name for call in got.calls if call.complete] == ["moon", "moon"]
    assert got.content == ("xy" if calls == "incremental" else f"x{bad}y")
    assert got.faults == ["bad_arguments"]


def test_white_space_before_a_section_in_reasoning_is_not_taken_from_later_calls() -> None:
    # The second call is taken back: its own text comes back, all of it.
    raw = f"hm\n\n{BEGIN}{CALL}function{SEP}moon\n{{}}{CLOSE}{CALL}x y{CLOSE}{END}"
    got = message(run("deepseek_r1", raw, tail="<｜Assistant｜><think>\n"))
    assert got.reasoning == "hm"
    assert [call.name for call in got.calls] == ["moon"]
    assert got.content == f"{CALL}x y{CLOSE}"
    assert got.faults == ["malformed_call"]


@pytest.mark.parametrize(
    ("family", "raw", "want"),
    [
        # A token in reasoning is no mention where the output ends behind it, so nothing of it is reasoning …
        ("mistral", "[THINK]a[TOOL_CALLS]ti", ("a", None, "unclosed_call")),
        ("kimi_k2", f"<think>a{K_CALL}functions.ti", ("a", None, "unclosed_call")),
        # … but where it goes on in words, reasoning goes on.
        ("mistral", "[THINK]a[TOOL_CALLS]it is[/THINK]Hi", ("a[TOOL_CALLS]it is", "Hi", "")),
        ("kimi_k2", f"<think>a{K_CALL}x y</think>Hi", (f"a{K_CALL}x y", "Hi", "")),
    ],
)
def test_a_call_token_in_reasoning(family: str, raw: str, want: tuple[str | None, str | None, str]) -> None:
    it = subject(family, raw)
    for _, steps in splits(it):
        got = message(it.events(steps, "incremental"))
        assert (got.reasoning, got.content, "".join(got.faults)) == want


def test_json_that_nests_deep_is_no_trouble() -> None:
    body = '{"a": ' + "[" * 20000 + "]" * 20000 + "}"
    inputs = stepped("mistral", f"[TOOL_CALLS]tide[ARGS]{body}", size=500)
    it = subject("mistral", "")
    got = message(fold(it.stage("incremental").start(it.opened("incremental")), inputs))
    assert [(call.arguments, call.complete) for call in got.calls] == [(body, True)]


def held(family: str, raw: str, tail: str) -> Collected:
    """The message where little may be held."""
    it = subject(family, raw)
    opened = msgspec.structs.replace(it.opened("incremental"), max_held=200)
    return message(fold(it.stage("incremental").start(opened), stepped(family, raw, tail)))


def test_a_header_without_end_is_held_up_to_the_limit() -> None:
    raw = "[TOOL_CALLS]" + "name" * 100
    got = held("mistral", raw, "")
    assert (got.content, got.calls, got.faults) == (raw, [], ["held_overflow"])


def test_arguments_that_wait_for_a_name_are_held_up_to_the_limit() -> None:
    raw = kimi(("3", '{"a": "' + "x" * 500 + '"}'))
    got = held("kimi_k2", raw, OFF)
    assert (got.content, got.calls) == (raw.removeprefix(K_BEGIN).removesuffix(K_END), [])
    assert got.faults == ["held_overflow"]


# --- resume ----------------------------------------------------------------------------------------------------------


RESUMED = {
    "deepseek_v3": f'<think>a\n</think>b\n{BEGIN}{CALL}function{SEP}tide\n```json\n{{"a": 1}}\n```{CLOSE}'
    f'{CALL}moon{SEP}{{}}{CLOSE} x {CALL}moon{SEP}"{{}}"{CLOSE}{END} c',
    "kimi_k2": f"a{kimi(('functions.tide:0', '{}'), ('functions.tide:0', '{}'), ('3', 'null'))} b{K_CALL}x y",
    "mistral/v11": '[TOOL_CALLS]tide[CALL_ID]a1B2c3D4e[ARGS]{"a": [1]} x [TOOL_CALLS] [{"name": "moon"}] b',
    "mistral": "[THINK]a[TOOL_CALLS]it is[/THINK]b[TOOL_CALLS]moon[TOOL_CALLS]moon[ARGS]nul",
}


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize("family", RESUMED)
def test_resume_anywhere(family: str, calls: Policy) -> None:
    it = subject(family, RESUMED[family])
    inputs = stepped(family, it.raw, size=3) if calls == "incremental" else session(texts(it.raw))
    check_resume(it.stage(calls), it.opened(calls), inputs)


# --- choices ---------------------------------------------------------------------------------------------------------


def test_choices_do_not_share_ids() -> None:
    raw = kimi(("functions.tide:0", "{}"))
    pieces = tokenize(raw, BY_NAME["kimi_k2"].tokenizer)
    steps = [step for choice in (0, 1) for step in grouped(pieces, [1] * len(pieces), choice)]
    it = Subject(BY_NAME["kimi_k2"], raw, OFF, TOOLS, asks={"n": 2})
    inputs = session(steps, n=2, tail=OFF)
    assert ids(fold(it.stage("incremental").start(it.opened("incremental")), inputs)) == ["functions.tide:0"] * 2


def test_reasoning_that_comes_again_is_joined() -> None:
    found = run("mistral", "[THINK]a[/THINK]One.[THINK]b[/THINK]Two.[TOOL_CALLS]moon[ARGS]{}")
    got = message(found)
    assert (got.reasoning, got.content) == ("a\nb", "One.Two.")
    assert [event.text for event in found if isinstance(event, Reasoning)] == ["a", "\n", "b"]
