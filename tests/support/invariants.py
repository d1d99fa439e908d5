"""The chat protocol's invariants (INV-026 … INV-079), as a check of what one session sent.

What a rule needs beside the body (the request, the engine's tokens, the semantic events) is taken from the session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from stages import catalog
from stages.events import Block, Finish, Frame, Input, PromptInput, Semantic, Tokens, TokensInput, UsageInput
from stages.message import Message, collect
from stages.opening import Ask, Opening
from stages.stage import fold
from tests.support.chat import body_of, payloads

Chunks: TypeAlias = list[dict[str, Any]]
Items: TypeAlias = list[dict[str, Any]]
_REASONS = ("stop", "length", "tool_calls", "content_filter")


class Sent(msgspec.Struct):
    """A session, derived."""

    opening: Opening
    inputs: Sequence[Input]
    semantic: list[Semantic]
    frames: list[Frame]


def sent(opening: Opening, inputs: Sequence[Input]) -> Sent:
    """Derive all layers."""
    layers = catalog.layers(opening)
    semantic = fold(layers.semantic.start(opening), inputs)
    chunks = fold(layers.encoder.start(opening), semantic)
    return Sent(opening, inputs, semantic, fold(layers.framer.start(opening), chunks))


def check_chat(session: Sent) -> None:
    """All rules, on a streamed session that came to its end (or to an error)."""
    events = payloads(session.frames)
    strict_json(session.frames)
    assert events.count("[DONE]") == 1, "INV-075"
    assert events[-1] == "[DONE]", "INV-075"
    chunks: Chunks = [event for event in events if event != "[DONE]"]
    errors = [place for place, chunk in enumerate(chunks) if chunk.get("error")]
    assert errors in ([], [len(chunks) - 1]), "INV-042 INV-076"
    if errors:
        error = chunks.pop()["error"]
        assert isinstance(error["message"], str), "INV-076"
        assert error["message"], "INV-076"
    _envelopes(chunks, session.opening.ask)
    _usage(chunks, session, failed=bool(errors))
    said = {message.choice: message for message in collect(session.semantic, named=session.opening.ask.named)}
    seen: dict[int, Items] = {}
    for item in (item for chunk in chunks for item in chunk["choices"]):
        assert item["index"] in seen or item["index"] == len(seen), "INV-050"
        seen.setdefault(item["index"], []).append(item)
    assert set(seen) <= set(range(session.opening.ask.n)), "INV-048"
    assert errors or len(seen) == session.opening.ask.n, "INV-065"
    for choice, items in seen.items():
        _choice(session, items, said[choice], failed=bool(errors))


def strict_json(frames: Sequence[Frame]) -> None:
    """INV-010, 012, 019, 021: UTF-8, LF only, one data line, no duplicate keys, no NaN, no unpaired surrogate."""
    body = body_of(frames)
    body.decode()
    assert b"\r" not in body, "INV-012"
    for frame in frames:
        if isinstance(frame, Block):
            assert frame.data.startswith(b"data: "), "INV-077"
            assert frame.data.count(b"\n") == 2, "INV-019"
            if frame.data != b"data: [DONE]\n\n":
                json.loads(frame.data[6:], object_pairs_hook=_unique, parse_constant=_refuse)
                msgspec.json.decode(frame.data[6:])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), "INV-021"
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise AssertionError(f"INV-021 {name}")


def _envelopes(chunks: Chunks, ask: Ask) -> None:
    first = chunks[0] if chunks else {}
    for place, chunk in enumerate(chunks):
        assert chunk["object"] == "chat.completion.chunk", "INV-044"
        for key in ("id", "created", "model", "system_fingerprint"):
            assert chunk[key] == first[key], "INV-045 INV-070"
        assert isinstance(chunk["choices"], list), "INV-046"
        assert chunk["choices"] or place == len(chunks) - 1, "INV-047"
        assert ("prompt_token_ids" in chunk) <= (ask.return_token_ids and place == 0), "INV-079"


def _usage(chunks: Chunks, session: Sent, *, failed: bool) -> None:
    ask = session.opening.ask
    finals = [chunk for chunk in chunks if not chunk["choices"]]
    assert len(finals) == (ask.include_usage and not failed), "INV-067"
    running: dict[int, int] = {}
    for chunk in chunks:
        assert ("usage" in chunk) == ask.include_usage, "INV-068"
        usage = chunk.get("usage")
        if chunk["choices"]:
            assert (usage is not None) == (ask.include_usage and ask.continuous_usage), "INV-068"
        if usage is None:
            continue
        prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
        assert prompt >= 0 <= completion, "INV-040"
        assert usage["total_tokens"] == prompt + completion, "INV-040"
        if chunk["choices"]:
            index = chunk["choices"][0]["index"]
            assert completion >= running.get(index, 0), "INV-069"
            running[index] = completion
        else:
            _final(usage, session, running)


def _final(usage: dict[str, Any], session: Sent, running: dict[int, int]) -> None:
    [told] = [event for event in session.inputs if isinstance(event, UsageInput)]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (told.prompt, told.completion), "INV-041"
    assert usage["completion_tokens_details"]["reasoning_tokens"] <= told.completion, "INV-040"
    assert usage["prompt_tokens_details"]["cached_tokens"] <= told.prompt, "INV-040"
    if running:
        counted = sum(len(event.ids) for event in _until_finish(session, None))
        assert sum(running.values()) == counted, "INV-069"


def _until_finish(session: Sent, choice: int | None) -> list[TokensInput]:
    """The steps that came before their choice's Finish."""
    finished: set[int] = set()
    steps: list[TokensInput] = []
    inputs = [event for event in session.inputs if isinstance(event, TokensInput)]
    order = iter(inputs)
    for event in session.semantic:
        if isinstance(event, Finish):
            finished.add(event.choice)
        elif isinstance(event, Tokens):
            step = next(order)
            if event.choice not in finished and choice in (None, event.choice):
                steps.append(step)
    return steps


