"""settings: which Python runs other engines' parsers, with which tokenizer, and for how long."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import msgspec

from replay.errors import NotAvailable, ReplayError

PYTHON = "PLAYHEAD_PEER_PYTHON"
"""The environment's variable for the default Python."""
_LABELLED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)


class Settings(msgspec.Struct, frozen=True):
    """``pythons``: label → path of a Python; "" is the default's. ``tokenizer``: a path that adapters load a real
    tokenizer from; ``time_limit``: seconds for one session; ``start_limit``: seconds until an engine is imported;
    ``make_limit``: seconds until a parser is made, its plugin and tokenizer loaded (``time_limit``, where that is
    more)."""

    pythons: dict[str, str] = {}
    tokenizer: str | None = None
    time_limit: float = 60.0
    start_limit: float = 180.0
    make_limit: float = 60.0

    def python(self, label: str) -> str:
        """The Python of a label. Raises NotAvailable."""
        found = self.pythons.get(label)
        if found is None and label:
            known = ", ".join(sorted(name for name in self.pythons if name)) or "none"
            raise NotAvailable(f"there is no peer Python {label!r}: give --peer-python {label}=PATH (there is {known})")
        return found or os.environ.get(PYTHON) or sys.executable


_current = Settings()


def current() -> Settings:
    """The settings in force in this process."""
    return _current


def configure(
    peer_python: Sequence[str] | str | None = None, tokenizer: str | None = None, time_limit: float | None = None
) -> Settings:
    """Set them, for this process. ``peer_python``: PATH, the default, or LABEL=PATH, as on the command line.

    Without an argument all are as at first. Raises ReplayError for a path that is not there.
    """
    global _current
    given = [peer_python] if isinstance(peer_python, str) else peer_python or ()
    pythons: dict[str, str] = {}
    for each in given:
        labelled = _LABELLED.fullmatch(each)
        label, path = labelled.groups() if labelled else ("", each)
        path = os.path.expanduser(path)
        if os.path.isdir(path):
            raise ReplayError(f"--peer-python {each}: {path} is a folder; give its Python, such as bin/python")
        if not os.path.isfile(path):
            raise ReplayError(f"--peer-python {each}: there is no file {path}")
        # Not resolved: a virtual environment's Python is a link.
        pythons[label] = os.path.abspath(path)
    if tokenizer is not None:
        tokenizer = os.path.abspath(os.path.expanduser(tokenizer))
        if not os.path.exists(tokenizer):
            raise ReplayError(f"--tokenizer {tokenizer}: there is no such file or folder")
    made = Settings(pythons, tokenizer)
    if time_limit is not None:
        made = msgspec.structs.replace(made, time_limit=time_limit)
    _current = made
    return made
