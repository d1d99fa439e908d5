"""Streams of any server, as odd as they may be, and the grammar of what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    Failure,
    Fault,
    Finish,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Start,
)
from stages.opening import Opening
from stages.stage import fold
from stages.upstream.decode import DECODERS, Upstream


def opening(protocol: str) -> Opening:
    """One of a session of this protocol."""
    return Opening(session="s", key="k", response_id="r", created=0, opened=0, model="m", protocol=protocol)


def read(protocol: str, frames: Sequence[Upstream]) -> list[Semantic]:
    """What a response says."""
    return fold(DECODERS[protocol].start(opening(protocol)), frames)


TEXT = st.sampled_from(["", "a", "é", "{}", '{"a":', "1}", " "])
SCALAR = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | TEXT
JUNK: st.SearchStrategy[Any] = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=4
)


def odd(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what it should be."""
    return strategy | strategy | strategy | JUNK


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object that may lack any key."""
    return st.fixed_dictionaries({}, optional={name: odd(value) for name, value in fields.items()})


INDEX = st.sampled_from([0, 0, 1, 2, "1", 1.0, -1, 10**9])
FUNCTION = some(name=st.sampled_from(["f", "g", ""]), arguments=TEXT | st.dictionaries(TEXT, SCALAR, max_size=1))
ENTRY = some(index=INDEX, id=st.sampled_from(["a", "b", ""]), type=st.just("function"), function=odd(FUNCTION))
DELTA = some(
    role=st.just("assistant"), content=TEXT, refusal=TEXT, reasoning=TEXT, reasoning_content=TEXT,
    tool_calls=st.lists(odd(ENTRY), max_size=2), function_call=odd(FUNCTION),
)  # fmt: skip
ITEM = some(token=TEXT, logprob=st.floats(), bytes=st.lists(st.integers(-1, 256), max_size=2), top_logprobs=JUNK)
CHOICE = some(
    index=INDEX, delta=DELTA, finish_reason=st.sampled_from([None, None, "stop", "tool_calls", "length", "error"]),
    logprobs=some(content=st.lists(ITEM, max_size=2)), token_ids=st.lists(st.integers(0, 9), max_size=2),
    stop_reason=SCALAR, matched_stop=SCALAR,
)  # fmt: skip
USAGE = some(
    prompt_tokens=st.integers(-1, 9), completion_tokens=st.integers(-1, 9), total_tokens=SCALAR,
    completion_tokens_details=some(reasoning_tokens=SCALAR), prompt_tokens_details=some(cached_tokens=SCALAR),
)  # fmt: skip
EVENT = some(
    id=TEXT, created=SCALAR, model=TEXT, choices=st.lists(odd(CHOICE), max_size=2), usage=USAGE,
    metrics=some(mean_itl_ms=SCALAR), prompt_token_ids=st.lists(SCALAR, max_size=2),
)  # fmt: skip
"""An event of a stream of chat completions."""


def check_grammar(events: list[Semantic], *, left: bool = False) -> None:
    """Starts in order, calls that do not overlap, nothing after a finish, an end that is the last event. ``left``: the
    client left, so that choices need no finish."""
    assert events[-1] == End()
    assert events.count(End()) == 1
    starts = [event.choice for event in events if isinstance(event, Start)]
    assert starts == [*range(len(starts))]
    failed = left or any(isinstance(event, Failure) for event in events)
    for choice in starts:
        ours = [event for event in events if getattr(event, "choice", None) == choice]
        assert isinstance(ours[0], Start)
        ends = [event for event in ours if isinstance(event, Finish)]
        assert ends == ours[-1:] if ends else failed
        opened = -1
        calls = 0
        at = 0
        for event in ours:
            if isinstance(event, CallStart):
                assert (opened, event.index) == (-1, calls)
                opened, calls = calls, calls + 1
            elif isinstance(event, CallArguments | CallEnd):
                assert event.index == opened
                opened = -1 if isinstance(event, CallEnd) else opened
            if isinstance(event, Reasoning | Content | Refusal | CallStart | CallArguments):
                assert event.src[0] == at
                at = event.src[1]
        assert opened == -1
    assert not any(isinstance(event, Marker | Dropped | Fault) for event in events)


# --- the other protocols ----------------------------------------------------------------------------------------------


def near(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object that nearly always is what it should be."""
    return st.fixed_dictionaries({name: _nearly(value) for name, value in fields.items()})


