"""What a request asks of its stream, beside its protocol: in its query, so that no client's own fields are touched."""

from __future__ import annotations

from math import inf, isnan
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, QueryParams

from stages.errors import RequestError

_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_OURS = ("event_ids", "resume")
_MOST = 18
"""Digits of a position."""


class Wish(NamedTuple):
    """``event_ids``: each event of the stream has its position as its id; ``resume``: seconds that a recorded stream
    goes on for whoever takes it up again, once its client has left."""

    event_ids: bool = False
    resume: float = 0.0


PLAIN = Wish()


class Place(NamedTuple):
    """Where a reader takes a stream up: behind so many events. ``numbered``: its events have ids; ``reconnects``: it
    comes again until 204 tells it that there is no more; ``responses``: it names the last event by its
    ``sequence_number``, which is one less, in ``starting_after``."""

    after: int = 0
    numbered: bool = False
    reconnects: bool = False
    responses: bool = False


START = Place()


def wish_of(query: bytes, resume: float, most: float) -> Wish:
    """The wish of a POST. ``resume``: where the request names none; ``most``: what it may name, at most; more is that.
    Raises RequestError."""
    given = QueryParams(query)
    seconds = given.get("resume")
    return Wish(_truth(given, "event_ids"), resume if seconds is None else min(_seconds(seconds), most))


def without_wishes(query: str) -> str:
    """A query as another server is to get it; as it is, where it asks nothing of us."""
    items = parse_qsl(query, keep_blank_values=True)
    rest = [(name, value) for name, value in items if name not in _OURS]
    return query if len(rest) == len(items) else urlencode(rest)


def place_of(query: bytes, headers: Headers) -> Place:
    """The place of a GET. A browser that reconnects asks for the same address again, and says in a header how far it
    came. Raises RequestError."""
    given = QueryParams(query)
    last = headers.get("last-event-id", "")
    if last:
        return Place(_position(last, "Last-Event-ID"), numbered=True, reconnects=True)
    return Place(_position(given.get("after", "0"), "after"), numbered=_truth(given, "event_ids"))


def _truth(given: QueryParams, name: str) -> bool:
    value = given.get(name, "false")
    if value not in _TRUTH:
        raise RequestError(f"{name} must be true or false, not {value[:40]!r}.", param=name)
    return _TRUTH[value]


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -inf
    if isnan(seconds) or seconds < 0:
        raise RequestError(f"resume must be a number of seconds, not {value[:40]!r}.", param="resume")
    return seconds


def _position(value: str, name: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST):
        raise RequestError(f"{name} must be the number of an event, from 0 on, not {value[:40]!r}.", param=name)
    return int(value)
