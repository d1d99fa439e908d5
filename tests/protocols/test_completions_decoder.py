"""Our own completion streams come back as they were; any stream is read without raising."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from stages.events import (
    Block,
    Content,
    Done,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Finish,
    Semantic,
    Start,
    Tick,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Ask
from stages.protocols.openai_completions import (
    DECODER,
    CompletionChunk,
    opening_of,
    rewritten,
    semantic_of,
    text_chunk_of,
)
from stages.sse import SseDecoder
from stages.stage import fold
from tests.support.chat import body_of
from tests.support.completions import ASK, EVENT, frames_of, logprob
from tests.support.decoding import JUNK, some

ASKED = Ask(stream=True, echo=True, logprobs=True, top_logprobs=1, return_token_ids=True, include_usage=True)
MEANT: list[Semantic] = [
    Start(0, 2, 0, (1, 2)),
    Echo(0, "The sky", b"The", (logprob(5, b" sky", -2.0, (b" sky", -2.0)),)),
    Tokens(0, (7,), (logprob(7, b" is", -0.3, (b" was", -0.1)),)),
    Content(0, " is", (0, 3)),
    Finish(0, "stop", "!"),
    Usage(2, 1, 1),
    End(),
]


def values_of(body: bytes) -> list[Any]:
    """The events of a stream; UNSET for ``[DONE]``."""
    texts = [event.data for event in SseDecoder().feed(body)]
    return [UNSET if text == "[DONE]" else json.loads(text) for text in texts]


def chunks_in(values: list[Any]) -> list[Any]:
    """The chunks of a stream's events."""
    return [Done() if value is UNSET else text_chunk_of(value) for value in values]


def test_what_was_meant_comes_back() -> None:
    """But for what is not told: ids of alternatives and of the prompt's tokens."""
    chunks = chunks_in(values_of(body_of(frames_of(ASKED, MEANT))))
    sky = TokenLogprob(-1, b" sky", -2.0, (TopLogprob(-1, b" sky", -2.0),))
    was, chosen = TopLogprob(-1, b" was", -0.1), TopLogprob(-1, b" is", -0.3)
    assert semantic_of(chunks) == [
        MEANT[0],
        Echo(0, "The sky", b"The", (sky,)),
        Tokens(0, (7,), (TokenLogprob(7, b" is", -0.3, (was, chosen)),)),
        *MEANT[3:],
    ]


@given(ASK, st.lists(EVENT, max_size=14), st.booleans())
def test_our_own_streams_are_written_again(ask: Ask, events: list[Semantic], fails: bool) -> None:
    """INV-135, of any stream of a session that ends as sessions do, and of each beginning of it."""
    ask = msgspec.structs.replace(ask, stream=True, end_token=True)
    events = [event for event in events if not isinstance(event, Tick | Usage | Failure | End)]
    ends = [Failure("engine", "lost")] if fails else [*(Finish(index, "eos") for index in range(ask.n)), Usage(9, 4)]
    values = values_of(body_of(frames_of(ask, [Content(0, "x", (0, 1)), *events, *ends, End()])))
    assert rewritten_values(values) == values
    for cut in range(len(values)):
        # A beginning may show less of what was asked, but what it has it says again.
        assert len(rewritten_values(values[:cut])) >= cut


def rewritten_values(values: list[Any]) -> list[Any]:
    """Decoded and encoded again."""
    return values_of(b"".join(frame.data for frame in rewritten(values) if isinstance(frame, Block)))


def test_a_stream_that_breaks_off() -> None:
    *chunks, _ = chunks_in(values_of(body_of(frames_of(ASKED, MEANT))))
    assert semantic_of([*chunks, End()])[-2:] == [
        Failure("engine", "The stream broke off before its end.", "truncated"),
        End(),
    ]
    assert semantic_of([chunks[0], Done()])[-2:] == [
        Failure("engine", "The stream ended without a finish reason.", "truncated"), End(),
    ]  # fmt: skip
    error = ErrorChunk(500, {"error": {"message": "lost", "type": "server_error", "code": "engine_error"}})
    assert semantic_of([chunks[0], error, chunks[1], Done()])[-2:] == [Failure("engine", "lost", "engine_error"), End()]


CHOICE = some(
    index=st.sampled_from([0, 1, -1, 10**9]), text=JUNK, token_ids=JUNK, prompt_token_ids=JUNK, stop_reason=JUNK,
    finish_reason=st.sampled_from([None, "stop", "abort"]),
    logprobs=some(tokens=JUNK, token_logprobs=JUNK, top_logprobs=JUNK, text_offset=JUNK),
)  # fmt: skip
ANY = some(choices=st.lists(CHOICE | JUNK, max_size=2), usage=JUNK, id=JUNK, error=JUNK)


@given(st.lists(ANY | JUNK, max_size=4))
def test_whatever_comes_is_read(values: list[Any]) -> None:
    chunks = chunks_in(values)
    for chunk in chunks:
        if isinstance(chunk, CompletionChunk):
            for choice in chunk.choices:
                if choice.logprobs is not None:
                    assert len({len(each) for each in msgspec.structs.astuple(choice.logprobs)}) == 1
            chunk.wire()
    rewritten(values)
    for cut in range(len(chunks) + 1):
        machine = DECODER.start(opening_of(chunks))
        first = fold(machine, chunks[:cut])
        state: Any = machine.snapshot()
        resumed = DECODER.resume(opening_of(chunks), state)
        assert first + fold(resumed, [*chunks[cut:], End()]) == semantic_of([*chunks, End()])
