"""The vendors' chat templates write generated messages, and we read them back."""

from __future__ import annotations

import pytest

from tests.support.oracle_templates import TEMPLATES, Template
from tests.support.oracles import check_output

SEEDS = 10


@pytest.mark.parametrize("template", TEMPLATES, ids=[template.name for template in TEMPLATES])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_the_template_writes_comes_back(template: Template, seed: int) -> None:
    meant, kind = template.message(seed)
    check_output(template.written(meant, kind, spell=seed % 3 == 0), template.left(meant))
