"""Opening a SQLite file as a store: checks, migrations, pragmas."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from store.api import StoreUnavailable, UnknownSchema

Durability: TypeAlias = Literal["full", "normal"]
"""SQLite's ``synchronous``: ``full`` survives a power cut, ``normal`` a killed process."""

APPLICATION = 0x506C6179
"""In the file's header: this is a Playhead store."""

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file may raise: the module decodes SQLite's own messages, which quote the file."""

LAYOUT = 4
"""The version of the tables (``user_version``); rises with each migration."""

migrations = Migrations("playhead")


@migrations()
def first(db: Database) -> None:
    """The tables of layout 1."""
    db.table("writers").create({"epoch": int, "pid": int}, pk="epoch")
    db.table("blobs").create({"hash": bytes, "codec": int, "crc32": int, "body": bytes}, pk="hash")
    key = {"session": str, "track": str, "layer": str, "first_seq": int}
    body = {"n": int, "schema": int, "codec": int, "crc32": int, "body": bytes}
    db.table("journal").create({**key, **body}, pk=tuple(key))
    db.table("segments").create(
        {**key, "epoch": int, "prev_hash": bytes, "hash": bytes, "flags": int, **body}, pk=tuple(key)
    )
    sessions = db.table("sessions").create(
        {
            "id": int, "session": str, "opened": int, "closed": int, "state": str, "mode": str, "model": str,
            "protocol": str, "parser": str, "stages": str, "n": int, "prompt_tokens": int, "completion_tokens": int,
            "ttft_ns": int, "max_gap_ns": int, "finish_reasons": str, "faults": str, "error": str, "events": str,
            "digests": str, "epoch": int, "schema": int, "codec": int, "crc32": int, "opening": bytes,
        },
        pk="id",
    )  # fmt: skip
    sessions.create_index(["session"], unique=True)
    sessions.create_index(["opened"])
    messages = db.table("messages").create(
        {"id": int, "session": int, "choice": int, "reasoning": str, "content": str, "refusal": str, "tool_calls": str},
        pk="id",
        foreign_keys=[("session", "sessions", "id")],
    )
    messages.create_index(["session", "choice"], unique=True)
    messages.enable_fts(["reasoning", "content", "refusal", "tool_calls"], create_triggers=True)


@migrations()
def rules(db: Database) -> None:
    """Layout 2: what the protocol rules found."""
    sessions = db.table("sessions")
    sessions.add_column("validated", int, not_null_default=0)
    sessions.add_column("rules", str, not_null_default="{}")
    sessions.add_column("rule_errors", int, not_null_default=0)


@migrations()
def upstreams(db: Database) -> None:
    """Layout 3: the server that generates, and what other parsers make of it."""
    sessions = db.table("sessions")
    for name in ("upstream", "depth", "differs"):
        sessions.add_column(name, str, not_null_default="")
    sessions.add_column("relayed", int, not_null_default=0)
    sessions.add_column("shadows", str, not_null_default="{}")


@migrations()
def conversations(db: Database) -> None:
    """Layout 4: the stored conversations that sessions belong to."""
    sessions = db.table("sessions")
    sessions.add_column("conversation", str, not_null_default="")
    sessions.create_index(["conversation", "opened"])


def connect(path: str, *, create: bool, busy_s: float, durability: Durability) -> sqlite3.Connection:
    """Open ``path``. Any thread may use the result, one at a time.

    ``create``: make the tables where there are none, and bring older ones to this layout. Else the file is left as it
    is: older tables can be read as if they were of this layout, and not written (see ``is_older``).

    Raises StoreUnavailable (a folder, another kind of file, read-only, locked; missing or empty where ``create`` is
    false), UnknownSchema (tables of a newer Playhead).
    """
    _check_file(path, create)
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        _patient(partial(_prepare, path, conn, create), busy_s)
        conn.execute(f"PRAGMA synchronous={durability}")
        return conn
    except BaseException as error:  # closed whatever was raised, and raised on
        if conn is not None:
            conn.close()
        if isinstance(error, SQLITE_ERRORS):
            raise unavailable(path, error) from error
        raise


