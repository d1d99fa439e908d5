"""Small sessions, many of them, in stores and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from store import open_store, trace
from store.api import Trace
from tests.support.replay import CALLS, opening, record, tokens, whole

PARSERS = str(Path(__file__).with_name("parsers.py"))
FINE, BAD, WAITS = (f"{PARSERS}:{name}" for name in ("Fine", "Bad", "Waits"))
MODIFIED = "examples/modified_parser.py:Parser"


def ids(count: int, first: str = "0") -> list[str]:
    """Ids of sessions that begin with a digit."""
    return [f"{first}{number:031x}" for number in range(count)]


def sessions(names: Iterable[str]) -> list[Trace]:
    """Sessions of these ids, of different lengths, some without a call."""
    made: list[Trace] = []
    for number, name in enumerate(names):
        said = f"Tide {number} at Brest. " * (1 + number % 3) + (CALLS if number % 4 == 0 else "")
        made.append(record(opening(name), whole(tokens(said))))
    return made


def store_of(path: Path, names: Iterable[str]) -> str:
    """A store of them."""
    store = open_store(str(path))
    store.save(sessions(names))
    store.close()
    return str(path)


def file_of(path: Path, traces: Sequence[Trace]) -> str:
    """A trace file of them."""
    path.write_bytes(b"".join(map(trace.dumps, traces)))
    return str(path)
