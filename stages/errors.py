"""Errors that stages and their catalog raise before a session runs. Machines raise nothing: the model's mistakes are
Fault events."""

from __future__ import annotations


class StagesError(Exception):
    """Base of the errors of this package."""


class UnknownName(StagesError):
    """A parser, protocol or stage id that the catalog does not have; the message names the nearest."""


class RequestError(StagesError):
    """A request that cannot be served as it is; the client's to mend. ``param``: the offending field's path."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


class Unheld(RequestError):
    """A schema that no output can be held to. ``param``: its place in the request."""

    def __init__(self, param: str, why: str) -> None:
        message = f"{param}: no output can be held to this schema: {why}"
        super().__init__(message, param=param, code="unsupported_schema")
