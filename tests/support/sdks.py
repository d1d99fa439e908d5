"""The three protocols beside chat, asked as users of the official SDKs ask them: plain streaming, the SDK's
``.stream()`` helper, not streaming; and what an engine's output must be answered in each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import anthropic

from tests.support.answers import CALLS, MOON, TIDE, Way
from tests.support.server import Running

Protocol: TypeAlias = Literal["completions", "responses", "messages"]
End: TypeAlias = Literal["turn", "stop string", "length", "calls"]
Call: TypeAlias = tuple[str, Any]

QUESTION = "When is high tide?"
WAYS: tuple[tuple[Protocol, Way], ...] = (
    ("completions", "plain"), ("completions", "whole"),
    ("responses", "plain"), ("responses", "helper"), ("responses", "whole"),
    ("messages", "plain"), ("messages", "helper"), ("messages", "whole"),
)  # fmt: skip
"""The SDK has no helper for completions."""
ENDS: dict[Protocol, dict[End, str]] = {
    "completions": {"turn": "stop", "stop string": "stop", "length": "length", "calls": "stop"},
    "responses": {"turn": "completed", "stop string": "completed", "length": "incomplete", "calls": "completed"},
    "messages": {"turn": "end_turn", "stop string": "stop_sequence", "length": "max_tokens", "calls": "tool_use"},
}
"""How each protocol says why an answer ended."""


class Asked(NamedTuple):
    """A request, in no protocol's terms. ``written``: what the engine is forced to write; ``cap``: tokens."""

    written: str
    tools: bool = False
    single: bool = False
    stop: str | None = None
    cap: int | None = None


class Said(NamedTuple):
    """An answer. ``end``: in the protocol's own words; ``order``: of its parts, by kind."""

    content: str | None
    reasoning: str | None
    calls: tuple[Call, ...]
    end: str
    order: tuple[str, ...]
    usage: tuple[int, int]
    parts: tuple[str, ...] = ()


class Meant(NamedTuple):
    """What the engine meant. ``raw``: what it wrote, as far as it came, which is what completions get."""

    content: str | None
    raw: str
    end: End = "turn"
    reasoning: str | None = None
    calls: tuple[Call, ...] = ()


PARALLEL: tuple[Call, ...] = (("tide", {"port": "Brest", "days": [1, 2]}), ("moon", {}))
ALMANAC = "Two a day, says the almanac."
THOUGHT = "<think>\nThe moon pulls.\n</think>\n\nTwo a day."
QUOTED = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest \\"N\\""}}\n</tool_call>'
CASES: dict[str, tuple[Asked, Meant]] = {
    "text": (Asked(ALMANAC), Meant(ALMANAC, ALMANAC)),
    "unicode": (Asked("Où ? 潮の満ち引き 🌊."), Meant("Où ? 潮の満ち引き 🌊.", "Où ? 潮の満ち引き 🌊.")),
    "reasoning": (Asked(THOUGHT), Meant("Two a day.", THOUGHT, reasoning="The moon pulls.")),
    "one call": (
        Asked(QUOTED, tools=True),
        Meant(None, QUOTED, "calls", calls=(("tide", {"port": 'Brest "N"'}),)),
    ),
    "parallel calls": (Asked(CALLS, tools=True), Meant("Looking.", CALLS, "calls", calls=PARALLEL)),
    "one call of two": (
        Asked(CALLS, tools=True, single=True), Meant("Looking.", CALLS, "calls", calls=PARALLEL[:1])
    ),
    "stop": (Asked(ALMANAC, stop="ys the al"), Meant("Two a day, sa", "Two a day, sa", "stop string")),
    "length": (Asked(ALMANAC, cap=3), Meant("Two a day, s", "Two a day, s", "length")),
}  # fmt: skip


def expected(protocol: Protocol, meant: Meant) -> tuple[Any, ...]:
    """Content, reasoning, calls and end, as a client of the protocol sees them."""
    end = ENDS[protocol][meant.end]
    if protocol == "completions":
        return meant.raw, None, (), end
    return meant.content, meant.reasoning, meant.calls, end


# --- requests ---------------------------------------------------------------------------------------------------------


