"""Keeps facts: the event stores and the trace file."""

from __future__ import annotations

from typing import Any

from store.api import EventStore
from store.memory import MemoryStore
from store.sqlite import SqliteStore

MEMORY = "memory:"


def open_store(url_or_path: str, **options: Any) -> EventStore:
    """The store at a path (a SQLite file; ``options`` as SqliteStore takes them), or ``memory:``.

    Raises StoreUnavailable, UnknownSchema.
    """
    if url_or_path == MEMORY:
        return MemoryStore()
    return SqliteStore(url_or_path, **options)


__all__ = ["EventStore", "MemoryStore", "SqliteStore", "open_store"]
