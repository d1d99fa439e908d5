"""The worked examples of every format (``tests/data/formats``): every split, both policies, cut at every token.

``tests/support/format_cases.py`` says what the fields mean.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.format_cases import cases, cases_of, check_case
from tests.support.generate import families
from tests.support.generate.family import Family

ONLY = tuple(filter(None, os.environ.get("FORMATS", "").split(",")))
ALL = [(family, case) for family in families(*ONLY) for case in cases_of(family)]


@pytest.mark.parametrize(("family", "case"), ALL, ids=[case["id"] for _, case in ALL])
def test_example(family: Family, case: dict[str, Any]) -> None:
    check_case(family, case)


@pytest.mark.skipif(bool(ONLY), reason="only some families are loaded")
def test_no_example_is_left_out() -> None:
    every = [case["id"] for case in cases()]
    assert sorted(every) == sorted(case["id"] for _, case in ALL)
    assert len(every) == len(dict.fromkeys(every))
