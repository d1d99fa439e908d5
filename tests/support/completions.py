"""Completions: an opening with the envelope of the golden streams, the encoder over events, and any events at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from stages.events import (
    Content,
    Dropped,
    Echo,
    End,
    Failure,
    Finish,
    Frame,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.openai_completions import ENCODER, ChunkLayer
from stages.sse import FRAMER
from stages.stage import fold


def opening(ask: Ask, fingerprint: str | None = None) -> Opening:
    """An opening with the envelope of the golden streams."""
    return Opening(
        session="s", key="k", response_id="cmpl-9", created=1760000000, opened=0, model="demo-1", ask=ask,
        protocol="completions", engine=EngineFacts(kind="scripted", model="demo-1", fingerprint=fingerprint),
    )  # fmt: skip


def chunks_of(ask: Ask, events: Iterable[Semantic]) -> list[ChunkLayer]:
    """The encoder over events."""
    return fold(ENCODER.start(opening(ask)), events)


def frames_of(ask: Ask, events: Iterable[Semantic]) -> list[Frame]:
    """Encoder and framer over events."""
    return fold(FRAMER.start(opening(ask)), chunks_of(ask, events))


def logprob(token: int, piece: bytes, number: float, *others: tuple[bytes, float]) -> TokenLogprob:
    """An entry; the alternatives have the ids after its own."""
    top = tuple(TopLogprob(token + place, text, value) for place, (text, value) in enumerate(others))
    return TokenLogprob(token, piece, number, top)


SRC = (0, 0)
_choice = st.integers(0, 4)
_text = st.sampled_from(["", "a", "é\n", '"', "\U0001f600"])
_ids = st.lists(st.integers(0, 9), max_size=2).map(tuple)
_entry = st.builds(
    logprob, st.integers(0, 9), st.sampled_from([b"a", b"\xc3", "é".encode(), b""]), st.sampled_from([-0.5, -20000.0]),
    st.tuples(st.sampled_from([b"a", b"b", b"\xa9"]), st.sampled_from([-0.25, -3.0])),
)  # fmt: skip


def _tokens(choice: int, entries: list[TokenLogprob]) -> Tokens:
    return Tokens(choice, tuple(entry.id for entry in entries), tuple(entries))


EVENT: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Start, _choice, st.just(9), st.just(0), st.sampled_from([(), (1, 2)])),
    st.builds(Echo, st.integers(0, 2), _text, st.sampled_from([b"", b"T"]), st.lists(_entry, max_size=2).map(tuple)),
    st.builds(_tokens, _choice, st.lists(_entry, max_size=2)),
    st.builds(Tokens, _choice, _ids),
    st.builds(Content, _choice, _text, st.just(SRC)),
    st.builds(Content, _choice, _text, st.just(SRC)),
    st.builds(Refusal, _choice, _text, st.just(SRC)),
    st.builds(Reasoning, _choice, _text, st.just(SRC)),
    st.builds(Dropped, _choice, _text, st.just(SRC)),
    st.builds(Finish, _choice, st.sampled_from(["eos", "stop", "stop_token", "length", "filter"]), st.just("x")),
    st.just(Usage(9, 4, 1, 2)),
    st.just(Failure("engine", "lost")),
    st.just(Failure("client_closed", "")),
    st.just(End()),
    st.just(Tick()),
    st.builds(TimingInput, st.sampled_from(["queue", "ttft", "max_gap", "other"]), st.integers(0, 10**12)),
)
"""A semantic event, of a choice that may not exist."""


def _ask(prompts: int, each: int, **fields: Any) -> Ask:
    return Ask(n=prompts * each, prompts=prompts, **fields)


ASK: st.SearchStrategy[Ask] = st.builds(
    _ask, st.integers(1, 2), st.integers(1, 2), stream=st.booleans(), echo=st.booleans(), logprobs=st.booleans(),
    top_logprobs=st.integers(0, 2), return_token_ids=st.booleans(), include_usage=st.booleans(),
    continuous_usage=st.booleans(), metrics=st.booleans(), end_token=st.booleans(), stop_ids=st.just((3,)),
)  # fmt: skip
