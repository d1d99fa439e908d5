"""Running make from a test, which may itself run under make."""

from __future__ import annotations

import os

# What make hands down to what it starts: its options, its depth, and the variables of its command line.
_FROM_ABOVE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MAKEFILES", "ARGS", "VENV", "PYTHON")

MAKE = ("make", "--no-print-directory")


def environment() -> dict[str, str]:
    """The environment of a make that nobody's make has started."""
    return {name: value for name, value in os.environ.items() if name not in _FROM_ABOVE}
