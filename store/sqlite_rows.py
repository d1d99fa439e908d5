"""Rows of the SQLite store and what they mean: sessions, messages, blobs, blocks."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from stages.events import Layer
from stages.opening import Opening
from store import block, codec, opening
from store.api import CorruptRecord, Rows, SessionInfo
from store.rules import Call, Key, ordered

_json = msgspec.json.Encoder().encode
T = TypeVar("T")

COLUMNS = (
    "session", "opened", "closed", "state", "mode", "model", "protocol", "parser", "stages", "n", "prompt_tokens",
    "completion_tokens", "ttft_ns", "max_gap_ns", "finish_reasons", "faults", "error", "events", "digests", "validated",
    "rules", "rule_errors", "upstream", "depth", "relayed", "shadows", "differs",
    "conversation",
)  # fmt: skip
"""The fields of SessionInfo in the table; ``message`` has a table of its own. Those in _JSON are JSON text, those in
_BOOL 0 or 1, and ``differs`` follows from ``shadows``."""

_JSON = frozenset(("stages", "finish_reasons", "faults", "events", "digests", "rules", "shadows"))
_BOOL = ("validated", "relayed")
_TRUTH = {0: False, 1: True}
_FIELDS = tuple(name for name in COLUMNS if name != "differs")
_INSERT = (
    f"INSERT INTO sessions ({', '.join(COLUMNS)}, epoch, schema, codec, crc32, opening) "
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 5))})"
)
_UPDATE = f"UPDATE sessions SET {', '.join(f'{name}=?' for name in COLUMNS)} WHERE session=?"
_SELECT = f"SELECT id, epoch, {', '.join(f's.{name}' for name in _FIELDS)} FROM sessions s"


class Stored(msgspec.Struct):
    """A row of ``sessions`` with its message."""

    id: int
    epoch: int | None
    info: SessionInfo


# --- sessions -------------------------------------------------------------------------------------------------------


def values_of(info: SessionInfo) -> list[Any]:
    """What the columns hold, in the order of COLUMNS."""
    values = [getattr(info, name) for name in COLUMNS]
    return [_json(value).decode() if name in _JSON else value for name, value in zip(COLUMNS, values, strict=True)]


def insert_session(
    conn: sqlite3.Connection, info: SessionInfo, epoch: int | None, packed: bytes, squeeze: block.Packer
) -> int:
    """Add a session without its message; returns its row id. ``packed``: the stored opening."""
    kind, stored = squeeze.squeeze(packed)
    values = [*values_of(info), epoch, codec.SCHEMA, kind, block.crc(stored), stored]
    row = conn.execute(_INSERT, values).lastrowid
    return row or 0


def update_session(conn: sqlite3.Connection, row: int, info: SessionInfo) -> None:
    """Replace the projection and the message of a session."""
    update_row(conn, info)
    conn.execute("DELETE FROM messages WHERE session=?", (row,))
    insert_message(conn, row, info)


def update_row(conn: sqlite3.Connection, info: SessionInfo) -> None:
    """Replace the projection of a session, but for its message."""
    conn.execute(_UPDATE, [*values_of(info), info.session])


def insert_message(conn: sqlite3.Connection, row: int, info: SessionInfo) -> None:
    """Add the final message; triggers index it."""
    conn.executemany(
        "INSERT INTO messages (session, choice, reasoning, content, refusal, tool_calls) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                row, choice, message.get("reasoning"), message.get("content"), message.get("refusal"),
                _json(message["tool_calls"]).decode() if message.get("tool_calls") else None,
            )
            for choice, message in enumerate(info.message)
        ],
    )  # fmt: skip


def select_sessions(
    conn: sqlite3.Connection, where: str = "", parameters: Sequence[Any] = (), tail: str = ""
) -> list[Stored]:
    """The sessions that ``where`` describes (SQL over ``s``), in the order of ``tail``."""
    rows = conn.execute(f"{_SELECT} {where} {tail}", parameters).fetchall()
    messages = _messages(conn, [row[0] for row in rows])
    return [_stored(row, messages.get(row[0], ())) for row in rows]


def _stored(row: Sequence[Any], message: tuple[dict[str, Any], ...]) -> Stored:
    fields: dict[str, Any] = dict(zip(_FIELDS, row[2:], strict=True))
    try:
        for name in _JSON:
            fields[name] = msgspec.json.decode(fields[name])
        for name in _BOOL:
            fields[name] = _TRUTH.get(fields[name])
        info = msgspec.convert({**fields, "message": message}, SessionInfo)
    except (msgspec.DecodeError, TypeError) as error:
        raise _damaged(f"session {row[2]}", error) from error
    return Stored(row[0], row[1], info)


def _damaged(where: object, error: Exception) -> CorruptRecord:
    return CorruptRecord(f"{where}: a column of its row does not decode ({error}). Restore the file from a backup.")


def _typed(row: Sequence[Any], kind: type[T], where: object) -> T:
    """A row whose columns have the types they were written with: SQLite keeps whatever it finds in a damaged file.

    Raises CorruptRecord."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise _damaged(where, error) from error


