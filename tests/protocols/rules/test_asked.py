"""What the rules take from a request, in any protocol and any shape."""

from __future__ import annotations

from typing import Any

import pytest

from stages.protocols.rules import Protocol
from stages.protocols.rules.asked import AskedTool, read


@pytest.mark.parametrize(
    ("protocol", "tools"),
    [
        ("chat", [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}]),
        ("responses", [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}]),
        ("messages", [{"name": "f", "input_schema": {"type": "object"}, "strict": True}]),
        ("messages", [{"type": "custom", "name": "f", "input_schema": {"type": "object"}, "strict": True}]),
    ],
)
def test_tools_of_every_protocol(protocol: Protocol, tools: list[Any]) -> None:
    assert read({"tools": tools}, protocol).tools == {"f": AskedTool("f", True, {"type": "object"})}


@pytest.mark.parametrize(
    "value", [None, True, -3, 1.5, "x", [None, 1], {"type": []}, {"type": "function", "function": 4}]
)
@pytest.mark.parametrize("protocol", ["chat", "completions", "responses", "messages"])
def test_a_request_of_any_shape_is_read(protocol: Protocol, value: Any) -> None:
    keys = ("n", "stop", "stop_sequences", "tools", "functions", "tool_choice", "stream_options", "top_logprobs")
    asked = read(dict.fromkeys(keys, value), protocol)
    assert (asked.n, asked.named, asked.tools) == (1, None, {})