def fields_of(protocol: Protocol, asked: Asked) -> dict[str, Any]:
    """The arguments of the SDK's methods, without the model."""
    extra: dict[str, Any] = {"forced_text": asked.written}
    fields: dict[str, Any] = {"extra_body": extra}
    if protocol == "completions":
        fields |= {"prompt": QUESTION, "max_tokens": asked.cap or 200}
        if asked.stop is not None:
            fields["stop"] = [asked.stop]
    elif protocol == "responses":
        fields["input"] = QUESTION
        if asked.cap is not None:
            fields["max_output_tokens"] = asked.cap
        if asked.stop is not None:
            extra["stop"] = [asked.stop]
    else:
        fields |= {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": asked.cap or 200}
        if asked.stop is not None:
            fields["stop_sequences"] = [asked.stop]
    if asked.tools:
        fields |= _tools(protocol, asked.single)
    return fields


def _tools(protocol: Protocol, single: bool) -> dict[str, Any]:
    functions: list[Any] = [TIDE["function"], MOON["function"]]
    schema = {"type": "object"}
    if protocol == "responses":
        tools = [
            {"type": "function", "name": one["name"], "parameters": one.get("parameters", schema), "strict": False}
            for one in functions
        ]
        return {"tools": tools, "parallel_tool_calls": not single}
    if protocol == "messages":
        tools = [{"name": one["name"], "input_schema": one.get("parameters", schema)} for one in functions]
        return {"tools": tools, "tool_choice": {"type": "auto", "disable_parallel_tool_use": single}}
    return {}


def claude(server: Running) -> anthropic.Anthropic:
    """Anthropic's SDK; errors are not tried again."""
    return anthropic.Anthropic(base_url=server.address, api_key="sk-none", max_retries=0, timeout=server.patience)


@contextmanager
def asking(server: Running, protocol: Protocol) -> Generator[Any]:
    """What the SDK asks a protocol with, as ``client.responses``. Its own types want every field by name, and know none
    of ours."""
    with claude(server) if protocol == "messages" else server.client() as client:
        yield getattr(client, protocol)


@asynccontextmanager
async def asking_async(server: Running, protocol: Protocol) -> AsyncGenerator[Any]:
    """The same, async."""
    quick = anthropic.AsyncAnthropic(base_url=server.address, api_key="sk-none", max_retries=0, timeout=server.patience)
    async with quick if protocol == "messages" else server.async_client() as client:
        yield getattr(client, protocol)


def ask(server: Running, protocol: Protocol, way: Way, asked: Asked, **more: Any) -> Said:
    """Ask and read to the end."""
    fields = {"model": server.model, **fields_of(protocol, asked), **more}
    with asking(server, protocol) as by:
        if way == "whole":
            return WHOLE[protocol](by.create(**fields))
        if way == "plain":
            return STREAMED[protocol](list(by.create(**fields, **_streaming(protocol))))
        with by.stream(**fields) as stream:
            events = list(stream)
            return WHOLE[protocol](stream.get_final_message() if protocol == "messages" else _last(events))


async def ask_async(server: Running, protocol: Protocol, way: Way, asked: Asked) -> Said:
    """The same with the async SDKs."""
    fields = {"model": server.model, **fields_of(protocol, asked)}
    async with asking_async(server, protocol) as by:
        if way == "whole":
            return WHOLE[protocol](await by.create(**fields))
        if way == "plain":
            stream = await by.create(**fields, **_streaming(protocol))
            return STREAMED[protocol]([event async for event in stream])
        async with by.stream(**fields) as stream:
            events = [event async for event in stream]
            return WHOLE[protocol](await stream.get_final_message() if protocol == "messages" else _last(events))


def _streaming(protocol: Protocol) -> dict[str, Any]:
    return {"stream": True, **({"stream_options": {"include_usage": True}} if protocol == "completions" else {})}


def _last(events: list[Any]) -> Any:
    """Of the responses helper, whose ``get_final_response`` knows only of completed ones."""
    return events[-1].response


# --- answers ----------------------------------------------------------------------------------------------------------


def of_response(response: Any) -> Said:
    """A response, streamed or not."""
    reasoning = [
        part.text for item in response.output if item.type == "reasoning" for part in [*item.summary, *item.content]
    ]
    calls = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    return Said(
        response.output_text or None, "".join(reasoning) or None, tuple(calls), response.status,
        tuple(item.type for item in response.output), _responses_usage(response),
    )  # fmt: skip


def of_events(events: Iterable[Any]) -> Said:
    """A client's own loop over the events of a response: what it is told piece by piece, and nothing else."""
    items: dict[int, tuple[str, str]] = {}
    texts: dict[int, list[str]] = {}
    last: Any = None
    for event in events:
        last = event
        if event.type == "response.output_item.added":
            items[event.output_index] = event.item.type, getattr(event.item, "name", "")
            texts[event.output_index] = []
        elif event.type.endswith(".delta"):
            texts[event.output_index].append(event.delta)
    kinds = {kind: [index for index, (of, _) in items.items() if of == kind] for kind, _ in items.values()}
    content, reasoning = (
        "".join("".join(texts[index]) for index in kinds.get(kind, ())) or None for kind in ("message", "reasoning")
    )
    calls = [(items[index][1], json.loads("".join(texts[index]))) for index in kinds.get("function_call", ())]
    parts = tuple(text for index in kinds.get("message", ()) for text in texts[index])
    return Said(
        content, reasoning, tuple(calls), last.response.status, tuple(kind for kind, _ in items.values()),
        _responses_usage(last.response), parts,
    )  # fmt: skip


def _responses_usage(response: Any) -> tuple[int, int]:
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    return usage.input_tokens, usage.output_tokens


def of_message(message: Any) -> Said:
    """A message, streamed or not."""
    texts = [block.text for block in message.content if block.type == "text"]
    thought = [block.thinking for block in message.content if block.type == "thinking"]
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return Said(
        "".join(texts) or None, "".join(thought) or None, tuple(calls), message.stop_reason,
        tuple(block.type for block in message.content), _messages_usage(message.usage, message.usage.output_tokens),
    )  # fmt: skip


def of_blocks(events: Iterable[Any]) -> Said:
    """A client's own loop over the events of a message."""
    blocks: list[Any] = []
    texts: list[list[str]] = []
    opened: Any = None
    closed: Any = None
    for event in events:
        match event.type:
            case "message_start":
                opened = event.message
            case "content_block_start":
                assert event.index == len(blocks)
                blocks.append(event.content_block)
                texts.append([])
            case "content_block_delta" if event.delta.type != "signature_delta":
                delta = event.delta.model_dump()
                texts[event.index] += [text for name, text in delta.items() if name != "type" and text]
            case "message_delta":
                closed = event
            case _:
                pass
    joined = [(block.type, "".join(pieces)) for block, pieces in zip(blocks, texts, strict=True)]
    calls = [
        (block.name, json.loads(text or "{}"))
        for block, (kind, text) in zip(blocks, joined, strict=True)
        if kind == "tool_use"
    ]
    content, reasoning = ("".join(text for of, text in joined if of == kind) or None for kind in ("text", "thinking"))
    parts = [pieces for block, pieces in zip(blocks, texts, strict=True) if block.type == "text"]
    return Said(
        content, reasoning, tuple(calls), closed.delta.stop_reason, tuple(kind for kind, _ in joined),
        _messages_usage(opened.usage, closed.usage.output_tokens), tuple(text for each in parts for text in each),
    )  # fmt: skip


def _messages_usage(usage: Any, output: int) -> tuple[int, int]:
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return usage.input_tokens + cached, output


def of_completion(completion: Any) -> Said:
    """A text completion of one choice."""
    [choice] = completion.choices
    return _completed(choice.text, choice.finish_reason, completion.usage)


def of_texts(chunks: Iterable[Any]) -> Said:
    """A client's own loop over the chunks of one."""
    texts: list[str] = []
    end, usage = "", None
    for chunk in chunks:
        usage = chunk.usage
        for choice in chunk.choices:
            texts.append(choice.text)
            end = choice.finish_reason or end
    return _completed("".join(texts), end, usage)._replace(parts=tuple(text for text in texts if text))


def _completed(text: str, end: str, usage: Any) -> Said:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return Said(text, None, (), end, (), (usage.prompt_tokens, usage.completion_tokens))


WHOLE: dict[Protocol, Callable[[Any], Said]] = {
    "completions": of_completion, "responses": of_response, "messages": of_message,
}  # fmt: skip
STREAMED: dict[Protocol, Callable[[Iterable[Any]], Said]] = {
    "completions": of_texts, "responses": of_events, "messages": of_blocks,
}  # fmt: skip
