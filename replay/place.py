"""place: the line of the user's code that an exception comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(str(_ROOT / package) + os.sep for package in ("pipeline", "replay", "store", "stages"))
_STAGES = _OURS[-1]
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def place(error: BaseException, *, short: bool = True) -> str:
    """``file:line`` of the innermost frame that is neither Playhead's nor the standard library's; of a stage of the
    catalog, its own; "" where there is neither. ``short``: the file's name without its folder."""
    frames = list(_frames(error))
    user = [(file, line) for file, line in frames if not file.startswith(_OURS) and not _library(file)]
    found = user or [(file, line) for file, line in frames if file.startswith(_STAGES)]
    if not found:
        return ""
    file, line = found[-1]
    return f"{os.path.basename(file) if short else file}:{line}"


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _library(file: str) -> bool:
    return file.startswith("<frozen") or (file.startswith(_LIBRARY) and not any(part in file for part in _INSTALLED))
