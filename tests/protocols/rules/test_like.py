"""Chunks that are like the one before but for a text are read the short way, and judged as if they were read whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.protocols.rules import EngineChoice, EngineFacts, Evidence, Report, check
from stages.protocols.rules.chat_view import ChatView, view
from stages.protocols.rules.reading import Event, Reading

HEAD = '{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":['
TEXTS = (
    '"a"',
    '"b c"',
    '""',
    r'"\n\""',
    r'"\u0041"',
    '"é"',
    r'"\ud800"',
    '"\\u0000"',
    '"�"',
    '" "',
    "1",
    '"a" ',
    '"}"',
)
"""JSON values, most of them strict ones."""
DELTAS = (
    '{"content":%}', '{"reasoning":%}', '{"reasoning_content":%}', '{"reasoning":%,"reasoning_content":%}',
    '{"content":%,"refusal":%}', '{"role":%}', '{"role":"assistant","content":%}', '{"extra":%}', '{"refusal":%}',
    '{"tool_calls":[{"index":0,"function":{"arguments":%}}]}',
    '{"tool_calls":[{"index":1,"function":{"arguments":%}}]}',
    '{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":%}}]}',
    '{"tool_calls":[{"index":1,"id":"d","type":"function","function":{"name":"f","arguments":%}}]}',
    '{"tool_calls":[{"index":2,"id":"e","type":"custom","custom":{"name":"f","input":%}}]}',
    '{"tool_calls":[{"index":2,"function":{"arguments":%}}]}',
)  # fmt: skip
CHOICES = (
    '{"index":0,"delta":%,"logprobs":null,"finish_reason":null}', '{"index":1,"delta":%,"finish_reason":null}',
    '{"index":0,"delta":%}', '{"index":0,"delta":%,"finish_reason":"stop"}', '{"delta":%,"finish_reason":null}',
    '{"index":0,"x":{"delta":%},"delta":null,"finish_reason":null}',
    '{"index":0,"delta":%,"finish_reason":null,"token_ids":[1]}',
)  # fmt: skip
FRAMES = (
    HEAD + "%]}", HEAD + '%],"usage":null}', HEAD + '%],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    HEAD + '%],"prompt_token_ids":[1]}', HEAD + '%],"error":{"message":"x"}}', HEAD + "%,%]}", HEAD + '%],"id":"b"}',
    HEAD.replace('"created":1', '"created":1.5') + "%]}", HEAD.replace('"m"', '"n"') + "%]}", "{}", "[DONE]", "[%]",
)  # fmt: skip
ODD = (": hm", "event: x\ndata: {}", "data:{}", "id: 4")


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Frames of a few forms, each a few times in a row with another text."""
    blocks: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 9)) == 0:
            blocks.append(draw(st.sampled_from(ODD)))
        # The first forms, which are the usual ones, more often.
        frame = draw(st.sampled_from(FRAMES[:1] * 12 + FRAMES))
        choice = draw(st.sampled_from(CHOICES[:1] * 9 + CHOICES))
        delta = draw(st.sampled_from(DELTAS))
        form = "data: " + frame.replace("%", choice).replace("%", delta)
        texts = draw(st.lists(st.sampled_from(TEXTS[:2] * 6 + TEXTS), min_size=1, max_size=4))
        blocks += (form.replace("%", text) for text in texts)
    return "".join(f"{block}\n\n" for block in blocks).encode()


def shape(made: Any) -> Any:
    """As plain data, to be compared: an event is its number and its text."""
    if isinstance(made, Event):
        return made.number, made.byte, made.text, made.name
    if isinstance(made, msgspec.Struct):
        return [shape(getattr(made, name)) for name in made.__struct_fields__]
    return _SHAPES.get(made.__class__, _same)(made)


def _same(made: Any) -> Any:
    return made


def _items(made: Iterable[Any]) -> Any:
    return [shape(one) for one in made]


def _pairs(made: dict[Any, Any]) -> Any:
    return [(shape(key), shape(value)) for key, value in made.items()]


def _fields(made: ChatView) -> Any:
    return _pairs({key: value for key, value in vars(made).items() if not key.startswith("_")})


_SHAPES: dict[type, Callable[[Any], Any]] = {list: _items, tuple: _items, dict: _pairs, ChatView: _fields}


