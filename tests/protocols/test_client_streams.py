"""Reading other servers' streams, as their client: what is collected, and how each stream is said to have ended.

Rebuilt from public reports (data/public_streams.jsonl: ``client_stream`` is to be understood, ``bad_stream`` too where
the report says what it means), and smaller ones of our own.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stages.events import (
    AbortInput,
    CallEnd,
    Done,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Finish,
    Semantic,
    Start,
    TimingInput,
    Tokens,
    Usage,
)
from stages.message import Message, collect
from stages.protocols.openai_chat import (
    DECODER,
    Accumulator,
    ChatCompletion,
    Ending,
    chunks_in,
    event_of,
    opening_of,
    semantic_of,
)
from stages.protocols.openai_chat.calls import Calls
from stages.protocols.openai_chat.chunks import ToolCallDelta
from stages.stage import fold
from tests.support.tree import ROOT

REPORTS: dict[str, dict[str, Any]] = {
    report["id"]: report
    for line in (ROOT / "tests" / "data" / "public_streams.jsonl").read_text(encoding="utf-8").splitlines()
    if (report := json.loads(line))["family"] == "openai-protocol"
}


def read(stream: list[Any]) -> list[Any]:
    """Chunks of a stream given as JSON values and the text ``[DONE]``."""
    return [event_of(item if isinstance(item, str) else json.dumps(item)) for item in stream]


def collected(chunks: list[Any]) -> tuple[ChatCompletion, Ending]:
    """What the accumulator makes of them."""
    accumulator = Accumulator()
    for chunk in chunks:
        accumulator.take(chunk)
    return accumulator.completion(), accumulator.ending


def decoded(chunks: list[Any]) -> list[Semantic]:
    """Their semantic events; the body has ended."""
    return semantic_of([*chunks, End()])


def check_calls(message: Message, expected: list[dict[str, Any]]) -> None:
    """The calls of a message are those of a report: a complete one by value, a cut one by its prefix."""
    assert [call.name for call in message.tool_calls] == [call["name"] for call in expected]
    for call, want in zip(message.tool_calls, expected, strict=True):
        assert call.id
        if want["arguments"] is None:
            assert (call.complete, call.arguments) == (False, want["arguments_prefix"])
        else:
            assert (call.complete, json.loads(call.arguments)) == (True, want["arguments"])


@pytest.mark.parametrize("name", [name for name, report in REPORTS.items() if "client_stream" in report])
def test_a_client_understands_it(name: str) -> None:
    report = REPORTS[name]
    expected = report["expected"]
    chunks = read(report["client_stream"])
    completion, ending = collected(chunks)
    assert ending == Ending(True, True, None)
    assert ending.whole
    [choice] = completion.choices
    assert choice.finish_reason == expected["finish_reason"]
    assert choice.message.content == expected.get("content")
    [message] = collect(decoded(chunks))
    assert (message.content, message.finish_reason) == (expected.get("content"), expected["finish_reason"])
    check_calls(message, expected["tool_calls"])
    # Both readers give one message.
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()] == [
        (call.id, call.name, call.arguments) for call in message.tool_calls
    ]


@pytest.mark.parametrize(
    "name", [name for name, report in REPORTS.items() if "good_stream" in report and "bad_stream" in report]
)
def test_what_was_sent_wrong_is_understood_as_it_was_meant(name: str) -> None:
    bad, good = (collect(decoded(read(REPORTS[name][which]))) for which in ("bad_stream", "good_stream"))
    assert bad == good


CUT = Failure("engine", "The stream broke off before its end.", "truncated")


@pytest.mark.parametrize("name", ["client-disconnect-keeps-generating", "session-corrupted-after-disconnect"])
def test_a_cut_stream_is_told_from_a_whole_one(name: str) -> None:
    chunks = read(REPORTS[name]["bad_stream"])
    _, ending = collected(chunks)
    assert ending == Ending(False, False, None)
    assert not ending.whole
    assert decoded(chunks)[-2:] == [CUT, End()]


def test_a_finished_stream_needs_no_done_but_of_ours() -> None:
    chunks = read(REPORTS["done-terminator-missing"]["bad_stream"])
    _, ending = collected(chunks)
    assert ending == Ending(True, False, None)
    assert decoded(chunks)[-2:] == [Finish(0, "eos"), End()]
    assert semantic_of([*chunks, End()], own=True)[-2:] == [CUT, End()]


@pytest.mark.parametrize("own", [True, False])
def test_a_stream_that_breaks_off(own: bool) -> None:
    chunks = read([chunk({"content": "a"}), chunk(entry('{"b"', index=0, id="c", name="f"))])
    told = semantic_of([*chunks, ErrorInput("timeout", "late", "cut", "p")], own=own)
    assert told[-3:] == [CallEnd(0, 0, False), Failure("timeout", "late", "cut", "p"), End()]
    assert semantic_of([*chunks, AbortInput("client")], own=own) == [*told[:-2], End()]
    finished = read([chunk({"content": "a"}), chunk(finish="stop"), "[DONE]"])
    whole = semantic_of(finished, own=own)
    for late in (End(), ErrorInput("engine", "cut"), AbortInput("client")):
        assert semantic_of([*finished, late], own=own) == whole


def test_done_without_a_finish_reason() -> None:
    chunks = chunks_in(bytes.fromhex("".join(REPORTS["sse-done-without-finish-reason"]["wire_hex"])))
    completion, ending = collected(chunks)
    assert completion.choices[0].message.content == "Hello"
    assert ending == Ending(False, True, None)
    events = decoded(chunks)
    assert not any(isinstance(event, Finish) for event in events)
    assert isinstance(events[-2], Failure)
    assert events[-2].code == "truncated"


def test_a_malformed_event_is_no_success() -> None:
    chunks = chunks_in(bytes.fromhex("".join(REPORTS["sse-malformed-last-chunk-swallowed"]["wire_hex"])))
    assert isinstance(chunks[-1], Done)
    _, ending = collected(chunks)
    assert ending.error is not None
    assert ending.error.body["error"]["code"] == "malformed_event"
    assert not ending.whole
    assert [event.complete for event in decoded(chunks) if isinstance(event, CallEnd)] == [False]


def test_a_bare_error_body_keeps_its_cause() -> None:
    report = REPORTS["sse-raw-json-error-body"]
    [error] = chunks_in(bytes.fromhex("".join(report["wire_hex"])))
    assert isinstance(error, ErrorChunk)
    assert error.status == 400
    for key, value in report["expected"]["error"].items():
        assert error.body["error"][key] == value
    for body in (b"", b"\n\n", b": keep-alive\n\n", b"<html>", b"data: {}"):
        assert chunks_in(body) == []


def test_an_error_in_the_stream_ends_it() -> None:
    chunks = read(REPORTS["in-band-error-with-empty-choices"]["bad_stream"])
    _, ending = collected(chunks)
    assert ending.error is not None
    *_, failure, end = decoded(chunks)
    assert isinstance(failure, Failure)
    assert (failure.message, end) == ("provider unavailable", End())


# --- smaller ones -----------------------------------------------------------------------------------------------------


def chunk(delta: Any = None, finish: str | None = None, index: Any = 0, **top: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    choice: dict[str, Any] = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **top}


def entry(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A delta with one entry of a call; ``name`` goes where it belongs."""
    function = {"name": fields.pop("name")} if "name" in fields else {}
    return {"tool_calls": [{**fields, "function": {**function, "arguments": arguments}}]}


