"""What was said before, read from a store: what no server would record by itself, and how much is too much."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pipeline.http.responses import history
from pipeline.http.responses.history import MAX_TURNS, History
from pipeline.http.responses.record import find, response_of
from stages import catalog
from stages.errors import RequestError
from stages.events import AbortInput, FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.opening import Ask, Opening
from stages.stage import fold
from store import MemoryStore
from store.api import Batch, Ended, Mode

END: list[Input] = [FinishInput(0, "eos", 2), UsageInput(3, 1)]


def session(number: int) -> str:
    return f"{number:032x}"


def name(number: int) -> str:
    return f"resp_{session(number)}"


def keep(
    store: MemoryStore, number: int, request: dict[str, Any], *, end: list[Input] = END, close: Ended | None = "closed",
    mode: Mode = "full", conversation: str = "",
) -> None:  # fmt: skip
    """Record a response that says "Yes.", as a server does."""
    opening = Opening(
        session=session(number), key="k" * 32, response_id=name(number), created=1, opened=number, model="m",
        protocol="responses", request=json.dumps({"stream": True, **request}).encode(), ask=Ask(stream=True),
        conversation=conversation,
    )  # fmt: skip
    layers = catalog.layers(opening)
    opening = msgspec.structs.replace(opening, stages=catalog.stage_ids(layers))
    inputs: list[Input] = [PromptInput((1, 2, 3), "", 3), TokensInput(0, (4,), (b"Yes.",), "Yes."), *end]
    semantic = fold(layers.semantic.start(opening), inputs)
    chunks = fold(layers.encoder.start(opening), semantic)
    writer = store.writer(opening, mode)
    writer.append(Batch("input", "engine", 0, 1, inputs))
    writer.append(Batch("served", "semantic", 0, 1, semantic, [0] * len(semantic)))
    writer.append(Batch("served", "chunk", 0, 1, chunks, [0] * len(chunks)))
    if close is not None:
        writer.close(close)


def read(store: MemoryStore) -> History:
    return History(store, lambda parser: None)


def refused(store: MemoryStore, number: int) -> tuple[str | None, str | None]:
    """(code, param) of the refusal to go on from a response."""
    with pytest.raises(RequestError) as caught:
        read(store).before(name(number))
    return caught.value.code, caught.value.param


TOO_LONG = ("conversation_too_long", "previous_response_id")


def test_a_chain_of_as_many_as_there_may_be() -> None:
    store = MemoryStore()
    for number in range(MAX_TURNS + 1):
        before = {"previous_response_id": name(number - 1)} if number else {}
        keep(store, number, {"input": f"Question {number}", **before})
    items = read(store).before(name(MAX_TURNS - 1))
    assert len(items) == 2 * MAX_TURNS
    assert [item["role"] for item in items[:3]] == ["user", "assistant", "user"]
    assert items[-2]["content"] == [{"type": "input_text", "text": f"Question {MAX_TURNS - 1}"}]
    assert refused(store, MAX_TURNS) == TOO_LONG


def test_a_record_that_goes_on_from_itself_ends() -> None:
    store = MemoryStore()
    keep(store, 1, {"input": "One", "previous_response_id": name(2)})
    keep(store, 2, {"input": "Two", "previous_response_id": name(1)})
    assert refused(store, 1) == TOO_LONG


def test_more_bytes_than_anybody_goes_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    keep(store, 1, {"input": "x" * 500})
    keep(store, 2, {"input": "x" * 500, "previous_response_id": name(1)})
    monkeypatch.setattr(history, "MAX_SIZE", 1000)
    assert len(read(store).before(name(1))) == 2
    assert refused(store, 2) == TOO_LONG


def test_more_references_than_anybody_makes() -> None:
    store = MemoryStore()
    one = {"type": "item_reference", "id": "msg_1"}
    keep(store, 1, {"input": [one] * (MAX_TURNS - 1)})
    keep(store, 2, {"input": [one, one], "previous_response_id": name(1)})
    assert len(read(store).before(name(1))) == MAX_TURNS
    assert refused(store, 2) == (None, "input")


def test_a_reference_that_refers_to_itself_stays() -> None:
    store = MemoryStore()
    own = {"type": "item_reference", "id": f"msg_{session(1)}i0"}
    keep(store, 1, {"input": [own]})
    assert read(store).before(name(1))[0] == own
    assert read(store).item(own["id"]) is None


def test_only_what_has_ended_as_it_should_is_gone_on_from() -> None:
    store = MemoryStore()
    keep(store, 1, {"input": "?"}, end=[], close=None)
    keep(store, 2, {"input": "?"}, end=[AbortInput("cancel")], close="aborted")
    keep(store, 3, {"input": "?"}, end=[AbortInput("shutdown")], close="aborted")
    keep(store, 4, {"input": "?", "store": False})
    keep(store, 5, {"output": "?"})
    for number in range(1, 7):
        assert refused(store, number) == ("previous_response_not_found", "previous_response_id")
    # All is said, though the client is still being told.
    keep(store, 7, {"input": "?"}, close=None)
    keep(store, 8, {"input": "?"}, end=[FinishInput(0, "length"), UsageInput(3, 1)])
    for number in (7, 8):
        assert len(read(store).before(name(number))) == 2


@pytest.mark.parametrize("mode", ["full", "lean"])
def test_what_became_of_a_response(mode: Mode) -> None:
    store = MemoryStore()
    ends: dict[str, tuple[list[Input], Ended | None]] = {
        "in_progress": ([], None), "completed": (END, "closed"), "failed": ([AbortInput("shutdown")], "aborted"),
        "cancelled": ([AbortInput("cancel")], "aborted"),
        "incomplete": ([FinishInput(0, "length"), UsageInput(3, 1)], "detached"),
    }  # fmt: skip
    for number, (status, (end, close)) in enumerate(ends.items()):
        keep(store, number, {"input": "?"}, end=end, close=close, mode=mode)
        found = response_of(store, find(store, name(number)), lambda parser: None)
        assert found.status == status
        assert (found.error is not None) == (status == "failed")
        # What was not done when the response failed is not part of it.
        assert len(found.output) == (status != "failed")
        for item in found.output:
            assert item.status == ("incomplete" if status == "cancelled" else status)


@pytest.mark.parametrize("end", [[], [PromptInput((1,), "", 1)]])
def test_what_ended_without_a_word_is_over(end: list[Input]) -> None:
    """Its server was stopped before the engine was asked. It does not hold its conversation."""
    store = MemoryStore()
    conversation = "conv_" + session(1)
    asked = json.dumps({"input": "?", "stream": True, "conversation": conversation}).encode()
    for number, of_it, request in ((1, conversation, b'{"change": "created"}'), (2, name(2), asked)):
        opening = Opening(
            session=session(number), key="k" * 32, response_id=of_it, created=7, opened=number, model="",
            protocol="responses", request=request, ask=Ask(stream=True), conversation=conversation,
        )  # fmt: skip
        writer = store.writer(opening)
        if number == 2:
            writer.append(Batch("input", "engine", 0, 1, end))
        writer.close("aborted" if number == 2 else "closed")
    found = response_of(store, find(store, name(2)), lambda parser: None)
    assert found.status == "failed"
    assert found.error is not None
    assert "before the response was finished" in found.error.message
    read_on = read(store).conversation(conversation)
    assert (read_on.busy, read_on.items) == (False, [])


def test_what_somebody_else_says_of_a_conversation_is_left_out() -> None:
    store = MemoryStore()
    conversation = "conv_" + session(1)
    for number, request in ((1, b'{"change": "created"}'), (2, b'{"change": "painted"}'), (3, b"[]")):
        opening = Opening(
            session=session(number), key="k", response_id=conversation, created=7, opened=number, model="",
            protocol="responses", request=request, conversation=conversation,
        )  # fmt: skip
        store.writer(opening).close("closed")
    keep(store, 4, {"input": "?", "conversation": conversation}, conversation=conversation)
    keep(store, 5, {"input": "?", "conversation": conversation}, conversation=conversation, end=[], close=None)
    found = read(store).conversation(conversation)
    assert found.shown() == {"id": conversation, "object": "conversation", "created_at": 7, "metadata": {}}
    assert [item["role"] for item in found.items] == ["user", "assistant"]
    assert found.busy
