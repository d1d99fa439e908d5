"""Sessions in every state: closed, aborted, torn, open, incomplete; recorded full and lean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.result import SessionResult
from replay.run import Replayer
from stages.events import AbortInput, Content, ErrorInput, FinishInput, Input, Layer, PromptInput, Reasoning, UsageInput
from stages.opening import Opening
from store.api import Digest, State, Trace
from tests.support.replay import (
    SAID,
    aborted,
    cut,
    late,
    lost,
    nth,
    one_character,
    only,
    opening,
    record,
    spoiled,
    tampered,
    tokens,
    whole,
)
from tests.support.upstream_traces import with_records

DERIVED: tuple[Layer, ...] = ("semantic", "chunk", "frame")
STEPS = whole(tokens(SAID))


def with_info(trace: Trace, **fields: Any) -> Trace:
    return Trace(opening=trace.opening, info=msgspec.structs.replace(trace.info, **fields), records=trace.records)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(STEPS, id="closed"),
        pytest.param(whole(tokens(SAID, logprobs=True), tokens("Other … déjà.", 1, logprobs=True)), id="two choices"),
        pytest.param([ErrorInput("too_large", "The prompt is too long.")], id="refused"),
        pytest.param([*STEPS[:20], ErrorInput("engine", "out of memory")], id="failed"),
        pytest.param([PromptInput((1,), "", 1), FinishInput(0, "eos", 311), UsageInput(1, 1)], id="empty"),
    ],
)
def test_what_was_recorded_replays_the_same(inputs: list[Input], stream: bool) -> None:
    result = Replayer().replay(record(opening(n=2, stream=stream, logprobs=True, include_usage=True), inputs))
    assert result.verdict == "same"
    assert result.layers == {"message": "same", "semantic": "same", "chunk": "same", "frame": "same"}
    assert result.first is None


def test_aborted_anywhere_replays_the_same() -> None:
    for at in range(len(STEPS)):
        result = Replayer().replay(record(opening(), aborted(STEPS, at), state="aborted"))
        assert result.verdict == "same", at


def torn(state: State, inputs: int, semantic: int, chunk: int, frame: int) -> Trace:
    """A session whose writer died: each layer stops somewhere, none before the layers that follow from it."""
    whole_session = record(opening(), STEPS, state=state)
    made = cut(cut(cut(whole_session, "semantic", semantic), "chunk", chunk), "frame", frame)
    return with_records(made, "input", "engine", made.records["input", "engine"][:inputs])


@pytest.mark.parametrize("state", ["torn", "open"])
def test_a_torn_session_is_a_prefix_wherever_it_stops(state: State) -> None:
    rows = record(opening(), STEPS).records
    replayer = Replayer()
    for inputs in range(0, len(STEPS) + 1, 3):
        most = sum(row.cause < inputs for row in rows["served", "semantic"])
        chunks = sum(row.cause < most for row in rows["served", "chunk"])
        frames = sum(row.cause < chunks for row in rows["served", "frame"])
        for behind in (0, 1, 5):
            trace = torn(state, inputs, max(0, most - behind), max(0, chunks - behind), max(0, frames - behind))
            assert replayer.replay(trace).verdict == "same", (inputs, behind)


def test_a_torn_session_whose_record_is_no_prefix_is_changed() -> None:
    trace = torn("torn", 30, 40, 12, 12)
    assert Replayer().replay(trace).verdict == "same"
    for layer in DERIVED:
        for seq, event in enumerate(trace.events("served", layer)):
            field = "text" if hasattr(event, "text") else "data" if hasattr(event, "data") else None
            if field is not None:
                value = getattr(event, field)
                result = Replayer().replay(tampered(trace, layer, seq, **{field: value + value[:1]}))
                assert result.verdict == "changed", (layer, seq)
                assert result.first is not None
                assert (result.first.layer, result.first.seq) == (layer, seq)


def test_a_torn_record_that_goes_on_after_its_inputs_is_not_the_same() -> None:
    trace = torn("torn", 20, 60, 20, 20)
    assert Replayer().replay(trace).verdict == "changed"


@pytest.mark.parametrize(
    ("spoil", "verdict"), [(late(only(Reasoning)), "moved"), (nth(only(Reasoning), 1, one_character), "changed")]
)
def test_a_torn_session_through_a_changed_parser(spoil: Any, verdict: str) -> None:
    """Late emission holds text at the end of the record: that is moved, not lost."""
    rows = record(opening(), STEPS).records["served", "semantic"]
    for inputs in range(10, len(STEPS), 7):
        trace = torn("torn", inputs, sum(row.cause < inputs for row in rows), 0, 0)
        result = Replayer(layer="semantic", assemble=spoiled("semantic", spoil)).replay(trace)
        assert result.verdict == verdict, inputs


def test_an_incomplete_session_is_compared_as_far_as_its_inputs_go() -> None:
    whole_session = record(opening(), STEPS, state="incomplete")
    rows = whole_session.records["input", "engine"][:25]
    result = Replayer().replay(with_records(whole_session, "input", "engine", rows))
    assert result.verdict == "same"
    assert any("left out" in note for note in result.notes)
    seq = next(
        seq for seq, event in enumerate(whole_session.events("served", "semantic")) if isinstance(event, Reasoning)
    )
    assert Replayer().replay(tampered(whole_session, "semantic", seq, text="#")).verdict == "changed"


# --- lean -----------------------------------------------------------------------------------------------------------


def test_lean_sessions_are_proven_by_digests() -> None:
    result = Replayer().replay(record(opening(), STEPS, mode="lean"))
    assert result.verdict == "same"
    assert result.layers == {"message": "same", "semantic": "same", "chunk": "same", "frame": "same"}
    assert any("digests" in note for note in result.notes)


def test_a_lean_session_that_served_nothing_is_proven_too() -> None:
    """The client left before there was anything to send: a layer without events has no digest."""
    trace = record(opening(), [AbortInput("client")], mode="lean", state="aborted")
    assert set(trace.info.digests) == {"served/semantic"}
    result = Replayer().replay(trace)
    assert result.verdict == "same"
    assert any("equal to the recorded digests" in note for note in result.notes)


@pytest.mark.parametrize("layer", DERIVED)
def test_a_digest_that_differs_is_changed_and_says_that_it_cannot_tell_where(layer: Layer) -> None:
    trace = record(opening(), STEPS, mode="lean")
    known = trace.info.digests[f"served/{layer}"]
    digests = {**trace.info.digests, f"served/{layer}": Digest(known.n, "0" * 64)}
    result = Replayer().replay(with_info(trace, digests=digests))
    assert result.verdict == "changed"
    assert {name for name, verdict in result.layers.items() if verdict == "changed"} == {layer}
    assert result.first is not None
    assert (result.first.layer, result.first.kind, result.first.seq) == (layer, "unknown", -1)


def test_a_lean_session_through_a_changed_parser_still_shows_the_divergence() -> None:
    """The recorded parser gives the recorded digests: so its derivation is the record."""
    trace = record(opening(), STEPS, mode="lean")

    class Changed:
        id = "changed@1"

        def start(self, opening: Opening) -> Any:
            return spoiled("semantic", nth(only(Content), 0, lost))(opening, None).semantic.start(opening)

        def resume(self, opening: Opening, snapshot: Any) -> Any:
            raise NotImplementedError

    result = Replayer(Changed()).replay(trace)
    assert result.verdict == "changed"
    assert result.first is not None
    assert (result.first.layer, result.first.kind) == ("semantic", "text")
    full = record(opening(), STEPS)
    contents = [seq for seq, event in enumerate(full.events("served", "semantic")) if isinstance(event, Content)]
    assert result.first.seq == contents[0]


def test_a_lean_session_without_digests_is_compared_with_nothing_and_says_so() -> None:
    trace = with_info(record(opening(), STEPS[:20], mode="lean", state="torn"), digests={})
    result = Replayer().replay(trace)
    assert result.verdict == "same"
    assert any("no digests" in note for note in result.notes)


def test_digests_of_a_lean_session_whose_records_were_lost_prove_nothing() -> None:
    """They are of what was there, and the inputs that it came from are not."""
    trace = with_info(record(opening(), STEPS, mode="lean"), state="incomplete")
    kept = {("input", "engine"): trace.records["input", "engine"][:20]}
    result = Replayer().replay(msgspec.structs.replace(trace, records=kept))
    assert result.verdict == "same"
    assert any("no digests" in note for note in result.notes)


# --- who recorded it ------------------------------------------------------------------------------------------------


def test_another_version_of_a_stage_is_told() -> None:
    opened = opening()
    older = msgspec.structs.replace(opened, stages={**opened.stages, "parser": "parse.hermes@0"})
    result = Replayer().replay(record(older, STEPS))
    assert result.verdict == "same"
    assert result.stages == {"parser": ("parse.hermes@0", opened.stages["parser"])}


def test_replaying_twice_gives_the_same_digest_and_another_record_another() -> None:
    trace = record(opening(), STEPS)

    def replayed(replayer: Replayer) -> SessionResult:
        # How long it took is another time's.
        return msgspec.structs.replace(replayer.replay(trace), ns=0)

    assert replayed(Replayer()) == replayed(Replayer())
    for spoil in (nth(only(Content), 0, lost), nth(only(Content), 1, lost)):
        first = replayed(Replayer(assemble=spoiled("semantic", spoil)))
        assert first == replayed(Replayer(assemble=spoiled("semantic", spoil)))
        assert first.digest != Replayer().replay(trace).digest


def test_an_abort_is_an_input_like_any_other() -> None:
    """Without it, what the stages did about it follows from nothing."""
    trace = record(opening(), [*STEPS[:20], AbortInput("timeout")], state="aborted")
    result = Replayer().replay(with_records(trace, "input", "engine", trace.records["input", "engine"][:-1]))
    assert result.verdict == "changed"
    assert result.first is not None
    assert result.first.replayed is None
