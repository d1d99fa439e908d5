"""Worked examples of the formats: ``tests/data/formats/NAME.jsonl``, one case a line.

The fields are those of the project's case files; what they mean here:

* ``id``; ``parser``: the catalog name; ``vocabulary``: the variant of the family whose tokenizer holds (default: the
  first family of that format); ``special_tokens``: {text: id} instead of that tokenizer's special tokens;
* ``request``: ``tools`` (as clients send them; default: ``tide``, ``moon`` and others without a schema) and
  ``tool_choice``; ``prompt_tail`` (default: the family's tail ``plain``);
* ``raw_output``; ``tokens``: [[id, text], …] where the ids matter: a marker spelled with ordinary tokens, or an output
  that means something else where only text is known. Splits then group these, and there are none without ids;
* ``engine.finish`` (default ``eos``);
* ``expected``: ``reasoning``, ``content``: exactly, absent is none; ``faults``: codes in order, absent is none;
  ``finish_reason``: in the chat protocol's words, absent is not compared; ``tool_calls``: a complete call is ``name``
  and ``arguments`` (a JSON value), a call that broke off or proved malformed is ``name`` and ``arguments_prefix`` (the
  text that was sent, exactly);
* ``calls``: the only policy that the case speaks of. Where it is absent, the case holds under both, but under ``whole``
  the calls with an ``arguments_prefix`` are not there. Where more differs, write two cases.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from stages.events import FinishReason
from stages.message import finish_reason
from stages.opening import Tool
from tests.support.format_checks import POLICIES, Policy, Subject, check_cut, check_invariance, same_value
from tests.support.generate.family import Family
from tests.support.parse import TOOLS, Collected

FOLDER = Path(__file__).parents[1] / "data" / "formats"


def cases() -> list[dict[str, Any]]:
    """All examples, by file."""
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return found


def cases_of(family: Family) -> list[dict[str, Any]]:
    """The examples that this family's vocabulary holds for."""
    path = FOLDER / f"{family.format.name}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.strip()]
    return [case for case in found if case.get("vocabulary", "") == family.variant]


def subject_of(family: Family, case: dict[str, Any]) -> Subject:
    """The case as a subject."""
    request: dict[str, Any] = case.get("request", {})
    if "special_tokens" in case:
        special: dict[str, int] = case["special_tokens"]
        family = replace(family, tokenizer=msgspec.structs.replace(family.tokenizer, special=special))
    tools = [_tool(tool) for tool in request["tools"]] if "tools" in request else TOOLS
    asks = {"tool_choice": request["tool_choice"]} if "tool_choice" in request else {}
    tokens = [(number, text.encode()) for number, text in case["tokens"]] if "tokens" in case else None
    tail = case.get("prompt_tail", family.tails.get("plain", ""))
    finish = case.get("engine", {}).get("finish", "eos")
    return Subject(family, case["raw_output"], tail, tuple(tools), finish, tokens, asks)


def _tool(tool: dict[str, Any]) -> Tool:
    function: dict[str, Any] = tool["function"]
    return Tool(function["name"], function.get("description"), function.get("parameters"))


def check_case(family: Family, case: dict[str, Any]) -> None:
    """The example under every split and both call policies, then cut at every token."""
    subject = subject_of(family, case)
    for calls in POLICIES:
        got = check_invariance(subject, calls)
        if case.get("calls") in (None, calls):
            try:
                _check_expected(got, case["expected"], calls, subject.finish)
            except AssertionError as error:
                raise AssertionError(f"{calls}: {error}\n{got}") from error
    check_cut(subject)


def _check_expected(got: Collected, want: dict[str, Any], calls: Policy, finish: FinishReason) -> None:
    assert got.reasoning == want.get("reasoning"), "reasoning"
    assert got.content == want.get("content"), "content"
    wanted = [call for call in want.get("tool_calls", ()) if calls == "incremental" or "arguments" in call]
    assert [call.name for call in got.calls] == [call["name"] for call in wanted], "calls"
    for i, (call, was) in enumerate(zip(got.calls, wanted, strict=True)):
        if "arguments" in was:
            assert call.complete is True, f"call {i}"
            assert same_value(call.value(), was["arguments"]), f"call {i}"
        else:
            assert (call.complete, call.arguments) == (False, was["arguments_prefix"]), f"call {i}"
    assert got.faults == want.get("faults", []), "faults"
    assert got.finish == finish, "finish"
    if "finish_reason" in want:
        ended = finish_reason(finish, bool(got.calls) and all(call.complete for call in got.calls))
        assert ended == want["finish_reason"], "finish reason"
