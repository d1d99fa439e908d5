"""Two tracks with equal events have one list of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from replay import Replayer
from replay.derive import Track
from replay.verdict import Depth
from stages.events import Content, Start
from store import codec
from store.api import Batch, Rows
from store.sqlite import SqliteStore
from tests.support.replay import SAID, record, tokens, whole
from tests.support.replay import opening as replay_opening
from tests.support.store import opening


def track(*texts: str) -> Track:
    events = [Start(0, 1), *(Content(0, text, (0, 0)) for text in texts)]
    return Track(events, list(range(len(events))), list(range(len(events))))


def test_equal_tracks_share_events_and_messages() -> None:
    one, other = track("a", "b"), track("a", "b")
    assert one.share(other)
    assert one.events is other.events
    assert one.messages() is other.messages()
    assert [message.content for message in one.messages()] == ["ab"]


def test_tracks_that_differ_share_nothing() -> None:
    one, other = track("a", "b"), track("ab")
    assert not one.share(other)
    assert [message.content for message in one.messages()] == [message.content for message in other.messages()]
    assert one.messages() is not other.messages()


def test_what_is_said_depends_on_whether_a_function_was_named() -> None:
    one = track("a")
    assert one.messages(named=True) is one.messages(named=True)
    assert one.messages(named=True) is not one.messages()


def test_cutting_one_leaves_the_other() -> None:
    one, other = track("a", "b"), track("a", "b")
    assert one.share(other)
    assert other.messages()[0].content == "ab"
    one.cut(2)
    assert (len(one.events), len(one.causes), len(one.steps), len(other.events)) == (2, 2, 2, 3)
    assert (one.messages()[0].content, other.messages()[0].content) == ("a", "ab")


def stored(path: Path, *texts: str) -> Track:
    """Such a track as a store gives it, not decoded yet."""
    made = track(*texts)
    opened = opening()
    store = SqliteStore(path)
    writer = store.writer(opened)
    writer.append(Batch("served", "semantic", 0, 0, made.events, made.causes))
    writer.close("closed")
    store.flush()
    rows = store.load(opened.session, lazy=True).records["served", "semantic"]
    store.close()
    assert isinstance(rows, Rows)
    return Track(rows, made.causes, made.steps)


def test_stored_events_that_are_equal_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = track("a", "b"), stored(tmp_path / "a.db", "a", "b")
    monkeypatch.setattr(codec, "decode", None)
    assert one.share(other)
    assert one.events is other.events
    assert one.messages() is other.messages()
    assert one.digest() == other.digest() == codec.digest(track("a", "b").events)


def test_stored_events_that_differ_are_decoded(tmp_path: Path) -> None:
    one, other = track("a", "b"), stored(tmp_path / "a.db", "a", "c")
    assert not one.share(other)
    assert other.events == track("a", "c").events
    assert [message.content for message in other.messages()] == ["ac"]


def test_stored_events_beside_what_cannot_be_encoded(tmp_path: Path) -> None:
    one, other = track("a", "\ud800"), stored(tmp_path / "a.db", "a", "b")
    assert not one.share(other)
    assert other.events == track("a", "b").events


@pytest.mark.parametrize("depth", ["message", "frame"])
def test_nothing_of_a_session_waits_for_the_collector(tmp_path: Path, depth: Depth) -> None:
    """Memory that is used again at once is in the caches, and a run's memory is flat."""
    store = SqliteStore(tmp_path / "a.db")
    store.save([record(replay_opening(), whole(tokens(SAID)))])
    replayer = Replayer(layer=depth)

    def replayed() -> str:
        return replayer.replay(store.load(replay_opening().session, lazy=True)).verdict

    assert replayed() == "same"
    gc.disable()
    left: list[int] = []
    try:
        for _ in range(3):
            gc.collect()
            assert replayed() == "same"
            left.append(gc.collect())
    finally:
        gc.enable()
        store.close()
    # Whatever other threads leave meanwhile: those of the store, and of what runs the tests.
    assert min(left) == 0
