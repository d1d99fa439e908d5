"""Conditions in SQL over what people query of sessions. Nothing but the columns of ``sessions`` can be read by one, and
nothing written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from sqlite_utils import Database

from store.api import BadQuery, SessionInfo
from store.sqlite_rows import COLUMNS, values_of

_READABLE = frozenset(("id", *COLUMNS))
_ROWS = ("json_each", "json_tree")
"""The functions that make rows of a JSON value."""

_REFUSED = frozenset(("load_extension", "fts3_tokenizer"))
"""Functions that load code."""

_TELLING = frozenset((sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH))
"""Codes of errors that are about the condition, not about the file."""


def matching(conn: sqlite3.Connection, where: str) -> list[int]:
    """The ids of the rows of ``sessions`` that a condition holds for, newest first. Raises BadQuery."""
    for function in _ROWS:
        # Its table is declared on first use, which looks like a change of the schema.
        conn.execute(f"SELECT 1 FROM {function}('[]')")
    conn.set_authorizer(_authorize)
    try:
        # The condition is all of its own statement, and a comment in it ends with its line.
        rows = conn.execute(f"SELECT id FROM sessions WHERE (\n{where}\n) ORDER BY opened DESC, id DESC").fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        # A text that SQLite does not take (two statements, a NUL, half a character) has no code.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) not in _TELLING:
            raise
        raise BadQuery(
            f"the condition {where[:200]!r} cannot be used ({error}). It is SQL over the columns of a session: "
            f"{', '.join(COLUMNS)}."
        ) from error
    finally:
        conn.set_authorizer(None)
    return [row for (row,) in rows]


def _authorize(action: int, first: str | None, second: str | None, schema: str | None, cause: str | None) -> int:
    match action:
        case sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_FUNCTION if (second or "").lower() not in _REFUSED:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_READ if first in _ROWS or (first == "sessions" and (not second or second in _READABLE)):
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_READ if first == cause == "sessions":
            # The view on an older table reads all of it; what a condition reads of the view is seen above.
            return sqlite3.SQLITE_OK
        case _:
            return sqlite3.SQLITE_DENY


def matching_infos(infos: Iterable[SessionInfo], where: str) -> list[SessionInfo]:
    """Those that a condition holds for, in order of time, newest first. Raises BadQuery."""
    held = list(infos)
    db = Database(memory=True)
    try:
        # As many columns, of whatever type: it is the values that are compared.
        db.conn.execute(f"CREATE TABLE sessions (id INTEGER PRIMARY KEY, {', '.join(COLUMNS)})")
        # Of one moment, the newer has the higher id.
        rows = [[-at, *values_of(info)] for at, info in enumerate(held)]
        db.conn.executemany(f"INSERT INTO sessions VALUES ({', '.join('?' * (len(COLUMNS) + 1))})", rows)
        return [held[-row] for row in matching(db.conn, where)]
    finally:
        db.close()