def _check_file(path: str, create: bool) -> None:
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder; name a file, for instance {os.path.join(path, 'playhead.db')}.")
    if not os.path.exists(path):
        if not create:
            raise StoreUnavailable(f"{path} does not exist; check the name.")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"{path}: the folder {folder} does not exist; make it first.")
        return
    # The file is not read here: closing it would drop the locks that SQLite holds on it in this process.
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreUnavailable(f"{path} is read-only; make it writable, or copy it to where you may write.")


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    value: int = conn.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _prepare(path: str, conn: sqlite3.Connection, create: bool) -> None:
    if _is_store(path, conn):
        return
    if not create:
        if not _pragma(conn, "schema_version"):
            raise StoreUnavailable(
                f"{path} is empty, not a Playhead store; check the name, or restore it from a backup."
            )
        _raise_layout(conn)
        return
    conn.execute("PRAGMA journal_mode=WAL")
    # One process at a time makes the tables; the others find them made.
    conn.execute("BEGIN IMMEDIATE")
    if not _is_store(path, conn):
        migrations.apply(Database(conn))
        conn.execute(f"PRAGMA application_id={APPLICATION}")
        conn.execute(f"PRAGMA user_version={LAYOUT}")
    conn.execute("COMMIT")


def _raise_layout(conn: sqlite3.Connection) -> None:
    """Put a view in front of the older table, which has what later layouts have added, as a migration would give it.
    It is this connection's own: nothing of it is in the file."""
    conn.execute("PRAGMA temp_store=MEMORY")
    there = _columns(conn)
    made = Database(memory=True)
    try:
        migrations.apply(made)
        added = {name: default for name, default in _columns(made.conn).items() if name not in there}
    finally:
        made.close()
    columns = (*there, *(f"{default or 'NULL'} AS {name}" for name, default in added.items()))
    conn.execute(f"CREATE TEMP VIEW sessions AS SELECT {', '.join(columns)} FROM main.sessions")


def _columns(conn: sqlite3.Connection) -> dict[str, str | None]:
    """Of the table of sessions: their defaults, as SQL."""
    return {name: default for _, name, _, _, default, _ in conn.execute("PRAGMA main.table_info(sessions)")}


def is_older(conn: sqlite3.Connection) -> bool:
    """The connection reads tables of an older layout through a view."""
    return conn.execute("SELECT 1 FROM temp.sqlite_master WHERE name='sessions'").fetchone() is not None


def is_outdated(conn: sqlite3.Connection) -> bool:
    """It does, and they have been migrated since, be it by a newer Playhead."""
    return is_older(conn) and _pragma(conn, "user_version") >= LAYOUT


def _is_store(path: str, conn: sqlite3.Connection) -> bool:
    """True for a store of this layout, False for one to be made or migrated."""
    version = _pragma(conn, "user_version")
    if _pragma(conn, "application_id") == APPLICATION:
        if version > LAYOUT:
            raise UnknownSchema(
                f"{path} has tables of layout {version}; this Playhead knows up to {LAYOUT}. Install a newer one."
            )
        return version == LAYOUT
    if _pragma(conn, "schema_version"):
        raise StoreUnavailable(f"{path} is a SQLite file, but not a Playhead store; name another file.")
    return False


def _patient(action: Callable[[], None], busy_s: float) -> None:
    """Call again while others hold the lock: SQLite does not wait by itself where it could dead-lock."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def unavailable(path: str, error: Exception) -> StoreUnavailable:
    """What a SQLite error means to people."""
    text = str(error)
    if "locked" in text or "busy" in text:
        advice = "another program holds its lock; end it, or wait"
    elif "full" in text:
        advice = "the disk is full; make room"
    elif "readonly" in text:
        advice = "it is read-only; make it writable"
    elif "malformed" in text or isinstance(error, UnicodeDecodeError):
        advice = "the file is damaged; restore it from a backup"
    elif "not a database" in text:
        advice = "it is not a Playhead store; if it is a trace, `playhead import` reads it"
    else:
        advice = "check the disk and the file's permissions"
    return StoreUnavailable(f"{path}: {text}; {advice}.")
