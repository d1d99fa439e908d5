"""Another engine's parser where a session ends early."""

from __future__ import annotations

from collections.abc import Sequence

from replay.cut import cuts
from replay.errors import Timeout
from stages.events import Content, FinishInput, Input, Semantic, TokensInput
from stages.opening import Opening
from stages.stage import Machine
from tests.replay.test_cut import Peer, PeerMachine
from tests.support.replay import CALLS, tokens, whole
from tests.support.spoiled import session_of


class Dies(Peer):
    """Its worker ends whenever the session was cut."""

    asked: int

    def prepared(self, opening: Opening, events: Sequence[Input]) -> Peer:
        self.asked += 1
        if any(isinstance(event, FinishInput) and event.reason == "length" for event in events):
            raise Timeout("no answer within 60 s")
        return self


def test_a_worker_that_ends_is_not_asked_at_every_cut() -> None:
    stage = Dies()
    made = cuts(session_of(stage, whole(tokens("Let me look." + CALLS))))
    assert made.count == stage.asked == 1
    assert made.failed is not None
    assert made.failed.type == "Timeout"
    assert made.notes[-1].endswith(" more places were not tried: its worker ended")


class Merges(Peer):
    """It is told of the finish with the last tokens, and says something then."""

    def prepared(self, opening: Opening, events: Sequence[Input]) -> Peer:
        made = Merges()
        made.last = sum(isinstance(event, TokensInput) for event in events)
        return made

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Merges(self, self.inner.start(opening))


class _Merges(PeerMachine):
    seen = 0

    def step(self, event: Input, out: list[Semantic]) -> None:
        super().step(event, out)
        self.seen += isinstance(event, TokensInput)
        if self.seen == self.stage.last and isinstance(event, TokensInput):
            out.append(Content(0, ".", (0, 0)))


def test_what_comes_with_the_last_tokens_may_depend_on_the_finish() -> None:
    assert cuts(session_of(Merges(), whole(tokens("Let me look.")))).breaches == ()
