"""Mass replay: what a token costs, how two workers scale, what memory and a report of many sessions take.

    python -m tests.bench.replay --sessions 100000

The first lines are CPU µs a token of one process over sessions of a token a step, the median of several rounds, with
the skeleton (a loop that makes an event of each token) for comparison between machines. The others are wall times of
the command, start to end, on a corpus of ``--sessions`` (see ``tests.bench.corpus``) that is made first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from replay import Replayer
from replay.verdict import Depth
from stages import catalog
from stages.events import Content, Layer, TokensInput
from stages.stage import fold
from store import open_store
from store.api import EventStore, Trace
from tests.bench.corpus import make
from tests.bench.measure import ROUNDS, Rows, per_token

SESSIONS: Final = 2_000
SAMPLE: Final = 200
"""Sessions whose parts are measured one by one."""
_MESSAGE: Final[tuple[tuple[str, Layer], ...]] = (("input", "engine"), ("served", "semantic"))
_BROWSER: Final = "chromium"


def _skeleton(traces: Sequence[Trace]) -> None:
    for trace in traces:
        steps = (event for event in trace.events("input", "engine") if type(event) is TokensInput)
        assert [Content(0, event.text, (0, 1)) for event in steps]


def _parse(traces: Sequence[Trace]) -> None:
    for trace in traces:
        fold(catalog.layers(trace.opening).semantic.start(trace.opening), trace.events("input", "engine"))


def bench_parts(rows: Rows, store: EventStore) -> None:
    """One process, without the command."""
    names = [info.session for info in store.sessions(limit=SAMPLE)]
    traces = [store.load(name) for name in names]
    count = sum(len(event.ids) for trace in traces for event in trace.events("input", "engine")
                if type(event) is TokensInput)  # fmt: skip
    rows.append(("skeleton: an event of each token", per_token(lambda: _skeleton(traces), count), "µs/token"))
    rows.append(("parse", per_token(lambda: _parse(traces), count), "µs/token"))
    depths: tuple[tuple[Depth, Sequence[tuple[str, Layer]] | None], ...] = (("message", _MESSAGE), ("frame", None))
    for depth, layers in depths:
        replayer = Replayer(layer=depth)

        def loaded(layers: Sequence[tuple[str, Layer]] | None = layers) -> None:
            for name in names:
                store.load(name, layers, lazy=True)

        def replayed(replayer: Replayer = replayer) -> None:
            for trace in traces:
                replayer.replay(trace)

        def both(
            replayer: Replayer = replayer, layers: Sequence[tuple[str, Layer]] | None = layers
        ) -> None:  # each session gone before the next
            for name in names:
                replayer.replay(store.load(name, layers, lazy=True))

        parts: tuple[tuple[str, Callable[[], None]], ...] = (
            (f"load for {depth} level", loaded), (f"replay at {depth} level, loaded before", replayed),
            (f"load and replay at {depth} level", both),
        )  # fmt: skip
        for what, work in parts:
            took = per_token(work, count)
            rows.append((what, took, "µs/token"))
            rows.append((f"  {what}", 1e6 / took, "tokens/s"))


def _start(store: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline.cli", "replay", str(store), "--limit", "0", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(store: Path, *options: str) -> tuple[float, float]:
    """(seconds, MB of the largest process) of one run."""
    begun = time.monotonic()
    process = _start(store, *options)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), process.returncode
    return time.monotonic() - begun, used.ru_maxrss / 1000


def _side_by_side(store: Path, *options: str) -> float:
    begun = time.monotonic()
    for process in [_start(store, "--jobs", "1", *options) for _ in range(2)]:
        assert process.wait() in (0, 1)
    return time.monotonic() - begun


def bench_command(rows: Rows, large: Path, small: Path, sessions: int, rounds: int = 3) -> None:
    """The command, on a large corpus and one of a tenth."""
    depth = ("--layer", "message")
    # Two runs side by side do twice the work of one.
    ratios = [_side_by_side(small, *depth) / 2 / _command(small, "--jobs", "2", *depth)[0] for _ in range(rounds)]
    rows.append(("2 workers, against 2 independent runs", statistics.median(ratios), "times"))
    rows.append((f"largest process, {sessions // 10} sessions", _command(small, "--jobs", "2", *depth)[1], "MB"))
    page = large.with_suffix(".html")
    took, memory = _command(large, "--jobs", "2", *depth, "--html", str(page), "--json", str(page.with_suffix(".json")))
    rows.append((f"largest process, {sessions} sessions", memory, "MB"))
    rows.append((f"{sessions} sessions at message level to a report, 2 workers", took, "s"))
    rows.append(("its HTML", page.stat().st_size / 1e6, "MB"))
    browser = shutil.which(_BROWSER)
    if browser is not None:
        rows.append(("it opens in (beyond an empty page)", _opens(browser, page), "s"))


def _opens(browser: str, page: Path) -> float:
    empty = page.with_name("empty.html")
    empty.write_text("<!doctype html><title>empty</title>")

    def shown(path: Path) -> float:
        begun = time.monotonic()
        flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'browser'}")
        subprocess.run([browser, *flags, "--dump-dom", path.as_uri()], capture_output=True, check=True, timeout=120)
        return time.monotonic() - begun

    shown(empty)
    return statistics.median(shown(page) - shown(empty) for _ in range(3))


def bench_replay(rows: Rows, sessions: int = SESSIONS, *, commands: bool = True) -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.db"), Path(folder, "small.db")
        make(small, max(sessions // 10, SAMPLE), changed=max(sessions // 300, 1))
        store = open_store(str(small), create=False)
        bench_parts(rows, store)
        store.close()
        if commands:
            make(large, sessions, changed=sessions // 30)
            bench_command(rows, large, small, sessions)


def main() -> None:
    """Run it on a corpus of a size of its own."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sessions", type=int, default=100_000)
    options.add_argument("--parts", action="store_true", help="only what a token costs")
    given = options.parse_args()
    rows: Rows = []
    print(f"{given.sessions} sessions, the median of {ROUNDS} rounds")
    bench_replay(rows, given.sessions, commands=not given.parts)
    for what, value, unit in rows:
        print(f"{what:<60} {value:>12,.2f} {unit}")


if __name__ == "__main__":
    main()
