"""A process that records: ``python -m tests.store.child PATH COMMAND …``. Its parent kills it.

``hold NAME``: record half a session, say so on stdout, wait for stdin to end.
``many PREFIX COUNT``: record COUNT sessions and end.
``forever PREFIX SIDE``: record sessions without end, four at a time, noting each commit in the file SIDE.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator

from store.api import Batch, Mode, SessionWriter
from store.sqlite import SqliteStore
from tests.support.store import batches, opening, record, words


def plan(name: str) -> tuple[Mode, list[Batch]]:
    """What the session of this name holds: its last part is a number that says how much and how."""
    number = int(name.rpartition("-")[2])
    mode: Mode = "lean" if number % 5 == 4 else "full"
    return mode, batches(words(10 + 61 * number % 400), size=1 + number % 3)


def hold(path: str, name: str) -> None:
    store = SqliteStore(path)
    mode, made = plan(name)
    record(store.writer(opening(name), mode), made[: len(made) // 2]).committed().result()
    os.write(1, b"ready\n")
    sys.stdin.read()


def many(path: str, prefix: str, count: str) -> None:
    store = SqliteStore(path, window_s=0.001)
    for number in range(int(count)):
        mode, made = plan(f"{prefix}-{number}")
        record(store.writer(opening(f"{prefix}-{number}"), mode), made).close("closed")
    store.close()
    assert store.stats()["lost_records"] == 0


def forever(path: str, prefix: str, side: str) -> None:
    fd = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(durable: list[tuple[str, str, str, int]]) -> None:
        lines = "".join(f"{session} {track} {layer} {seq}\n" for session, track, layer, seq in durable)
        os.write(fd, lines.encode())

    store = SqliteStore(path, window_s=0.001, on_commit=note)
    numbers = itertools.count()
    running: list[Iterator[SessionWriter]] = []
    for turn in itertools.count():
        if len(running) < 4:
            running.append(_session(store, f"{prefix}-{next(numbers)}"))
        one = running[turn % len(running)]
        writer = next(one, None)
        if writer is None:
            running.remove(one)
        elif turn % 50 == 0:
            # Not further ahead of the disk than that, or memory would fill.
            writer.committed().result()


def _session(store: SqliteStore, name: str) -> Iterator[SessionWriter]:
    mode, made = plan(name)
    writer = store.writer(opening(name), mode)
    for batch in made:
        writer.append(batch)
        yield writer
    writer.close("closed")


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"hold": hold, "many": many, "forever": forever}
    commands[sys.argv[2]](sys.argv[1], *sys.argv[3:])
