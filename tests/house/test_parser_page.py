"""docs/write-a-parser.md: its code is the example's, and no input or event is left out."""

from __future__ import annotations

import re
from typing import get_args

from stages.events import Input, Semantic
from tests.support.tree import ROOT

PAGE = (ROOT / "docs/write-a-parser.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "examples/small_parser.py").read_text(encoding="utf-8")
BEHIND = {"Refusal"}
"""What no parser gives: only another server does."""


def test_its_code_is_the_example_s() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        assert block in EXAMPLE


def test_every_input_has_a_row() -> None:
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))
    assert {each.__name__ for each in get_args(Input)} <= set(re.findall(r"`(\w+)`", rows))


def test_every_event_is_told() -> None:
    told = set(re.findall(r"`(\w+)\b[^`]*`", PAGE))
    assert {each.__name__ for each in get_args(Semantic)} - told == BEHIND