@st.composite
def _nearly(draw: st.DrawFn, value: st.SearchStrategy[Any]) -> Any:
    return draw(JUNK if draw(st.integers(0, 40)) == 40 else value)


PLACE = st.sampled_from([0, 0, 0, 0, 1, 1, "1", 2])
_INPUT = st.dictionaries(TEXT, SCALAR, max_size=1)
_NAME = st.sampled_from(["f", "g", ""])
COMPLETION: st.SearchStrategy[Any] = near(
    id=TEXT, usage=USAGE,
    choices=st.lists(near(
        index=PLACE, text=TEXT, finish_reason=st.sampled_from([None, None, "stop", "length", "abort"]),
        token_ids=st.lists(st.integers(0, 9), max_size=2), prompt_token_ids=st.lists(SCALAR, max_size=2),
        matched_stop=SCALAR,
        logprobs=near(
            tokens=st.lists(TEXT, max_size=2), token_logprobs=st.lists(SCALAR, max_size=2),
            top_logprobs=st.lists(st.dictionaries(TEXT, SCALAR, max_size=2), max_size=2),
        ),
    ), max_size=2),
)  # fmt: skip
_BLOCK = near(
    type=st.sampled_from(["text", "thinking", "tool_use", "tool_use", "server_tool_use"]), text=TEXT, thinking=TEXT,
    id=st.sampled_from(["a", "b"]), name=_NAME, input=_INPUT,
)  # fmt: skip
_STOP = st.sampled_from([None, "end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "new"])
_COUNTS = near(
    input_tokens=st.integers(-1, 9), output_tokens=st.integers(-1, 9), cache_read_input_tokens=SCALAR,
    output_tokens_details=near(thinking_tokens=SCALAR),
)  # fmt: skip
MESSAGE = near(
    id=TEXT, type=st.just("message"), content=st.lists(_BLOCK, max_size=2), stop_reason=_STOP, stop_sequence=TEXT,
    usage=_COUNTS,
)  # fmt: skip
_DELTA = near(
    type=st.sampled_from(["text_delta", "thinking_delta", "input_json_delta", "signature_delta"]), text=TEXT,
    thinking=TEXT, partial_json=TEXT, stop_reason=_STOP, stop_sequence=TEXT,
)  # fmt: skip
MESSAGE_EVENT: st.SearchStrategy[Any] = near(
    type=st.sampled_from([
        "message_start", "content_block_start", "content_block_start", "content_block_delta", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop", "ping", "error",
    ]),
    index=PLACE, message=MESSAGE, content_block=_BLOCK, delta=_DELTA, usage=_COUNTS,
)  # fmt: skip
_PART = near(
    type=st.sampled_from(["output_text", "refusal", "reasoning_text", "summary_text", "new"]), text=TEXT, refusal=TEXT,
)  # fmt: skip
_ITEM = near(
    type=st.sampled_from(["message", "reasoning", "function_call", "function_call", "custom_tool_call", "mcp_call"]),
    id=st.sampled_from(["x", "y"]), call_id=st.sampled_from(["a", "b"]), name=_NAME, arguments=TEXT, input=TEXT,
    status=st.sampled_from(["completed", "incomplete"]), content=st.lists(_PART, max_size=2),
    summary=st.lists(_PART, max_size=2),
)  # fmt: skip
RESPONSE = near(
    id=TEXT, object=st.just("response"), status=st.sampled_from(["completed", "incomplete", "failed", "in_progress"]),
    output=st.lists(_ITEM, max_size=2),
    incomplete_details=near(reason=st.sampled_from(["max_output_tokens", "content_filter"])),
    usage=near(input_tokens=st.integers(-1, 9), output_tokens=SCALAR, input_tokens_details=near(cached_tokens=SCALAR)),
)  # fmt: skip
RESPONSE_EVENT: st.SearchStrategy[Any] = near(
    type=st.sampled_from([
        *(f"response.{name}" for name in ("created", "in_progress", "completed", "incomplete", "failed", "new")),
        *(f"response.output_item.{phase}" for phase in ("added", "added", "added", "added", "done", "done")),
        *(f"response.content_part.{phase}" for phase in ("added", "done")),
        *(
            f"response.{kind}.{phase}"
            for kind in (
                "output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments",
                "function_call_arguments", "function_call_arguments", "custom_tool_call_input",
            )
            for phase in ("delta", "delta", "done")
        ),
        "error",
    ]),
    output_index=PLACE, item_id=st.sampled_from(["x", "y"]), content_index=PLACE, summary_index=PLACE, item=_ITEM,
    part=_PART, delta=TEXT, text=TEXT, refusal=TEXT, arguments=TEXT, input=TEXT, response=RESPONSE,
)  # fmt: skip
_CALL = near(
    index=PLACE, id=st.sampled_from(["a", "b", None]), type=st.just("function"),
    function=near(name=st.sampled_from(["f", None]), arguments=st.sampled_from(["{}", '{"a":', "1}", None])),
)  # fmt: skip
_MAYBE = st.sampled_from([None, None, "a", "é"])
CHUNK: st.SearchStrategy[Any] = near(
    id=st.just("c"), object=st.just("chat.completion.chunk"), usage=st.none(), prompt_token_ids=st.none(),
    choices=st.lists(near(
        index=PLACE, logprobs=st.none(), finish_reason=st.sampled_from([None, None, None, None, "stop", "tool_calls"]),
        token_ids=st.lists(st.integers(0, 9), max_size=2) | st.none(), stop_reason=st.none(),
        delta=near(
            role=st.sampled_from(["assistant", None]), content=_MAYBE, reasoning=_MAYBE, reasoning_content=_MAYBE,
            refusal=st.sampled_from([None, None, None, "no"]),
            tool_calls=st.none() | st.lists(_CALL, max_size=2),
        ),
    ), min_size=1, max_size=1),
)  # fmt: skip
"""Chunks of chat completions as they nearly always are."""
TEXT_CHUNK: st.SearchStrategy[Any] = near(
    id=st.just("c"), usage=st.none(),
    choices=st.lists(near(
        index=PLACE, text=TEXT, logprobs=st.none(), finish_reason=st.sampled_from([None, None, None, "stop"]),
        token_ids=st.lists(st.integers(0, 9), max_size=2) | st.none(), prompt_token_ids=st.none(),
    ), min_size=1, max_size=1),
)  # fmt: skip
"""The same of completions."""
EVENTS: dict[str, st.SearchStrategy[Any]] = {
    "chat": EVENT | CHUNK,
    "completions": COMPLETION | TEXT_CHUNK,
    "responses": RESPONSE_EVENT,
    "messages": MESSAGE_EVENT,
}
"""Events of a stream, by protocol."""
MESSAGE_OF_CHAT = near(
    id=TEXT, usage=USAGE,
    choices=st.lists(near(
        index=PLACE, message=DELTA, finish_reason=st.sampled_from([None, "stop", "tool_calls", "length"]),
    ), max_size=2),
)  # fmt: skip
WHOLES: dict[str, st.SearchStrategy[Any]] = {
    "chat": MESSAGE_OF_CHAT, "completions": COMPLETION, "responses": RESPONSE, "messages": MESSAGE,
}  # fmt: skip
"""Whole bodies, by protocol."""
