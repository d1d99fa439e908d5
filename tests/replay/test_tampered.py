"""Every recorded fact counts: whichever single event of a record is changed, replay turns red, there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.plain import is_list, is_map
from replay.result import SessionResult
from replay.run import Replayer
from stages.events import Layer, TokensInput
from store.api import Trace
from tests.support.replay import SAID, cut, opening, record, tampered, tokens, whole

DERIVED: tuple[Layer, ...] = ("semantic", "chunk", "frame")


def session(*, stream: bool = True) -> Trace:
    said = whole(tokens(SAID, size=8, logprobs=True), tokens("Just an answer… déjà vu.", 1, size=8, logprobs=True))
    return record(opening(n=2, logprobs=True, include_usage=True, stream=stream), said)


def another(value: Any) -> Any:
    """A value of the same type that is not equal to it."""
    if value is None or value is msgspec.UNSET:
        return "tampered"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, bytes):
        return value + b"~"
    if is_list(value):
        return (*value[:-1], another(value[-1])) if value else (1,)
    if is_map(value):
        return {**value, "tampered": 1}
    if isinstance(value, msgspec.Struct):
        name = value.__struct_fields__[0]
        return msgspec.structs.replace(value, **{name: another(getattr(value, name))})
    raise AssertionError(value)


def red(result: SessionResult, layer: Layer, seq: int) -> bool:
    first = result.first
    return result.verdict == "changed" and first is not None and (first.layer, first.seq) == (layer, seq)


@pytest.mark.parametrize("layer", DERIVED)
def test_every_field_of_every_event(layer: Layer) -> None:
    whole_session = session()
    replayer = Replayer()
    for seq, event in enumerate(whole_session.events("served", layer)):
        for name in event.__struct_fields__:
            if name == "choice":
                continue  # below
            value = another(getattr(event, name))
            if name == "choices" and event.choices:
                choice = event.choices[0]
                value = (msgspec.structs.replace(choice, finish_reason=another(choice.finish_reason)),)
            result = replayer.replay(tampered(whole_session, layer, seq, **{name: value}))
            assert red(result, layer, seq), (seq, event, name, result)


def test_every_event_given_to_another_choice() -> None:
    """It is missing where it was and too much where it is now: both may be the first divergence."""
    whole_session = session()
    replayer = Replayer()
    for seq, event in enumerate(whole_session.events("served", "semantic")):
        if hasattr(event, "choice"):
            result = replayer.replay(tampered(whole_session, "semantic", seq, choice=1 - event.choice))
            assert result.verdict == "changed"
            assert result.first is not None
            assert result.first.layer == "semantic"


def test_every_choice_in_a_chunk_written_twice() -> None:
    whole_session = session()
    replayer = Replayer()
    for seq, event in enumerate(whole_session.events("served", "chunk")):
        choices = getattr(event, "choices", ())
        if choices:
            result = replayer.replay(tampered(whole_session, "chunk", seq, choices=(*choices, *choices)))
            assert red(result, "chunk", seq), (seq, event, result)


@pytest.mark.parametrize("layer", DERIVED)
def test_every_cause(layer: Layer) -> None:
    """What came out stands, but not when: moved, and nothing below is blamed."""
    whole_session = session()
    replayer = Replayer()
    for seq, row in enumerate(whole_session.records["served", layer]):
        result = replayer.replay(tampered(whole_session, layer, seq, cause=row.cause + 1))
        assert result.verdict == "moved", (seq, row, result)
        assert result.first is not None
        assert (result.first.layer, result.first.seq) == (layer, seq)
        assert result.first.kind in ("cause", "timing")


@pytest.mark.parametrize("layer", DERIVED)
def test_every_lost_tail(layer: Layer) -> None:
    """A closed session's layers are whole: none may stop short."""
    whole_session = session()
    replayer = Replayer()
    for keep in range(len(whole_session.records["served", layer])):
        result = replayer.replay(cut(whole_session, layer, keep))
        assert result.verdict == "changed", keep
        assert result.first is not None
        assert result.first.layer == layer


@pytest.mark.parametrize("stream", [True, False])
def test_every_token(stream: bool) -> None:
    """The inputs are what everything follows from: a changed byte of a token changes the outcome."""
    whole_session = session(stream=stream)
    replayer = Replayer()
    rows = whole_session.records["input", "engine"]
    for seq, row in enumerate(rows):
        if isinstance(row.event, TokensInput):
            event = msgspec.structs.replace(row.event, pieces=(b"#" + row.event.pieces[0],), ids=(9_999,))
            records = dict(whole_session.records)
            records["input", "engine"] = [*rows[:seq], msgspec.structs.replace(row, event=event), *rows[seq + 1 :]]
            changed = Trace(opening=whole_session.opening, info=whole_session.info, records=records)
            result = replayer.replay(changed)
            assert result.verdict == "changed", (seq, row)
            assert result.first is not None
            assert result.first.cause <= seq
