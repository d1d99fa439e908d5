"""Two tracks with equal events have one list of them."""

from __future__ import annotations

from replay.derive import Track
from stages.events import Content, Start


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
