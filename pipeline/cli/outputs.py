"""outputs: the reports of a run, each written to where it was asked for, whatever becomes of the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from os.path import realpath

import click

from replay.corpus import STORES
from store import trace

STDOUT = "standard output"


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


def check(files: Iterable[tuple[str, str | None]], read: Iterable[str]) -> None:
    """See that reports can be written, before the work. ``files``: each option, and the path given with it; ``read``:
    what the run reads, or keeps its results in. Raises UsageError."""
    taken: dict[str, str] = {}
    kept = {realpath(path) for path in read if path}
    for option, path in files:
        if path is None or path == "-":
            continue
        real = realpath(path)
        if real in taken:
            raise click.UsageError(f"{taken[real]} and {option} both name {path}: give each a file of its own")
        if real in kept or (real.endswith((*trace.SUFFIXES, *STORES)) and _within(real, kept)):
            raise click.UsageError(f"{option} {path} would overwrite what is read: name another file")
        taken[real] = option
        try:
            _try(path)
        except OSError as error:
            raise click.UsageError(f"cannot write {path}: {error.strerror or error}") from error


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
