"""``steps``: a whole list at once gives what step by step gives, event for event, for parsers and for chains."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from stages import catalog, policy
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    Semantic,
    Tick,
    Tokens,
    TokensInput,
    UsageInput,
)
from stages.opening import Ask, Opening, Tool
from stages.parse.choice import Choice
from stages.stage import Chain, Machine, fold_causes, run_steps
from tests.support.generate import families
from tests.support.generate.family import Family, tokenize
from tests.support.parse import grouped, opening, session

TOOL = Tool("tide", "", {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]})
SEEDS = 12


def by_step(machine: Machine[Any, Any], inputs: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """The definition."""
    out: list[Any] = []
    ends: list[int] = []
    for event in inputs:
        machine.step(event, out)
        ends.append(len(out))
    return out, ends


def at_once(machine: Machine[Any, Any], inputs: Iterable[Any]) -> tuple[list[Any], list[int]]:
    out: list[Any] = []
    ends: list[int] = []
    run_steps(machine, inputs, out, ends)
    return out, ends


def written(family: Family, seed: int) -> list[Input]:
    """A session of two choices that take turns, in small steps, cut characters among them; ended in some way."""
    dice = random.Random(seed)
    kind = dice.choice(sorted(family.tails))
    lanes: list[list[Input]] = []
    for choice in (0, 1):
        raw = family.output(family.draw(dice, kind), dice, kind)
        pieces = [
            (number, piece[at : at + size])
            for number, piece in tokenize(raw, family.tokenizer, dice)
            for size in [len(piece) if number in family.tokenizer.special.values() else dice.choice((3, 5, 99))]
            for at in range(0, len(piece), size)
        ]
        sizes = [dice.choice((1, 1, 1, 2, 5)) for _ in pieces]
        lanes.append(list(grouped(pieces, sizes, choice)))
    made: list[Input] = []
    while any(lanes):
        lane = dice.choice([lane for lane in lanes if lane])
        run = dice.randint(1, 12)
        made += lane[:run]
        del lane[:run]
        made += [Tick()] if dice.random() < 0.1 else []
    found = session(made, tail=family.tails[kind], n=2)
    return [*found[: dice.randrange(len(found))], AbortInput("client")] if seed % 3 == 0 else found


def asked(family: Family, seed: int) -> Opening:
    ask = Ask(
        n=2,
        tools=(TOOL,),
        include_reasoning=seed % 4 != 1,
        parallel=seed % 4 != 2,
        tool_choice="required" if seed % 4 == 3 else "auto",
    )
    made = opening(parser=family.format.name, tokenizer=family.tokenizer)
    return msgspec.structs.replace(made, ask=ask, calls="whole" if seed % 5 == 0 else "incremental")


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_it_is_what_step_by_step_gives(family: Family) -> None:
    for seed in range(SEEDS):
        opened, inputs = asked(family, seed), written(family, seed)
        for stage in (catalog.parser(family.format.name), catalog.layers(opened).semantic):
            one, other = stage.start(opened), stage.start(opened)
            assert at_once(one, inputs) == by_step(other, inputs), seed
            assert one.snapshot() == other.snapshot(), seed


ODD = (
    b" the", b"\n", b"\n\n", b" \n", b"a\n b", b".\n\n\t", b"\n ", b"<", b"<th", b"[", b"{", b"}", b"\xc3", b"\xa9",
    b"\xc3\xa9\n", b"\xe2\x80\xa8", b"\xff", b"", b" \t ", b'"', b"\\n", b"\\", b"\n" * 300, b"x" * 50,
)  # fmt: skip
"""Pieces that may or may not go the short way."""


def strewn(family: Family, seed: int) -> list[Input]:
    """A session of a token a step, with odd pieces among what the family writes, at times in place of it."""
    dice = random.Random(f"strewn {seed}")
    kind = dice.choice(sorted(family.tails))
    often = dice.choice((0.05, 0.3, 0.9))
    pieces: list[tuple[int, bytes]] = []
    for number, piece in tokenize(family.output(family.draw(dice, kind), dice, kind), family.tokenizer, dice):
        if dice.random() > often / 4:
            pieces.append((number, piece))
        while dice.random() < often:
            pieces.append((10**6 + len(pieces), dice.choice(ODD)))
    lanes = [list(grouped(pieces[choice::2] if seed % 2 else pieces, [1] * len(pieces), choice)) for choice in (0, 1)]
    made: list[Input] = []
    while any(lanes):
        lane = dice.choice([lane for lane in lanes if lane])
        run = dice.randint(1, 60)
        made += lane[:run]
        del lane[:run]
    return session(made, tail=family.tails[kind], n=2)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_the_short_way_gives_what_the_long_way_gives(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = catalog.parser(family.format.name)
    cases: list[tuple[Opening, list[Input], Any]] = []
    for seed in range(SEEDS):
        # Room for the longest piece, and little more.
        opened = msgspec.structs.replace(asked(family, seed), max_held=(4 << 20, 301, 340)[seed % 3])
        inputs = strewn(family, seed)
        one, other = stage.start(opened), stage.start(opened)
        short = at_once(one, inputs)
        assert short == by_step(other, inputs), seed
        assert one.snapshot() == other.snapshot(), seed
        cut = len(inputs) // 2
        first = stage.start(opened)
        out, ends = at_once(first, inputs[:cut])
        run_steps(stage.resume(opened, first.snapshot()), inputs[cut:], out, ends)
        assert (out, ends) == short, seed
        cases.append((opened, inputs, (short, one.snapshot())))
    monkeypatch.setattr(Choice, "_settle", _never_clean)
    for seed, (opened, inputs, short) in enumerate(cases):
        machine = stage.start(opened)
        assert (by_step(machine, inputs), machine.snapshot()) == short, seed


def _never_clean(choice: Choice) -> None:
    choice.clean = False


def test_white_space_without_end() -> None:
    inputs: list[Input] = [
        PromptInput((), "", 3),
        *(TokensInput(0, (9,), (piece,), "") for piece in (b"so", *[b"\n"] * 60_000, b"it is")),
    ]
    stage = catalog.parser("hermes")
    out, ends = at_once(stage.start(opening()), inputs)
    assert len(ends) == len(inputs)
    [first, last] = [event for event in out if isinstance(event, Content)]
    assert (first.text, last.text) == ("so", "\n" * 60_000 + "it is")


@pytest.mark.parametrize("family", families()[::7], ids=lambda family: family.name)
def test_it_goes_on_where_a_step_ended(family: Family) -> None:
    for seed in range(4):
        opened, inputs = asked(family, seed), written(family, seed)
        stage = catalog.layers(opened).semantic
        whole = by_step(stage.start(opened), inputs)
        for cut in range(0, len(inputs), 11):
            machine = stage.start(opened)
            out, ends = by_step(machine, inputs[:cut])
            run_steps(machine, inputs[cut:], out, ends)
            assert (out, ends) == whole


# --- chains ---------------------------------------------------------------------------------------------------------


class Raised(Exception):
    """What a stage raises."""


class Script:
    """A stage that gives what its table says of an input, perhaps more than once; it raises at ``None``."""

    id = "script@1"

    def __init__(self, table: dict[Any, list[Any]], *, touches: bool = False, fast: bool = False) -> None:
        self.table = table
        self.touches = touches
        self.fast = fast

    def start(self, opening: Opening) -> Any:
        machine = _Fast(self) if self.fast else _Machine(self)
        if self.touches:
            machine.touches = frozenset((str,))
        return machine

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        return self.start(opening)


class _Machine:
    touches: frozenset[type] | None

    def __init__(self, stage: Script) -> None:
        self.stage = stage

    def step(self, event: Any, out: list[Any]) -> None:
        for made in self.stage.table.get(event, [event]):
            if made is None:
                raise Raised(event)
            out.append(made)

    def snapshot(self) -> msgspec.Struct:
        raise NotImplementedError


class _Fast(_Machine):
    def run_steps(self, inputs: Iterable[Any], out: list[Any], ends: list[int]) -> None:
        for event in inputs:
            self.step(event, out)
            ends.append(len(out))


FIRST: dict[Any, list[Any]] = {1: [], 2: ["a", 2], 3: ["b", "b"], 4: ["c", 4, "d"], 5: [5, "x"], 6: [6, None]}
SECOND: dict[Any, list[Any]] = {"a": [], "b": ["b", 7, 7], "d": ["D"], "x": ["x", None]}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("touches", [False, True])
@pytest.mark.parametrize(
    "inputs", [[], [1], [0, 1, 2, 3, 4, 0, 3, 1, 2], [3, 2, 6, 4], [2, 3, 0, 5, 4], [5], [6], [3, 5, 6], [4, 1, 6, 5]]
)
def test_a_chain_of_any_machines(fast: bool, touches: bool, inputs: list[int]) -> None:
    # What a step that raises gave is nothing. The tables say what is right.
    want: list[Any] = []
    ends: list[int] = []
    for event in inputs:
        made = [after for item in FIRST.get(event, [event]) for after in SECOND.get(item, [item])]
        if None in made:
            break
        want += made
        ends.append(len(want))
    raises = len(ends) < len(inputs)
    stages = [Script(FIRST, fast=fast), Script(SECOND, touches=touches), Script({})]
    machine: Machine[Any, Any] = Chain[Any, Any](stages).start(opening())
    out: list[Any] = ["before"]
    got: list[int] = [1]
    try:
        run_steps(machine, inputs, out, got)
    except Raised:
        assert raises
        del out[got[-1] :]
    else:
        assert not raises
    assert out == ["before", *want]
    assert got == [1, *(end + 1 for end in ends)]


def test_causes() -> None:
    machine: Machine[Any, Any] = Chain[Any, Any]([Script(FIRST, fast=True), Script(SECOND)]).start(opening())
    assert fold_causes(machine, [1, 2, 3, 0], 10) == ([2, "b", 7, 7, "b", 7, 7, 0], [11, 12, 12, 12, 12, 12, 12, 13])


def test_a_long_run_is_counted_once() -> None:
    # Reasoning tokens are counted in the short way, too.
    inputs: list[Input] = [
        PromptInput((), "<think>", 3),
        *(TokensInput(0, (9,), (b"hm ",), "") for _ in range(40)),
        FinishInput(0, "length"),
        UsageInput(3, 40),
    ]
    stage = catalog.parser("hermes")
    out, _ = at_once(stage.start(opening()), inputs)
    assert out == by_step(stage.start(opening()), inputs)[0]
    assert [event.reasoning for event in out if event.__class__.__name__ == "Usage"] == [40]


def test_arguments_are_checked_when_they_end() -> None:
    opened = msgspec.structs.replace(opening(), ask=Ask(tools=(TOOL,)))
    events: list[Semantic] = [
        Tokens(0, (1,)), Reasoning(0, "a", (0, 1)), Content(0, "b", (1, 2)), CallStart(0, 0, "i", "tide", (2, 6)),
        *(CallArguments(0, 0, piece, (6 + at, 7 + at)) for at, piece in enumerate('{"port":1}')),
        CallEnd(0, 0, True),
    ]  # fmt: skip
    out = at_once(policy.POLICY.start(opened), events)[0]
    [fault] = [event for event in out if event not in events]
    assert (fault.code, fault.src) == ("schema_mismatch", (6, 16))
    assert out.index(fault) == len(out) - 2
