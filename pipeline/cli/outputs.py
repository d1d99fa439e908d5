"""outputs: the reports of a run, each written to where it was asked for, whatever becomes of the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from os.path import realpath
from typing import TypeAlias

import click

from replay.corpus import STORES
from replay.mass.units import files_once
from store import trace

STDOUT = "standard output"
_Name: TypeAlias = str | tuple[int, int]
"""Of a file: its real path, or device and inode."""
_BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a store, by how the names go on."""


class Outputs:
    """Files, and standard output, that can fail one by one; ``failed`` has what could not be written, and why."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def write(self, path: str, write: Callable[[], None]) -> None:
        """Write one. A reader that has had enough (``| head``) is no failure."""
        try:
            write()
            if path == STDOUT:
                sys.stdout.flush()
        except SystemExit:
            pass  # rich's answer to a broken pipe, after it has given up standard output
        except OSError as error:
            if path == STDOUT:
                _give_up_stdout()
            if not isinstance(error, BrokenPipeError):
                self.failed.append(f"cannot write {path}: {error.strerror or error}")


def check(
    files: Iterable[tuple[str, str | None]], sources: Sequence[str], read: Iterable[str | None], kept: str | None
) -> None:
    """See that reports can be written, before the work. ``files``: each option, and the path given with it;
    ``sources``: of the sessions; ``read``: what else the run reads, where it is a file; ``kept``: what it keeps results
    in. Raises UsageError."""
    wanted = [(option, path) for option, path in files if path is not None and path != "-"]
    if not wanted and kept is None:
        return
    taken: dict[_Name, str] = {}
    recorded = _names(file for _, path in files_once(sources) for file in _with_beside(path))
    used = recorded | _names(path for path in (*read, kept) if path)
    folders = {realpath(source) for source in sources if source}
    if kept is not None and _names([kept]) & recorded:
        raise click.UsageError(f"--resume {kept} would overwrite what is read: name another file")
    for option, path in wanted:
        names = _names([path])
        for name in names & taken.keys():
            raise click.UsageError(f"{taken[name]} and {option} both name {path}: give each a file of its own")
        within = realpath(path).endswith((*trace.SUFFIXES, *STORES)) and _within(realpath(path), folders)
        if within or names & used:
            raise click.UsageError(f"{option} {path} would overwrite what is read: name another file")
        taken |= dict.fromkeys(names, option)
        try:
            _try(path)
        except OSError as error:
            raise click.UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _names(paths: Iterable[str]) -> set[_Name]:
    """What tells files apart: where they are, and of those that are there, which: a file may have several places."""
    found: set[_Name] = set()
    for path in paths:
        with suppress(OSError, ValueError):  # whoever reads or writes it tells
            found.add(realpath(path))
            stat = os.stat(path)
            found.add((stat.st_dev, stat.st_ino))
    return found


def _with_beside(file: str) -> Iterable[str]:
    yield file
    if not file.endswith(trace.SUFFIXES):
        yield from (f"{realpath(file)}{end}" for end in _BESIDE)


def say(text: str) -> None:
    """A line on standard error, if anybody listens."""
    with suppress(OSError):
        click.echo(text, err=True)


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(os.path.join(folder, "")) for folder in folders)


def _try(path: str) -> None:
    """Raises OSError where it cannot be written; leaves all as it was."""
    there = os.path.exists(path)
    if there and not os.path.isfile(path):
        return  # to open a pipe is seen at its other end
    with open(path, "ab"):
        pass
    if not there:
        os.unlink(realpath(path))


def _give_up_stdout() -> None:
    """Nothing more gets there, nor is it tried when the process ends."""
    with suppress(OSError, ValueError):  # in a test it is no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
