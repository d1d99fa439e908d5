"""Chunks of other protocols than chat: pieces of a text are merged, and nothing else hides behind that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import pytest

from replay import Replayer
from replay.resolve import Parser
from replay.result import SessionResult
from replay.turned import turned
from stages import catalog
from stages.catalog import Layers
from stages.opening import Opening
from stages.stage import Stage
from store.api import Trace
from tests.support.replay import SAID, opening, record, tokens, whole

Change: TypeAlias = Callable[[Any], Iterator[Any]]
"""What an encoder gives in place of a chunk."""
PIECES = {
    "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta",
    "content_block_delta",
}  # fmt: skip


class _Machine:
    def __init__(self, inner: Any, change: Change, *, numbers: bool) -> None:
        self._inner = inner
        self._change = change
        self._numbers = numbers
        self._made = 0

    def step(self, event: Any, out: list[Any]) -> None:
        made: list[Any] = []
        self._inner.step(event, made)
        for chunk in made:
            for given in self._change(chunk):
                numbered = self._numbers and hasattr(given, "sequence_number")
                out.append(msgspec.structs.replace(given, sequence_number=self._made) if numbered else given)
                self._made += 1

    def snapshot(self) -> Any:
        return self._inner.snapshot()


class _Encoder:
    """An encoder that gives other chunks. ``numbers``: it numbers them anew."""

    def __init__(self, inner: Stage[Any, Any], change: Change, *, numbers: bool) -> None:
        self.id = inner.id
        self._inner = inner
        self._how = (change, numbers)

    def start(self, opening: Opening) -> Any:
        change, numbers = self._how
        return _Machine(self._inner.start(opening), change, numbers=numbers)

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        change, numbers = self._how
        return _Machine(self._inner.resume(opening, snapshot), change, numbers=numbers)


def recorded(protocol: str) -> Trace:
    made, _ = turned(opening(parser="qwen3"), protocol)
    made = msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))
    return record(made, whole(tokens(SAID)))


def replayed(protocol: str, change: Change, *, numbers: bool = True) -> SessionResult:
    """A session whose encoder gives other chunks today."""

    def assemble(opened: Opening, parser: Parser | None) -> Layers:
        made = catalog.layers(opened, parser)
        return msgspec.structs.replace(made, encoder=_Encoder(made.encoder, change, numbers=numbers))

    return Replayer(assemble=assemble).replay(recorded(protocol))


def halves(chunk: Any) -> Iterator[Any]:
    """Every piece of a text in two."""
    delta: Any = getattr(chunk, "delta", None)
    holder, name = (delta, delta.__struct_fields__[0]) if isinstance(delta, msgspec.Struct) else (chunk, "delta")
    text: Any = getattr(holder, name, None)
    if chunk.event not in PIECES or not isinstance(text, str) or len(text) < 2 or name == "signature":
        yield chunk
        return
    for part in (text[:1], text[1:]):
        put = msgspec.structs.replace(holder, **{name: part})
        yield put if holder is chunk else msgspec.structs.replace(chunk, delta=put)


@pytest.mark.parametrize("protocol", ["responses", "messages"])
def test_pieces_cut_otherwise_are_rechunked(protocol: str) -> None:
    result = replayed(protocol, halves)
    assert result.layers["semantic"] == "same"
    assert (result.layers["chunk"], result.layers["frame"]) == ("rechunked", "rechunked")
    assert result.first is not None
    assert "sequence_number" not in result.first.detail


@pytest.mark.parametrize(("times", "more"), [(0, 0), (1, 1)])
def test_a_number_that_is_wrong_is_a_difference(times: int, more: int) -> None:
    def change(chunk: Any) -> Iterator[Any]:
        yield msgspec.structs.replace(chunk, sequence_number=chunk.sequence_number * times + more)

    result = replayed("responses", change, numbers=False)
    assert (result.layers["chunk"], result.layers["frame"]) == ("changed", "changed")
    assert result.first is not None
    assert result.first.detail == "sequence_number"


def test_a_whole_text_in_two_events_is_a_difference() -> None:
    def change(chunk: Any) -> Iterator[Any]:
        if chunk.event != "response.output_text.done":
            yield chunk
            return
        yield msgspec.structs.replace(chunk, text=chunk.text[:3])
        yield msgspec.structs.replace(chunk, text=chunk.text[3:])

    assert replayed("responses", change).layers["chunk"] == "changed"


@pytest.mark.parametrize(
    ("protocol", "event"), [("responses", "response.output_text.delta"), ("messages", "content_block_delta")]
)
def test_a_piece_that_is_lost_is_named(protocol: str, event: str) -> None:
    lost: list[Any] = []

    def change(chunk: Any) -> Iterator[Any]:
        if chunk.event == event and not lost:
            lost.append(chunk)
        else:
            yield chunk

    result = replayed(protocol, change)
    assert len(lost) == 1
    assert (result.layers["chunk"], result.layers["frame"]) == ("changed", "changed")
    assert result.first is not None and result.first.recorded is not None
    assert "delta" in result.first.detail or result.first.recorded.type != getattr(result.first.replayed, "type", "")
    assert "sequence_number" not in result.first.detail


def test_the_place_of_an_item_is_a_difference() -> None:
    def change(chunk: Any) -> Iterator[Any]:
        places = "output_index" in chunk.__struct_fields__
        yield msgspec.structs.replace(chunk, output_index=chunk.output_index + 1) if places else chunk

    result = replayed("responses", change)
    assert result.layers["chunk"] == "changed"
    assert result.first is not None
    assert result.first.detail == "output_index"
