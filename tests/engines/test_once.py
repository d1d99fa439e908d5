"""Values that are made once for all threads that want them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest

from pipeline.engines.once import Made, Once

PATIENCE = 20.0


def yes() -> bool:
    return True


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


class Slow:
    """Makes values when it is let: ``begun`` has a permit for each that was begun, ``gate`` lets one go on."""

    def __init__(self, cost: int = 1) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.cost = cost
        self.made: list[str] = []
        self.error: Exception | None = None

    def of(self, key: str) -> Callable[[], Made[str]]:
        def make() -> Made[str]:
            self.begun.release()
            assert self.gate.acquire(timeout=PATIENCE)
            self.made.append(key)
            if self.error is not None:
                raise self.error
            return Made(key.upper(), self.cost)

        return make


def test_what_several_want_at_once_is_made_once(threads: ThreadPoolExecutor) -> None:
    slow, once = Slow(), Once[str](9, 99, 2)
    futures = [threads.submit(once.get, "a", slow.of("a"), yes) for _ in range(6)]
    assert slow.begun.acquire(timeout=PATIENCE)
    slow.gate.release(99)
    assert [future.result(PATIENCE) for future in futures] == ["A"] * 6
    assert once.get("a", slow.of("a"), yes) == "A"
    assert slow.made == ["a"]


def test_no_more_are_made_at_once_than_there_are_slots_and_what_is_there_waits_for_none(
    threads: ThreadPoolExecutor,
) -> None:
    slow, once = Slow(), Once[str](9, 99, 2)
    slow.gate.release()
    once.get("kept", slow.of("kept"), yes)
    assert slow.begun.acquire(timeout=PATIENCE)
    futures = {key: threads.submit(once.get, key, slow.of(key), yes) for key in "abcd"}
    for _ in range(2):
        assert slow.begun.acquire(timeout=PATIENCE)
    assert once.get("kept", slow.of("kept"), yes) == "KEPT"
    assert not slow.begun.acquire(blocking=False)
    slow.gate.release(99)
    assert {key: future.result(PATIENCE) for key, future in futures.items()} == dict(zip("abcd", "ABCD", strict=True))


def test_an_error_reaches_all_who_wait_and_is_not_kept(threads: ThreadPoolExecutor) -> None:
    slow, once = Slow(), Once[str](9, 99, 1)
    slow.error = KeyError("x")
    waiting = threading.Semaphore(0)

    def ask() -> str:
        waiting.release()
        return once.get("a", slow.of("a"), yes)

    futures = [threads.submit(ask) for _ in range(4)]
    for _ in futures:
        assert waiting.acquire(timeout=PATIENCE)
    slow.gate.release(99)
    assert all(isinstance(future.exception(PATIENCE), KeyError) for future in futures)
    slow.error = None
    assert once.get("a", slow.of("a"), yes) == "A"


def test_what_nobody_wants_any_more_is_not_made(threads: ThreadPoolExecutor) -> None:
    """Whoever else wants it has it made."""
    slow, once = Slow(), Once[str](9, 99, 1)
    first = threads.submit(once.get, "first", slow.of("first"), yes)
    assert slow.begun.acquire(timeout=PATIENCE)
    here = threading.Event()
    asked = threading.Semaphore(0)

    def ask(key: str, wanted: Callable[[], bool]) -> Future[str]:
        def get() -> str:
            asked.release()
            return once.get(key, slow.of(key), wanted)

        future = threads.submit(get)
        assert asked.acquire(timeout=PATIENCE)
        return future

    left = [ask("a", here.is_set), ask("b", here.is_set), ask("b", here.is_set)]
    stays = ask("b", yes)
    slow.gate.release(99)
    assert first.result(PATIENCE) == "FIRST"
    assert isinstance(left[0].exception(PATIENCE), CancelledError)
    assert stays.result(PATIENCE) == "B"
    for future in left[1:]:  # "b" may have been there when they asked
        error = future.exception(PATIENCE)
        assert error is None or isinstance(error, CancelledError)
    assert slow.made == ["first", "b"]


@pytest.mark.parametrize(
    ("most", "room", "cost", "kept"),
    [(3, 99, 1, "cde"), (99, 25, 10, "de"), (99, 5, 10, "e"), (1, 99, 1, "e")],
)
def test_the_latest_are_kept(most: int, room: int, cost: int, kept: str) -> None:
    slow, once = Slow(cost), Once[str](most, room, 1)
    slow.gate.release(99)
    for key in "abcde":
        once.get(key, slow.of(key), yes)
    slow.made.clear()
    for key in kept:
        once.get(key, slow.of(key), yes)
    assert slow.made == []


def test_what_was_asked_for_again_is_late() -> None:
    slow, once = Slow(), Once[str](2, 99, 1)
    slow.gate.release(99)
    for key in ("a", "b", "a", "c", "a"):
        once.get(key, slow.of(key), yes)
    assert slow.made == ["a", "b", "c"]
