"""What public reports of other servers are about, in our own streams of every protocol.

The reports on parsers (data/public_reports.jsonl) give what a model wrote: each is served in each protocol, and the
stream keeps all rules, says what the parser meant, and says the same as the whole body and as chat. The reports on
streams of responses and messages (data/public_streams.jsonl) give what a server made of an answer: here is what we make
of it, event by event.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import pytest

from replay.cases import Case, read_cases, run_case
from stages import catalog
from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Finish,
    FinishReason,
    Reasoning,
    Semantic,
    Start,
    Usage,
)
from stages.message import collect
from stages.opening import Ask, Opening, Tool
from stages.protocols.rules import PROTOCOLS, Evidence, Protocol, check
from stages.protocols.rules.reading import Reading
from stages.stage import fold
from tests.support.tree import ROOT

Line: TypeAlias = dict[str, Any]

DATA = ROOT / "tests" / "data"
REPORTS = list(read_cases(str(DATA / "public_reports.jsonl")))
STREAMS: dict[str, Line] = {
    case["id"]: case
    for line in (DATA / "public_streams.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}
# A model's own doing: calls of tools that are not there, arguments that are no JSON, text behind calls.
OF_THE_MODEL = {"INV-036", "INV-037", "INV-055"}


def request_of(protocol: Protocol, ask: Ask) -> Line:
    """A streaming request with these tools and stop strings, as the protocol has it."""
    asked: Line = {"stream": True, "prompt" if protocol == "completions" else "input": "?"}
    if protocol in ("chat", "messages"):
        asked = {"stream": True, "max_tokens": 4096, "messages": [{"role": "user", "content": "?"}]}
    if ask.stop:
        asked["stop_sequences" if protocol == "messages" else "stop"] = ask.stop
    functions: list[Any] = [msgspec.to_builtins(tool) for tool in ask.tools]
    if not functions or protocol == "completions":
        return asked
    described = {
        "chat": [{"type": "function", "function": one} for one in functions],
        "responses": [{"type": "function", "parameters": None, **one} for one in functions],
        "messages": [{"name": one["name"], "input_schema": one.get("parameters", {})} for one in functions],
    }
    return {**asked, "tools": described[protocol]}


def opening_in(protocol: Protocol, opening: Opening) -> Opening:
    """The same, asked in a protocol, streaming."""
    request = request_of(protocol, opening.ask)
    return msgspec.structs.replace(
        opening, protocol=protocol, response_id=f"{catalog.PROTOCOLS[protocol].prefix}{'0' * 32}", created=1700000000,
        model="m", request=msgspec.json.encode(request), ask=msgspec.structs.replace(opening.ask, stream=True),
    )  # fmt: skip


def served(opening: Opening, events: Sequence[Semantic], *, stream: bool = True) -> bytes:
    """The body that these events are answered with."""
    opening = msgspec.structs.replace(opening, ask=msgspec.structs.replace(opening.ask, stream=stream))
    layers = catalog.layers(opening)
    frames = fold(layers.framer.start(opening), fold(layers.encoder.start(opening), list(events)))
    return b"".join(frame.data for frame in frames if isinstance(frame, Block | Body))


def broken(opening: Opening, events: Sequence[Semantic]) -> list[str]:
    """The rules that our stream of these events breaks."""
    protocol: Protocol = next(name for name in PROTOCOLS if name == opening.protocol)
    chat = opening_in("chat", opening)
    body = served(opening, events)
    report = check(
        Evidence(
            body=body, protocol=protocol, own=True, request=json.loads(opening.request),
            meant=collect(events, named=opening.ask.named), whole=served(opening, events, stream=False), replayed=body,
            other=None if protocol == "completions" else ("chat", served(chat, events)), effort=True,
        )
    )  # fmt: skip
    return [f"{one.rule} {one.seen}" for one in report.violations if one.rule not in OF_THE_MODEL]


def named(case: Case) -> str:
    return case.id


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", REPORTS, ids=named)
def test_what_a_model_wrote_is_served_in_every_protocol(case: Case, protocol: Protocol) -> None:
    opening = opening_in(protocol, case.opening)
    # A completion is the model's text, as it wrote it.
    events = run_case(case, "token", parser="plain" if protocol == "completions" else None).events
    assert broken(opening, events) == []


# --- streams ----------------------------------------------------------------------------------------------------------


def answer(*events: Semantic, reason: FinishReason = "eos") -> list[Semantic]:
    """A whole session that says this."""
    return [Start(0, 10), *events, Finish(0, reason), Usage(10, 5), End()]


def call(index: int, name: str, *fragments: str, complete: bool = True) -> list[Semantic]:
    """A call."""
    pieces = [CallArguments(0, index, text, (0, 0)) for text in fragments]
    return [CallStart(0, index, f"call_{index}", name, (0, 0)), *pieces, CallEnd(0, index, complete)]


FOUR = Content(0, "4", (0, 1))
BASH = call(0, "bash", '{"', 'command": "uptime"}')
OURS: dict[str, tuple[Protocol, list[Semantic]]] = {
    "responses-completed-before-created": ("responses", answer(FOUR)),
    "responses-output-text-done-missing": ("responses", answer(FOUR)),
    "responses-only-three-events": ("responses", answer(FOUR)),
    "responses-simple-text-then-tool-item-open": ("responses", answer(FOUR, *call(0, "get_weather", "{}"))),
    "responses-bridge-parallel-calls-share-index": (
        "responses",
        answer(*call(0, "write_file", '{"path": "a.py"}'), *call(1, "write_file", '{"path": "b.py"}')),
    ),
    "client-runs-call-of-incomplete-response": (
        "responses", answer(*call(0, "write_file", '{"path": "a.md", "con', complete=False), reason="length"),
    ),
    "anthropic-thinking-never-emitted": ("messages", answer(Reasoning(0, "2+2=4", (0, 5)), FOUR)),
    "anthropic-first-argument-fragment-lost": (
        "messages", answer(Reasoning(0, "Plan.", (0, 5)), Content(0, "I'll look.", (5, 15)), *BASH)
    ),
    "anthropic-stop-reason-null": ("messages", answer(Content(0, "hi", (0, 2)))),
    "anthropic-block-start-missing": ("messages", answer(Content(0, "hi", (0, 2)))),
    "anthropic-tool-block-opened-before-text-closed": (
        "messages", answer(Reasoning(0, "Plan.", (0, 5)), Content(0, "I'll look.", (5, 15)), *BASH)
    ),
    "anthropic-stop-reason-tool-use-without-block": ("messages", answer(Content(0, "Checking…", (0, 10)))),
    "anthropic-delta-after-message-stop": ("messages", answer(*call(0, "bash", '{"command": "ls"}'))),
    "anthropic-block-index-used-as-tool-index": (
        "messages", answer(Content(0, "To answer", (0, 9)), *call(0, "a", "{}"), *call(1, "b", "{}"))
    ),
}  # fmt: skip
"""By report: the protocol, and what is to be said in it."""

TEXT_ITEM = [
    "response.output_item.added", "response.content_part.added", "response.output_text.delta",
    "response.output_text.done", "response.content_part.done", "response.output_item.done",
]  # fmt: skip
CALL_ITEM = [
    "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done",
    "response.output_item.done",
]  # fmt: skip
BEGUN = ["response.created", "response.in_progress"]
TEXT_BLOCK = ["content_block_start", "content_block_delta", "content_block_stop"]
STOPPED = ["message_delta", "message_stop"]
EVENTS: dict[str, list[str]] = {
    "responses-completed-before-created": [*BEGUN, *TEXT_ITEM, "response.completed"],
    "responses-output-text-done-missing": [*BEGUN, *TEXT_ITEM, "response.completed"],
    "responses-only-three-events": [*BEGUN, *TEXT_ITEM, "response.completed"],
    "responses-simple-text-then-tool-item-open": [*BEGUN, *TEXT_ITEM, *CALL_ITEM, "response.completed"],
    "responses-bridge-parallel-calls-share-index": [*BEGUN, *CALL_ITEM, *CALL_ITEM, "response.completed"],
    "client-runs-call-of-incomplete-response": [*BEGUN, *CALL_ITEM, "response.incomplete"],
    "anthropic-stop-reason-null": ["message_start", *TEXT_BLOCK, *STOPPED],
    "anthropic-block-start-missing": ["message_start", *TEXT_BLOCK, *STOPPED],
    "anthropic-stop-reason-tool-use-without-block": ["message_start", *TEXT_BLOCK, *STOPPED],
    "anthropic-block-index-used-as-tool-index": ["message_start", *TEXT_BLOCK * 3, *STOPPED],
    "anthropic-delta-after-message-stop": ["message_start", *TEXT_BLOCK, *STOPPED],
}
"""The types of the events, where the report does not show the right stream, or shows it in another protocol."""


def events_of(name: str) -> list[Line]:
    protocol, events = OURS[name]
    tools = tuple(Tool(called) for called in ("get_weather", "write_file", "bash", "a", "b"))
    opening = Opening(
        session="s", key="k", response_id="r", created=0, opened=0, model="m", ask=Ask(tools=tools)
    )  # fmt: skip
    opening = opening_in(protocol, opening)
    assert broken(opening, events) == []
    return [event.value for event in Reading(served(opening, events)).events if isinstance(event.value, dict)]


@pytest.mark.parametrize("name", OURS)
def test_what_we_send_in_place_of_a_reported_stream(name: str) -> None:
    types = [event["type"] for event in events_of(name) if event != {"type": "ping"}]
    want = EVENTS.get(name) or [event["type"] for event in STREAMS[name]["good_stream"]]
    assert types == want


def test_a_call_that_was_cut_is_not_one_to_run() -> None:
    *_, done, last = events_of("client-runs-call-of-incomplete-response")
    item = done["item"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"path": "a.md", "con')
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"] == [item]


def test_the_reasons_that_were_reported_as_wrong() -> None:
    for name, reason in {
        "anthropic-stop-reason-null": "end_turn",
        "anthropic-stop-reason-tool-use-without-block": "end_turn",
        "anthropic-delta-after-message-stop": "tool_use",
    }.items():
        [closing] = [event for event in events_of(name) if event["type"] == "message_delta"]
        assert closing["delta"] == {"stop_reason": reason, "stop_sequence": None}
    fragments = [
        event["delta"]["partial_json"]
        for event in events_of("anthropic-first-argument-fragment-lost")
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta"
    ]
    assert "".join(fragments) == '{"command": "uptime"}'


def test_which_reports_are_here() -> None:
    """All that are about streams of these protocols; none is about completions."""
    about = {
        name for name, case in STREAMS.items()
        if case["family"] in ("openai-responses", "anthropic-protocol") and not case.get("wire_hex")
    }  # fmt: skip
    assert about <= OURS.keys()
