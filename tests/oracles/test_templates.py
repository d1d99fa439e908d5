"""The vendors' chat templates write generated messages, and we read them back."""

from __future__ import annotations

import pytest

from stages import catalog
from tests.support.generate import header_json, hermes, xml_schema, xml_typed
from tests.support.oracle_losses import Loss, after
from tests.support.oracle_templates import TEMPLATES, Template, losses
from tests.support.oracle_vocabularies import deepseek, qwen3, qwen35
from tests.support.oracles import check_output

SEEDS = 8

each = pytest.mark.parametrize("template", TEMPLATES, ids=[template.name for template in TEMPLATES])


@each
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_the_template_writes_comes_back(template: Template, seed: int) -> None:
    meant, kind = template.message(seed)
    check_output(template.written(meant, kind, spell=seed % 3 == 0), template.left(meant))


EACH_LOSS = [(template, loss) for template in TEMPLATES for loss in template.losses]


@pytest.mark.parametrize(
    ("template", "loss"), EACH_LOSS, ids=[f"{template.name}: {loss.what}" for template, loss in EACH_LOSS]
)
def test_every_loss_is_one(template: Template, loss: Loss) -> None:
    """There is a message that comes back otherwise than it would without this loss."""
    others = tuple(other for other in template.losses if other is not loss)
    for seed in range(400):
        meant, kind = template.message(seed)
        if after(meant, others) != template.left(meant):
            check_output(template.written(meant, kind, spell=False), template.left(meant))
            return
    raise AssertionError("no message has it")


def test_the_table_names_formats_of_the_catalog() -> None:
    for oracle, name, listed in losses():
        assert catalog.parser(name).id.startswith("parse."), oracle
        assert all(loss.what.endswith(".") for loss in listed), oracle


def test_the_ids_of_our_generators_are_the_vocabularies_() -> None:
    """Of Qwen3 the package has no special tokens (see ``qwen3``): its text alone is the vendor's."""
    for known, mine in (
        (qwen3().facts, hermes.QWEN3),
        (qwen35().facts, xml_schema.QWEN),
        (deepseek().facts, xml_typed.V4),
    ):
        ids = {**known.special, **known.added}
        for text, number in {**mine.special, **mine.added}.items():
            assert ids[text] == number, text
        for text in mine.added:
            assert text in known.added, f"{text} is special"
        assert set(known.eos) == set(mine.eos)
    calls = {text: number for text, number in header_json.DEEPSEEK.added.items() if "tool" in text}
    assert {text: deepseek().facts.added[text] for text in calls} == calls
