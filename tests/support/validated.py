"""What a test's server sent, held to the protocol rules."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from replay.evidence import evidence_of
from stages.protocols.rules import check
from store import open_store


def assert_clean(path: Path, allow: Collection[str] = (), *, effort: bool = True) -> None:
    """No recorded session of the store breaks a rule, as an error or as a warning. ``allow``: rules (``INV-032``) that
    the test's model or script breaks: what a model writes is not what a server makes of it."""
    store = open_store(str(path), create=False)
    broken: list[str] = []
    try:
        for info in store.sessions():
            for one in check(evidence_of(store.load(info.session), effort=effort)).violations:
                if one.rule not in allow:
                    told = f"{one.rule} {one.key} at frame {one.frame}: {one.seen}; right: {one.want}"
                    broken.append(f"session {info.session}: {told}")
    finally:
        store.close()
    assert not broken, "\n".join(broken)
