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
