"""What every store must do to find sessions, take in whole ones, and end. See ``contract``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stages.events import CallArguments, CallStart, Content, PromptInput, Reasoning
from stages.opening import UpstreamFacts
from store import trace
from store.api import (
    BadQuery,
    Batch,
    EventStore,
    SequenceConflict,
    SessionInfo,
    SessionNotFound,
    StillOpen,
    StoreError,
    Trace,
)
from tests.support.store import SECOND, batches, opening, record, same, words


class FindingContract:
    """The rest of the contract."""

    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        raise NotImplementedError

    # --- what the protocol rules found ------------------------------------------------------------------------------

    def test_what_the_rules_found_is_in_the_projection(self, store: EventStore) -> None:
        made = batches(words(5))
        for name in ("s0", "s1"):
            record(store.writer(opening(name)), made).close("closed")
        store.flush()
        before = store.info("s0")
        assert (before.validated, before.rules, before.rule_errors) == (False, {}, 0)
        store.note_rules("s0", {"INV-075": 1, "INV-030": 40}, 1)
        after = store.info("s0")
        assert after == store.load("s0").info
        assert after == msgspec.structs.replace(
            before, validated=True, rules={"INV-030": 40, "INV-075": 1}, rule_errors=1
        )
        assert [info.validated for info in store.sessions()].count(True) == 1
        assert not store.info("s1").validated
        store.note_rules("s0", {}, 0)
        assert store.info("s0") == msgspec.structs.replace(before, validated=True)
        assert same(store.load("s0"), opening("s0"), made)

    def test_what_the_rules_found_goes_along_with_a_trace(self, store: EventStore) -> None:
        record(store.writer(opening("s0")), batches(words(5))).close("aborted")
        store.flush()
        store.note_rules("s0", {"INV-033": 2}, 2)
        [found] = trace.loads(trace.dumps(store.load("s0")))
        assert found.info == store.info("s0")
        copy = msgspec.structs.replace(found.opening, session="s1")
        store.save([Trace(opening=copy, info=found.info, records=found.records)])
        assert (store.info("s1").rules, store.info("s1").rule_errors) == ({"INV-033": 2}, 2)
        store.note_rules("s1", {}, 0)
        assert store.info("s1").rules == {}

    def test_only_an_ended_session_is_judged(self, store: EventStore) -> None:
        writer = record(store.writer(opening("s0")), batches(words(5))[:4])
        store.flush()
        with pytest.raises(StillOpen, match="session s0 is still being recorded"):
            store.note_rules("s0", {}, 0)
        with pytest.raises(SessionNotFound):
            store.note_rules("s1", {}, 0)
        writer.close("closed")
        store.note_rules("s0", {}, 0)
        assert store.info("s0").validated

    # --- finding ----------------------------------------------------------------------------------------------------

    def test_newest_first(self, store: EventStore) -> None:
        for number in (2, 0, 1):
            opened = opening(f"s{number}", opened=opening().opened + number * SECOND)
            store.writer(opened).close("aborted" if number == 1 else "closed")
        record(store.writer(opening("s3", opened=opening().opened + 3 * SECOND)), batches(words(3))[:4])
        store.flush()
        assert [info.session for info in store.sessions()] == ["s3", "s2", "s1", "s0"]
        assert [info.session for info in store.sessions(limit=2)] == ["s3", "s2"]
        assert list(store.sessions(limit=0)) == []
        assert [info.session for info in store.sessions(state="closed")] == ["s2", "s0"]
        assert [info.session for info in store.sessions(state="closed", limit=1)] == ["s2"]
        assert [info.session for info in store.sessions(state="aborted")] == ["s1"]
        assert [info.session for info in store.sessions(state="open")] == ["s3"]
        assert list(store.sessions(state="torn")) == []

    def test_more_than_a_page(self, store: EventStore) -> None:
        names = [f"{number:03d}" for number in range(450)]
        for at, name in enumerate(names):
            # Three at a time have the same second: pages may not lose or double any.
            store.writer(opening(name, opened=opening().opened + at // 3)).close("closed")
        store.flush()
        assert sorted(info.session for info in store.sessions()) == names
        assert len(list(store.sessions(limit=250))) == 250

    # --- finding by a condition -------------------------------------------------------------------------------------

    @pytest.fixture
    def varied(self, store: EventStore) -> EventStore:
        """Five sessions, s0 the oldest: of an upstream, with shadows, aborted, lean, judged."""
        hosted = UpstreamFacts(name="hosted", url="https://host", path="/v1/messages", depth="verbatim")
        fields: list[dict[str, Any]] = [{}, {"upstream": hosted}, {"model": "o'brien"}, {"parser": "llama3"}, {}]
        for number, more in enumerate(fields):
            opened = opening(f"s{number}", opened=opening().opened + number, **more)
            writer = store.writer(opened, "lean" if number == 3 else "full")
            record(writer, batches(words(2 + number))).close("aborted" if number == 4 else "closed")
        store.attach("s0", "shadow:hermes", {}, "changed")
        store.attach("s0", "shadow:qwen3", {}, "same")
        store.attach("s2", "shadow:hermes", {}, "same")
        store.attach("s3", "shadow:a.py:P", {}, "failed")
        store.attach("s3", "shadow:hermes", {}, "uncompared")
        store.note_rules("s4", {"INV-030": 2}, 1)
        return store

    @pytest.mark.parametrize(
        ("where", "names"),
        [
            ("1", "s4 s3 s2 s1 s0"),
            ("0", ""),
            ("differs != ''", "s3 s0"),
            ("differs = 'a.py:P'", "s3"),
            ("depth = 'verbatim' and not relayed", ""),
            ("depth = 'verbatim' AND relayed", "s1"),
            ("upstream = 'hosted' or mode = 'lean'", "s3 s1"),
            ("json_extract(shadows, '$.hermes') = 'changed'", "s0"),
            ("json_extract(shadows, '$.\"a.py:P\"') = 'failed'", "s3"),
            ("exists (select 1 from json_each(shadows) where value = 'same')", "s2 s0"),
            ("completion_tokens between 3 and 5", "s3 s2 s1"),
            ("model like 'o''br%'", "s2"),
            ("state in ('aborted', 'torn')", "s4"),
            ("validated and rule_errors > 0", "s4"),
            ("opened = (select max(opened) from sessions)", "s4"),
            ("json_extract(finish_reasons, '$[0]') = 'eos' -- a comment", "s4 s3 s2 s0"),
            ("session = 's1' /* one */", "s1"),
            ("closed - opened > 1000000000 and error is null and upper(parser) = 'LLAMA3'", "s3"),
        ],
    )
    def test_by_a_condition(self, varied: EventStore, where: str, names: str) -> None:
        assert [info.session for info in varied.sessions(where)] == names.split()
        assert [info.session for info in varied.sessions(where, limit=1)] == names.split()[:1]
        closed = [info.session for info in varied.sessions(where, state="closed")]
        assert closed == [name for name in names.split() if name != "s4"]
        found = list(varied.sessions(where))
        assert found == [varied.info(info.session) for info in found]

    @pytest.mark.parametrize(
        "where",
        [
            "", "depth =", "no_such_column = 1", "(1", "1)", "1 /* open", "1; DROP TABLE sessions", "1\0", "'\ud800'",
            "1) OR (1) ORDER BY 1; --", "no_such_function(1)", "json_extract(shadows, 'hermes')", "json(model)",
            "abs(-9223372036854775808)", "session IN (SELECT name FROM sqlite_master)", "opening IS NOT NULL",
            "epoch = 1",
            "EXISTS (SELECT 1 FROM messages)", "EXISTS (SELECT 1 FROM segments)", "load_extension('x')",
            "1 IN (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n)",
            "1 IN (SELECT 1 FROM pragma_table_info('sessions'))", "session = ?", "session = :name", "raise(abort, 'x')",
            "DELETE FROM sessions", "1 UNION SELECT body FROM segments", "zeroblob(3000000000) = 1", "(" * 2000,
        ],
    )  # fmt: skip
    def test_what_is_no_condition(self, varied: EventStore, where: str) -> None:
        before = list(varied.sessions())
        with pytest.raises(BadQuery, match=r"cannot be used .* columns of a session: session, opened, .* differs"):
            list(varied.sessions(where))
        assert list(varied.sessions()) == before
        assert [info.session for info in varied.search("licence")]

    @pytest.mark.parametrize("where", ["1) OR (1", "1) UNION SELECT id FROM sessions WHERE (1", "1) LIMIT 3 -- "])
    def test_nothing_comes_twice(self, varied: EventStore, where: str) -> None:
        """Who leaves the parentheses changes the question, and no more."""
        try:
            names = [info.session for info in varied.sessions(where)]
        except BadQuery:
            return
        assert len(names) == len(set(names)) <= 5

    def test_a_condition_over_many(self, store: EventStore) -> None:
        for number in range(450):
            opened = opening(f"{number:03d}", opened=opening().opened + number // 3, model=f"m{number % 2}")
            store.writer(opened).close("closed")
        store.flush()
        found = [info.session for info in store.sessions("model = 'm1'")]
        assert found == [f"{number:03d}" for number in range(449, 0, -2)]
        assert [info.session for info in store.sessions("model = 'm1'", limit=210)] == found[:210]

    # --- finding by words -------------------------------------------------------------------------------------------

    def test_of_a_conversation(self, store: EventStore) -> None:
        for at, conversation in enumerate(["c1", "", "c2", "c1"]):
            made = opening(f"s{at}", opened=at * SECOND, conversation=conversation)
            record(store.writer(made), []).close("closed")
        store.flush()
        found = list(store.sessions("conversation = 'c1'"))
        assert [(info.session, info.conversation) for info in found] == [("s3", "c1"), ("s0", "c1")]
        assert store.load("s0", ()).opening == opening("s0", opened=0, conversation="c1")

    def test_search(self, store: EventStore) -> None:
        said = {"s0": "The tide is high in Brest", "s1": "The moon is full; high, high above", "s2": "Nothing (at all)"}
        for name, text in said.items():
            writer = store.writer(opening(name))
            events = [
                Reasoning(0, "hmm, let me see", (0, 15)), Content(0, text, (15, 15 + len(text))),
                CallStart(0, 0, "call_1", f"tool_{name}", (0, 0)), CallArguments(0, 0, '{"port":"Roscoff"}', (0, 0)),
            ]  # fmt: skip
            writer.append(Batch("served", "semantic", 0, 0, events, [0] * 4))
            writer.close("closed")
        store.flush()

        def hits(text: str) -> list[str]:
            return sorted(info.session for info in store.search(text))

        assert hits("tide") == ["s0"]
        assert hits("TIDE brest") == ["s0"]
        assert hits("brest tide") == ["s0"]
        assert hits("tide moon") == []
        assert [info.session for info in store.search("high")] == ["s1", "s0"]
        assert [info.session for info in store.search("high", limit=1)] == ["s1"]
        assert hits('"is high"') == ["s0"]
        assert hits('"high is"') == []
        assert hits("hmm") == ["s0", "s1", "s2"]
        assert hits("Roscoff tool_s1") == ["s1"]
        # Nothing that is typed is syntax.
        assert hits("(at all)") == ["s2"]
        for text in ("", "   ", "!!!", "NOT", "AND OR", '"', "a* b:c -d", "(", "tide AND moon"):
            assert hits(text) == []

    def test_ids_and_prefixes(self, store: EventStore) -> None:
        for name in ("abc", "abcd", "abx", "z"):
            store.writer(opening(name)).close("closed")
        store.flush()
        assert store.info("abc").session == "abc"
        assert store.info("abcd").session == "abcd"
        assert store.info("abx").session == "abx"
        assert store.load("z").opening.session == "z"
        with pytest.raises(SessionNotFound, match="abc, abcd, abx"):
            store.info("ab")
        for name in ("", "q", "abcde"):
            with pytest.raises(SessionNotFound):
                store.load(name)

    # --- whole sessions ---------------------------------------------------------------------------------------------

    def test_save_what_was_loaded(self, store: EventStore, tmp_path: Path) -> None:
        made = batches(words(600), size=4)
        record(store.writer(opening("full")), made).close("closed")
        record(store.writer(opening("lean"), "lean"), made).close("aborted")
        store.flush()
        loaded = [store.load("full"), store.load("lean")]
        for found in loaded:
            trace.write(found, tmp_path / f"{found.info.session}.jsonl")
        copies = list(trace.read_many(tmp_path))
        assert copies == loaded
        # There already, and equal.
        assert store.save(copies) == 0
        renamed = [_renamed(found, f"{found.info.session}-2") for found in copies]
        assert store.save(renamed) == 2
        for found in renamed:
            assert store.load(found.info.session) == found
        assert [info.session for info in store.search("licence") if info.session.endswith("-2")]

    def test_save_of_other_records_conflicts(self, store: EventStore) -> None:
        record(store.writer(opening()), batches(words(20))).close("closed")
        store.flush()
        found = store.load(opening().session)
        other = store.load(opening().session)
        rows = list(other.records["served", "chunk"])
        rows[3] = msgspec.structs.replace(rows[3], cause=rows[3].cause + 1)
        other.records = {**other.records, ("served", "chunk"): rows}
        with pytest.raises(SequenceConflict, match="other records"):
            store.save([other])
        other = store.load(opening().session)
        other.opening = msgspec.structs.replace(other.opening, model="demo-2")
        with pytest.raises(SequenceConflict, match="other records"):
            store.save([other])
        assert store.load(opening().session) == found

    def test_an_imported_open_session_is_torn(self, store: EventStore) -> None:
        made = batches(words(20))[:30]
        record(store.writer(opening("live")), made)
        store.flush()
        assert store.save([_renamed(store.load("live"), "copy")]) == 1
        found = store.load("copy")
        assert found.info.state == "torn"
        assert same(found, opening("copy"), made)

    # --- the end ----------------------------------------------------------------------------------------------------

    def test_a_closed_store_records_nothing(self, store: EventStore) -> None:
        writer = store.writer(opening("early"))
        store.flush()
        store.close()
        store.close()
        store.flush()
        late = store.writer(opening("late"))
        for some in (writer, late):
            some.append(Batch("input", "engine", 0, 0, [PromptInput((), "", 1)]))
            assert some.incomplete
            with pytest.raises(StoreError, match="closed"):
                some.committed().result(10)
            some.close("closed")
        assert store.stats()["lost_records"] == 2
        with pytest.raises(StoreError, match="closed"):
            store.save([Trace(opening=opening("new"), info=SessionInfo(session="new", opened=0), records={})])


def _renamed(found: Trace, name: str) -> Trace:
    return Trace(
        opening=msgspec.structs.replace(found.opening, session=name),
        info=msgspec.structs.replace(found.info, session=name),
        records=found.records,
    )
