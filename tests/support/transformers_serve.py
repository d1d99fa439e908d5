"""``transformers serve`` as a process: a real server of another project, with the model of ``tiny_model``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.support import tiny_model

_ADDRESS = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
_STARTS = 120.0
"""Seconds that it may take to import torch and to load, and to end, on a busy machine."""


class Upstream(NamedTuple):
    """``model``: what requests must name."""

    address: str
    model: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def transformers_serve(folder: Path) -> Generator[Upstream]:
    """Make the model, start the server, and stop it again."""
    model, log = folder / "model", folder / "transformers.log"
    tiny_model.write(model)
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--device", "cpu", "--host", "127.0.0.1", "--port", "0"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment) as process,
    ):
        try:
            where = _address(process, log)
            assert httpx2.get(f"{where}/health", timeout=_STARTS).json() == {"status": "ok"}
            yield Upstream(where, str(model), log, process)
            process.send_signal(signal.SIGINT)
            process.wait(_STARTS)
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, once it says so."""
    until = time.monotonic() + _STARTS
    while (found := _ADDRESS.search(log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, "it did not start"
        time.sleep(0.05)
    return found.group(1)
