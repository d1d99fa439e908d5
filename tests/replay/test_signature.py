"""Signatures: thousands of changed sessions are a few kinds, whatever their texts, numbers, names and steps are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import msgspec
import pytest

from replay.diff import Session
from replay.result import Finding, SessionResult, Signature, SplitPair
from replay.run import Replayer
from replay.signature import in_words, signature
from replay.verdict import Difference
from stages import catalog
from stages.events import (
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Semantic,
    TokensInput,
    UsageInput,
)
from stages.opening import Opening
from stages.stage import Machine
from store.api import Trace
from tests.support.captures import captures
from tests.support.format_checks import generated
from tests.support.generate import families
from tests.support.parse import grouped, session
from tests.support.replay import (
    SAID,
    Change,
    Mutant,
    Raising,
    every,
    late,
    lost,
    nth,
    one_character,
    only,
    opening,
    record,
    spoiled,
    text_steps,
    tokens,
    whole,
)
from tests.support.upstream_traces import relayed

replace = msgspec.structs.replace


@cache
def sessions(module: str, name: str, count: int) -> tuple[Trace, ...]:
    """Generated sessions of a family, one of two with steps of one token and one of several."""
    return tuple(_sessions(module, name, count))


def _sessions(module: str, name: str, count: int) -> Iterator[Trace]:
    family = next(family for family in families(module) if family.format.name == name)
    for seed in range(count):
        subject, _ = generated(family, seed)
        dice = random.Random(seed)
        pieces = subject.pieces()
        steps = grouped(pieces, [1 if seed % 2 else dice.randint(1, 6) for _ in pieces])
        opened = replace(subject.opened("incremental"), parser=name, session=f"{seed:032x}")
        yield record(opened, session(steps, tail=subject.tail, finish=subject.finish))


def as_content(event: Any) -> list[Semantic]:
    return [Content(event.choice, event.text, event.src)] if event.text.strip() else [event]


def faulty(event: Any) -> list[Semantic]:
    return [event, Fault(event.choice, FaultCode.UNKNOWN_TOOL, (0, 0))]


MUTANTS: dict[str, Callable[[], Change]] = {
    "a character of the content is wrong": nth(only(Content), 0, one_character),
    "a call is lost": nth(only(CallStart), 0, lost),
    "a marker leaks": nth(only(Marker), 0, as_content),
    "a call's end is lost": nth(only(CallEnd), 0, lost),
    "a character of the arguments is wrong": nth(only(CallArguments), 0, one_character),
    "reasoning is content": every(only(Reasoning), as_content),
    "a fault more": nth(only(CallEnd), 0, faulty),
    "the finish is lost": nth(only(Finish), 0, lost),
    "content is late": late(only(Content)),
}
FAMILIES = [("hermes", "hermes"), ("kv_tags", "glm"), ("xml_schema", "qwen3-xml"), ("header_json", "kimi_k2"),
            ("harmony", "harmony")]  # fmt: skip


def results(traces: tuple[Trace, ...], make: Callable[[], Change]) -> list[SessionResult]:
    replayer = Replayer(assemble=spoiled("semantic", make))
    return [result for trace in traces if (result := replayer.replay(trace)).verdict != "same"]


@pytest.mark.parametrize(("module", "name"), FAMILIES)
def test_what_one_mutant_does_to_many_sessions_is_a_few_kinds(module: str, name: str) -> None:
    traces = sessions(module, name, 40)
    kinds: dict[str, Counter[Signature]] = {}
    for mutant, make in MUTANTS.items():
        found = results(traces, make)
        assert all(result.signature is not None for result in found)
        kinds[mutant] = Counter(result.signature for result in found if result.signature is not None)
    for mutant, counts in kinds.items():
        # An output may end anywhere: in more states than a call may be lost in.
        most = 6 if mutant == "the finish is lost" else 4
        assert len(counts) <= most, (mutant, {in_words(kind): count for kind, count in counts.items()})
        # Nearly all are of the few.
        assert sum(count for _, count in counts.most_common(3)) >= 0.9 * counts.total()
    changed = sum(counts.total() for counts in kinds.values())
    assert changed > 150
    # Two mutants do not look alike.
    assert len({kind for counts in kinds.values() for kind in counts}) == sum(map(len, kinds.values()))
    for kind in {kind for counts in kinds.values() for kind in counts}:
        assert not any(char.isdigit() for char in in_words(kind))


def test_six_hundred_sessions_with_one_mutant_are_four_kinds() -> None:
    found = results(sessions("hermes", "hermes", 700), MUTANTS["a call is lost"])
    assert len(found) >= 500
    assert len({result.signature for result in found}) <= 4


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_steps_do_not_matter(mutant: str) -> None:
    """Where the model wrote what differs is a byte: the same in any grouping of its tokens."""
    opened = opening()
    make = MUTANTS[mutant]
    kinds: set[Signature | None] = set()
    for size in (1, 2, 3, 7, 40, 1000):
        cut = [event for event in tokens(SAID, size=3) if isinstance(event, TokensInput)]
        pieces = [(event.ids[0], event.pieces[0]) for event in cut]
        steps = grouped(pieces, [size] * len(pieces))
        result = Replayer(assemble=spoiled("semantic", make)).replay(record(opened, whole(steps)))
        if result.verdict == "changed":
            kinds.add(result.signature)
    assert len(kinds) <= 1


def test_a_lost_call_in_words() -> None:
    result = results((record(opening(), whole(tokens(SAID))),), MUTANTS["a call is lost"])[0]
    assert result.signature == Signature(
        verdict="changed", kind="call_lost", layer="semantic", recorded="call_start", replayed="",
        state="call: header", marker="<tool_call>",
    )  # fmt: skip
    assert result.signature is not None
    assert in_words(result.signature) == "call lost (call_start → nothing) · in call: header · after <tool_call>"


def test_of_an_engine_without_ids() -> None:
    """The literals are found in the text, and the place may be anywhere in a step."""
    for size in (1, 4, 50, 1000):
        result = results((record(opening(), whole(text_steps(SAID, size))),), MUTANTS["a call is lost"])[0]
        assert result.signature is not None
        assert (result.signature.state, result.signature.marker) == ("call: header", "<tool_call>")


def test_texts_numbers_names_and_ids_do_not_matter() -> None:
    opened = opening()
    kinds: set[Signature | None] = set()
    for text in (
        SAID,
        SAID.replace("tide", "moon").replace("Brest", "Überfahrt 12 <x>"),
        SAID.replace("look", "9" * 300),
    ):
        for session_id in ("a" * 32, "b" * 32):
            trace = record(replace(opened, session=session_id, key=session_id), whole(tokens(text)))
            kinds |= {result.signature for result in results((trace,), MUTANTS["a call is lost"])}
    assert len(kinds) == 1


# --- parsers that do not tell, and that raise


class Mute:
    """Hermes without a state, that loses every call."""

    id = "mute@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return Mutant(catalog.parser("hermes"), every(only(CallStart), lost)).start(opening)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        raise NotImplementedError


class Told(Mute):
    """One that tells where it stands."""

    id = "told@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        machine: Any = super().start(opening)
        machine.state = _mine
        return cast("Machine[Input, Semantic]", machine)


def _mine(choice: int) -> str:
    return "MINE"


def test_where_a_parser_does_not_tell_the_recorded_one_does() -> None:
    trace = record(opening(), whole(tokens(SAID)))
    result = Replayer(Mute()).replay(trace)
    assert result.signature is not None
    assert (result.signature.state, result.signature.marker) == ("call: header", "<tool_call>")


def test_where_a_parser_tells_its_word_counts() -> None:
    result = Replayer(Told()).replay(record(opening(), whole(tokens(SAID))))
    assert result.signature is not None
    assert (result.signature.state, result.signature.marker) == ("MINE", "<tool_call>")


def test_a_parser_that_nobody_knows_has_no_state() -> None:
    trace = record(opening(), whole(tokens(SAID)))
    trace = Trace(opening=replace(trace.opening, parser="gone.py:Parser"), info=trace.info, records=trace.records)
    result = Replayer(Mute()).replay(trace)
    assert result.signature is not None
    assert result.signature.state == ""
    assert result.signature.kind == "call_lost"


def test_a_parser_that_raises() -> None:
    trace = record(opening(), whole(tokens(SAID)))
    at = next(seq for seq, event in enumerate(trace.events("input", "engine")) if getattr(event, "ids", ()) == (300,))
    result = Replayer(Raising(at + 3)).replay(trace)
    assert result.signature is not None
    assert (result.signature.verdict, result.signature.kind, result.signature.layer) == (
        "failed",
        "RuntimeError",
        "semantic",
    )
    assert result.signature.replayed.startswith("replay.py:")
    assert (result.signature.state, result.signature.marker) == ("call: header", "<tool_call>")
    assert (
        in_words(result.signature)
        == f"failed: RuntimeError at {result.signature.replayed} · in call: header · after <tool_call>"
    )


def test_a_parser_that_does_not_start() -> None:
    result = Replayer(Raising(0)).replay(record(opening(), whole(tokens(SAID))))
    assert result.signature is not None
    assert (result.signature.kind, result.signature.state, result.signature.marker) == ("RuntimeError", "", "")


# --- other servers, other layers, splits, nothing


def test_of_another_servers_message() -> None:
    """What the server did, where our parser stands."""
    kinds: Counter[str] = Counter()
    for capture in captures().values():
        if capture.script is None or capture.parser is None:
            continue
        result = Replayer().replay(relayed(capture))
        if result.verdict == "changed":
            assert result.signature is not None
            kinds[in_words(result.signature)] += 1
        elif result.verdict in ("same", "uncompared", "restyled"):
            assert result.signature is None
    assert kinds
    assert any(" · in " in words for words in kinds)


def test_a_layer_below_the_message() -> None:
    trace = record(opening(), whole(tokens(SAID)))

    def other(event: Any) -> list[Any]:
        return (
            [event] if getattr(event, "data", b"") == b"data: [DONE]\n\n" else [replace(event, data=event.data + b" ")]
        )

    result = Replayer(assemble=spoiled("frame", nth(only(Block), 3, other))).replay(trace)
    assert result.signature is not None
    assert (result.signature.verdict, result.signature.layer, result.signature.recorded) == (
        "changed",
        "frame",
        "block",
    )
    assert in_words(result.signature).startswith("frame, frame (block → block)")


class Splitting:
    """Hermes, but a step of several tokens loses its last content."""

    id = "splitting@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Splitting(catalog.parser("hermes").start(opening))

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        raise NotImplementedError


class _Splitting:
    def __init__(self, machine: Machine[Input, Semantic]) -> None:
        self.machine = machine

    def step(self, event: Input, out: list[Semantic]) -> None:
        made: list[Semantic] = []
        self.machine.step(event, made)
        several = isinstance(event, TokensInput) and len(event.ids) > 1
        out += [item for item in made if not (several and isinstance(item, Content))]

    def snapshot(self) -> msgspec.Struct:
        return self.machine.snapshot()


def test_only_another_split_differs() -> None:
    result = Replayer(Splitting(), splits=("recorded", "one")).replay(record(opening(), whole(tokens(SAID))))
    assert result.verdict == "changed"
    assert result.signature is not None
    assert (result.signature.kind, result.signature.layer) == ("text", "split")
    assert in_words(result.signature).startswith("text under another split")


def test_the_smallest_pair_of_splits_tells_the_place() -> None:
    opened = opening()
    inputs = whole(tokens(SAID))
    at = next(seq for seq, event in enumerate(inputs[1:]) if getattr(event, "ids", ()) == (300,))
    layers = catalog.layers(opened)
    trace = record(opened, inputs)
    pair = SplitPair(0, ((at + 1, at + 3),), (), ("", ""), (Difference(0, "call_lost", "tool_calls", None, None),))
    finding = Finding(verdict="changed", split_pair=pair)
    got = signature(_session(trace), finding, layers)
    assert got == Signature(
        verdict="changed", kind="call_lost", layer="split", state="call: header", marker="<tool_call>"
    )


def _session(trace: Trace) -> Session:
    inputs = trace.events("input", "engine")
    return Session(trace.opening, inputs, catalog.layers(trace.opening), False, len(inputs))


@pytest.mark.parametrize("verdict", ["same", "uncompared", "restyled"])
def test_what_is_no_divergence_has_none(verdict: Any) -> None:
    trace = record(opening(), whole(tokens(SAID)))
    assert signature(_session(trace), Finding(verdict=verdict), catalog.layers(trace.opening)) is None


def test_a_session_without_tokens() -> None:
    inputs: list[Input] = [PromptInput((1,), "", 1), FinishInput(0, "eos"), UsageInput(1, 0)]
    result = Replayer(assemble=spoiled("semantic", nth(only(Finish), 0, lost))).replay(record(opening(), inputs))
    assert result.signature is not None
    assert (result.signature.kind, result.signature.state, result.signature.marker) == ("finish_reason", "content", "")
