"""What a parser says of where it stands."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from stages import catalog
from stages.events import TokensInput
from stages.parse import engines
from stages.parse.parser import Parser
from tests.support.parse import opening, session, tokens

MODULES = [import_module(f"{engines.__name__}.{found.name}") for found in iter_modules(engines.__path__)]
NAMED = [module for module in MODULES if hasattr(module, "STATES")]


@pytest.mark.parametrize("module", NAMED, ids=lambda module: module.__name__.rpartition(".")[2])
def test_phases_have_the_names_of_their_constants(module: ModuleType) -> None:
    names: tuple[str, ...] = module.STATES
    assert len(names) > 1
    assert [getattr(module, name.upper()) for name in names] == list(range(len(names)))


def test_the_names_of_phases_are_the_last_names_of_a_module() -> None:
    scope: dict[str, object] = {"__name__": "x", "MORE": 0, "other": print}
    scope |= dict(zip(("OPEN", "IN_NAME", "END"), range(3), strict=True))
    assert engines.named(scope) == ("open", "in_name", "end")


def test_a_state_is_a_mode_and_in_a_call_what_the_engine_reads() -> None:
    parser = catalog.parser("hermes")
    assert isinstance(parser, Parser)
    machine = parser.start(opening())
    text = '<think>a</think>b<tool_call>{"name": "tide", "arguments": {"port": 1}}</tool_call>c'
    states: list[str] = []
    for event in session(tokens(text, size=1)):
        machine.step(event, [])
        state = machine.state(0)
        assert parser.resume(opening(), machine.snapshot()).state(0) == state
        if isinstance(event, TokensInput) and states[-1:] != [state]:
            states.append(state)
    assert states == [
        "reasoning_lead", "reasoning", "after", "content", "call: open", "call: object: field",
        "call: object: field_text", "call: object: colon", "call: object: field_value", "call: object: name",
        "call: object: next", "call: object: field", "call: object: field_text", "call: object: colon",
        "call: object: field_value", "call: object: object", "call: object: next", "call: behind", "between", "content",
    ]  # fmt: skip
    assert machine.state(1) == ""
