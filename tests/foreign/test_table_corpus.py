"""The corpus of the published table (``tests.peers.table``): messages mean what they say, and numbers add up."""

from __future__ import annotations

from itertools import islice

import pytest

from replay.result import Breach, SessionResult
from stages.events import TokensInput
from tests.peers.table import BEGIN, CORPORA, END, PAGE, TEXTS, Row, groupings, page, run
from tests.peers.table_corpus import CALLS_ALONE, KINDS, Kind, sessions

NAMES = [kind.name for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_our_parser_reads_every_message_as_it_was_meant(kind: Kind) -> None:
    """``sessions`` raises where it does not."""
    for corpus in CORPORA:
        traces = list(sessions(kind, corpus, 4))
        assert len({trace.info.session for trace in traces}) == 4
        assert run(kind.parser, traces).right == 4


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.family not in CALLS_ALONE], ids=lambda kind: kind.name)
def test_groupings_have_three_to_seven_tokens_and_the_same_message(kind: Kind, text: str) -> None:
    traces = list(islice(groupings(kind, text), 3))
    steps = [event for event in traces[0].events("input", "engine") if isinstance(event, TokensInput)]
    assert all(3 <= len(step.ids) <= 7 for step in steps[:-1])
    wrote = {
        b"".join(p for e in t.events("input", "engine") if isinstance(e, TokensInput) for p in e.pieces) for t in traces
    }
    assert len(wrote) == 1
    assert run(kind.parser, traces, ("recorded",)).right == 3


def test_a_row_counts_sessions_by_the_recorded_split_and_characters_by_lag() -> None:
    row = Row()
    told = (Breach("split", "", split="one"), Breach("split", ""), Breach("one_shot", ""))
    row.take(
        SessionResult(session="a", verdict="changed", splits={"recorded": "same"}, breaches=told, lag={0: 98, 5: 1})
    )
    row.take(SessionResult(session="b", verdict="changed", splits={"recorded": "changed"}, lag={2: 1}))
    row.take(SessionResult(session="c", verdict="uncompared", unreplayed="no such parser"))
    assert (row.right, row.differs, row.failed, row.split, row.one_shot) == (1, 1, 1, 1, 1)
    assert row.late == "0.1 / 2"  # 7 tokens over 100 characters; 99 of them come within 2


def test_the_page_has_a_place_for_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = page(text, "| a |\n")
    before, _, _ = text.partition(BEGIN)
    assert made == f"{before}{BEGIN}\n\n| a |\n\n{END}\n"
