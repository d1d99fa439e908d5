"""Stores of older layouts: what only reads them leaves them as they are, what writes migrates them."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from store.sqlite_schema import LAYOUT
from tests.cli.conftest import Playhead
from tests.store.test_sqlite import NAME, query
from tests.support.tree import ROOT

GOLDEN = ROOT / "tests" / "store" / "golden"
READS: list[tuple[str, ...]] = [
    ("sessions", "list", "--store", "old.db"),
    ("sessions", "list", "--store", "old.db", "--where", "depth = ''", "--json"),
    ("sessions", "search", "tide", "--store", "old.db"),
    ("sessions", "show", NAME, "--store", "old.db"),
    ("sessions", "show", NAME, "--store", "old.db", "--json"),
    ("validate", "old.db"),
    ("validate", "old.db", "--session", NAME),
    ("replay", "old.db", "--jobs", "1"),
    ("export", "--all", "--store", "old.db", "--to", "traces"),
    ("play", NAME, "--store", "old.db"),
    ("import", "old.db", "--store", "new.db"),
]


@pytest.fixture(params=range(1, LAYOUT))
def old(playhead: Playhead, request: pytest.FixtureRequest) -> Path:
    path = Path("old.db")
    path.write_bytes(zstandard.decompress((GOLDEN / f"layout-{request.param}.zst").read_bytes()))
    return path


def test_commands_that_only_read(old: Path, playhead: Playhead) -> None:
    before = old.read_bytes()
    for command in READS:
        result = playhead(*command)
        # 3: of one session the frames cannot be made again.
        assert result.exit_code in (0, 1, 3), (command, result.output)
        assert old.read_bytes() == before, command
    assert query(Path("new.db"), "PRAGMA user_version") == [(LAYOUT,)]
    assert NAME in playhead("sessions", "list", "--store", "old.db", "--json").stdout


@pytest.mark.parametrize(
    "command", [("sessions", "delete", NAME, "--store", "old.db"), ("validate", "old.db", "--session", NAME, "--save")]
)
def test_commands_that_write(old: Path, playhead: Playhead, command: tuple[str, ...]) -> None:
    assert playhead(*command).exit_code in (0, 1)
    assert query(old, "PRAGMA user_version") == [(LAYOUT,)]
