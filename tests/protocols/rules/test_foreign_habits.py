"""Streams as other servers send them have no errors; what only our own encoders must not do is a warning there."""

from __future__ import annotations

from typing import Any

import pytest

from stages.protocols.rules import Report
from tests.support.wire import ABSENT, Elements, Stream, fired
from tests.support.wire_bases import ASKED, TOOLS, usage

ID, WIND = "chatcmpl-tool-0a1b2c3d", "functions.get_wind:4"


def vllm(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk with the last text and the finish in one, without usage, nulls where they were set."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None, **more}
    return {"choices": [choice], "system_fingerprint": ABSENT}


def sglang(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    """A chunk that carries null for what there is not."""
    everything = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None, **delta}
    choice: dict[str, Any] = {
        "index": index, "delta": everything, "logprobs": None, "finish_reason": finish, "matched_stop": None,
    }  # fmt: skip
    return {"choices": [choice], "usage": None, "system_fingerprint": ABSENT}


def sglang_call(arguments: str, name: str | None = None, id: str | None = None) -> dict[str, Any]:
    entry = {"id": id, "index": 0, "type": "function", "function": {"name": name, "arguments": arguments}}
    return sglang(tool_calls=[entry])


def openai(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A chunk with random characters beside it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"choices": [choice], "usage": None, "service_tier": "default", "obfuscation": "xK2"}


VLLM: Elements = [
    {**vllm({"role": "assistant", "content": ""}), "prompt_token_ids": None},
    vllm({"reasoning": "Hm."}),
    b": keep-alive\n\n",
    vllm({"content": "Let me see."}),
    vllm({"tool_calls": [
        {"id": ID, "type": "function", "index": 0, "function": {"name": "get_tide", "arguments": '{"port":"Brest"}'}},
        {"id": WIND, "type": "function", "index": 1, "function": {"name": "get_wind", "arguments": ""}},
    ]}),
    vllm({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}, "tool_calls", stop_reason=None),
    {"choices": [], "usage": usage(9, 20)},
    "[DONE]",
]  # fmt: skip

VLLM_FAILED: Elements = [
    *VLLM[:4],
    '{"error":{"message":"internal error","type":"InternalServerError","param":null,"code":500}}',
    "[DONE]",
]

SGLANG: Elements = [
    sglang(role="assistant", content=""),
    sglang(reasoning_content="Hm."),
    sglang(index=1, role="assistant", content=""),
    sglang_call("", "get_tide", "call_00112233445566778899aabb"),
    sglang(index=1, content="No."),
    sglang_call('{"port":'),
    sglang_call('"Brest"}'),
    sglang("tool_calls"),
    sglang("stop", index=1),
    {"choices": [], "sglext": {"cached_tokens_details": None}, "usage": None, "system_fingerprint": ABSENT},
    {"choices": [], "usage": {**usage(9, 20), "reasoning_tokens": 1}, "system_fingerprint": ABSENT},
    "[DONE]",
]

OPENAI: Elements = [
    openai({
        "role": "assistant", "content": None, "refusal": None,
        "tool_calls": [{"index": 0, "id": WIND, "type": "function", "function": {"name": "get_wind", "arguments": ""}}],
    }),
    openai({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
    openai({}, "tool_calls"),
    {"choices": [], "usage": usage(9, 20), "service_tier": "default", "obfuscation": ""},
    "[DONE]",
]  # fmt: skip

OPENROUTER: Elements = [
    b": OPENROUTER PROCESSING\n\n",
    b": OPENROUTER PROCESSING\n\n",
    *({**openai(delta, finish), "obfuscation": ABSENT} for delta, finish in (
        ({"role": "assistant", "content": ""}, None),
        ({"role": None, "content": "Hi", "reasoning": None, "reasoning_details": [{"index": 0, "text": ""}]}, None),
        ({"content": ""}, "stop"),
    )),
    {"choices": [], "usage": usage(9, 2)},
    "[DONE]",
]  # fmt: skip

STREAMS: dict[str, tuple[Elements, dict[str, Any], set[int]]] = {
    "vllm": (VLLM, {}, {64, 68}),
    "vllm, failed": (VLLM_FAILED, {}, {68}),
    "sglang": (SGLANG, {"n": 2}, set()),
    "openai": (OPENAI, {}, {52}),
    "openrouter": (OPENROUTER, {}, set()),
}


def report_of(name: str) -> Report:
    elements, asked, _ = STREAMS[name]
    return Stream("chat", elements, {"own": False, "request": {**ASKED, "tools": TOOLS, **asked}}).report()


@pytest.mark.parametrize("name", STREAMS)
def test_what_others_send_has_no_errors(name: str) -> None:
    report = report_of(name)
    assert report.errors == ()
    assert fired(report) == STREAMS[name][2]
