"""Whatever the body is, the rules raise nothing, point into it, and their report can be written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stages.protocols.rules import PROTOCOLS, EngineChoice, EngineFacts, Evidence, Http, Sent, Write, Writes, check
from stages.protocols.rules.reading import Reading
from tests.support.wire import GOLDENS, golden

PARTS = [
    b"\n", b"\n\n", b"\r", b"\r\n", b"data: ", b"data", b"event: a\n", b"id: 1\n", b"retry: 5\n", b": ka\n\n", b"{}",
    b"\xef\xbb\xbf", b"data: [DONE]\n\n", b'data: {"a":1}\n\n', b"\xff", b"\xe2\x82", b"data: 1\n\n", b"data: [1]\n\n",
    b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n', b'data: {"choices":[{"index":0,"text":"x"}]}\n\n',
    b'event: error\ndata: {"type":"error","error":{}}\n\n', b'data: {"error":{"message":"x"}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]  # fmt: skip
BODIES = st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join) | st.binary(max_size=60)
ODD: list[Any] = [
    None, True, -1, 0, 1, 1.5, 1e308, float("inf"), float("nan"), 1 << 80, "", "x", "\ud83d", "\ufffd", "{", "stop", [],
    [None], ["x"], {}, {"index": 0}, [[]], [{}], {"text": 1}, {"type": "error"}, {"message": "m"}, {"\udc00": 0},
    [{"index": 1, "delta": {}}], [{"id": None, "index": -1}],
]  # fmt: skip
REQUESTS = st.dictionaries(
    st.sampled_from(
        ["n", "tools", "tool_choice", "stop", "stop_sequences", "stream_options", "logprobs", "top_logprobs", "echo",
         "prompt", "include", "parallel_tool_calls", "max_tokens", "max_completion_tokens", "max_output_tokens",
         "include_reasoning", "return_token_ids", "functions", "response_format", "skip_special_tokens"]
    ),
    st.sampled_from(ODD),
    max_size=5,
)  # fmt: skip
FACTS: dict[str, Any] = {
    "http": Http(200, (("content-type", "text/event-stream"),), (("accept", "*/*"),)),
    "writes": Writes([Write(0, 10), Write(5, 99), Write(4, 7), Write(9, 10**9)], begun=1, ended=0, keep_alive=1),
    "engine": EngineFacts({0: EngineChoice((1, 2), "length", 2, (b"a", b"\xff"))}, 9, (1, 2, 3), ("<a>",), True),
    "meant": (),
    "whole": b'{"choices":[{"index":0,"message":{"content":"x"}}]}',
    "replayed": b"data: {}\n\n",
    "sent": Sent(5, "00"),
    "effort": True,
}


def judged(**facts: Any) -> None:
    """Check, and what holds of all reports."""
    evidence = Evidence(**facts)
    report = check(evidence)
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report
    for violation in report.violations:
        assert 0 <= violation.byte <= len(evidence.body)
        assert violation.frame >= -1
        assert 0 < len(violation.seen) <= 400
        assert violation.want
        assert "\n" not in violation.seen


@given(BODIES, st.sampled_from(PROTOCOLS), st.booleans(), st.none() | REQUESTS, st.none() | BODIES)
def test_any_bytes(body: bytes, protocol: str, own: bool, request: Any, other: bytes | None) -> None:
    asked = None if request is None else {"stream": True, **request}
    more: dict[str, Any] = {} if other is None else {**FACTS, "whole": other, "other": ("messages", other)}
    judged(body=body, protocol=protocol, own=own, request=asked, **more)


# --- golden streams with faults ---------------------------------------------------------------------------------------


def read(body: bytes) -> list[list[Any]]:
    """Name and value of each event."""
    return [[event.name, event.text if event.value is msgspec.UNSET else event.value] for event in Reading(body).events]


def write(events: list[Any]) -> bytes:
    """A body of what ``read`` gave, or of what became of it."""
    blocks: list[str] = []
    for name, value in events:
        head = f"event: {name}\n" if isinstance(name, str) and name.isascii() else ""
        blocks.append(f"{head}data: {value if value == '[DONE]' else json.dumps(value, separators=(',', ':'))}\n\n")
    return "".join(blocks).encode()


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value."""
    keys: list[Any] = []
    if value.__class__ is dict:
        keys = list(value)
    elif value.__class__ is list:
        keys = list(range(len(value)))
    return [path, *(found for key in keys for found in paths(value[key], (*path, key)))]


BODY = {name: golden(name).body for name in GOLDENS}
PLACES = {
    name: [path for path in paths(read(body)) if len(path) == 1 or path[1:2] == (1,)] for name, body in BODY.items()
}
CHANGES = ["drop", "double", "swap", "retype"]


@given(st.data())
def test_golden_streams_with_faults(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(GOLDENS))
    events = read(BODY[name])
    for _ in range(data.draw(st.integers(0, 3))):
        change(events, data.draw(st.sampled_from(PLACES[name])), data.draw(st.sampled_from(CHANGES)), data)
    body = write(events)
    body = body[: data.draw(st.none() | st.integers(0, len(body)))]
    stream = golden(name)
    request = {**stream.request, **data.draw(REQUESTS)}
    more: dict[str, Any] = {**FACTS, "whole": body, "replayed": BODY[name], "other": (stream.protocol, BODY[name])}
    facts: dict[str, Any] = more if data.draw(st.booleans()) else {}
    judged(body=body, protocol=stream.protocol, own=data.draw(st.booleans()), request=request, **facts)


def change(events: list[Any], path: tuple[Any, ...], how: str, data: st.DataObject) -> None:
    """One fault at a place, if that is still there."""
    holder: Any = events
    try:
        for key in path[:-1]:
            holder = holder[key]
        value = holder[path[-1]]
    except (KeyError, IndexError, TypeError):
        return
    if holder.__class__ is str:
        return
    if len(path) == 1 and how == "retype":
        how = "drop"
    if how == "retype" or (how == "drop" and len(path) == 2):
        holder[path[-1]] = data.draw(st.sampled_from(ODD))
    elif how == "drop":
        del holder[path[-1]]
    elif holder.__class__ is list and len(path) != 2:
        other = data.draw(st.integers(0, len(holder) - 1))
        if how == "double":
            holder.insert(other, value)
        else:
            holder[path[-1]], holder[other] = holder[other], value
