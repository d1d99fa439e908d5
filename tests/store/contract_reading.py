"""What every store must do for who reads a session in pieces, while it is written and afterwards, and for who deletes
one. See ``contract``."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stages.events import LAYERS
from store.api import EventStore, Overtaken, Record, SequenceConflict, SessionNotFound, State, StillOpen
from store.rules import Key
from tests.support.store import batches, opening, record, records, same, words

FRAMES: Key = ("served", "frame")
KEYS: tuple[Key, ...] = (FRAMES, ("served", "semantic"), ("input", "engine"), ("socket", "frame"))
NAME = opening().session
OTHER = "0123456789abcdef0123456789abcdee"


def in_pieces(store: EventStore, key: Key, first: int = 0, about: int = 256) -> tuple[list[Record], State]:
    """All of a layer that is there, from ``first`` on, piece by piece; and the state that ended it."""
    found: list[Record] = []
    while True:
        piece = store.read(NAME, *key, first + len(found), about=about)
        if not piece.records:
            return found, piece.state
        found += piece.records


class ReadingContract:
    """The part of the contract that is about reading in pieces, and about deleting."""

    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        raise NotImplementedError

    # --- reading in pieces ------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [1, 7, 300])
    def test_a_layer_comes_in_pieces_from_any_record_on(self, store: EventStore, size: int) -> None:
        made = batches(words(700), size=size)
        record(store.writer(opening()), made).close("closed")
        store.flush()
        whole = records(made)
        for key in KEYS:
            for first in (0, 1, 255, 256, 257, 500, len(whole[key]) - 1, len(whole[key]), 5000):
                if first >= 0:
                    assert in_pieces(store, key, first) == (whole[key][first:], "closed"), (key, first)

    @pytest.mark.parametrize("about", [1, 10, 256, 300])
    def test_a_piece_has_so_many_records_where_they_are_there(self, store: EventStore, about: int) -> None:
        made = batches(words(1000))
        record(store.writer(opening()), made).close("closed")
        store.flush()
        assert len(store.read(NAME, *FRAMES, 3, about=about).records) >= about
        assert 1 <= len(store.read(NAME, *FRAMES, 1000, about=about).records) <= 2
        assert in_pieces(store, FRAMES, about=about)[0] == records(made)[FRAMES]

    def test_what_is_written_is_there_piece_by_piece(self, store: EventStore) -> None:
        made = batches(words(600), size=5)
        writer = store.writer(opening())
        found: list[Record] = []
        for start in range(0, len(made), 40):
            record(writer, made[start : start + 40])
            writer.committed().result(10)
            more, state = in_pieces(store, FRAMES, len(found))
            found += more
            assert state == "open"
            assert found == records(made[: start + 40])[FRAMES]
        writer.close("detached")
        store.flush()
        assert in_pieces(store, FRAMES) == (records(made)[FRAMES], "detached")

    def test_a_layer_that_is_not_there_is_empty(self, store: EventStore) -> None:
        record(store.writer(opening(), "lean"), batches(words(20))).close("aborted")
        store.flush()
        assert in_pieces(store, FRAMES) == ([], "aborted")
        assert store.read(NAME, *FRAMES).mode == "lean"
        assert in_pieces(store, ("input", "engine"))[0] == records(batches(words(20)))["input", "engine"]

    def test_only_the_whole_id_names_a_session(self, store: EventStore) -> None:
        record(store.writer(opening()), batches(words(3))).close("closed")
        store.flush()
        assert store.opening(NAME) == opening()
        for name in ("", NAME[:-1], f"{NAME}0", "%"):
            with pytest.raises(SessionNotFound):
                store.opening(name)
            with pytest.raises(SessionNotFound):
                store.read(name, *FRAMES)

    # --- being told -------------------------------------------------------------------------------------------------

    def test_who_watches_is_told_of_every_commit_until_it_ends(self, store: EventStore) -> None:
        made = batches(words(30))
        told = threading.Event()
        other = threading.Event()
        end = store.watch(NAME, told.set)
        store.watch(OTHER, other.set)
        writer = store.writer(opening())
        for batch in made:
            told.clear()
            writer.append(batch)
            assert told.wait(10)
            assert in_pieces(store, (batch.track, batch.layer))[0][-1].event == batch.events[-1]
        told.clear()
        writer.close("closed")
        assert told.wait(10)
        assert store.read(NAME, *FRAMES).state == "closed"
        assert not other.is_set()
        end()
        end()
        told.clear()
        second = record(store.writer(opening(OTHER)), made)
        second.committed().result(10)
        assert other.wait(10)
        assert not told.is_set()
        second.close("closed")

    def test_who_watches_is_told_that_nothing_more_comes(self, store: EventStore) -> None:
        record(store.writer(opening()), batches(words(3))).close("closed")
        store.flush()
        told = threading.Event()
        store.watch(NAME, told.set)
        # The session is there, with other records.
        writer = record(store.writer(opening()), batches(words(3)[::-1]))
        assert told.wait(10)
        with pytest.raises(SequenceConflict):
            writer.committed().result(10)

    # --- conversations ----------------------------------------------------------------------------------------------

    def test_of_two_that_know_the_same_of_a_conversation_one_is_recorded(self, store: EventStore) -> None:
        names = [f"{number:032x}" for number in range(6)]
        opened = [opening(name, conversation="conv_a", opened=number) for number, name in enumerate(names)]
        store.writer(opening(OTHER, conversation="conv_b")).close("closed")
        first = store.writer(opened[0], known=[])
        first.committed().result(10)
        # It is at work, and not known to these; what they would record is not.
        for known in ([], [OTHER], [names[0], OTHER]):
            late = record(store.writer(opened[1], known=known), batches(words(3)))
            with pytest.raises(Overtaken):
                late.committed().result(10)
            assert late.incomplete
            late.close("closed")
        # In one moment, and with one known to be running.
        both = [store.writer(one, known=[names[0]]) for one in opened[2:4]]
        both[0].committed().result(10)
        with pytest.raises(Overtaken):
            both[1].committed().result(10)
        for writer in (first, both[0]):
            writer.close("closed")
        store.flush()
        assert [info.session for info in store.sessions("conversation = 'conv_a'")] == [names[2], names[0]]
        # What is gone is noticed as well.
        store.delete(names[0])
        with pytest.raises(Overtaken):
            store.writer(opened[4], known=[names[0], names[2]]).committed().result(10)
        # The second time it is there itself.
        for _ in range(2):
            last = store.writer(opened[5], "lean", known={names[2]})
            last.close("closed")
            last.committed().result(10)
        assert store.stats()["failures"] == 0

    # --- deleting ---------------------------------------------------------------------------------------------------

    def test_a_deleted_session_is_nowhere(self, store: EventStore) -> None:
        made = batches(words(600))
        for name in (NAME, OTHER):
            record(store.writer(opening(name)), made).close("closed")
        store.flush()
        store.delete(NAME)
        for look in (store.info, store.load, store.opening, store.delete):
            with pytest.raises(SessionNotFound):
                look(NAME)
        assert [info.session for info in store.sessions()] == [OTHER]
        assert [info.session for info in store.search("licence")] == [OTHER]
        assert same(store.load(OTHER), opening(OTHER), made)

    def test_its_id_may_be_used_again(self, store: EventStore) -> None:
        record(store.writer(opening()), batches(words(400))).close("closed")
        store.flush()
        store.delete(NAME)
        made = batches(words(30)[::-1])
        writer = record(store.writer(opening(model="demo-2")), made)
        writer.close("aborted")
        store.flush()
        assert not writer.incomplete
        assert same(store.load(NAME), opening(model="demo-2"), made)

    def test_a_beginning_that_is_unique_names_it(self, store: EventStore) -> None:
        for name in (NAME, OTHER):
            record(store.writer(opening(name)), batches(words(3))).close("closed")
        store.flush()
        with pytest.raises(SessionNotFound, match="begins several"):
            store.delete(NAME[:-1])
        store.delete(NAME)
        store.delete(OTHER[:4])
        assert list(store.sessions()) == []

    def test_what_is_being_recorded_stays(self, store: EventStore) -> None:
        made = batches(words(30))
        writer = record(store.writer(opening()), made[:40])
        store.flush()
        with pytest.raises(StillOpen):
            store.delete(NAME)
        record(writer, made[40:]).close("closed")
        store.flush()
        assert same(store.load(NAME), opening(), made)

    def test_what_was_attached_goes_with_it(self, store: EventStore) -> None:
        made = batches(words(30))
        record(store.writer(opening()), made).close("closed")
        store.flush()
        store.attach(NAME, "shadow:plain", {"semantic": records(made)["served", "semantic"]}, "same")
        store.delete(NAME)
        record(store.writer(opening()), made).close("closed")
        store.flush()
        assert [key for key in store.load(NAME).records if key[0] == "shadow:plain"] == []
        assert len(store.load(NAME).records) == len(LAYERS) + 1
