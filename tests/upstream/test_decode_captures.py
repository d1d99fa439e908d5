"""What is read of the responses that other servers sent (data/captures): what a client of theirs collects, and no more.

The client is written here from the protocols, without our code: it joins texts by choice, and calls by index.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from stages.events import Block, Body, End, ErrorInput, Failure, Finish, Head, Semantic, Usage
from stages.message import Message, collect
from stages.stage import fold
from stages.upstream.decode import DECODERS, Upstream
from stages.upstream.frames import FrameSplitter
from stages.upstream.quick import chat_chunk
from tests.support.captures import Capture, captures
from tests.support.decoding import opening, read

STREAMS = sorted(name for name, capture in captures().items() if capture.http.status == 200)
REFUSED = sorted(captures().keys() - set(STREAMS))


def frames_of(capture: Capture) -> list[Upstream]:
    splitter = FrameSplitter()
    cut = [frame for chunk in capture.chunks() for frame in splitter.feed(chunk)]
    return [Head(200, (("content-type", "text/event-stream"),)), *cut, *splitter.end()]


def decoded(capture: Capture) -> list[Semantic]:
    return read(capture.protocol, [*frames_of(capture), End()])


class Said:
    """A choice as a client has it. ``calls``: by index or place: id, name, arguments."""

    def __init__(self) -> None:
        self.content = ""
        self.reasoning = ""
        self.calls: dict[int, list[str]] = {}
        self.finish: str | None = None

    def told(self) -> tuple[Any, ...]:
        calls = [tuple(self.calls[index]) for index in sorted(self.calls)]
        return self.content or None, self.reasoning or None, calls


class Client:
    """Reads a stream. ``broken``: it met an error, or an event that is no JSON."""

    def __init__(self, capture: Capture) -> None:
        self.choices: dict[int, Said] = {}
        self.usage: dict[str, Any] | None = None
        self.broken = False
        take = {
            "chat": self._chat, "completions": self._chat, "responses": self._responses, "messages": self._messages,
        }[capture.protocol]  # fmt: skip
        for block in capture.body.split("\n\n"):
            lines = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
            if not lines or lines == ["[DONE]"]:
                continue
            try:
                value = json.loads("\n".join(lines))
            except ValueError:
                self.broken = True
                continue
            if value.get("error"):
                self.broken = True
                return
            take(value)

    def _chat(self, value: dict[str, Any]) -> None:
        self.usage = value.get("usage") or self.usage
        for choice in value["choices"]:
            said = self.choices.setdefault(choice["index"], Said())
            delta: dict[str, Any] = choice.get("delta") or {}
            said.content += delta.get("content") or choice.get("text") or ""
            said.reasoning += delta.get("reasoning") or delta.get("reasoning_content") or ""
            entries: list[Any] = delta.get("tool_calls") or []
            for entry in entries:
                call = said.calls.setdefault(entry["index"], ["", "", ""])
                function: dict[str, Any] = entry.get("function") or {}
                for place, text in enumerate((entry.get("id"), function.get("name"), function.get("arguments"))):
                    call[place] += text or ""
            said.finish = choice.get("finish_reason") or said.finish

    def _responses(self, value: dict[str, Any]) -> None:
        said = self.choices.setdefault(0, Said())
        if value["type"] == "response.completed":
            # As the official client: the final response is what counts.
            self.usage = value["response"]["usage"]
            said.finish = value["response"]["status"]
            for item in value["response"]["output"]:
                if item["type"] == "function_call":
                    said.calls[len(said.calls)] = [item["call_id"], item["name"], item["arguments"]]
                parts: list[Any] = item.get("content") or []
                for part in parts:
                    kind = "reasoning" if part["type"] == "reasoning_text" else "content"
                    setattr(said, kind, getattr(said, kind) + part["text"])

    def _messages(self, value: dict[str, Any]) -> None:
        said = self.choices.setdefault(0, Said())
        delta = value.get("delta", {})
        if value["type"] == "content_block_start" and value["content_block"]["type"] == "tool_use":
            said.calls[value["index"]] = [value["content_block"]["id"], value["content_block"]["name"], ""]
        elif value["type"] == "message_delta":
            said.finish = delta["stop_reason"]
            self.usage = value["usage"]
        elif "partial_json" in delta:
            said.calls[value["index"]][2] += delta["partial_json"]
        said.content += delta.get("text", "")
        said.reasoning += delta.get("thinking", "")


def told(message: Message) -> tuple[Any, ...]:
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return message.content, message.reasoning, calls


FINISHES = {
    "stop": "eos", "tool_calls": "eos", "completed": "eos", "end_turn": "eos", "tool_use": "eos", "length": "length",
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_what_a_client_collects(name: str) -> None:
    capture = captures()[name]
    events = decoded(capture)
    client = Client(capture)
    assert {message.choice: told(message) for message in collect(events)} == {
        index: said.told() for index, said in client.choices.items()
    }
    reasons = {event.choice: event for event in events if isinstance(event, Finish)}
    whole = True
    for index, said in client.choices.items():
        if said.finish is None or said.finish == "abort":
            assert index not in reasons
            whole = False
        elif reasons[index].detail is None:
            assert reasons[index].reason == FINISHES[said.finish]
        else:
            # SGLang tells the id of the end token, too.
            matched = "stop" if isinstance(reasons[index].detail, str) else "stop_token"
            assert (reasons[index].reason, said.finish) in ((matched, "stop"), (matched, "tool_calls"))
    failures = [event for event in events if isinstance(event, Failure)]
    assert bool(failures) == (client.broken or not whole or not client.choices)
    counts = [(event.prompt, event.completion) for event in events if isinstance(event, Usage)]
    if client.usage is not None and not failures:
        prompt = client.usage.get("prompt_tokens", client.usage.get("input_tokens"))
        if prompt is not None:  # not all servers say it again at the end of a message
            assert counts == [(prompt, client.usage.get("completion_tokens", client.usage.get("output_tokens")))]
    assert events[-1] == End()


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_breaks_off_is_a_beginning_and_the_reason(name: str) -> None:
    """Cut behind any frame: what was told before stays as it is, and what broke it is told."""
    capture = captures()[name]
    frames = frames_of(capture)
    events = decoded(capture)
    cut = ErrorInput("engine", "the connection broke", "upstream_cut")
    machine = DECODERS[capture.protocol].start(opening(capture.protocol))
    begun: list[Semantic] = []
    for frame in frames:
        machine.step(frame, begun)
        assert begun == events[: len(begun)]
        if begun and begun[-1] == End():
            break
        resumed = DECODERS[capture.protocol].resume(opening(capture.protocol), machine.snapshot())
        rest = fold(resumed, [cut])
        assert rest[-1] == End()
        failures = [event for event in (*begun, *rest) if isinstance(event, Failure)]
        assert len(failures) == 1
        if failures[0] in rest:
            assert failures[0] == Failure("engine", "the connection broke", "upstream_cut")


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_refused(name: str) -> None:
    capture = captures()[name]
    error = json.loads(capture.body)
    error = error.get("error", error)
    frames: list[Upstream] = [Head(capture.http.status, ()), Body(capture.data), End()]
    assert read("chat", frames) == [Failure("bad_request", error["message"], str(error["code"])), End()]


WHOLE = sorted(name for name, capture in captures().items() if capture.whole is not None)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_body(name: str) -> None:
    capture = captures()[name]
    assert capture.whole is not None
    events = read(capture.protocol, [Head(200, ()), Body(capture.whole.encode()), End()])
    messages = collect(events)
    value: dict[str, Any] = {"error": capture.whole}
    with suppress(ValueError):
        value = json.loads(capture.whole)
    if value.get("error"):
        assert [type(event) for event in events] == [Failure, End]
        return
    assert not any(isinstance(event, Failure) for event in events)
    assert [told(message) for message in messages] == [*said_whole(capture.protocol, value)]
    usage = value["usage"]
    [counted] = [event for event in events if isinstance(event, Usage)]
    assert counted.prompt == usage.get("prompt_tokens", usage.get("input_tokens"))
    assert counted.completion == usage.get("completion_tokens", usage.get("output_tokens"))


def said_whole(protocol: str, value: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a whole body says, read from the protocol's definition."""
    if protocol == "completions":
        return [(choice["text"] or None, None, []) for choice in value["choices"]]
    if protocol == "chat":
        return [_said_message(choice["message"]) for choice in value["choices"]]
    texts = {"content": "", "reasoning": ""}
    calls: list[tuple[str, ...]] = []
    for item in value["output"] if protocol == "responses" else value["content"]:
        kind = item["type"]
        if kind == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
        elif kind == "tool_use":
            calls.append((item["id"], item["name"], json.dumps(item["input"], separators=(",", ":"))))
        elif kind in ("text", "thinking"):
            texts["content" if kind == "text" else "reasoning"] += item[kind]
        parts: list[Any] = item.get("content") or []
        for part in parts:
            texts["reasoning" if part["type"] == "reasoning_text" else "content"] += part["text"]
    return [(texts["content"] or None, texts["reasoning"] or None, calls)]


def _said_message(message: dict[str, Any]) -> tuple[Any, ...]:
    entries: list[Any] = message.get("tool_calls") or []
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in entries]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return message.get("content") or None, reasoning or None, calls


def test_most_blocks_are_read_the_quick_way() -> None:
    """The quick way is there for what servers mostly send."""
    quick = slow = 0
    for capture in captures().values():
        if capture.protocol == "chat" and capture.http.status == 200:
            for frame in frames_of(capture):
                if isinstance(frame, Block) and frame.data.startswith(b"data: {") and b'"delta":{"' in frame.data:
                    try:
                        value = json.loads(frame.data[6:])
                    except ValueError:
                        continue
                    choice = value["choices"][0]
                    if choice.get("finish_reason") or choice.get("logprobs") or value.get("usage"):
                        continue
                    if value.get("prompt_token_ids"):
                        continue
                    quick += chat_chunk(value) is not None
                    slow += chat_chunk(value) is None
    assert (quick > 500, slow) == (True, 0)