def _messages(conn: sqlite3.Connection, ids: Sequence[int]) -> dict[int, tuple[dict[str, Any], ...]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        rows = conn.execute(
            "SELECT session, reasoning, content, refusal, tool_calls FROM messages "
            f"WHERE session IN ({', '.join('?' * len(some))}) ORDER BY session, choice",
            some,
        )
        for session, reasoning, content, refusal, calls in rows:
            message: dict[str, Any] = {
                "reasoning": reasoning,
                "content": content,
                "tool_calls": _calls(session, calls) if calls else [],
            }
            if refusal is not None:
                message["refusal"] = refusal
            found.setdefault(session, []).append(message)
    return {session: tuple(messages) for session, messages in found.items()}


def _calls(row: int, calls: Any) -> list[Call]:
    try:
        return msgspec.json.decode(calls, type=list[Call])
    except (msgspec.DecodeError, TypeError) as error:
        raise _damaged(f"message of row {row} of sessions", error) from error


# --- blobs and openings ---------------------------------------------------------------------------------------------


def insert_blobs(conn: sqlite3.Connection, blobs: Iterable[tuple[bytes, bytes]], squeeze: block.Packer) -> None:
    """Add those that are not there."""
    rows: list[tuple[bytes, int, int, bytes]] = []
    for name, data in blobs:
        kind, stored = squeeze.squeeze(data)
        rows.append((name, kind, block.crc(stored), stored))
    conn.executemany("INSERT OR IGNORE INTO blobs (hash, codec, crc32, body) VALUES (?, ?, ?, ?)", rows)


def blobs_of(conn: sqlite3.Connection, session: str) -> codec.Blobs:
    """A reader of blobs."""

    def load(name: bytes) -> bytes:
        row = conn.execute("SELECT codec, crc32, body FROM blobs WHERE hash=?", (name,)).fetchone()
        where = f"session {session}, blob {name.hex()}"
        if row is None:
            raise CorruptRecord(f"{where}: it is missing. Restore the file from a backup.")
        data = block.check(where, *_typed(row, tuple[int, int, bytes], where))
        if codec.blob(data) != name:
            raise CorruptRecord(f"{where}: its bytes are others. Restore the file from a backup.")
        return data

    return load


def load_opening(conn: sqlite3.Connection, session: str, known: opening.Known | None = None) -> Opening:
    """``known``: what was read of the same file's openings. Raises CorruptRecord, UnknownSchema."""
    where = f"session {session}, opening"
    row = conn.execute("SELECT schema, codec, crc32, opening FROM sessions WHERE session=?", (session,)).fetchone()
    schema, kind, crc32, stored = _typed(row, tuple[int, int, int, bytes], where)
    data = block.check(where, kind, crc32, stored)
    return opening.unpack(session, data, blobs_of(conn, session), schema, known=known)


# --- blocks ---------------------------------------------------------------------------------------------------------

_SEGMENTS = (
    "SELECT track, layer, first_seq, n, schema, codec, crc32, body, prev_hash, hash FROM segments "
    "WHERE session=? {} ORDER BY track, layer, first_seq"
)
_JOURNAL = (
    "SELECT track, layer, first_seq, n, schema, codec, crc32, body, NULL, NULL FROM journal "
    "WHERE session=? {} ORDER BY track, layer, first_seq"
)


class _Block(NamedTuple):
    """A row of ``segments``; of ``journal``, which has no hashes."""

    track: str
    layer: Layer
    first: int
    n: int
    schema: int
    codec: int
    crc32: int
    body: bytes
    before: bytes | None
    after: bytes | None


class Layered(msgspec.Struct):
    """One stored layer: its records, and where its hash chain and its segments end."""

    records: Rows
    head: bytes
    sealed: int = 0


def load_layers(
    conn: sqlite3.Connection,
    session: str,
    protocol: str,
    *,
    of_track: str | None = None,
    only: Collection[Key] | None = None,
    lazy: bool = False,
) -> dict[Key, Layered]:
    """All records of a session, or of one track, or ``only`` these layers; segments and journal, checked. In the order
    of the layers, then of the tracks. ``lazy``: see ``EventStore.load``.

    Raises CorruptRecord (checksum, hash chain, a missing block), UnknownSchema.
    """
    layers: dict[Key, Layered] = {}
    blobs = blobs_of(conn, session)
    chosen, names = _chosen(of_track, only)
    for sealed, query in ((True, _SEGMENTS), (False, _JOURNAL)):
        for row in conn.execute(query.format(chosen), (session, *names)):
            found = _typed(row, _Block, f"session {session}")
            track, layer, first, n, schema, kind, crc32, stored, before, after = found
            where = codec.Where(session, track, layer, first)
            held = layers.get((track, layer))
            if held is None:
                held = layers[track, layer] = Layered(Rows(), block.seed(session, track, layer))
            if first != len(held.records):
                raise CorruptRecord(f"{where._replace(seq=len(held.records))}: the records up to {first} are missing.")
            body = block.check(where, kind, crc32, stored)
            if sealed:
                head = block.link(held.head, stored)
                if (before, after) != (held.head, head):
                    raise CorruptRecord(f"{where}: the hash chain is broken. Restore the file from a backup.")
                held.head, held.sealed = head, first + n
            # Inputs are always asked for, and blobs can be read here only.
            held.records.extend(
                block.unpack(where, n, body, protocol, blobs, schema, lazy=lazy and layer != "engine")
            )  # fmt: skip
    return ordered(layers)


_FROM = (
    "SELECT track, layer, first_seq, n, schema, codec, crc32, body, {hashes} FROM {table} "
    "WHERE session=:session AND track=:track AND layer=:layer AND first_seq >= coalesce((SELECT max(first_seq) FROM "
    "{table} WHERE session=:session AND track=:track AND layer=:layer AND first_seq <= :first), 0) ORDER BY first_seq"
)
_FROM_SEGMENTS = _FROM.format(table="segments", hashes="prev_hash, hash")
_FROM_JOURNAL = _FROM.format(table="journal", hashes="NULL, NULL")


def read_layer(conn: sqlite3.Connection, session: str, protocol: str, key: Key, first: int, about: int) -> Rows:
    """Records of a layer from ``first`` on, whole blocks, until there are ``about`` so many. Each block is held to its
    checksum and its own link of the hash chain, and follows the one before.

    Raises CorruptRecord, UnknownSchema.
    """
    blobs = blobs_of(conn, session)
    track, layer = key
    found = Rows(first=first)
    values = {"session": session, "track": track, "layer": layer, "first": first}
    for query in (_FROM_SEGMENTS, _FROM_JOURNAL):
        for row in conn.execute(query, values):
            _, _, start, n, schema, kind, crc32, stored, before, after = _typed(row, _Block, f"session {session}")
            where = codec.Where(session, track, layer, start)
            following = first + len(found)
            if start + n <= following:
                continue
            if start > following:
                raise CorruptRecord(f"{where._replace(seq=following)}: the records up to {start} are missing.")
            body = block.check(where, kind, crc32, stored)
            if before is not None and after != block.link(before, stored):
                raise CorruptRecord(f"{where}: the hash chain is broken. Restore the file from a backup.")
            rows = block.unpack(where, n, body, protocol, blobs, schema)
            skip = following - start
            found.extend(Rows(rows.causes[skip:], rows.ats[skip:], rows.events[skip:], following) if skip else rows)
            if len(found) >= about:
                return found
    return found


def _chosen(of_track: str | None, only: Collection[Key] | None) -> tuple[str, list[str]]:
    """The condition, and its parameters, for the rows of some layers."""
    if only is not None:
        values = ", ".join(["(?, ?)"] * len(only))
        return f"AND (track, layer) IN (VALUES {values})" if only else "AND 0", [name for key in only for name in key]
    return ("", []) if of_track is None else ("AND track=?", [of_track])


def insert_journal(conn: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Add journal rows: session, track, layer, first_seq, n, schema, codec, crc32, body."""
    conn.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def insert_segments(conn: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Add segments: session, track, layer, first_seq, epoch, prev_hash, hash, flags, n, schema, codec, crc32, body."""
    conn.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def segment(
    where: codec.Where, epoch: int | None, head: bytes, runs: Sequence[block.Run], flags: int, squeeze: block.Packer
) -> tuple[bytes, list[Any]]:
    """(the chain's new head, the row) of consecutive runs."""
    kind, stored = squeeze.squeeze(block.pack(runs))
    after = block.link(head, stored)
    n = runs[-1].first + runs[-1].n - runs[0].first
    return after, [*where, epoch, head, after, flags, n, codec.SCHEMA, kind, block.crc(stored), stored]
