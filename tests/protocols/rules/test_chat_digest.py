"""A chat stream and a whole completion, read once for all rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.protocols.rules import Evidence, check
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.reading import Reading
from stages.protocols.rules.said_chat import of_stream, of_whole
from tests.support.wire import chunk, golden, put, write

CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)


def test_a_completion_says_what_its_stream_says() -> None:
    message = {
        "role": "assistant", "content": "Looking it up.", "refusal": None, "reasoning": "Need tides.",
        "reasoning_content": "Need tides.",
        "tool_calls": [{"id": "call_k1", "type": "function", "function": {"name": "get_tide", "arguments": "{}"}}],
    }  # fmt: skip
    logprobs = {"content": [{"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}], "refusal": None}
    body: dict[str, Any] = {
        "id": "chatcmpl-7a1", "object": "chat.completion", "created": 1760000000, "model": "demo-1",
        "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "tool_calls"}],
        "usage": {
            "prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 5},
        },
    }  # fmt: skip
    said = of_whole(body)
    choice = said.choices[0]
    assert (choice.text("content"), choice.text("reasoning")) == ("Looking it up.", "Need tides.")
    assert [(one.id, one.name, one.arguments) for one in choice.calls] == [("call_k1", "get_tide", "{}")]
    assert choice.finish is not None
    assert (choice.finish.reason, choice.finish.kind, len(choice.tokens)) == ("tool_calls", "calls", 1)
    assert said.usage is not None
    counts = (said.usage.prompt, said.usage.completion, said.usage.total, said.usage.cached, said.usage.reasoning)
    assert counts == (9, 12, 21, 4, 5)


@pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": [1, {}, {"index": 0, "message": 4}]}])
def test_a_body_that_is_no_completion_says_nothing(body: dict[str, Any]) -> None:
    said = of_whole(body)
    assert not any(choice.deltas or choice.calls for choice in said.choices.values())


def test_a_stream_is_digested_once() -> None:
    reading = Reading(golden("G01").body)
    assert reading.view(view) is reading.view(view)
    assert of_stream(reading) is reading.view(view).said


def test_the_cost_of_a_rule_does_not_grow_with_usual_chunks() -> None:
    """The lists that rules read stay empty, however long a usual stream is."""
    texts = [chunk({"content": f" w{n}"}) for n in range(500)]
    thoughts = [chunk({"reasoning": f" t{n}", "reasoning_content": f" t{n}"}) for n in range(500)]
    role, end = chunk({"role": "assistant", "content": ""}), chunk({}, finish="stop")
    made = Reading(write("chat", [role, *thoughts, *texts, end, "[DONE]"])).view(view)
    choice = made.choices[0]
    assert len(choice.said.deltas) == 1000
    lists = (choice.roles, choice.odd, choice.extra, choice.logprobs, choice.ids, choice.running, choice.later)
    assert not any(lists)
    assert (len(choice.runs), len(choice.ends), len(made.envelopes), len(made.usages)) == (2, 1, 1, 1)


@pytest.mark.parametrize("value", [None, True, 1, -1.5, "", "x", [], [[]], {}, {"index": {}}, [{"index": None}]])
@pytest.mark.parametrize(
    "path", [(), CHOICE, DELTA, CALL, (*CALL, "function"), (*CALL, "index"), (*CHOICE, "logprobs")]
)
def test_nothing_that_is_put_anywhere_stops_the_rules(path: tuple[Any, ...], value: Any) -> None:
    stream = golden("G02").edited(put(2, *path, to=value)) if path else golden("G02").edited(
        put(2, to=json.dumps(value))
    )  # fmt: skip
    for own in (True, False):
        assert check(Evidence(body=stream.body, own=own, request=stream.request)).checked