def calls_of(deltas: list[Any], finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    """Ids, names and arguments of the calls in these deltas, which both readers agree upon."""
    chunks = read([*map(chunk, deltas), chunk(finish=finish), "[DONE]"])
    [choice] = collected(chunks)[0].choices
    [message] = collect(decoded(chunks))
    made = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    assert made == [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return made


CALLS: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "no index: ids tell": (
        [entry("{", id="a", name="f"), entry("}", id="a"), entry("{}", id="b", name="g")],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "no index, no id again: the last call": (
        [entry("{", id="a", name="f"), entry("}"), entry("{", id="b", name="g"), entry("}")],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "an index that is used again": (
        [entry("{}", index=0, id="a", name="f"), entry("{", index=0, id="b", name="g"), entry("}", index=0)],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "the id late": (
        [entry("", index=0, name="f"), entry("{}", index=0, id="a")], [("a", "f", "{}")],
    ),
    "the name late, and every time": (
        [entry("{", index=0, id="a"), entry("}", index=0, name="f"), entry("", index=0, id="a", name="f")],
        [("a", "f", "{}")],
    ),
    "nulls and empty texts": (
        [entry("{}", index=0, id="a", name="f", type=None), entry("", index=0, id="", name=""),
         entry(None, index=0, id=None, name=None)],
        [("a", "f", "{}")],
    ),
    "arguments as an object": ([entry({"a": [1, "é"]}, index=0, id="a", name="f")], [("a", "f", '{"a":[1,"é"]}')]),
    "no arguments at all": (
        [entry("", index=0, id="a", name="f"), entry("{}", index=1, id="b", name="g")],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "the index as text, from 1": (
        [entry("{", index="1", id="a", name="f"), entry("}", index="1")], [("a", "f", "{}")],
    ),
    "the deprecated twin": (
        [{"function_call": {"name": "f", "arguments": "{"}}, {"function_call": {"arguments": "}"}}],
        [("", "f", "{}")],
    ),
    "interleaved": (
        [entry('{"a":', index=0, id="a", name="f"), entry('{"b":', index=1, id="b", name="g"), {"content": "x"},
         entry("1}", index=0), entry("2}", index=1)],
        [("a", "f", '{"a":1}'), ("b", "g", '{"b":2}')],
    ),
    "an id of the Kimi family": (
        [entry("{}", index=0, id="functions.f:12", name="f")], [("functions.f:12", "f", "{}")],
    ),
    "not a list, not an object": (
        [{"tool_calls": {"index": 0}}, {"tool_calls": [3, None, {"index": 0, "id": 5, "function": "f"}]},
         entry("{}", index=0, id="a", name="f")],
        [("a", "f", "{}")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    deltas, want = CALLS[name]
    for finish in ("tool_calls", "function_call"):
        made = calls_of(deltas, finish)
        assert [call[1:] for call in made] == [call[1:] for call in want]
        for (number, *_), (wanted, *_) in zip(made, want, strict=True):
            # Where none was sent, one is made.
            assert number == wanted if wanted else number.startswith("call_")


def test_calls_without_any_id_get_different_ones() -> None:
    deltas = [entry("{}", index=0, name="f"), entry("{}", index=1, name="f")]
    (one, *_), (other, *_) = calls_of(deltas)
    assert one != other
    assert calls_of(deltas) == calls_of(deltas)


def test_the_name_of_reasoning_does_not_matter() -> None:
    for delta in ({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"reasoning": "hm", "reasoning_content": "hm"}):
        chunks = read(
            [chunk(delta), chunk({"content": "a", "reasoning_content": None}), chunk(finish="stop"), "[DONE]"]
        )
        [message] = collect(decoded(chunks))
        assert (message.reasoning, message.content) == ("hm", "a")


def test_text_on_the_finish_chunk_counts_and_text_behind_it_does_not() -> None:
    stream = [chunk({"content": "a"}), chunk({"content": "b"}, "stop"), chunk({"content": "c"}), "[DONE]", chunk({})]
    [message] = collect(decoded(read(stream)))
    assert message.content == "ab"


def test_a_usage_that_has_no_chunk_of_its_own() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": None}
    events = decoded(read([chunk({"content": "a"}), chunk(finish="stop", usage=usage), "[DONE]"]))
    assert events[-2:] == [Usage(3, 2), End()]
    completion, _ = collected(read([chunk({"content": "a"}), chunk(finish="stop", usage=usage), "[DONE]"]))
    assert completion.usage
    assert completion.usage.total_tokens == 5


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
def test_a_finish_that_is_a_failure(reason: str) -> None:
    events = decoded(read([chunk({"content": "a"}), chunk(finish=reason), "[DONE]"]))
    assert [type(event) for event in events[-2:]] == [Failure, End]
    assert not any(isinstance(event, Finish) for event in events)


def test_what_other_servers_name_the_stop_reason() -> None:
    for key in ("stop_reason", "matched_stop"):
        for value, want in (("###", ("stop", "###")), (7, ("stop_token", 7)), (None, ("eos", None))):
            last = chunk(finish="stop")
            last["choices"][0][key] = value
            [finish] = [event for event in decoded(read([chunk(), last, "[DONE]"])) if isinstance(event, Finish)]
            assert (finish.reason, finish.detail) == want


def test_half_a_pair_in_an_escape_is_a_replacement_character() -> None:
    """Servers that cut UTF-16 text anywhere send it. Whoever reads on must be able to write it down."""
    wire = read([chunk({"content": "\ud83d"}), chunk({"content": "\ude00"}), chunk(finish="stop"), "[DONE]"])
    machine = DECODER.start(opening_of(wire))
    [message] = collect(fold(machine, wire))
    assert message.content == "\ufffd\ufffd"
    assert msgspec.json.encode(machine.snapshot())
    assert msgspec.json.encode(read([{"error": {"message": "\ud83d", "code": "\ud83d"}}]))
    halves = entry({"a": "\ud83d"}, index=0, name="f", id="c")
    [call] = calls_of([halves])
    assert call[-1] == '{"a":"\\ud83d"}'


def test_arguments_that_cannot_be_written_again_are_none() -> None:
    """Objects that some readers take, and no writer: nested too deeply, numbers of thousands of digits."""
    for value in ('{"a":' * 980 + "1" + "}" * 980, '{"a":%s}' % ("1" * 4000)):
        deltas = json.dumps(chunk(entry("HERE", index=0, id="c", name="f"))).replace('"HERE"', value)
        assert msgspec.msgpack.encode(decoded([event_of(deltas), *read([chunk(finish="tool_calls"), "[DONE]"])]))


def test_what_json_does_not_have_is_read_all_the_same() -> None:
    text = '{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[%s,%s]},"finish_reason":null}]}'
    event = event_of(text % ('{"token":"a","logprob":-Infinity}', '{"token":"b","logprob":NaN}'))
    tokens = [event for event in decoded([event]) if isinstance(event, Tokens)]
    assert [each.logprob for each in tokens[0].logprobs] == [-9999.0, -9999.0]


def test_numbers_that_are_too_large_are_none() -> None:
    huge = 10**400
    usage = {"prompt_tokens": huge, "completion_tokens": 2, "total_tokens": 5}
    odd: dict[str, Any] = chunk({"content": "a"}, usage=usage) | {"created": huge, "metrics": {"queue_time_ms": huge}}
    odd["choices"][0] |= {"token_ids": [huge, 7], "stop_reason": huge, "logprobs": {"content": [{"logprob": huge}]}}
    wire = [*read([odd, chunk(finish="stop")]), Done()]
    events = decoded(wire)
    assert Usage(0, 2) in events
    assert not any(isinstance(event, TimingInput) for event in events)
    assert msgspec.msgpack.encode(events)
    assert collected(wire)[0].wire()


def test_a_running_count_makes_no_more_tokens_than_a_step_can_have() -> None:
    counts = (10**12, 10**12 + 3)
    usages = [{"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1} for count in counts]
    chunks = read([chunk({"content": "a"}, usage=usage) for usage in usages])
    sizes = [len(event.ids) for event in decoded(chunks) if isinstance(event, Tokens)]
    assert sizes == [65536, 3]


def test_nothing_of_a_choice_follows_the_failure_of_another() -> None:
    first = chunk({"content": "a"}, "abort")
    first["choices"].append({"index": 1, "delta": {"content": "b"}, "finish_reason": None})
    events = decoded(read([first, "[DONE]"]))
    assert [type(event) for event in events[-2:]] == [Failure, End]
    assert [event.choice for event in events if isinstance(event, Start)] == [0]


def test_white_space_is_no_arguments() -> None:
    wire = read([chunk(entry(" \n", index=0, name="f", id="c")), chunk(finish="tool_calls"), "[DONE]"])
    [choice] = collected(wire)[0].choices
    [message] = collect(decoded(wire))
    assert [call.function.arguments for call in choice.message.tool_calls or ()] == [" \n{}"]
    assert [call.arguments for call in message.tool_calls] == [" \n{}"]


class Watched(str):
    """A text that counts how often one of its kind is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Watched.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_call_is_found_without_a_look_at_every_other() -> None:
    calls = Calls()
    places = [calls.add(ToolCallDelta(-1, Watched(f"c{number}"))) for number in range(500)]
    assert places == [*range(500)]
    assert calls.add(ToolCallDelta(-1, Watched("c7"))) == 7
    assert Watched.compared < 5000
