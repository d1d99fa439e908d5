"""Rows: records as columns."""

from __future__ import annotations

import pytest

from store.api import Record, Rows

RECORDS = [Record(7 + at, at, 10 * at, f"e{at}") for at in range(5)]


@pytest.fixture
def rows() -> Rows:
    made = Rows([0, 1], [0, 10], ["e0", "e1"], 7)
    made.extend(Rows([2, 3, 4], [20, 30, 40], ["e2", "e3", "e4"], 9))
    return made


def test_it_reads_as_a_list(rows: Rows) -> None:
    assert len(rows) == 5
    assert list(rows) == RECORDS
    assert [rows[at] for at in (0, 4, -1, -5)] == [RECORDS[at] for at in (0, 4, -1, -5)]
    assert rows[1:4:2] == RECORDS[1:4:2]
    assert rows[-2:] == RECORDS[-2:]
    assert repr(rows) == repr(RECORDS)
    for at in (5, -6):
        with pytest.raises(IndexError):
            rows[at]


def test_it_is_equal_to_the_same_records(rows: Rows) -> None:
    same = Rows([0, 1, 2, 3, 4], [0, 10, 20, 30, 40], ["e0", "e1", "e2", "e3", "e4"], 7)
    assert rows == same
    assert rows == RECORDS
    assert RECORDS == rows
    assert rows == tuple(RECORDS)
    same.causes[2] = 3
    assert rows != same
    assert rows != RECORDS[:4]
    assert rows != Rows(rows.causes, rows.ats, rows.events, 8)
    assert rows != 5
    assert Rows() == []
