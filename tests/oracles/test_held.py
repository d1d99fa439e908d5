"""What the vendors' templates write is allowed by our grammars, cut into tokens as their vocabularies have them."""

from __future__ import annotations

import functools

import msgspec
import pytest

from pipeline.engines.constrained import Grammars
from stages import catalog
from stages.constraint import constraint_of
from stages.opening import Ask, TokenizerFacts
from stages.parse.parser import Parser
from tests.support.generate.message import Invocation, Meant
from tests.support.oracle_templates import TEMPLATES, Template
from tests.support.oracle_vocabularies import ASIDE, Vocabulary, harmony_pieces
from tests.support.oracles import Output

TIDE = Invocation("tide", {"port": "Saint-Malo", "days": 3, "deep": True})
MOON = Invocation("moon_phase", {"places": ["Brest, FR", "x"], "near": {"lat": 48.5}})
CHOSEN = frozenset((
    "qwen3", "qwen3_5_think", "nemotron_3_nano", "glm4moe", "deepseekv3", "deepseek_v32", "gemma4_v5", "lfm2_v2",
    "lfm2_2_5", "llama3_1", "gptoss",
))  # fmt: skip
"""One of each spelling."""
_LAST_OF_O200K = 199_997


def _bytes(vocabulary: Vocabulary, token: int) -> bytes:
    try:
        return vocabulary.pieces([token])[0]
    except (KeyError, ValueError):  # a hole
        return b""


@functools.cache
def _words() -> tuple[bytes, ...]:
    return tuple(harmony_pieces([token])[0] for token in range(_LAST_OF_O200K + 1))


@functools.cache
def _grammars(name: str) -> tuple[Grammars, TokenizerFacts, dict[int, int]]:
    """For a template's vocabulary, with its facts, and the ids that its special and added tokens have there."""
    vocabulary = next(each for each in TEMPLATES if each.name == name).vocabulary()
    own = {**vocabulary.facts.special, **vocabulary.facts.added}
    if vocabulary.ids("tide")[0] < ASIDE:
        pieces = [_bytes(vocabulary, token) for token in range(max(own.values()) + 1)]
        return Grammars(pieces, vocabulary.facts), vocabulary.facts, {}
    moved = {token: _LAST_OF_O200K + 1 + index for index, token in enumerate(own.values())}
    facts = TokenizerFacts(
        special={text: moved[token] for text, token in vocabulary.facts.special.items()},
        added={text: moved[token] for text, token in vocabulary.facts.added.items()},
        eos=tuple(moved[token] for token in vocabulary.facts.eos),
    )
    return Grammars([*_words(), *(text.encode() for text in own)], facts), facts, moved


def _takes(template: Template, output: Output, ask: Ask) -> str:
    """All of it, and the end; else what was written up to the token that is not allowed."""
    grammars, facts, moved = _grammars(_first(template))
    parser = catalog.parser(template.parser)
    assert isinstance(parser, Parser)
    constraint = constraint_of(ask, parser.format, facts, "chat")
    assert constraint is not None
    held = grammars.compiled(constraint.after(output.tail))()
    written = b""
    for token, piece in output.tokens:
        number = moved.get(token, token - ASIDE if moved else token)
        mask = held.mask()
        if not mask[number >> 3] >> (number & 7) & 1:
            return f"{written.decode()} <- {piece!r}"
        held.take(number)
        written += piece
    ended = output.tokens[-1][0] in template.vocabulary().facts.eos
    mask = held.mask()
    whole = ended or any(mask[end >> 3] >> (end & 7) & 1 for end in facts.eos)
    return "" if whole else f"{written.decode()} is not whole"


def _first(template: Template) -> str:
    """The first one with the same vocabulary: it is made once."""
    facts = template.vocabulary().facts
    return next(each.name for each in TEMPLATES if each.vocabulary().facts == facts)


@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_what_the_template_writes_is_allowed(name: str) -> None:
    [template] = (each for each in TEMPLATES if each.name == name)
    known = {**template.vocabulary().facts.special, **template.vocabulary().facts.added}
    parser = catalog.parser(template.parser)
    assert isinstance(parser, Parser)
    form = parser.format
    thinks = not template.unthinking and (form.reasoning is None or set(form.reasoning.openers) <= known.keys())
    for kind in template.kinds:
        # Reasoning that nothing but letters opens is not held to begin there.
        thought = "How deep is it?" if thinks and kind != "off" else None
        calls = (TIDE, MOON)[: template.limits.calls]
        for content in ("", "I will look.") if template.limits.before else ("",):
            meant = Meant(thought, ((content, *calls) if content else calls))
            output = template.written(meant, kind, spell=False)
            tools = tuple(msgspec.structs.replace(tool, strict=True) for tool in output.tools)
            assert _takes(template, output, Ask(tools=tools)) == "", kind
            if not content:
                assert _takes(template, output, Ask(tools=tools, tool_choice="required")) == "", kind
                asked = Ask(tools=tools, answer={"type": "object"})
                assert _takes(template, output, asked) == "", kind
