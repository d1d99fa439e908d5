"""Every format on generated output: it comes back as it was meant, cut or damaged it stays honest, and it costs no more
where it is long. ``tests/support/format_checks.py`` says what is checked.

FORMATS_SEEDS=N draws N outputs a family instead of a few; FORMATS=NAME,NAME runs these modules of generators only.
"""

from __future__ import annotations

import os

import pytest

from stages import catalog
from tests.support.format_broken import check_broken
from tests.support.format_checks import check_cut_generated, check_generated, generated
from tests.support.format_cost import check_cost, check_lag
from tests.support.generate import MODULES, families
from tests.support.generate.family import Family

SEEDS = int(os.environ.get("FORMATS_SEEDS") or 8)
CUTS = max(1, SEEDS // 8)
ONLY = tuple(filter(None, os.environ.get("FORMATS", "").split(",")))
ALL = families(*ONLY)

each_family = pytest.mark.parametrize("family", ALL, ids=[family.name for family in ALL])


@each_family
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_meant_comes_back(family: Family, seed: int) -> None:
    check_generated(family, seed)


@each_family
@pytest.mark.parametrize("seed", range(CUTS))
def test_cut_anywhere_it_stays_honest(family: Family, seed: int) -> None:
    check_cut_generated(family, seed)


@each_family
@pytest.mark.parametrize("seed", range(SEEDS))
def test_damage_loses_nothing(family: Family, seed: int) -> None:
    check_broken(family, seed)


@each_family
def test_a_token_costs_the_same_in_long_output(family: Family) -> None:
    check_cost(family)


@each_family
def test_text_goes_out_as_it_comes(family: Family) -> None:
    check_lag(family)


@pytest.mark.skipif(bool(ONLY), reason="only some families are loaded")
def test_every_format_of_the_catalog_has_a_generator() -> None:
    assert {entry.name for entry in catalog.names()} == {family.format.name for family in ALL}


def test_generators_are_the_same_in_every_run() -> None:
    family = families("hermes")[0]
    one, other = generated(family, 3), generated(families("hermes")[0], 3)
    assert one[0].raw == other[0].raw
    assert one[1] == other[1]
    assert len(MODULES) == len(dict.fromkeys(MODULES))
