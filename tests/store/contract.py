"""What every store must do. A backend's tests inherit this class and give the ``store`` fixture."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Failure,
    Fault,
    FaultCode,
    Finish,
    PromptInput,
    Reasoning,
    Refusal,
    Sent,
    Start,
    Tokens,
    TokensInput,
    Usage,
)
from stages.opening import Ask
from store import codec
from store.api import Batch, EventStore, SequenceConflict
from store.rules import Key
from tests.support.store import SECOND, batches, opening, record, records, same, words


class StoreContract:
    """The contract."""

    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        raise NotImplementedError

    # --- records ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [1, 7, 300, 1000])
    def test_a_session_comes_back_whole(self, store: EventStore, size: int) -> None:
        opened, made = opening(), batches(words(1000), size=size)
        writer = record(store.writer(opened), made)
        writer.close("closed")
        store.flush()
        found = store.load(opened.session)
        assert same(found, opened, made)
        assert not writer.incomplete
        assert found.info.state == "closed"
        assert found.info == store.info(opened.session)
        assert found.info.events == {
            "input/engine": 1003, "served/semantic": 2004, "served/chunk": 1001, "served/frame": 1002,
            "socket/frame": 1,
        }  # fmt: skip

    def test_layers_come_in_order(self, store: EventStore) -> None:
        writer = store.writer(opening())
        writer.append(Batch("socket", "frame", 0, 0, [Sent(0, 0)]))
        writer.append(Batch("served", "semantic", 0, 0, [Start(0, 1)], [0]))
        writer.append(Batch("shadow:x", "semantic", 0, 0, [Start(0, 1)], [0]))
        writer.append(Batch("input", "engine", 0, 0, [PromptInput((), "", 1)]))
        writer.close("closed")
        store.flush()
        assert list(store.load(opening().session).records) == [
            ("input", "engine"), ("served", "semantic"), ("shadow:x", "semantic"), ("socket", "frame"),
        ]  # fmt: skip

    def test_only_some_layers(self, store: EventStore) -> None:
        made = batches(words(600), size=7)
        record(store.writer(opening()), made).close("closed")
        store.flush()
        whole = store.load(opening().session)
        wanted: list[Key] = [("served", "semantic"), ("input", "engine"), ("shadow:x", "semantic")]
        found = store.load(opening().session, wanted)
        assert list(found.records) == [("input", "engine"), ("served", "semantic")]
        assert found.records == {key: held for key, held in records(made).items() if key in wanted}
        assert (found.opening, found.info) == (whole.opening, whole.info)
        assert found.events("served", "semantic") == [item.event for item in records(made)["served", "semantic"]]
        assert found.causes("served", "semantic") == [item.cause for item in records(made)["served", "semantic"]]
        assert found.events("served", "frame") == found.causes("served", "frame") == []
        assert store.load(opening().session, []).records == {}

    def test_only_some_layers_of_an_open_session(self, store: EventStore) -> None:
        made = batches(words(300))[:400]
        record(store.writer(opening()), made)
        store.flush()
        found = store.load(opening().session, {("input", "engine")})
        assert found.records == {("input", "engine"): records(made)["input", "engine"]}
        assert found.info == store.load(opening().session).info

    def test_the_lists_are_the_callers(self, store: EventStore) -> None:
        made = batches(words(20))
        record(store.writer(opening()), made).close("closed")
        store.flush()
        found = store.load(opening().session)
        found.events("served", "chunk").clear()
        found.causes("served", "chunk").clear()
        assert same(found, opening(), made)

    def test_an_open_session_can_be_read(self, store: EventStore) -> None:
        made = batches(words(300))[:400]
        record(store.writer(opening()), made)
        store.flush()
        found = store.load(opening().session)
        assert same(found, opening(), made)
        assert found.info.state == store.info(opening().session).state == "open"
        assert found.info.closed is None
        assert store.info(opening().session) == found.info
        assert found.info.ttft_ns == SECOND

    def test_a_session_without_records(self, store: EventStore) -> None:
        store.writer(opening()).close("aborted")
        store.flush()
        found = store.load(opening().session)
        assert found.records == {}
        assert found.info.state == "aborted"
        assert found.info.message == ()

    def test_lean_keeps_facts_and_digests(self, store: EventStore) -> None:
        made = batches(words(700), size=3)
        writer = record(store.writer(opening(), "lean"), made[:100])
        # Some again, some of it with more.
        record(writer, made[50:90])
        writer.append(_joined(made, ("served", "semantic"), 90, 110))
        record(writer, made[100:]).close("closed")
        store.flush()
        found = store.load(opening().session)
        kept = {("input", "engine"), ("socket", "frame")}
        whole = records(made)
        assert found.records == {key: held for key, held in whole.items() if key in kept}
        assert found.info.mode == "lean"
        assert found.info.digests == {
            f"{key[0]}/{key[1]}": codec.digest([item.event for item in held])
            for key, held in whole.items() if key not in kept
        }  # fmt: skip
        assert found.info.message == ({"reasoning": None, "content": "".join(words(700)), "tool_calls": []},)

    def test_what_was_appended_may_change_afterwards(self, store: EventStore) -> None:
        events = [Content(0, "a", (0, 1))]
        causes = [0]
        writer = store.writer(opening())
        writer.append(Batch("served", "semantic", 0, 0, events, causes))
        events[0] = Content(0, "b", (0, 1))
        causes[0] = 7
        writer.close("closed")
        store.flush()
        found = store.load(opening().session)
        assert [(item.cause, item.event) for item in found.records["served", "semantic"]] == [
            (0, Content(0, "a", (0, 1)))
        ]
        assert found.info.message[0]["content"] == "a"

    def test_committed_means_durable(self, store: EventStore) -> None:
        made = batches(words(10))
        writer = record(store.writer(opening()), made)
        writer.committed().result(10)
        assert same(store.load(opening().session), opening(), made)
        writer.close("closed")
        writer.committed().result(10)
        assert store.info(opening().session).state == "closed"

    def test_many_sessions_at_once(self, store: EventStore) -> None:
        made = batches(words(120))

        def work(number: int) -> None:
            record(store.writer(opening(f"{number:032x}")), made).close("closed")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        for number in range(8):
            assert same(store.load(f"{number:032x}"), opening(f"{number:032x}"), made)
        assert store.stats()["records"] == 8 * sum(len(batch.events) for batch in made)
        assert store.stats()["batches"] == 8 * len(made)
        assert (store.stats()["lost_records"], store.stats()["failures"]) == (0, 0)

    # --- what a caller may not do -----------------------------------------------------------------------------------

    def test_holes_and_misfits_are_the_callers_mistake(self, store: EventStore) -> None:
        writer = store.writer(opening())
        writer.append(Batch("served", "semantic", 0, 0, [Start(0, 1)], [0]))
        with pytest.raises(ValueError, match=r"seq 2 .* cannot follow 1"):
            writer.append(Batch("served", "semantic", 2, 0, [Start(0, 1)], [0]))
        with pytest.raises(ValueError, match="2 causes"):
            writer.append(Batch("served", "semantic", 1, 0, [Start(0, 1)], [0, 0]))
        writer.append(Batch("served", "semantic", 1, 0, []))
        writer.append(Batch("served", "semantic", 1, 0, [Finish(0, "eos")], [1]))
        writer.close("closed")
        with pytest.raises(ValueError, match="after close"):
            writer.append(Batch("served", "semantic", 2, 0, [Start(0, 1)], [0]))
        with pytest.raises(ValueError, match="closed already"):
            writer.close("closed")
        store.flush()
        assert len(store.load(opening().session).records["served", "semantic"]) == 2
        assert not writer.incomplete

    # --- the projection ---------------------------------------------------------------------------------------------

    def test_projection_of_a_plain_session(self, store: EventStore) -> None:
        made = batches(words(5), start_ns=2 * SECOND, step_ns=30_000_000)
        record(store.writer(opening()), made).close("closed")
        store.flush()
        info = store.info(opening().session)
        assert (info.opened, info.closed) == (opening().opened, opening().opened + 2 * SECOND + 150_000_000)
        assert (info.model, info.protocol, info.parser, info.n) == ("demo-1", "chat", "hermes", 1)
        assert info.stages == opening().stages
        assert (info.prompt_tokens, info.completion_tokens) == (3, 5)
        assert (info.ttft_ns, info.max_gap_ns) == (2 * SECOND, 30_000_000)
        assert (info.finish_reasons, info.faults, info.error) == (("eos",), {}, None)
        assert info.message == ({"reasoning": None, "content": "".join(words(5)), "tool_calls": []},)

    def test_projection_of_two_choices(self, store: EventStore) -> None:
        opened = opening(ask=Ask(n=2))
        engine = [
            (10, PromptInput((1,), "", 1)), (20, TokensInput(0, (), (), "")), (30, TokensInput(1, (5, 6), (), "")),
            (40, TokensInput(0, (7,), (), "x")), (45, TokensInput(0, (8,), (), "")), (90, TokensInput(1, (9,), (), "")),
        ]  # fmt: skip
        semantic = [
            Start(0, 1), Start(1, 1), Tokens(0, (7,)), Reasoning(0, "Let me", (0, 6)), Reasoning(0, " see.", (6, 11)),
            CallStart(0, 0, "call_1", "tide", (11, 12)), CallArguments(0, 0, '{"port":', (12, 20)),
            CallStart(0, 1, "call_2", "moon", (20, 21)), CallArguments(0, 1, "{}", (21, 23)),
            CallArguments(0, 0, '"Brest"}', (23, 31)), CallEnd(0, 0, True), CallEnd(0, 1, True), Finish(0, "eos"),
            Content(1, "No", (0, 2)), Refusal(1, "Sorry", (2, 7)),
            Fault(1, FaultCode.STRAY_MARKER, (7, 9)), Fault(1, FaultCode.STRAY_MARKER, (9, 9)),
            Fault(1, FaultCode.INVALID_UTF8, (9, 9)), Finish(1, "length"), Usage(1, 5, 0, 2),
            Failure("engine", "out of memory"),
        ]  # fmt: skip
        writer = store.writer(opened)
        for seq, (at, event) in enumerate(engine):
            writer.append(Batch("input", "engine", seq, at, [event]))
        writer.append(Batch("served", "semantic", 0, 90, semantic, [0] * len(semantic)))
        writer.close("closed")
        store.flush()
        info = store.info(opened.session)
        assert (info.n, info.prompt_tokens, info.completion_tokens) == (2, 1, 5)
        # Gaps are between the steps of one choice: 30 → 90 of choice 1, though 45 → 90 is the longest silence.
        assert (info.ttft_ns, info.max_gap_ns) == (30, 60)
        assert info.finish_reasons == ("eos", "length")
        assert info.faults == {"stray_marker": 2, "invalid_utf8": 1}
        assert info.error == "engine: out of memory"
        calls = [
            {"id": "call_1", "name": "tide", "arguments": '{"port":"Brest"}'},
            {"id": "call_2", "name": "moon", "arguments": "{}"},
        ]
        assert info.message == (
            {"reasoning": "Let me see.", "content": None, "tool_calls": calls},
            {"reasoning": None, "content": "No", "tool_calls": [], "refusal": "Sorry"},
        )

    # --- identity ---------------------------------------------------------------------------------------------------

    def test_the_same_records_again_change_nothing(self, store: EventStore) -> None:
        made = batches(words(300), size=5)
        writer = record(store.writer(opening()), made)
        record(writer, made[:20])
        writer.close("closed")
        store.flush()
        assert same(store.load(opening().session), opening(), made)
        assert store.info(opening().session).message[0]["content"] == "".join(words(300))
        again = record(store.writer(opening()), made)
        again.close("closed")
        again.committed().result(10)
        assert not again.incomplete
        found = store.load(opening().session)
        assert same(found, opening(), made)
        assert found.info.state == "closed"
        assert [info.session for info in store.sessions()] == [opening().session]

    def test_records_that_overlap_add_what_is_new(self, store: EventStore) -> None:
        texts = [Content(0, text, (at, at + 1)) for at, text in enumerate("abcdef")]
        writer = store.writer(opening())
        writer.append(Batch("served", "semantic", 0, 5, texts[:4], [0, 0, 1, 1]))
        writer.append(Batch("served", "semantic", 2, 5, texts[2:], [1, 1, 2, 2]))
        writer.close("closed")
        store.flush()
        found = store.load(opening().session)
        assert found.events("served", "semantic") == texts
        assert not writer.incomplete

    @pytest.mark.parametrize("change", ["event", "cause", "at"])
    def test_other_records_at_the_same_place_conflict(self, store: EventStore, change: str) -> None:
        first = Batch("served", "semantic", 0, 5, [Content(0, "a", (0, 1)), Content(0, "b", (1, 2))], [0, 0])
        other = {
            "event": Batch("served", "semantic", 1, 5, [Content(0, "c", (1, 2))], [0]),
            "cause": Batch("served", "semantic", 1, 5, [Content(0, "b", (1, 2))], [1]),
            "at": Batch("served", "semantic", 1, 6, [Content(0, "b", (1, 2))], [0]),
        }[change]
        writer = store.writer(opening())
        writer.append(first)
        writer.append(other)
        with pytest.raises(SequenceConflict, match="other records are stored"):
            writer.committed().result(10)
        store.flush()
        assert writer.incomplete
        found = store.load(opening().session)
        assert found.records == records([first])
        assert found.info.state == "incomplete"

    def test_an_ended_session_is_not_added_to(self, store: EventStore) -> None:
        made = batches(words(10))
        record(store.writer(opening()), made).close("closed")
        store.flush()
        more = record(store.writer(opening()), made)
        more.append(Batch("socket", "frame", 1, 0, [Sent(13, 1)]))
        with pytest.raises(SequenceConflict, match="ended before"):
            more.committed().result(10)
        store.flush()
        found = store.load(opening().session)
        assert same(found, opening(), made)
        assert found.info.state == "closed"

    @pytest.mark.parametrize("ended", [True, False])
    def test_one_id_is_one_session(self, store: EventStore, ended: bool) -> None:
        made = batches(words(10))
        first = record(store.writer(opening()), made)
        if ended:
            first.close("closed")
        store.flush()
        other = store.writer(opening(model="demo-2") if ended else opening())
        other.append(Batch("input", "engine", 0, 0, [PromptInput((), "", 9)]))
        with pytest.raises(SequenceConflict, match="an id of its own"):
            other.committed().result(10)
        assert other.incomplete
        other.close("closed")
        assert not first.incomplete
        if not ended:
            first.close("closed")
        store.flush()
        found = store.load(opening().session)
        assert same(found, opening(), made)
        assert found.info.state == "closed"


def _joined(made: list[Batch], key: Key, first: int, last: int) -> Batch:
    """Several batches of a layer as one, at the time of the first; only for layers that keep no times."""
    some = [batch for batch in made[first:last] if (batch.track, batch.layer) == key]
    events = [event for batch in some for event in batch.events]
    causes = [cause for batch in some for cause in batch.causes]
    return Batch(*key, some[0].first_seq, some[0].at, events, causes)
