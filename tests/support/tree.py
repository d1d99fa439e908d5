"""The repository as files: for the tests of the house."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pipeline", "replay", "store", "stages")
FOLDERS = (*PACKAGES, "tests", "docs", "examples", ".ci")
MADE = {"__pycache__", "node_modules"}
"""Folders that tools make."""


def files(*suffixes: str) -> Iterator[Path]:
    """The project's own files, sorted: those at the top and all in its folders. ``suffixes``: of these kinds only."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and not MADE & {*path.parts}]
    for path in sorted(found):
        if not suffixes or path.suffix in suffixes:
            yield path


def lines(path: Path) -> list[str]:
    """The lines of a text file; of a binary file, none."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
