"""What a client sees in time is the same whether it is recorded or not."""

from __future__ import annotations

import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.proxies import proxied
from tests.support.server import Running, serve

STEPS = [f"word{number} " for number in range(60)]
PACE = 0.02


def gaps(running: Running, model: str) -> list[float]:
    """Seconds between the reads of one stream."""
    times: list[float] = []
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", content=json.dumps(body)) as response:
        for data in response.iter_raw():
            times += [time.monotonic()] * data.count(b'"content":"word')
    assert len(times) == len(STEPS)
    return [after - before for before, after in pairwise(times)]


@pytest.mark.slow
def test_recording_changes_no_gap(tmp_path: Path) -> None:
    """Each step is seen on its own, a pace after the one before. A recorder that waits for more, or for the disk, makes
    some gaps nothing and others long."""
    for name in ("origin", "on", "off"):
        (tmp_path / name).mkdir()
    with (
        serve(tmp_path / "origin", "--pace", str(PACE), script=STEPS) as origin,
        proxied(tmp_path / "on", origin.address) as on,
        proxied(tmp_path / "off", origin.address, "--record", "off") as off,
    ):
        found = {name: gaps(running, origin.model) for name, running in (("on", on), ("off", off), ("direct", origin))}
    for name, seen in found.items():
        assert abs(statistics.median(seen) - PACE) < PACE / 4, name
        # A busy machine delays some; nothing may bunch many.
        assert sum(gap < PACE / 4 for gap in seen) <= len(seen) // 6, name
