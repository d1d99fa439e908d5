"""Formats that write messages: what a grammar allows is one of theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.constraint import constraint_of
from stages.opening import Ask, Tool
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from tests.support.constrained import Vocabulary, markers, vocabulary
from tests.support.parse import message, opening, semantic, session

PORT: dict[str, Any] = {"type": "object", "properties": {"port": {"enum": ["Brest"]}}, "required": ["port"]}
TIDE = Tool("tide", None, PORT)
STRICT = Tool("tide", None, PORT, True)
C, M, E, S, K = "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant", "<|constrain|>"
CALL = f'{C}commentary to=functions.tide {K}json{M}{{"port": "Brest"}}'
TAIL = f"<|start|>user{M}Tide?{E}{S}"
SPOKEN = [form for form in FORMATS if form.channels is not None]


def form(name: str) -> Format:
    return next(each for each in FORMATS if each.name == name)


def takes(name: str, ask: Ask, text: str, tail: str) -> bool:
    words = Vocabulary(markers(form(name)))
    constraint = constraint_of(ask, form(name), words.facts, "chat")
    assert constraint is not None
    return words.takes(words.held(constraint, tail), text)


@pytest.mark.parametrize(
    ("text", "required", "strict", "answer"),
    [
        (CALL, True, True, True),
        (f"{CALL}{E}", True, True, True),
        (f' to=functions.tide{C}commentary json{M}{{"port": "Brest"}}', True, True, True),
        (f' to=functions.tide{C}commentary {K}json{M}{{"port": "Brest"}}', True, True, True),
        (f'{CALL}{E}{S} to=functions.tide{C}commentary json{M}{{"port": "Brest"}}', True, True, True),
        (f"{C}analysis{M}I need it.{E}{S}{CALL}", True, True, True),
        (f"{C}analysis{M}One.{E}{S}{C}analysis{M}Two.{E}{S}{CALL}", True, True, True),
        (f"{CALL}{E}{S}{CALL}", True, True, True),
        (f"{C}commentary{M}I will look.{E}{S}{CALL}", False, True, False),
        (f"{C}analysis{M}Well.{E}{S}{C}final{M}Low at 6.", False, True, False),
        (f'{C}analysis{M}Well.{E}{S}{C}final{M}{{"a": 1}}', False, True, True),
        (f"{C}analysis{M}I need it.", False, False, False),
        (f'{C}commentary to=functions.tide {K}json{M}{{"port": "Brest', False, False, False),
        (f'{C}commentary to=functions.tide {K}json{M}{{"port": "Ouessant"}}', False, False, True),
        (f"{C}commentary to=functions.moon {K}json{M}{{}}", False, False, False),
        ("Low at 6.", False, False, False),
    ],
)
def test_harmony(text: str, required: bool, strict: bool, answer: bool) -> None:
    asked = (
        (Ask(tools=(TIDE,), tool_choice="required"), required),
        (Ask(tools=(STRICT,)), strict),
        (Ask(tools=(TIDE,), answer={}), answer),
    )
    for ask, want in asked:
        assert takes("harmony", ask, text, TAIL) is want
    if required:
        assert takes("harmony", asked[0][0], f"{S}{text}", "a prompt that is not known")


def test_harmony_behind_a_prompt_that_began_a_message() -> None:
    ask = Ask(tools=(TIDE,), tool_choice="required")
    tail = f"{TAIL}{C}analysis{M}I need"
    assert takes("harmony", ask, f" it.{E}{S}{CALL}", tail)
    assert not takes("harmony", ask, CALL, tail)
    # Reasoning that a prompt closes: nothing of it is left to write.
    assert takes("harmony", ask, CALL, f"{TAIL}{C}analysis{M}{E}{S}")


def test_inkling() -> None:
    ask = Ask(tools=(TIDE,), tool_choice="required")
    call = '<|content_invoke_tool_json|>{"name": "tide", "args": {"port": "Brest"}}'
    thought = "<|content_thinking|>ebb<|end_message|><|message_model|>"
    for text in (call, f"{thought}{call}<|end_message|>", f"{call}<|end_message|><|message_model|>{call}"):
        assert takes("inkling", ask, text, "<|message_model|>")
    assert not takes("inkling", ask, "<|content_text|>ebb", "<|message_model|>")
    assert takes("inkling", Ask(tools=(STRICT,)), f"{thought}<|content_text|>ebb", "<|message_model|>")


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("spoken", SPOKEN, ids=lambda each: each.name)
def test_answers_are_read_as_content(spoken: Format, ids: bool) -> None:
    words = vocabulary(spoken, ids)
    tail = spoken.channels.spoken.start if spoken.channels else ""
    for ask in (Ask(answer=PORT), Ask(answer=PORT, tools=(TIDE,), tool_choice="none")):
        constraint = constraint_of(ask, spoken, words.facts, "chat")
        assert constraint is not None
        for seed in range(6):
            steps = words.written(words.held(constraint, tail), seed)
            got = message(semantic(opening(spoken.name, tokenizer=words.facts, ask=ask), session(steps, tail=tail)))
            assert set(got.faults) <= {"invalid_utf8"}  # random bytes in reasoning
            assert json.loads(got.content or "") == {"port": "Brest"}
