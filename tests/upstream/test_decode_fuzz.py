"""Any response is read: nothing raises, the events keep to their grammar, and a machine continues from any snapshot."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.events import AbortInput, Block, Body, Comment, End, ErrorInput, Failure, Frame, Head, Semantic
from stages.protocols.openai_chat import ChatDecoder, chunk_of
from stages.protocols.openai_completions import chunk_of as completion_chunk_of
from stages.stage import fold
from stages.upstream.decode import DECODERS, Upstream
from stages.upstream.quick import chat_chunk, completion_chunk
from tests.support.decoding import (
    CHUNK,
    COMPLETION,
    EVENT,
    EVENTS,
    JUNK,
    TEXT_CHUNK,
    WHOLES,
    check_grammar,
    odd,
    opening,
    read,
)

PROTOCOLS = sorted(EVENTS)
SSE = Head(200, (("content-type", "text/event-stream"),))
LASTS: list[Upstream] = [End(), ErrorInput("timeout", "late", "upstream_token_timeout"), AbortInput("client")]


def checked(protocol: str, frames: list[Upstream]) -> list[Semantic]:
    """What is read of a response, which is good, and the same after every snapshot."""
    events = read(protocol, frames)
    check_grammar(events, left=isinstance(frames[-1], AbortInput))
    assert [type(event) for event in events].count(Failure) <= 1
    assert msgspec.msgpack.encode(events)
    stage = DECODERS[protocol]
    machine = stage.start(opening(protocol))
    told: list[Semantic] = []
    snapshots: list[tuple[Any, int]] = []
    for frame in frames:
        snapshots.append((machine.snapshot(), len(told)))
        machine.step(frame, told)
    assert told == events
    for place, (snapshot, size) in enumerate(snapshots):
        kind: Any = snapshot.reader.__class__
        reader = msgspec.json.decode(msgspec.json.encode(snapshot.reader), type=kind)
        stored = msgspec.structs.replace(snapshot, reader=reader)
        assert fold(stage.resume(opening(protocol), stored), frames[place:]) == events[size:]
    machine.step(frames[-1], told)
    assert told == events
    return events


def block(text: str, name: str, style: str) -> bytes:
    """An event, as servers may write it."""
    fields = [f"event: {name}"] if name else []
    if style == "lines":
        # The text is JSON: where a comma stands outside its strings, a line may end.
        fields += [f"data: {line}" for line in text.replace(", ", ",\n").split("\n")]
    elif style == "tight":
        fields += [f"data:{text}", ": a comment", "id: 7"]
    else:
        fields.append(f"data: {text}")
    end = {"crlf": "\r\n", "cr": "\r"}.get(style, "\n")
    return "".join(field + end for field in [*fields, ""]).encode("utf-8", "surrogatepass")


STYLES = st.sampled_from(["lf", "lf", "crlf", "cr", "lines", "tight"])
NAMES = st.sampled_from(["", "", "message", "error", "ping"])


@settings(max_examples=60)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.data())
def test_any_events(protocol: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(odd(EVENTS[protocol]), max_size=8))
    texts = [json.dumps(value, ensure_ascii=data.draw(st.booleans())) for value in values]
    if data.draw(st.booleans()):
        texts.append("[DONE]")
    blocks: list[Upstream] = [Block(block(text, data.draw(NAMES), data.draw(STYLES))) for text in texts]
    blocks.insert(data.draw(st.integers(0, len(blocks))), Comment(b": keep-alive\n\n"))
    checked(protocol, [SSE, *blocks, data.draw(st.sampled_from(LASTS))])


@settings(max_examples=30)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.data())
def test_how_an_event_is_written_does_not_matter(protocol: str, data: st.DataObject) -> None:
    texts = [json.dumps(value) for value in data.draw(st.lists(EVENTS[protocol], max_size=6))]
    plain: list[Upstream] = [SSE, *(Block(block(text, "", "lf")) for text in texts), End()]
    other: list[Upstream] = [SSE, *(Block(block(text, "", data.draw(STYLES))) for text in texts), End()]
    assert read(protocol, plain) == read(protocol, other)
    body = b"".join(frame.data for frame in plain if isinstance(frame, Block))
    if texts:
        assert read(protocol, [Head(200, ()), Body(body), End()]) == read(protocol, plain)


@settings(max_examples=50)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.data(), st.sampled_from([200, 400, 500]))
def test_any_whole_body(protocol: str, data: st.DataObject, status: int) -> None:
    value = data.draw(odd(WHOLES[protocol]) | st.fixed_dictionaries({"error": JUNK}))
    events = checked(protocol, [Head(status, ()), Body(json.dumps(value).encode()), data.draw(st.sampled_from(LASTS))])
    if status >= 400:
        assert [type(event) for event in events] == [Failure, End]


FRAME: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Head, st.sampled_from([200, 404, 503]), st.just(())),
    st.builds(Block, st.binary(max_size=30)),
    st.builds(Block, st.sampled_from([b"data: {\n", b"}\n\n", b"\n\n", b"data: [DONE]\n\n", b"\xef\xbb\xbfdata\r\r"])),
    st.builds(Comment, st.just(b":\n\n")),
    st.builds(Body, st.binary(max_size=30)),
)  # fmt: skip


@settings(max_examples=80)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.lists(FRAME, max_size=6), st.sampled_from(LASTS))
def test_any_frames(protocol: str, frames: list[Upstream], last: Upstream) -> None:
    checked(protocol, [*frames, last])


# --- the quick way ----------------------------------------------------------------------------------------------------


def events_of(chunks: list[Any]) -> list[Semantic]:
    return fold(ChatDecoder(exact=True).start(opening("chat")), [*chunks, End()])


@settings(max_examples=150)
@given(st.lists(CHUNK | EVENT, max_size=5))
def test_the_quick_way_says_the_same_of_chat(values: list[Any]) -> None:
    lenient = [chunk_of(value) for value in values]
    assert events_of([chat_chunk(value) or chunk for value, chunk in zip(values, lenient, strict=True)]) == events_of(
        lenient
    )


@settings(max_examples=80)
@given(st.lists(TEXT_CHUNK | COMPLETION, max_size=5))
def test_the_quick_way_says_the_same_of_completions(values: list[Any]) -> None:
    lenient = [completion_chunk_of(value) for value in values]
    quick = [completion_chunk(value) or chunk for value, chunk in zip(values, lenient, strict=True)]
    assert events_of(quick) == events_of(lenient)
