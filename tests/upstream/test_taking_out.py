"""Token ids taken out of chat responses: against vLLM's and our own answers without them, and any JSON."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.events import Block, Body, End, Failure, Frame, Head, Semantic, Start, TimingInput, TokenLogprob, Tokens
from stages.opening import Ask
from stages.sse import SseDecoder
from stages.stage import fold
from stages.upstream.frames import FrameSplitter
from stages.upstream.relay import RELAY
from stages.upstream.taking_out import How, body_without_ids, without_ids
from tests.support.chat import CASES, DATA, body_of, frames_of
from tests.support.relay import opening

HOWS: tuple[How, How] = ("null", "absent")


# --- vLLM: the same script asked for with and without ids -------------------------------------------------------------


class Pair(msgspec.Struct, frozen=True):
    """Two answers of vLLM 0.33 to one request, with ``return_token_ids`` and without."""

    name: str
    stream: bool
    injected: str
    plain: str


@cache
def pairs() -> dict[str, Pair]:
    lines = (DATA / "relay_pairs.jsonl").read_bytes().split(b"\n")
    found = [msgspec.json.decode(line, type=Pair) for line in lines if line]
    return {f"{pair.name}{'' if pair.stream else ' (whole)'}": pair for pair in found}


def relayed(pair: Pair) -> bytes:
    body = pair.injected.encode()
    kind = "text/event-stream; charset=utf-8" if pair.stream else "application/json"
    frames: list[Frame] = [Head(200, (("content-type", kind), ("content-length", str(len(body)))))]
    splitter = FrameSplitter()
    frames += [*splitter.feed(body), *splitter.end()] if pair.stream else [Body(body)]
    head, *rest = fold(RELAY.start(opening(taken_out="null")), [*frames, End()])
    made = body_of(rest)
    assert isinstance(head, Head)
    assert dict(head.headers).get("content-length") == (None if pair.stream else str(len(made)))
    return made


def same(body: bytes | str) -> str:
    """Without what differs between two answers to one request: the ids of the answer and of its calls, the time."""
    text = body if isinstance(body, str) else body.decode()
    text = re.sub(r'"id":"chatcmpl-[0-9a-f]+"', '"id":"…"', text)
    text = re.sub(r'"id":"chatcmpl-tool-[^"]+"|(?<="tool_calls":\[\{)"id":"[^"]+"', '"id":"…"', text)
    return re.sub(r'"created":\d+', '"created":0', text)


@pytest.mark.parametrize("name", pairs())
def test_the_client_gets_what_it_would_have_got(name: str) -> None:
    pair = pairs()[name]
    got, want = same(relayed(pair)), same(pair.plain)
    if name == "vllm_mistral-tool_parallel":
        # Its parser sends one chunk of its own that says nothing; nobody can tell it from those sent for their ids.
        blocks = want.split("\n\n")
        assert blocks.pop(12).count('"delta":{},"logprobs":null,"finish_reason":null') == 1
        want = "\n\n".join(blocks)
    assert got == want


def test_pairs_are_of_every_kind() -> None:
    assert len([pair for pair in pairs().values() if pair.stream]) == 22
    assert len([pair for pair in pairs().values() if not pair.stream]) == 4


# --- our own encoder, asked with and without --------------------------------------------------------------------------


def with_tokens(events: list[Semantic], logprobs: bool) -> list[Semantic]:
    """The events with tokens before each, some of which bring no text, prompt ids at the start, and times."""
    made: list[Semantic] = []
    for place, event in enumerate(events):
        choice = getattr(event, "choice", 0)
        entry = (TokenLogprob(7, b'"token_ids":[7]', -0.5),) if logprobs else ()
        if place and not isinstance(event, Start | End):
            made += [Tokens(choice, (7,), entry), Tokens(choice, (8 + place, 9), entry * 2)]
        made.append(msgspec.structs.replace(event, prompt_ids=(5, 6)) if isinstance(event, Start) else event)
    return [*made[:-1], TimingInput("ttft", 5_000_000), *made[-1:]]


EMPTY: tuple[Ask, list[Semantic]] = (Ask(stream=True), [*CASES["G01"][1][:1], *CASES["G01"][1][-3:]])
REFUSED: tuple[Ask, list[Semantic]] = (Ask(stream=True), [Failure("bad_request", "no"), End()])
ALL = {**CASES, "empty": EMPTY, "refused": REFUSED}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reasoning", [True, False])
@pytest.mark.parametrize("usage", ["", "last", "each"])
@pytest.mark.parametrize("logprobs", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_playhead_behind_playhead(name: str, logprobs: bool, usage: str, reasoning: bool, stream: bool) -> None:
    ask, events = ALL[name]
    ask = msgspec.structs.replace(
        ask, stream=stream, logprobs=logprobs, include_reasoning=reasoning, include_usage=bool(usage),
        continuous_usage=usage == "each", metrics=bool(usage),
    )  # fmt: skip
    events = with_tokens(events, logprobs)
    asked = frames_of(msgspec.structs.replace(ask, return_token_ids=True), events)
    plain = frames_of(ask, events)
    assert (asked == plain) is (name == "refused" or (name == "G05" and not stream))
    assert fold(RELAY.start(opening(taken_out="absent")), [*asked, End()]) == plain


# --- any JSON ---------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["token_ids", "prompt_token_ids", "choices", "delta", "a", 'x"token_ids', "é"])
TEXTS = st.sampled_from(["", '"token_ids":[1]', ',"token_ids":[1],', "\\", '\\"token_ids":[1]}', "]}", "\n", "…"])
ODD: list[Any] = [None, 1, "[1]", [[1], {}], {"token_ids": [1]}]
IDS: st.SearchStrategy[Any] = st.lists(st.integers(0, 9), max_size=3) | st.sampled_from(ODD)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS | IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
DELTAS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"content": TEXTS}, optional={"token_ids": IDS}
) | st.dictionaries(KEYS, VALUES)


def shuffled(fields: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return fields.flatmap(lambda found: st.permutations(list(found.items())).map(dict))


CHOICES = shuffled(
    st.fixed_dictionaries(
        {"delta": DELTAS, "token_ids": IDS},
        optional={"finish_reason": st.sampled_from([None, "stop"]), "logprobs": st.none() | VALUES, "a": VALUES},
    )
)
CHUNKS = shuffled(
    st.fixed_dictionaries(
        {"choices": st.lists(CHOICES, max_size=3)}, optional={"prompt_token_ids": IDS, "a": VALUES, "token_ids": IDS}
    )
)


def taken(chunk: Any, how: How) -> Any:
    """The chunk without its ids, by the definition."""

    def kept(fields: dict[str, Any], name: str) -> dict[str, Any]:
        gone = isinstance(fields.get(name), list)
        if how == "absent":
            return {key: value for key, value in fields.items() if not (gone and key == name)}
        return {key: None if gone and key == name else value for key, value in fields.items()}

    return {
        key: [kept(choice, "token_ids") for choice in value] if key == "choices" else value
        for key, value in kept(chunk, "prompt_token_ids").items()
    }


def says_nothing(chunk: Any) -> bool:
    return bool(chunk["choices"]) and all(
        choice["delta"] == {} and choice.get("finish_reason") is None and choice.get("logprobs") is None
        for choice in chunk["choices"]
    )


@given(CHUNKS, st.sampled_from(HOWS), st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]), st.booleans())
@example({"choices": [{"delta": {}, "token_ids": [1]}]}, "null", (",", ":"), True)
@example({"choices": [{"delta": {"content": '"token_ids":[1]'}, "token_ids": [1]}]}, "absent", (",", ":"), True)
@example({"choices": [{"delta": {"token_ids": [1]}, "token_ids": None}]}, "null", (",", ":"), True)
def test_nothing_else_is_touched(chunk: Any, how: How, separators: tuple[str, str], ascii_only: bool) -> None:
    def written(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode()

    body, want = written(chunk), written(taken(chunk, how))
    if how == "null" or separators[0][0] == ",":
        assert body_without_ids(body, how) == want
    else:
        assert json.loads(body_without_ids(body, how)) == taken(chunk, how)
    if b"token_ids" in body and says_nothing(chunk):
        assert without_ids(b"data: " + body + b"\n\n", how) is None
    elif how == "null" or separators[0][0] == ",":
        assert without_ids(b"data: " + body + b"\n\n", how) == b"data: " + want + b"\n\n"


@given(CHUNKS, st.sampled_from(HOWS), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_data_of_several_lines(chunk: Any, how: How, end: str, marked: bool) -> None:
    lines = json.dumps(chunk, indent=1).split("\n")
    text = (
        ": token_ids" + end + "".join(f"data:{' ' if place % 2 else ''}{line}{end}" for place, line in enumerate(lines))
    )
    block = (b"\xef\xbb\xbf" if marked else b"") + f"{text}id: 7{end}{end}".encode()
    made = without_ids(block, how)
    if says_nothing(chunk):
        assert made is None
        return
    assert made is not None
    (event,) = SseDecoder().feed(made)
    assert json.loads(event.data) == taken(chunk, how)
    assert event.id == "7"


@pytest.mark.parametrize(
    ("body", "how", "want"),
    [
        (
            b'{"choices":[{"token_ids":[1],"token_ids":[2]}]}', "null",
            b'{"choices":[{"token_ids":null,"token_ids":null}]}',
        ),
        (b'{"choices":[{"token_ids":[1],"token_ids":[2]}]}', "absent", b'{"choices":[{}]}'),
        (b'{"choices":[{ "token_ids" : [1] , "a" : 1 }]}', "absent", b'{"choices":[{ "a" : 1 }]}'),
        (b'{"choices":[{ "a" : 1 , "token_ids" : [1] }]}', "absent", b'{"choices":[{ "a" : 1  }]}'),
        (b'{"choices":[{"a":NaN,"token_ids":[1]}]}', "null", b'{"choices":[{"a":NaN,"token_ids":null}]}'),
        (b'[{"choices":[{"token_ids":[1]}]}]', "null", None),
        (b'{"choices":{"0":{"token_ids":[1]}}}', "null", None),
        (b'{"choices":[[{"token_ids":[1]}]]}', "null", None),
        (b'{"a":{"prompt_token_ids":[1]}}', "null", None),
        (b'{"choices":[{"token_ids":[1,2', "null", None),
        (b'{"choices":[{"token_ids":[1,2]', "null", None),
        (b'{"choices":[{"token_ids":[1,2],"a":', "null", b'{"choices":[{"token_ids":null,"a":'),
        (b'"token_ids":[1],', "absent", None),
        (b'}]}],"token_ids":[1],}', "absent", None),
        (b'{"choices":[{"a":"token_ids', "absent", None),
        (b'{"choices":[{"a":"\\', "absent", None),
        (b"\xfe\xfftoken_ids\0\xff", "absent", None),
    ],
)  # fmt: skip
def test_odd_bodies(body: bytes, how: How, want: bytes | None) -> None:
    assert body_without_ids(body, how) == (body if want is None else want)
    assert without_ids(b"data: " + body, how) == b"data: " + (body if want is None else want)


@pytest.mark.parametrize(
    "block",
    [
        b'data: {"choices":[{"delta":{},"logprobs":{"content":[]},"finish_reason":null,"token_ids":null}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","token_ids":null}]}\n\n',
        b'data: {"choices":[],"token_ids":null}\n\n',
        b'data: {"choices":null,"token_ids":null}\n\n',
        b'data: {"choices":[{"delta":null,"token_ids":null}]}\n\n',
        b'data: {"choices":[{"delta":"","token_ids":null}]}\n\n',
        b'data: {"choices":[{"token_ids":null}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"token_ids"}}]}\n\n',
        b"data: [DONE]\n\n",
        b": token_ids\n\n",
    ],
)
def test_a_block_that_says_something_stays_itself(block: bytes) -> None:
    assert without_ids(block, "null") is block
    frames: list[Frame] = [Head(200, (("content-type", "text/event-stream"),)), Block(block)]
    assert fold(RELAY.start(opening(taken_out="null")), frames) == frames


SCRAPS = (
    b'"', b"\\", b"token_ids", b'"token_ids":', b"[", b"]", b"{", b"}", b",", b":", b" ", b'{"choices":[{', b"data: ",
    b"\n", b"1",
)  # fmt: skip


@given(st.lists(st.sampled_from(SCRAPS)).map(b"".join), st.sampled_from(HOWS))
def test_total_on_what_is_no_json(body: bytes, how: How) -> None:
    assert isinstance(body_without_ids(body, how), bytes)
    assert isinstance(without_ids(body, how), bytes | None)


def test_large_bodies_take_linear_time() -> None:
    """As long as it takes: quadratic time would be hours."""
    ids = "[" + ",".join(["123456"] * 100_000) + "]"
    entry = '{"token":"a","token_ids":[1]}'
    body = '{"prompt_token_ids":%s,"choices":[{"logprobs":[%s],"token_ids":%s}]}'
    many = ",".join([entry] * 20_000)
    assert body_without_ids((body % (ids, many, ids)).encode(), "null") == (body % ("null", many, "null")).encode()
    escaped = b'{"choices":[{"token_ids":"' + b'\\"' * 1_000_000
    assert body_without_ids(escaped, "null") == escaped
