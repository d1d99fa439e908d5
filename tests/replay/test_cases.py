"""Case files: what is read, the splits that apply, and what counts as a difference."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from replay.cases import Case, differences, read_cases, run_case
from replay.errors import BadCase, BadSplit, ParserNotFound
from replay.expected import Expected, ExpectedCall, first_unequal, in_words, mismatches
from stages.events import Dropped, TokensInput
from stages.message import Message, ToolCall
from stages.opening import Tool
from tests.support.tree import ROOT

CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'


def read(path: Path, *lines: dict[str, Any] | str) -> list[Case]:
    """The cases of a file with these lines."""
    target = path / "cases.jsonl"
    target.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return list(read_cases(str(target)))


def case_of(path: Path, **fields: Any) -> Case:
    """A hermes case with these fields."""
    [case] = read(path, {"id": "a", "parser": "hermes", "expected": {}, **fields})
    return case


def message(case: Case, split: str = "one") -> Message:
    """What comes out."""
    found = run_case(case, split).message
    assert found is not None
    return found


def test_the_example_file_holds() -> None:
    cases = list(read_cases(str(ROOT / "examples" / "cases.jsonl")))
    assert [case.where.rpartition(":")[2] for case in cases] == ["1", "2", "3", "4"]
    for case in cases:
        for split in case.splits:
            assert differences(case, run_case(case, split)) == [], (case.id, split)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_fields_of_public_reports(tmp_path: Path) -> None:
    public: dict[str, Any] = {
        "id": "report", "source": "owner/name#1", "area": "parser", "family": "hermes", "confidence": "high",
        "tools": [{"type": "function", "function": {"name": "tide", "description": "of a port", "parameters": {}}}],
        "request": {"prompt_suffix": "<think>\n", "chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 9},
        "engine": {"finish": "length"}, "deltas": ["So.</th", "ink>Yes"], "raw_output": "So.</think>Yes",
        "expected": {"reasoning": "So.", "content": "Yes", "tool_calls": [], "finish_reason": "length", "notes": "none",
                     "forbidden_in_content": ["<"]},
    }  # fmt: skip
    about_bytes: dict[str, Any] = {"id": "b", "family": "sse", "wire_hex": ["0a"], "expected": {"events": []}}
    about_chunks: dict[str, Any] = {
        "id": "c",
        "family": "chat",
        "bad_stream": ["[DONE]"],
        "expected": {"violations": ["x"]},
    }
    [case] = read(tmp_path, public, "", about_bytes, about_chunks)
    assert (case.parser, case.tail, case.finish) == ("hermes", "<think>\n", "length")
    assert case.opening.ask.tools == (Tool("tide", "of a port", {}),)
    assert json.loads(case.opening.request)["chat_template_kwargs"] == {"enable_thinking": True}
    assert [step.text for step in case.given] == public["deltas"]
    assert case.splits == ("recorded", "one", "token", "marker", "char", "rand:1:3", "rand:2:9")
    for split in case.splits:
        assert differences(case, run_case(case, split)) == [], split


def test_tokens_are_never_cut(tmp_path: Path) -> None:
    case = case_of(tmp_path, tokens=[[7, "Two "], [8, "a day"]], special_tokens={"<|im_end|>": 9})
    assert case.given == (TokensInput(0, (7,), (b"Two ",), "Two "), TokensInput(0, (8,), (b"a day",), "a day"))
    assert case.splits == ("recorded", "one", "token", "marker", "rand:1:3", "rand:2:9")
    assert message(case).content == "Two a day"
    with pytest.raises(BadSplit):
        run_case(case, "char")


def test_ids_decide_what_is_a_special_token(tmp_path: Path) -> None:
    special = {"<tool_call>": 1, "</tool_call>": 2}
    body = '{"name": "tide", "arguments": {}}'
    fields: dict[str, Any] = {"request": {"tools": ["tide"]}, "special_tokens": special}
    called = case_of(tmp_path, **fields, tokens=[[1, "<tool_call>"], [5, body], [2, "</tool_call>"]])
    assert [call.name for call in message(called).tool_calls] == ["tide"]
    mentioned = case_of(tmp_path, **fields, tokens=[[6, "<tool_call>"], [5, body], [6, "</tool_call>"]])
    assert message(mentioned).content == f"<tool_call>{body}</tool_call>"
    # Without ids the text decides.
    assert [call.name for call in message(case_of(tmp_path, **fields, raw_output=CALL)).tool_calls] == ["tide"]


def test_token_bytes_may_cut_characters(tmp_path: Path) -> None:
    case = case_of(tmp_path, token_bytes=["54 c3", "a9", "ff", "2e"], raw_output="T\xe9\ufffd.")
    assert case.note == ""
    assert [step.pieces for step in case.given] == [(b"T\xc3",), (b"\xa9",), (b"\xff",), (b".",)]
    for split in case.splits:
        found = message(case, split)
        assert (found.content, found.faults) == ("T\xe9\ufffd.", ("invalid_utf8",))
    both = case_of(tmp_path, tokens=[[1, "\ufffd"], [2, "\ufffd"]], token_bytes=["c3", "a9"])
    assert message(both, "token").content == "\xe9"


def test_the_request_matters(tmp_path: Path) -> None:
    assert message(case_of(tmp_path, raw_output=CALL)).content == CALL
    for tools in (["tide"], [{"name": "tide"}], [{"type": "function", "function": {"name": "tide"}}]):
        assert message(case_of(tmp_path, raw_output=CALL, tools=tools)).tool_calls[0].name == "tide"
    none = case_of(tmp_path, raw_output=CALL, request={"tools": ["tide"], "tool_choice": "none"})
    assert message(none).content == CALL
    named = {"tools": ["tide"], "tool_choice": {"type": "function", "function": {"name": "tide"}}}
    assert message(case_of(tmp_path, raw_output=CALL, request=named)).finish_reason == "stop"
    assert message(case_of(tmp_path, raw_output="One. Two.", request={"stop": [" Tw"]})).content == "One."
    ended = run_case(case_of(tmp_path, raw_output="One.<|x|>Two", request={"stop_token_ids": ["<|x|>"]}), "token")
    assert ended.message is not None and ended.message.content == "One."
    assert "".join(event.text for event in ended.events if isinstance(event, Dropped)) == "<|x|>Two"


def test_the_format_is_detected_where_only_the_model_is_named(tmp_path: Path) -> None:
    vocabulary = {"<tool_call>": 1, "</tool_call>": 2}
    fields: dict[str, Any] = {"parser": None, "raw_output": CALL, "tools": ["tide"], "special_tokens": vocabulary}
    case = case_of(tmp_path, **fields, model="Qwen/Qwen3-8B")
    assert case.parser == "auto"
    assert message(case).tool_calls[0].name == "tide"


def test_call_policies(tmp_path: Path) -> None:
    cut = case_of(tmp_path, raw_output=CALL[:-20], tools=["tide"])
    whole, incremental = run_case(cut, "one", "whole"), run_case(cut, "one")
    assert (whole.calls, incremental.calls) == ("whole", "incremental")
    assert whole.message is not None and whole.message.tool_calls == ()
    assert incremental.message is not None and incremental.message.tool_calls[0].name == "tide"
    assert run_case(case_of(tmp_path, raw_output=CALL, calls="whole"), "one").calls == "whole"


def test_a_parser_that_is_not_there_or_raises(tmp_path: Path) -> None:
    with pytest.raises(ParserNotFound, match="did you mean hermes"):
        run_case(case_of(tmp_path, parser="hermez", raw_output="x"), "one")
    (tmp_path / "mine.py").write_text("class Parser:\n    def start(self, opening):\n        raise ValueError('no')\n")
    case = case_of(tmp_path, parser=f"{tmp_path / 'mine.py'}:Parser", raw_output="x")
    [item] = differences(case, run_case(case, "one"))
    assert "raised ValueError: no (mine.py:3, at its start)" in item.came


def test_what_does_not_fit_together_is_noted(tmp_path: Path) -> None:
    assert case_of(tmp_path, raw_output="ab", deltas=["a", "b"]).note == ""
    assert case_of(tmp_path, raw_output="a\U0001f30a", deltas=["a\ud83c", "\udf0a"]).note == ""
    assert case_of(tmp_path, raw_output="ab", deltas=["a", "c"]).note.startswith("deltas do not join to raw_output")
    assert case_of(tmp_path, raw_output="ab", tokens=[[1, "a"]]).note.startswith("tokens do not join to raw_output")


MISSPELT: list[tuple[dict[str, Any], str]] = [
    ({"promt_tail": "<think>"}, "`promt_tail`; did you mean `prompt_tail`"),
    ({"request": {"tool_choise": "none"}}, "`request.tool_choise`; did you mean `request.tool_choice`"),
    ({"expected": {"finish_reson": "stop"}}, "`expected.finish_reson`; did you mean `expected.finish_reason`"),
    ({"expected": {"tool_calls": [{"name": "a", "argument": {}}]}}, "did you mean `expected.tool_calls.arguments`"),
]


@pytest.mark.parametrize(("fields", "says"), MISSPELT)
def test_a_misspelt_field_is_not_passed_over(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadCase, match=re.escape(says)):
        case_of(tmp_path, raw_output="x", **fields)


def test_lines_that_cannot_be_read(tmp_path: Path) -> None:
    good: dict[str, Any] = {"id": "good", "parser": "plain", "raw_output": "x", "expected": {}}
    with pytest.raises(BadCase, match=r"cases\.jsonl:2: not JSON"):
        read(tmp_path, good, "{")
    told: list[BadCase] = []
    target = str(tmp_path / "cases.jsonl")
    assert [case.id for case in read_cases(target, told.append)] == ["good"]
    assert len(told) == 1
    with pytest.raises(BadCase, match="cannot be read"):
        next(read_cases(str(tmp_path)))
    with pytest.raises(BadCase, match="the case expects nothing"):
        case_of(tmp_path, raw_output="x", expected=None, expected_error={"accept": []})


# --- differences ------------------------------------------------------------------------------------------------------


def one_call(arguments: Any, text: str, **more: Any) -> list[str]:
    """The differences of the arguments of one call, in words."""
    expected = Expected(tool_calls=(ExpectedCall("tide", arguments, **more),))
    complete = text.endswith("}")
    return [
        in_words(item) for item in mismatches(expected, Message(0, tool_calls=(ToolCall("c", "tide", text, complete),)))
    ]


def test_arguments_are_json_values() -> None:
    assert one_call({"a": 1, "b": [True, None]}, '{"b":[true,null], "a": 1}') == []
    assert one_call('{"a": 1}', '{ "a":1 }') == []
    assert one_call({"a": [{"b": "ox"}]}, '{"a": [{"b": "oxen"}]}') == [
        "tool_calls[0].arguments.a[0].b at character 2\n  expected 'ox'\n  came     'oxen'"
    ]
    assert one_call({"a": 1}, '{"a": 1, "b": 2}') == ["tool_calls[0].arguments.b\n  expected nothing\n  came     2"]
    assert one_call({"a": [1]}, '{"a": []}') == ["tool_calls[0].arguments.a[0]\n  expected 1\n  came     nothing"]
    [told] = one_call({"a": 1}, '{"a": NaN}')
    assert told.endswith("which is not JSON (NaN is no JSON number)")


@pytest.mark.parametrize("one", [1, 1.0, True, "1", None, [1], {"a": 1}])
def test_types_are_significant(one: Any) -> None:
    assert first_unequal({"x": one}, {"x": one}) is None
    others: list[Any] = [1, 1.0, True, "1", None, [1], {"a": 1}]
    equal = [other for other in others if first_unequal(one, other) is None]
    assert [type(other) for other in equal] == [type(one)]


def test_calls_that_are_cut_or_invalid() -> None:
    assert one_call(None, '{"a": ', arguments_prefix='{"a": ') == []
    assert one_call(None, '{"a"', arguments_prefix='{"a": ') != []
    assert one_call(None, '{"a"') == []
    assert one_call(None, "{}") == [
        "tool_calls[0].arguments\n  expected a call that is cut or invalid\n  came     '{}'"
    ]
    assert one_call({"a": 1}, '{"a": ') != []
    deep = "[" * 50_000 + "]" * 50_000
    assert one_call({"a": 1}, f'{{"a": {deep}}}') != []


def test_the_other_fields() -> None:
    said = Message(0, "hm", "Yes <x>", None, (ToolCall("c", "tide", "{}"),), "stop", ("unclosed_call", "bad_arguments"))
    full = Expected(
        "hm", "Yes <x>", (ExpectedCall("tide", {}),), "stop", ("bad_arguments", "unclosed_call"),
        arguments_text=("{}",),
    )  # fmt: skip
    assert mismatches(full, said) == []
    other = Expected(
        None, " Yes <x>\n", (ExpectedCall("moon", {}),), "tool_calls", ("bad_arguments",), ("<x>",), ("{ }",)
    )  # fmt: skip
    assert [(item.field, item.place, item.expected, item.came) for item in mismatches(other, said)] == [
        ("reasoning", "at character 0", "nothing", "'hm'"),
        ("content", "at character 0", r"' Yes <x>\n'", "'Yes <x>'"),
        ("content", "at character 4", "no '<x>' in it", "'Yes <x>'"),
        ("tool_calls", "", "1: moon", "1: tide"),
        ("finish_reason", "", "tool_calls", "stop"),
        ("faults", "", "bad_arguments", "unclosed_call, bad_arguments"),
    ]
    assert "content" not in [item.field for item in mismatches(Expected("hm", " Yes <x>\n"), said, trim=True)]
    # Absent: not compared.
    assert mismatches(Expected("hm", "Yes <x>", (ExpectedCall("tide", {}),)), said) == []


def test_any_accepted_message_will_do(tmp_path: Path) -> None:
    accepted: dict[str, Any] = {"accept": [{"content": "One", "faults": ["bad_arguments"]}, {"content": "Two."}]}
    case = case_of(tmp_path, raw_output="Two.", expected=None, expected_error=accepted)
    assert differences(case, run_case(case, "token")) == []
    case = case_of(tmp_path, raw_output="Three", expected=None, expected_error=accepted)
    # Told of the nearest.
    assert [item.expected for item in differences(case, run_case(case, "token"))] == ["'Two.'"]
