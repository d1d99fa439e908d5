"""What a request is answered, however it is asked: plain streaming, the SDK's ``.stream()`` helper, not streaming."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import openai
from openai.types.chat import ChatCompletionChunk

from tests.support.server import Running

Way: TypeAlias = Literal["plain", "helper", "whole"]
WAYS: tuple[Way, ...] = ("plain", "helper", "whole")

TIDE = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
MOON = {"type": "function", "function": {"name": "moon"}}
TOOLS = [TIDE, MOON]


class Choice(NamedTuple):
    """A choice's message. ``calls``: name and arguments as a JSON value."""

    content: str | None
    finish: str
    reasoning: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()


class Case(NamedTuple):
    """A request whose output is forced, and what it must be answered."""

    written: str
    request: dict[str, Any]
    choices: list[Choice]


CALLS = (
    'Looking.\n<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "days": [1, 2]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>'
)
CASES = {
    "text": Case("Two a day, says the almanac.", {}, [Choice("Two a day, says the almanac.", "stop")]),
    "unicode": Case("Où ? 潮の満ち引き 🌊.", {}, [Choice("Où ? 潮の満ち引き 🌊.", "stop")]),
    "reasoning": Case(
        "<think>\nThe moon pulls.\n</think>\n\nTwo a day.", {}, [Choice("Two a day.", "stop", "The moon pulls.")]
    ),
    "one call": Case(
        '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest \\"N\\""}}\n</tool_call>',
        {"tools": TOOLS},
        [Choice(None, "tool_calls", None, (("tide", {"port": 'Brest "N"'}),))],
    ),
    "parallel calls": Case(
        CALLS,
        {"tools": TOOLS},
        [Choice("Looking.", "tool_calls", None, (("tide", {"port": "Brest", "days": [1, 2]}), ("moon", {})))],
    ),
    "one call of two": Case(
        CALLS,
        {"tools": TOOLS, "parallel_tool_calls": False},
        [Choice("Looking.", "tool_calls", None, (("tide", {"port": "Brest", "days": [1, 2]}),))],
    ),
    "stop": Case("Two a day, says the almanac.", {"stop": ["no such", "ys the al"]}, [Choice("Two a day, sa", "stop")]),
    "n": Case("Two a day.", {"n": 2}, [Choice("Two a day.", "stop")] * 2),
}


def parameters(case: Case, way: Way) -> dict[str, Any]:
    """The arguments of the SDK's method."""
    fields: dict[str, Any] = {**case.request, "extra_body": {"forced_text": case.written}}
    if way != "whole":
        fields["stream_options"] = {"include_usage": True}
    if way == "plain":
        fields["stream"] = True
    return fields


class Answer(NamedTuple):
    """``usage``: prompt, completion and total tokens."""

    id: str
    choices: list[Choice]
    usage: tuple[int, int, int]


def ask(server: Running, client: openai.OpenAI, case: Case, way: Way) -> Answer:
    """Ask and read to the end."""
    fields = parameters(case, way)
    if way == "whole":
        return of_completion(server.create(client, **fields))
    if way == "plain":
        return of_chunks(server.create(client, **fields))
    with server.helper(client, **fields) as stream:
        for _event in stream:
            pass
        return of_completion(stream.current_completion_snapshot)


async def ask_async(server: Running, client: openai.AsyncOpenAI, case: Case, way: Way) -> Answer:
    """The same with the async SDK."""
    fields = parameters(case, way)
    if way == "whole":
        return of_completion(await server.create(client, **fields))
    if way == "plain":
        return of_chunks([chunk async for chunk in await server.create(client, **fields)])
    async with server.helper(client, **fields) as stream:
        async for _event in stream:
            pass
        return of_completion(stream.current_completion_snapshot)


def of_completion(completion: Any) -> Answer:
    """The SDK's object, streamed or not."""
    choices = [
        Choice(
            choice.message.content or None,
            choice.finish_reason,
            _reasoning(choice.message),
            tuple(_call(call.function) for call in choice.message.tool_calls or ()),
        )
        for choice in completion.choices
    ]
    return Answer(completion.id, choices, _usage(completion.usage))


def of_chunks(chunks: Iterable[ChatCompletionChunk]) -> Answer:
    """A client's own loop over the chunks: text is joined, calls are told apart by their index."""
    made: dict[int, dict[str, Any]] = {}
    ids: set[str] = set()
    usage: Any = None
    for chunk in chunks:
        ids.add(chunk.id)
        usage = chunk.usage
        for choice in chunk.choices:
            so_far = made.setdefault(choice.index, {"content": "", "reasoning": "", "calls": {}})
            so_far["content"] += choice.delta.content or ""
            so_far["reasoning"] += _reasoning(choice.delta) or ""
            for entry in choice.delta.tool_calls or ():
                call = so_far["calls"].setdefault(entry.index, ["", ""])
                call[0] += (entry.function and entry.function.name) or ""
                call[1] += (entry.function and entry.function.arguments) or ""
            if choice.finish_reason:
                so_far["finish"] = choice.finish_reason
    [response_id] = ids
    choices = [
        Choice(
            one["content"] or None,
            one["finish"],
            one["reasoning"] or None,
            tuple((name, json.loads(arguments)) for _, (name, arguments) in sorted(one["calls"].items())),
        )
        for _, one in sorted(made.items())
    ]
    return Answer(response_id, choices, _usage(usage))


def _reasoning(message: Any) -> str | None:
    """The text, which is under both names."""
    extra: dict[str, Any] = message.model_extra or {}
    assert extra.get("reasoning") == extra.get("reasoning_content")
    return extra.get("reasoning")


def _call(function: Any) -> tuple[str, Any]:
    return function.name, json.loads(function.arguments)


def _usage(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