def judged(body: bytes, *, own: bool) -> Report:
    engine = EngineFacts({0: EngineChoice((1, 2), "eos", pieces=(b"a", b"b"))}, markers=("a",))
    return check(Evidence(body=body, own=own, request={"stream": True, "n": 2}, engine=engine, effort=True), keep=999)


def read_whole(patch: pytest.MonkeyPatch) -> None:
    """Every block is read by itself."""

    def none(_event: Event, _piece: bytes) -> None:
        return None

    patch.setattr("stages.protocols.rules.reading._mould_of", none)


@given(bodies(), st.booleans())
def test_it_is_judged_as_if_it_were_read_whole(body: bytes, own: bool) -> None:
    short = Reading(body)
    found, digest = judged(body, own=own), shape(short.view(view))
    with pytest.MonkeyPatch.context() as patch:
        read_whole(patch)
        whole = Reading(body)
        assert not any(event.said for event in whole.events)
        assert [(event.value, event.problem) for event in short.events] == [
            (event.value, event.problem) for event in whole.events
        ]
        assert shape(short.events) == shape(whole.events)
        assert digest == shape(whole.view(view))
        assert found == judged(body, own=own)


def body_of(*texts: str, delta: str = DELTAS[0], frame: str = FRAMES[0]) -> bytes:
    frames = (frame.replace("%", CHOICES[0]).replace("%", delta).replace("%", text) for text in texts)
    return "".join(f"data: {frame}\n\n" for frame in frames).encode()


def test_which_are_read_so() -> None:
    assert [event.said for event in Reading(body_of('"a"', '"b"', '""', '"c"', '"d"')).events] == [
        "", "b", "", "c", "d",
    ]  # fmt: skip
    for delta in (DELTAS[3], DELTAS[9]):
        assert [event.said for event in Reading(body_of('"a"', r'"\n"', '"}"', delta=delta)).events] == ["", "\n", "}"]
    # An escape that nobody needs is strict, but not as it would be written: such a chunk is read whole.
    assert [event.said for event in Reading(body_of('"a"', r'"\u0041"', '"b"')).events] == ["", "", "b"]


def test_what_is_noted_of_every_chunk_is_noted_of_these() -> None:
    role = body_of('"assistant"', delta=DELTAS[5])
    made = Reading(role + body_of('"a"', '"b"', '"c"', frame=FRAMES[2])).view(view)
    assert len(made.usage) == len(made.choices[0].running) == 3
    assert len(Reading(role + body_of('"a"', '"b"', '"c"', frame=FRAMES[3])).view(view).prompts) == 3
    assert len(Reading(role + body_of('"a"', '"b"', '"c"', frame=FRAMES[7])).view(view).envelopes) == 4


def test_arguments_of_an_earlier_call_are_its_own() -> None:
    heads = body_of('"assistant"', delta=DELTAS[5]) + body_of('""', delta=DELTAS[11]) + body_of('""', delta=DELTAS[12])
    body = heads + body_of('"a"', '"b"', delta=DELTAS[9]) + body_of('"x"', '"y"', delta=DELTAS[10])
    made = Reading(body).view(view).choices[0]
    assert [call.arguments for call in made.said.calls] == ["ab", "xy"]
    assert [(number, before) for _, number, before in made.back] == [(0, 1)]
    free = body_of('""', delta=DELTAS[13]) + body_of('"a"', '"b"', delta=DELTAS[14])
    assert len(Reading(heads + free).view(view).choices[0].bare) == 2


def test_two_texts_that_should_be_the_same_are_not() -> None:
    body = body_of('"a"', '"a"', delta=DELTAS[3]) + body_of('"ab"', delta=DELTAS[3]).replace(b'"ab"', b'"xy"', 1)
    assert [event.said for event in Reading(body).events] == ["", "a", ""]
    assert judged(body, own=True).counts["INV-054"] == 1


def test_many_forms_and_long_texts_take_linear_time() -> None:
    # A form that fits nothing is dropped; what a text holds is never searched twice.
    text = '"' + "\\\\" * 200_000 + '"'
    events = Reading(body_of(*([text] * 4), text[:-1])).events
    assert [len(event.said) for event in events] == [0, 200_000, 200_000, 200_000, 0]
