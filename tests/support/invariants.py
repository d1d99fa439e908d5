"""A session that the real stages make of engine inputs, held to the protocol's rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from replay.evidence import evidence_of
from stages.events import Input
from stages.opening import Ask, Opening
from stages.protocols.rules import Report, check
from store.api import Trace
from tests.support.replay import record

_SCOPES = {"content": "content", "reasoning": "reasoning", "arguments": "tools", "marker": "tools"}


def request_of(ask: Ask) -> dict[str, Any]:
    """The request that asks for this."""
    tools = [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters, "strict": tool.strict}}
        for tool in ask.tools
    ]
    choice = {"type": "function", "function": {"name": ask.function}} if ask.function else ask.tool_choice
    options = {"include_usage": ask.include_usage, "continuous_usage_stats": ask.continuous_usage}
    return {
        "messages": [{"role": "user", "content": "hello"}], "stream": ask.stream, "n": ask.n,
        "stream_options": options if ask.stream else None, "stop": list(ask.stop),
        "stop_scopes": sorted({_SCOPES[kind] for kind in ask.stop_scopes}), "stop_token_ids": list(ask.stop_ids),
        "include_stop_str_in_output": ask.include_stop, "tools": tools, "tool_choice": choice,
        "named_finish_reason": ask.named_finish, "parallel_tool_calls": ask.parallel,
        "include_reasoning": ask.include_reasoning, "reasoning_field": ask.reasoning_field, "logprobs": ask.logprobs,
        "top_logprobs": ask.top_logprobs, "end_token_logprob": ask.end_token, "return_token_ids": ask.return_token_ids,
        "skip_special_tokens": not ask.keep_special, "ignore_eos": ask.ignore_eos, "include_metrics": ask.metrics,
    }  # fmt: skip


def session_of(opening: Opening, inputs: Sequence[Input]) -> Trace:
    """The session, recorded, with the request of its Ask."""
    request = json.dumps(request_of(opening.ask)).encode()
    return record(msgspec.structs.replace(opening, request=request), inputs)


def assert_holds(session: Trace, allow: Collection[str] = ()) -> Report:
    """No rule is broken, as an error or as a warning. ``allow``: keys of rules that the output breaks, not we."""
    report = check(evidence_of(session, effort=True))
    broken = [one for one in report.violations if one.key not in allow]
    assert broken == []
    return report
