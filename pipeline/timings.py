"""Service times of a session, measured where its inputs arrive, and put among them, so that they replay."""

from __future__ import annotations

from collections.abc import Callable

from stages.events import Input, PromptInput, ScheduledInput, TimingInput, TokensInput, UsageInput


class Timings:
    """Watches the inputs of one session. ``elapsed``: ns since the opening.

    ``queue``: from admission to the engine's first work on it; ``ttft``: from the opening to the first token;
    ``max_gap``, ``mean_gap``: between steps of the same choice that brought tokens, over all choices. What did not
    happen has no time.
    """

    def __init__(self, elapsed: Callable[[], int]) -> None:
        self._elapsed = elapsed
        self._admitted: int | None = None
        self._queue: int | None = None
        self._first: int | None = None
        self._last: dict[int, int] = {}
        self._gaps = self._total = self._longest = 0

    def told(self, events: list[Input]) -> list[Input]:
        """The inputs that have arrived now, with the times before the usage that ends them."""
        now = self._elapsed()
        for event in events:
            if isinstance(event, TokensInput):
                if event.ids or event.text:
                    self._step(event.choice, now)
            elif isinstance(event, PromptInput):
                self._admitted = now
            elif isinstance(event, ScheduledInput) and self._admitted is not None and self._queue is None:
                self._queue = now - self._admitted
        if isinstance(events[-1], UsageInput):
            return [*events[:-1], *self._found(), events[-1]]
        return events

    def _step(self, choice: int, now: int) -> None:
        if self._first is None:
            self._first = now
        last = self._last.get(choice)
        if last is not None:
            self._gaps += 1
            self._total += now - last
            self._longest = max(self._longest, now - last)
        self._last[choice] = now

    def _found(self) -> list[TimingInput]:
        gaps = (self._longest, self._total // self._gaps) if self._gaps else (None, None)
        found = {"queue": self._queue, "ttft": self._first, "max_gap": gaps[0], "mean_gap": gaps[1]}
        return [TimingInput(name, ns) for name, ns in found.items() if ns is not None]
