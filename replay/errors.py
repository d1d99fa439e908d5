"""Errors of this package, one per situation."""

from __future__ import annotations


class ReplayError(Exception):
    """A replay cannot run as asked; the message names what, where, and what to do."""


class ParserNotFound(ReplayError):
    """What ``--parser`` names is not there, does not load, or is no stage."""


class NotAvailable(ReplayError):
    """A kind of parser that this version of Playhead cannot run."""


class BadSplit(ReplayError):
    """No such split, or one that the recorded tokens do not allow."""


class ParserFailed(ReplayError):
    """The parser raised on a text; the message tells what, and at which input."""


class BadCase(ReplayError):
    """A case file, or one line of it, cannot be read. ``where``: the file, or FILE:LINE."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class PeerError(Exception):
    """A parser that runs in a process of its own did not give what it was asked for: its stage fails.

    ``kind``: what the StageFailure calls it: the class, or the type of what the parser raised there; ``where``:
    file:line of the parser's code, where that is known.
    """

    def __init__(self, message: str, kind: str = "", where: str = "") -> None:
        super().__init__(message)
        self.kind = kind or type(self).__name__
        self.where = where


class Timeout(PeerError):
    """It took longer than it may."""


class Crashed(PeerError):
    """Its process ended, or answered what is no answer."""


class Unsupported(PeerError):
    """It needs what a recording does not have; the message says what."""