def _choice(session: Sent, items: Items, said: Message, *, failed: bool) -> None:
    ask = session.opening.ask
    assert items[0]["delta"] == {"role": "assistant", "content": ""}, "INV-051 INV-052"
    finals = [place for place, item in enumerate(items) if item["finish_reason"] is not None]
    assert finals in ([len(items) - 1], [] if failed else [len(items) - 1]), "INV-033 INV-034 INV-063"
    for item in items[1:]:
        _delta(item, ask)
    field = "reasoning" if ask.reasoning_field == "both" else ask.reasoning_field
    assert _joined(items, "content") == (said.content or ""), "INV-026"
    assert _joined(items, field) == (said.reasoning or ""), "INV-027"
    assert ask.include_reasoning or not _joined(items, field), "INV-027"
    _calls(items, said, ask)
    _tokens(session, items)
    if finals:
        _finish(session, items[-1], said)


def _joined(items: Items, key: str) -> str:
    return "".join(item["delta"].get(key, "") for item in items)


def _delta(item: dict[str, Any], ask: Ask) -> None:
    delta = item["delta"]
    assert "role" not in delta, "INV-051"
    assert set(delta) <= {"content", "reasoning", "reasoning_content", "tool_calls"}, "INV-078"
    for key in ("content", "reasoning", "reasoning_content"):
        assert isinstance(delta.get(key, "x"), str), "INV-053"
        assert delta.get(key, "x"), "INV-030"
    if "reasoning" in delta and "reasoning_content" in delta:
        assert delta["reasoning"] == delta["reasoning_content"], "INV-054"
    if not delta:
        assert item["finish_reason"] or item["logprobs"] or item.get("token_ids"), "INV-030"
    if item["finish_reason"]:
        assert not delta, "INV-064"
        assert item["finish_reason"] in _REASONS, "INV-063"
    assert item["logprobs"] is None or ask.logprobs, "INV-071"


def _calls(items: Items, said: Message, ask: Ask) -> None:
    calls: list[list[str]] = []
    for entry in (entry for item in items for entry in item["delta"].get("tool_calls", ())):
        function = entry["function"]
        if "id" in entry:
            assert entry["index"] == len(calls), "INV-057 INV-058"
            assert entry["id"], "INV-059"
            assert entry["type"] == "function", "INV-059"
            assert function["name"], "INV-059"
            calls.append([entry["id"], function["name"], function["arguments"]])
        else:
            assert entry["index"] == len(calls) - 1, "INV-062"
            assert set(function) == {"arguments"}, "INV-060 INV-061"
            assert function["arguments"], "INV-030"
            calls[-1][2] += function["arguments"]
    assert [tuple(call) for call in calls] == [(call.id, call.name, call.arguments) for call in said.tool_calls]
    assert len({call[0] for call in calls}) == len(calls), "INV-035"
    assert ask.parallel or len(calls) < 2, "INV-038"
    assert not calls or (ask.tools and ask.tool_choice != "none"), "INV-038"
    for call in said.tool_calls:
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict), "INV-037"


def _tokens(session: Sent, items: Items) -> None:
    ask = session.opening.ask
    steps = _until_finish(session, items[0]["index"])
    entries = [entry for item in items if item["logprobs"] for entry in item["logprobs"]["content"]]
    ids = [number for item in items for number in item.get("token_ids", ())]
    shown = ask.include_reasoning
    assert ids == [number for step in steps for number in step.ids if ask.return_token_ids and shown], "INV-079"
    made = [entry for step in steps for entry in step.logprobs if ask.logprobs and shown]
    assert [bytes(entry["bytes"]) for entry in entries] == [entry.piece for entry in made], "INV-072"
    for entry in entries:
        assert -9999.0 <= entry["logprob"] <= 0.0, "INV-073"
        top = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(top) <= ask.top_logprobs, "INV-073"
        assert top == sorted(top, reverse=True), "INV-073"


def _finish(session: Sent, item: dict[str, Any], said: Message) -> None:
    ask = session.opening.ask
    [finish] = [event for event in session.semantic if isinstance(event, Finish) and event.choice == item["index"]]
    itself = finish.reason in ("eos", "stop", "stop_token")
    complete = bool(said.tool_calls) and all(call.complete for call in said.tool_calls)
    calls = itself and complete and not ask.named
    other = {"length": "length", "context": "length", "filter": "content_filter"}.get(finish.reason, "stop")
    assert item["finish_reason"] == ("tool_calls" if calls else other), "INV-066"
    if isinstance(item.get("stop_reason"), str) and finish.detail in ask.stop:
        text = str(finish.detail)
        for shown in (said.content, said.reasoning, *(call.arguments for call in said.tool_calls)):
            assert ask.include_stop or text not in (shown or ""), "INV-031"


def prompt_of(session: Sent) -> PromptInput | None:
    """The prompt, if the session was admitted."""
    return next((event for event in session.inputs if isinstance(event, PromptInput)), None)
