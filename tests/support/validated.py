"""What a test's server sent, held to the protocol rules."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from replay.evidence import evidence_of
from stages.protocols.rules import check
from store import open_store
from store.api import EventStore


def assert_clean(path: Path, allow: Collection[str] = (), *, effort: bool = True) -> None:
    """``hold`` for a store's file."""
    store = open_store(str(path), create=False)
    try:
        hold(store, allow, effort=effort)
    finally:
        store.close()


def hold(store: EventStore, allow: Collection[str] = (), *, effort: bool = True) -> None:
    """No recorded session of the store breaks a rule, as an error or as a warning. ``allow``: rules (``INV-032``) that
    the test's model or script breaks: what a model writes is not what a server makes of it."""
    broken = [
        f"session {info.session}: {one.rule} {one.key} at frame {one.frame}: {one.seen}; right: {one.want}"
        for info in store.sessions()
        for one in check(evidence_of(store.load(info.session), effort=effort)).violations
        if one.rule not in allow
    ]
    assert not broken, "\n".join(broken)
