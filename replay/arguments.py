"""arguments: what a program may hand to ``Replayer`` and ``run_replay`` by mistake, told in words."""

from __future__ import annotations

from typing import Any

import msgspec

from replay.errors import BadSplit, ReplayError
from replay.sizes import Histogram
from replay.split import check


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


def function(given: Any, what: str, *, named: bool = False) -> Any:
    """A function. ``named``: or its name. Raises ReplayError for what is none."""
    if not callable(given) and not (named and isinstance(given, str)):
        raise ReplayError(f"{what} {given!r} is {type(given).__name__}, not a function")
    return given
