"""What every store must do with sessions that another server answered, and with layers that come after a session's end.
See ``contract``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stages.events import (
    AbortInput,
    Block,
    Content,
    End,
    ErrorInput,
    Failure,
    Finish,
    FinishInput,
    Head,
    Layer,
    PromptInput,
    Start,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.opening import Opening, UpstreamFacts
from store import codec, trace
from store.api import (
    Batch,
    EventStore,
    Mode,
    Record,
    SequenceConflict,
    SessionNotFound,
    ShadowVerdict,
    StillOpen,
    Trace,
)
from tests.support.store import batches, opening, record, records, words

MS = 1_000_000
TOKENS = UpstreamFacts(name="vllm-a", url="http://127.0.0.1:8000", path="/v1/chat/completions", depth="tokens")
VERBATIM = msgspec.structs.replace(TOKENS, name="hosted", depth="verbatim")
PARSED = msgspec.structs.replace(TOKENS, relayed=False)


def told(text: str) -> list[Record]:
    """A semantic layer that says this, made of inputs 0 and 1."""
    events = [Start(0, 3), Content(0, text, (0, len(text.encode()))), Finish(0, "eos"), Usage(3, 1), End()]
    return [Record(seq, min(seq, 1), 5 * seq, event) for seq, event in enumerate(events)]


def relayed(*, tokens: bool = True, usage: bool = True) -> list[Batch]:
    """What is recorded of a relayed answer "Bonjour" in two steps, and of its end."""
    blocks = [Block(b'data: {"a":1}\n\n'), Block(b'data: {"a":2}\n\n'), Block(b"data: [DONE]\n\n")]
    frames = [Head(200, (("content-type", "text/event-stream"),)), *blocks]
    counts = [Usage(7, 2)] if usage else []
    semantic: list[tuple[int, list[Any], list[int]]] = [
        (10, [Start(0, 0)], [1]), (30, [Content(0, "Bon", (0, 3))], [1]), (50, [Content(0, "jour", (3, 7))], [2]),
        (51, [Finish(0, "eos"), *counts, End()], [3] * (2 + len(counts))),
    ]  # fmt: skip
    made = [Batch("upstream", "frame", seq, (10, 30, 50, 51)[seq] * MS, [frame]) for seq, frame in enumerate(frames)]
    seq = 0
    for at, events, causes in semantic:
        made.append(Batch("upstream", "semantic", seq, at * MS, events, causes))
        seq += len(events)
    if tokens:
        inputs = [
            (9, PromptInput((1, 2, 3), "", 3), 1), (20, TokensInput(0, (5,), (b"Bon",), ""), 1),
            (45, TokensInput(0, (6,), (b"jour",), ""), 2), (51, FinishInput(0, "eos", 311), 3),
            (51, UsageInput(3, 3), 3),
        ]  # fmt: skip
        for place, (at, event, cause) in enumerate(inputs):
            made.append(Batch("input", "engine", place, at * MS, [event], [cause]))
    return [*made, Batch("served", "frame", 0, 51 * MS, frames, [0, 1, 2, 3])]


def kept(store: EventStore, facts: UpstreamFacts, made: list[Batch], mode: Mode = "full", name: str = "s0") -> Opening:
    opened = opening(name, upstream=facts)
    record(store.writer(opened, mode), made).close("closed")
    store.flush()
    return opened


class AttachContract:
    """The part of the contract that is about upstreams, and about what comes after the end."""

    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        raise NotImplementedError

    # --- the projection of what another server answered -------------------------------------------------------------

    def test_a_relayed_session_says_what_the_upstream_said(self, store: EventStore) -> None:
        kept(store, TOKENS, relayed())
        info = store.info("s0")
        assert (info.upstream, info.depth, info.relayed) == ("vllm-a", "tokens", True)
        assert info.message == ({"reasoning": None, "content": "Bonjour", "tool_calls": []},)
        assert (info.finish_reasons, info.error, info.faults) == (("eos",), None, {})
        # Where there are tokens they count, not what the upstream tells of itself.
        assert (info.prompt_tokens, info.completion_tokens) == (3, 3)
        assert (info.ttft_ns, info.max_gap_ns) == (20 * MS, 25 * MS)
        assert (info.parser, info.stages) == (opening().parser, opening().stages)
        assert info == store.load("s0").info

    @pytest.mark.parametrize("usage", [True, False])
    def test_a_verbatim_session_is_counted_by_its_text(self, store: EventStore, usage: bool) -> None:
        kept(store, VERBATIM, relayed(tokens=False, usage=usage))
        info = store.info("s0")
        assert (info.upstream, info.depth, info.relayed) == ("hosted", "verbatim", True)
        assert (info.prompt_tokens, info.completion_tokens) == ((7, 2) if usage else (None, None))
        assert (info.ttft_ns, info.max_gap_ns) == (30 * MS, 20 * MS)

    def test_ids_that_only_the_upstream_parse_has_are_counted(self, store: EventStore) -> None:
        events = [Start(0, 9), Tokens(0, (4, 5)), Content(0, "ab", (0, 2)), Tokens(0, (6,))]
        kept(store, VERBATIM, [Batch("upstream", "semantic", 0, 5, events, [0, 1, 1, 1])])
        assert (store.info("s0").prompt_tokens, store.info("s0").completion_tokens) == (9, 3)

    def test_a_relayed_session_that_was_cut(self, store: EventStore) -> None:
        made = [
            Batch("upstream", "frame", 0, 1, [Head(200, ())]),
            Batch("input", "engine", 0, 9, [ErrorInput("engine", "The upstream went away.", "upstream_cut")], [-1]),
            Batch("upstream", "semantic", 0, 9, [Failure("engine", "The upstream went away."), End()], [1, 1]),
        ]
        kept(store, VERBATIM, made)
        info = store.info("s0")
        assert info.error == "engine: The upstream went away."
        assert (info.message, info.ttft_ns, info.completion_tokens) == ((), None, None)

    def test_a_parsed_session_says_what_our_stages_said(self, store: EventStore) -> None:
        ours = [batch for batch in batches(words(5)) if batch.track != "socket"]
        kept(store, PARSED, [*(one for one in relayed(tokens=False) if one.track == "upstream"), *ours])
        info = store.info("s0")
        assert (info.upstream, info.depth, info.relayed) == ("vllm-a", "tokens", False)
        assert info.message[0]["content"] == "".join(words(5))
        assert (info.prompt_tokens, info.completion_tokens) == (3, 5)

    def test_a_session_of_our_own_has_no_upstream(self, store: EventStore) -> None:
        record(store.writer(opening("s0")), batches(words(3))).close("closed")
        store.flush()
        info = store.info("s0")
        assert (info.upstream, info.depth, info.relayed, info.shadows, info.differs) == ("", "", False, {}, "")

    def test_lean_keeps_what_the_upstream_sent(self, store: EventStore) -> None:
        made = relayed()
        kept(store, TOKENS, made, "lean")
        found = store.load("s0")
        whole = records(made)
        facts = {("input", "engine"), ("upstream", "frame")}
        assert found.records == {key: held for key, held in whole.items() if key in facts}
        assert found.info.digests == {
            "/".join(key): codec.digest([item.event for item in held])
            for key, held in whole.items()
            if key not in facts
        }
        assert found.info.message[0]["content"] == "Bonjour"

    # --- layers that come after the end -----------------------------------------------------------------------------

    @pytest.mark.parametrize("verdict", ["same", "restyled", "changed", "failed", "uncompared"])
    def test_another_parsers_layer_comes_after_the_end(self, store: EventStore, verdict: ShadowVerdict) -> None:
        made = batches(words(600), size=5)
        record(store.writer(opening("s0")), made).close("closed")
        store.flush()
        before = store.load("s0")
        store.attach("s0", "shadow:llama3_json", {"semantic": told("Bonjour")}, verdict)
        after = store.load("s0")
        assert after.records == {**before.records, ("shadow:llama3_json", "semantic"): told("Bonjour")}
        assert list(after.records) == [
            ("input", "engine"), ("served", "semantic"), ("shadow:llama3_json", "semantic"), ("served", "chunk"),
            ("served", "frame"), ("socket", "frame"),
        ]  # fmt: skip
        assert after.info == store.info("s0")
        assert after.info == msgspec.structs.replace(
            before.info,
            events={**before.info.events, "shadow:llama3_json/semantic": 5},
            shadows={"llama3_json": verdict},
        )
        assert after.info.differs == ("llama3_json" if verdict in ("changed", "failed") else "")

    def test_the_name_of_a_parser_may_be_a_path(self, store: EventStore) -> None:
        record(store.writer(opening("s0")), batches(words(3))).close("aborted")
        name = "examples/modified_parser.py:Parser"
        store.attach("s0", f"shadow:{name}", {"semantic": told("a")}, "changed")
        store.attach("s0", "shadow:hermes", {"semantic": told("b")}, "same")
        store.attach("s0", "shadow:auto", {}, "failed")
        info = store.info("s0")
        assert info.shadows == {"auto": "failed", name: "changed", "hermes": "same"}
        assert info.differs == f"auto {name}"
        assert info.state == "aborted"

    def test_a_layer_of_many_segments(self, store: EventStore) -> None:
        record(store.writer(opening("s0")), batches(words(3))).close("closed")
        many = [Record(seq, seq // 2, seq, Content(0, "é", (2 * seq, 2 * seq + 2))) for seq in range(1000)]
        other = [Record(0, 0, 0, Head(200, ())), Record(1, 2, 0, Block(b"data: {}\n\n"))]
        store.attach("s0", "expected", {"semantic": many, "frame": other})
        found = store.load("s0")
        assert found.records["expected", "semantic"] == many
        assert found.records["expected", "frame"] == other
        assert (found.info.shadows, found.info.events["expected/semantic"]) == ({}, 1000)

    @pytest.mark.parametrize("mode", ["full", "lean"])
    def test_the_same_again_changes_nothing(self, store: EventStore, mode: Mode) -> None:
        record(store.writer(opening("s0"), mode), batches(words(3))).close("closed")
        store.attach("s0", "shadow:x", {"semantic": told("a")}, "same")
        before = store.load("s0")
        store.attach("s0", "shadow:x", {"semantic": told("a")}, "same")
        assert store.load("s0") == before
        with pytest.raises(SequenceConflict, match="session s0, shadow:x/semantic: other records"):
            store.attach("s0", "shadow:x", {"semantic": told("b")}, "changed")
        with pytest.raises(SequenceConflict):
            store.attach("s0", "shadow:x", {"semantic": told("a")[:-1]}, "changed")
        # All of it or nothing.
        with pytest.raises(SequenceConflict):
            store.attach("s0", "shadow:x", {"frame": [Record(0, 0, 0, Head(200, ()))], "semantic": told("b")}, "failed")
        assert store.load("s0") == before

    def test_lean_keeps_the_verdict_and_a_digest(self, store: EventStore) -> None:
        record(store.writer(opening("s0"), "lean"), batches(words(3))).close("closed")
        store.flush()
        before = store.load("s0")
        store.attach("s0", "shadow:x", {"semantic": told("a")}, "changed")
        after = store.load("s0")
        assert after.records == before.records
        assert after.info.events == before.info.events
        assert after.info.shadows == {"x": "changed"}
        digest = codec.digest([item.event for item in told("a")])
        assert after.info.digests == {**before.info.digests, "shadow:x/semantic": digest}

    @pytest.mark.parametrize("mode", ["full", "lean"])
    def test_what_was_attached_goes_along_with_a_trace(self, store: EventStore, tmp_path: Path, mode: Mode) -> None:
        record(store.writer(opening("s0", upstream=TOKENS), mode), relayed()).close("closed")
        store.attach("s0", "shadow:a.py:P", {"semantic": told("Où")}, "changed")
        found = store.load("s0")
        trace.write(found, tmp_path / "s0.jsonl")
        read = trace.read(tmp_path / "s0.jsonl")
        assert read == found
        assert trace.dumps(read) == trace.dumps(found)
        assert store.save([read]) == 0
        copy = Trace(
            opening=msgspec.structs.replace(read.opening, session="s1"),
            info=msgspec.structs.replace(read.info, session="s1"),
            records=read.records,
        )
        assert store.save([copy]) == 1
        assert store.load("s1") == copy
        # What was imported is added to like what was recorded.
        store.attach("s1", "shadow:b", {"semantic": told("b")}, "same")
        assert store.info("s1").shadows == {"a.py:P": "changed", "b": "same"}
        assert store.load("s1").records.get(("shadow:b", "semantic"), told("b")) == told("b")
        store.note_rules("s1", {"INV-030": 1}, 1)
        assert store.info("s1").shadows == {"a.py:P": "changed", "b": "same"}
        assert store.info("s1").rules == {"INV-030": 1}

    def test_only_to_a_session_that_has_ended(self, store: EventStore) -> None:
        writer = record(store.writer(opening("s0")), batches(words(5))[:4])
        store.flush()
        with pytest.raises(StillOpen, match="session s0 is still being recorded"):
            store.attach("s0", "shadow:x", {}, "same")
        with pytest.raises(SessionNotFound):
            store.attach("s1", "shadow:x", {}, "same")
        writer.append(Batch("input", "engine", 2, 0, [AbortInput("client")]))
        writer.close("aborted")
        store.attach("s0", "shadow:x", {"semantic": told("a")}, "same")
        assert store.info("s0").shadows == {"x": "same"}

    def test_to_a_session_that_lost_records(self, store: EventStore) -> None:
        first = Batch("served", "semantic", 0, 5, [Start(0, 3)], [0])
        writer = record(store.writer(opening("s0")), [first, Batch("served", "semantic", 0, 5, [Start(0, 4)], [0])])
        store.flush()
        assert writer.incomplete
        store.attach("s0", "shadow:x", {"semantic": told("a")}, "uncompared")
        info = store.info("s0")
        assert (info.state, info.shadows) == ("incomplete", {"x": "uncompared"})

    @pytest.mark.parametrize(
        ("track", "layers", "verdict", "says"),
        [
            ("served", {}, None, "'served'"),
            ("upstream", {}, None, "'upstream'"),
            ("", {}, None, "''"),
            ("shadow:x", {}, None, "'shadow:x', verdict None"),
            ("expected", {}, "same", "'expected', verdict same"),
            ("expected", {"semantic": told("a")[1:]}, None, "expected/semantic: the records are not numbered"),
            ("expected", {"semantic": [*told("a"), *told("a")]}, None, "not numbered from 0"),
        ],
    )
    def test_what_cannot_be_attached_is_the_callers_mistake(
        self, store: EventStore, track: str, layers: dict[Layer, list[Record]], verdict: Any, says: str
    ) -> None:
        record(store.writer(opening("s0")), batches(words(3))).close("closed")
        store.flush()
        before = store.load("s0")
        with pytest.raises(ValueError, match=says):
            store.attach("s0", track, layers, verdict)
        assert store.load("s0") == before
