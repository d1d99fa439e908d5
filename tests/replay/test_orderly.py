"""The quick look at the order of events sees exactly what the close one sees."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from replay.oracles import breaches
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Echo,
    End,
    Failure,
    Fault,
    FaultCode,
    Finish,
    Marker,
    Reasoning,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    Usage,
)
from tests.support.replay import opening

_CHOICE = st.integers(0, 1)
_EVENT: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Start, _CHOICE, st.just(1)),
    st.builds(Tokens, _CHOICE, st.just((1,))),
    st.builds(Content, _CHOICE, st.just("a"), st.just((0, 1))),
    st.builds(Reasoning, _CHOICE, st.just("a"), st.just((0, 1))),
    st.builds(Marker, _CHOICE, st.just("a"), st.just((0, 1))),
    st.builds(Fault, _CHOICE, st.just(FaultCode.STRAY_MARKER), st.just((0, 1))),
    st.builds(CallStart, _CHOICE, _CHOICE, st.sampled_from(("id", "")), st.sampled_from(("name", "")), st.just((0, 1))),
    st.builds(CallArguments, _CHOICE, _CHOICE, st.just("{"), st.just((0, 1))),
    st.builds(CallEnd, _CHOICE, _CHOICE, st.booleans()),
    st.builds(Finish, _CHOICE, st.just("eos")),
    st.just(End()),
    st.just(Usage(1, 1)),
)


class _Client:
    """From the definition, event by event."""

    def __init__(self) -> None:
        self.state = {0: "", 1: ""}
        self.calls: dict[int, list[bool]] = {0: [], 1: []}

    def takes(self, event: Semantic) -> bool:
        """Whether it is right where it is."""
        if isinstance(event, End):
            self.state = {choice: "over" if was == "live" else was for choice, was in self.state.items()}
        elif not isinstance(event, Usage | Tokens | Marker | Fault | Failure | Dropped | Tick | TimingInput | Echo):
            was = self.state[event.choice]
            self.state[event.choice] = "over" if isinstance(event, Finish) else "live"
            return was == ("" if isinstance(event, Start) else "live") and self._called(event)
        return True

    def _called(self, event: Semantic) -> bool:
        if isinstance(event, CallStart):
            self.calls[event.choice].append(True)
            return event.index == len(self.calls[event.choice]) - 1 and bool(event.id and event.name)
        if isinstance(event, CallArguments | CallEnd):
            mine = self.calls[event.choice]
            was = event.index < len(mine) and mine[event.index]
            if was:
                mine[event.index] = isinstance(event, CallArguments)
            return was
        return True


@given(st.lists(_EVENT, max_size=8).map(lambda rest: [Start(0, 1), Start(1, 1), *rest]) | st.lists(_EVENT, max_size=6))
@example([Start(0, 1), CallStart(0, 0, "id", "name", (0, 1)), Finish(0, "eos"), CallArguments(0, 0, "{", (0, 1))])
@example([Start(0, 1), CallStart(0, 0, "id", "name", (0, 1)), End(), CallEnd(0, 0, True)])
@example([Start(0, 1), CallStart(0, 0, "id", "name", (0, 1)), Finish(0, "eos"), CallEnd(0, 0, True)])
def test_any_order(events: list[Semantic]) -> None:
    found = breaches(opening(), [], events, [0] * len(events), [])
    client = _Client()
    assert (not found) == all(client.takes(event) for event in events)
    assert {breach.oracle for breach in found} <= {"retracted"}
