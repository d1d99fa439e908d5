"""arguments: what a program may hand to ``Replayer`` and ``run_replay`` by mistake, told in words."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from replay.errors import BadSplit, ReplayError
from replay.sizes import Histogram
from replay.split import check
from store.api import Trace


def splits(given: Any) -> tuple[str, ...]:
    """The splits. Raises BadSplit for what is none, and for one text in place of several."""
    found = _several(given)
    if found is None:
        raise BadSplit(f"splits is a sequence of names, such as {_sequence(given)}, not {given!r}; see parse_splits")
    for split in found:
        if not isinstance(split, str):
            raise BadSplit(f"{split!r} among the splits is {type(split).__name__}, not the name of a split")
        check(split)
    return found


def _several(given: Any) -> tuple[Any, ...] | None:
    """The items of what has any, but of no text."""
    return None if isinstance(given, str) or not hasattr(given, "__iter__") else tuple(given)


def _sequence(given: Any) -> str:
    """What was meant."""
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) and given else ["one", "token"]
    return str(names)


def histogram(given: Any) -> Histogram:
    """The histogram, by rising size. Raises ReplayError for what is none."""
    try:
        pairs = msgspec.convert(tuple(given), tuple[tuple[int, int], ...])
    except (TypeError, msgspec.ValidationError) as error:
        raise ReplayError(
            f"histogram is pairs of the tokens in a step and how often, such as [(1, 90), (4, 10)], not {given!r}"
        ) from error
    return tuple(sorted(pairs))


def rules(given: Any, *, named: bool = False) -> tuple[Any, ...]:
    """The ignore rules. ``named``: they may also be names. Raises ReplayError for one in place of several, and for what
    is no function."""
    found = _several(given)
    if found is None:
        raise ReplayError(f"ignore is a sequence of functions, such as [{getattr(given, '__name__', repr(given))}]")
    return tuple(function(rule, "ignore rule", named=named) for rule in found)


def trace(given: Any) -> Trace:
    """A session. Raises ReplayError for what is none, such as the path of some."""
    if not isinstance(given, Trace):
        raise ReplayError(f"a session is a store.api.Trace, not {_short(given)}; {_TRACES}")
    return given


def traces(given: Any) -> Iterable[Trace]:
    """Sessions. Raises ReplayError for a path, for one session, and for what cannot be gone through."""
    if isinstance(given, str | Trace) or not hasattr(given, "__iter__"):
        raise ReplayError(f"sessions are an iterable of store.api.Trace, not {_short(given)}; {_TRACES}")
    found: Iterable[Trace] = given
    return found


_TRACES = 'replay.traces("PATH") gives those of a store, a trace file or a folder'


def _short(given: Any) -> str:
    """A path as it is, of anything else the kind."""
    return repr(given) if isinstance(given, str | Path) else type(given).__name__


def baseline(given: Any) -> Any:
    """The baseline of a Replayer, which has no earlier run. Raises ReplayError for the name of a report."""
    if isinstance(given, str) and given.endswith(".json"):
        raise ReplayError(
            f"baseline {given!r} is the report of an earlier run: run_replay compares with it "
            f"(baseline={given!r}), and playhead replay (--baseline {given}); a Replayer compares with the record or a "
            "parser"
        )
    return given


def paths(given: Any) -> tuple[str, ...]:
    """The paths of sources. Raises ReplayError for one in place of several, and for what is no path."""
    found = _several(given)
    if found is None:
        such = [str(given)] if isinstance(given, str | Path) else ["playhead.db", "traces"]
        raise ReplayError(f"sources is a sequence of paths, such as {such}, not {_short(given)}")
    for each in found:
        if not isinstance(each, str | Path):
            raise ReplayError(f"{each!r} among the sources is {type(each).__name__}, not a path")
    return tuple(map(str, found))


def function(given: Any, what: str, *, named: bool = False) -> Any:
    """A function. ``named``: or its name. Raises ReplayError for what is none."""
    if not callable(given) and not (named and isinstance(given, str)):
        raise ReplayError(f"{what} {given!r} is {type(given).__name__}, not a function")
    return given


def sessions(given: Any) -> tuple[str, ...]:
    """Ids, or prefixes of ids. Raises ReplayError for one in place of several, and for what is none."""
    found = _several(given)
    if found is None:
        such = [given] if isinstance(given, str) and given else ["01a2", "01a3"]
        raise ReplayError(f"sessions is a sequence of ids, or prefixes of ids, such as {such}, not {_short(given)}")
    for each in found:
        if not isinstance(each, str):
            raise ReplayError(f"{each!r} among the sessions is {type(each).__name__}, not an id")
    if not all(found):
        raise ReplayError("a session without a name: give an id, or the start of one")
    return found


def pythons(given: Any) -> tuple[str, ...]:
    """The Pythons of other engines. Raises ReplayError for one in place of several, and for what is no path."""
    found = _several(given)
    if found is None:
        such = [str(given)] if given and isinstance(given, str | Path) else ["venv/bin/python"]
        raise ReplayError(f"peer_python is a sequence of paths, such as {such}, not {_short(given)}")
    for each in found:
        if not isinstance(each, str | Path):
            raise ReplayError(f"{each!r} in peer_python is {type(each).__name__}, not a path")
    return tuple(map(str, found))


def track(given: Any) -> str | None:
    """The name of a track; None is none. Raises ReplayError for what is no name."""
    if given is None or isinstance(given, str):
        return given
    raise ReplayError(f"track is a name, such as 'upstream', not {given!r}")


def path(given: Any, what: str) -> str | None:
    """The path of a file; None is none. Raises ReplayError for what is no path."""
    if given is not None and not isinstance(given, str | Path):
        raise ReplayError(f"{what} {given!r} is {type(given).__name__}, not a path")
    return None if given is None else str(given)


def manner(jobs: Any, time_limit: Any) -> None:
    """How a run is done. Raises ReplayError for what are no numbers, or none that will do."""
    if not isinstance(jobs, int) or isinstance(jobs, bool):
        raise ReplayError(f"jobs is a number of processes, such as 2, not {jobs!r}")
    if not isinstance(time_limit, int | float) or isinstance(time_limit, bool):
        raise ReplayError(f"time_limit is a number of seconds, such as 60.0, not {time_limit!r}")
    if jobs < 1 or not 0 < time_limit < inf:
        raise ReplayError(f"{jobs} jobs and {time_limit:g} s: both must be above 0, and finite")
