"""Names, detection, and which stages a session has."""

from __future__ import annotations

import msgspec
import pytest

from stages import catalog
from stages.errors import UnknownName
from stages.opening import TokenizerFacts
from tests.support.parse import QWEN, opening

HERMES_TEMPLATE = """{%- if tools %}Return a json object within <tool_call></tool_call> XML tags:
<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>{% endif %}"""
CODER_TEMPLATE = "<tool_call>\\n<function=example>\\n<parameter=a>\\n1\\n</parameter>\\n</function>\\n</tool_call>"
GLM_TEMPLATE = "<tool_call>{name}\\n<arg_key>k</arg_key>\\n<arg_value>v</arg_value></tool_call>"
NONE = TokenizerFacts()


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("plain", "parse.plain@1"), ("identity", "parse.plain@1"), ("none", "parse.plain@1"),
        ("hermes", "parse.hermes@1"), ("qwen25", "parse.hermes@1"), ("qwen2.5", "parse.hermes@1"),
        ("qwen", "parse.hermes@1"), ("qwen3", "parse.hermes@1"), ("hermes2", "parse.hermes@1"),
        (" Qwen3 ", "parse.hermes@1"),
    ],
)  # fmt: skip
def test_names_and_aliases(name: str, stage: str) -> None:
    assert catalog.parser(name).id == stage


def test_an_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no parser 'hermez'; did you mean hermes\? There are plain, hermes$"):
        catalog.parser("hermez")
    with pytest.raises(UnknownName, match=r"no protocol 'chatt'; did you mean chat\? There is chat$"):
        catalog.layers(msgspec.structs.replace(opening(), protocol="chatt"))


def test_entries_are_complete_and_no_name_is_given_twice() -> None:
    entries = catalog.names()
    given = [name for entry in entries for name in (entry.name, *entry.aliases)]
    assert len(given) == len(set(given))
    for entry in entries:
        assert entry.models
        assert entry.grammar
        assert entry.summary
        assert catalog.parser(entry.name).id == entry.id


@pytest.mark.parametrize(
    ("template", "tokenizer", "model", "name"),
    [
        (HERMES_TEMPLATE, QWEN, "Qwen3-8B", "hermes"),
        (HERMES_TEMPLATE, NONE, "some-finetune", "hermes"),
        (CODER_TEMPLATE, QWEN, "Qwen3-Coder-30B", "plain"),
        (GLM_TEMPLATE, QWEN, "GLM-4.6", "plain"),
        (None, QWEN, "Qwen3-8B", "hermes"),
        (None, QWEN, "Qwen3-Coder-30B-A3B", "plain"),
        (None, TokenizerFacts(added={"<tool_call>": 1, "<arg_key>": 2}), "glm", "plain"),
        ("{{ messages }}", QWEN, "Qwen2.5-0.5B", "hermes"),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", QWEN, "m", "plain"),
        ("{{ messages }}", NONE, "SmolLM2-135M-Instruct", "plain"),
        (None, NONE, "m", "plain"),
    ],
)
def test_detection(template: str | None, tokenizer: TokenizerFacts, model: str, name: str) -> None:
    assert catalog.detect(template, tokenizer, model) == name


def test_stages_are_those_that_the_request_needs() -> None:
    full = catalog.layers(opening(stop=("x",)))
    assert catalog.stage_ids(full) == {
        "parser": "parse.hermes@1",
        "stop": "stop@1",
        "policy": "policy@1",
        "encoder": full.encoder.id,
        "framer": full.framer.id,
    }
    assert full.semantic.id == "parse.hermes@1|stop@1|policy@1"
    bare = catalog.layers(opening("plain", tools=()))
    assert list(catalog.stage_ids(bare)) == ["parser", "encoder", "framer"]
    assert catalog.layers(opening("plain", tools=()), catalog.parser("hermes")).semantic.id == "parse.hermes@1"
