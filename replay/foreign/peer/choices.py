"""choices: the loops over a session's steps and choices that adapters share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .worker import Unsupported, described


class Choice(Protocol):
    """The parser of one choice. Deltas as ``worker`` has them."""

    def step(self, step: dict[str, Any], end: dict[str, Any] | None) -> list[Any]:
        """The deltas of a step. ``end``: the choice's finish, with its last step."""
        ...

    def end(self) -> list[Any]:
        """The deltas at its end."""
        ...


def ended(session: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each step, and, with the last one of a choice, its finish."""
    steps: list[dict[str, Any]] = session["steps"]
    last = {step["choice"]: at for at, step in enumerate(steps)}
    for at, step in enumerate(steps):
        yield step, session["finish"].get(str(step["choice"])) if last[step["choice"]] == at else None


def streamed(session: dict[str, Any], start: Callable[[], Choice], raises: type[Exception]) -> dict[str, Any]:
    """What is streamed, as the answer has it. ``start``: makes a choice's parser; ``raises``: what that parser's code
    does, which ends the stream."""
    choices: dict[int, Choice] = {}
    out: list[list[Any]] = []
    flush: dict[str, list[Any]] = {}
    error: dict[str, str] | None = None
    ns = 0
    for step, end in ended(session):
        number = step["choice"]
        begun = time.thread_time_ns()
        try:
            if number not in choices:
                choices[number] = start()
            out.append(choices[number].step(step, end))
            if end is not None:
                flush[str(number)] = choices[number].end()
        except Unsupported:
            raise
        except raises as raised:
            error = described(raised)
            break
        ns += time.thread_time_ns() - begun
    return {"steps": out, "flush": flush, "error": error, "ns": ns}


def at_once(
    session: dict[str, Any], message: Callable[[int], dict[str, Any]], raises: type[Exception]
) -> dict[str, Any]:
    """The messages of the whole text, as the answer has them; None where a choice did not end. ``message``: makes that
    of a choice."""
    none: dict[str, Any] = {"one_shot": None, "one_shot_error": None}
    numbers = sorted({step["choice"] for step in session["steps"]})
    if not all(str(number) in session["finish"] for number in numbers):
        return none
    try:
        return {**none, "one_shot": [message(number) for number in numbers]}
    except Unsupported:
        raise
    except raises as raised:
        return {**none, "one_shot_error": described(raised)}
