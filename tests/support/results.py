"""Results of replays that never ran, for reports: any number of them, without holding them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from replay.mass.tally import Tally
from replay.report import RunReport, concluded
from replay.result import Breach, SessionResult, Signature, SplitPair
from replay.verdict import Difference, Divergence, Side, Verdict

SOUND = (
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">&amp;"
    "\u202egnp.exe\x00\x1b[31m\u2028]]>"
)
"""Text that breaks what does not escape it: ends elements, runs, turns direction, is no XML."""
HOSTILE = SOUND + "\ud800"
"""And it is no UTF-8."""


def result(number: int, verdict: Verdict = "same", kind: str = "", **fields: Any) -> SessionResult:
    """One result. ``kind``: of its divergence."""
    made: dict[str, Any] = {
        "session": f"{number:032x}", "verdict": verdict, "source": "corpus.db", "model": f"model-{number % 3}",
        "parser": "parse.hermes@2", "tokens": 100 + number % 900, "digest": f"{number:064x}", "ns": 1_500_000,
    }  # fmt: skip
    if verdict in ("changed", "moved", "rechunked", "failed"):
        made["signature"] = Signature(
            verdict=verdict, kind=kind or "text", layer="semantic", recorded="content", replayed="reasoning",
            state="content", marker="<tool_call>",
        )  # fmt: skip
        made["first"] = Divergence(
            layer="semantic", kind="text", seq=3, cause=2, input="tokens choice=0 ids=[7] 'a'",
            recorded=Side(3, 2, "content choice=0 text='a'", "content"),
            replayed=Side(3, 2, "reasoning choice=0 text='a'", "reasoning"),
        )  # fmt: skip
        made["differences"] = (Difference(0, "text", "content", "a", None),)
        made["lag"] = {0: 900, 2: 50, -1: 3}
        made["marks"] = ("differs",)
    made |= fields
    return SessionResult(**made)


def hostile(number: int) -> SessionResult:
    """A result of which every text is hostile."""
    return result(
        number, "changed", source=HOSTILE, model=HOSTILE, parser=HOSTILE, notes=(HOSTILE,),
        session=f"{number}{HOSTILE}", baseline=HOSTILE, track=HOSTILE,
        signature=Signature(verdict="changed", kind="text", layer="semantic", state=SOUND, marker=SOUND),
        differences=(Difference(0, "text", "content", HOSTILE, HOSTILE),),
        breaches=(Breach("split", HOSTILE),), faults_appeared=(HOSTILE,),
        split_pair=SplitPair(0, ((1, 3),), (), (HOSTILE, HOSTILE), (Difference(0, "text", "content", HOSTILE, None),)),
    )  # fmt: skip


class Made(Sequence[SessionResult]):
    """So many results, each made when it is asked for."""

    def __init__(self, size: int, make: Callable[[int], SessionResult]) -> None:
        self._size = size
        self._make = make

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> SessionResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[SessionResult]: ...
    def __getitem__(self, at: int | slice) -> SessionResult | list[SessionResult]:
        if isinstance(at, slice):
            return [self._make(number) for number in range(*at.indices(self._size))]
        if not 0 <= at < self._size:
            raise IndexError(at)
        return self._make(at)

    def __iter__(self) -> Iterator[SessionResult]:
        return map(self._make, range(self._size))


def report_of(size: int, make: Callable[[int], SessionResult], **fields: Any) -> RunReport:
    """The report of results that are not held."""
    sessions = Made(size, make)
    tally = Tally()
    for place, each in enumerate(sessions):
        tally.add(each, place)
    told: dict[str, Any] = {"parser": None, "sources": ("corpus.db",), "splits": ("recorded",), "layer": "frame"}
    return concluded(tally, sessions, sessions.__getitem__, **{**told, **fields})
