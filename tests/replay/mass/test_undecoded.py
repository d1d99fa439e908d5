"""A record that does not decode, where its sums and hashes fit: the session cannot be read, and no other minds."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay import run_replay
from replay.verdict import Depth
from store import open_store
from store.api import StoreError
from tests.replay.mass.corpora import ids, store_of
from tests.store.test_lazy import forge


@pytest.mark.parametrize("depth", ["message", "frame"])
def test_it_is_told_as_what_cannot_be_read(tmp_path: Path, depth: Depth) -> None:
    path = tmp_path / "a.db"
    names = ids(3)
    store_of(path, names)
    store = open_store(str(path), create=False)
    damaged = [info.session for info in store.sessions()][1]
    store.close()
    forge(path, damaged, b"\xa5start", b"\xa5newer")
    store = open_store(str(path), create=False)
    with pytest.raises(StoreError) as caught:
        store.load(damaged)
    store.close()
    report = run_replay([str(path)], layer=depth)
    assert (report.summary.same, report.summary.unreadable) == (2, 1)
    (told,) = report.unreadable
    assert (told.source, told.session, told.error) == (str(path), damaged, str(caught.value))
