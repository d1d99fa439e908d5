"""What an output costs, counted and not timed, for outputs that no model means."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from stages.stage import fold
from tests.support.format_checks import Subject
from tests.support.generate.family import tokenize
from tests.support.parse import grouped, session


class _Count:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        self.calls += event in ("call", "c_call")


def work(subject: Subject) -> int:
    """The calls of functions that the output takes, a token of three characters a step."""
    pieces = tokenize(subject.raw, subject.family.tokenizer, 3)
    inputs = session(grouped(pieces, [1] * len(pieces)), tail=subject.tail)
    machine = subject.stage("incremental").start(subject.opened("incremental"))
    count = _Count()
    sys.setprofile(count)
    try:
        fold(machine, inputs)
    finally:
        sys.setprofile(None)
    return count.calls
