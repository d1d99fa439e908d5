"""Names, detection, and which stages a session has."""

from __future__ import annotations

import msgspec
import pytest

from stages import catalog
from stages.errors import UnknownName
from stages.opening import TokenizerFacts
from stages.parse.detection import ROWS
from tests.support.parse import QWEN, opening

HERMES_TEMPLATE = """{%- if tools %}Return a json object within <tool_call></tool_call> XML tags:
<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>{% endif %}"""
CODER_TEMPLATE = "<tool_call>\\n<function=example>\\n<parameter=a>\\n1\\n</parameter>\\n</function>\\n</tool_call>"
GLM_TEMPLATE = "<tool_call>{name}\\n<arg_key>k</arg_key>\\n<arg_value>v</arg_value></tool_call>"
NONE = TokenizerFacts()


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("plain", "parse.plain@2"), ("identity", "parse.plain@2"), ("none", "parse.plain@2"),
        ("hermes", "parse.hermes@3"), ("qwen25", "parse.hermes@3"), ("qwen2.5", "parse.hermes@3"),
        ("qwen", "parse.hermes@3"), ("qwen3", "parse.hermes@3"), ("hermes2", "parse.hermes@3"),
        (" Qwen3 ", "parse.hermes@3"), ("glm-4.6", "parse.glm@2"), ("Llama-3.1", "parse.llama3_json@2"),
        ("GPT-OSS-20B", "parse.harmony@2"), ("qwen3coder", "parse.qwen3-xml@2"),
    ],
)  # fmt: skip
def test_names_and_aliases(name: str, stage: str) -> None:
    assert catalog.parser(name).id == stage


def test_an_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no parser 'hermez'; did you mean hermes\? There are \d+: playhead"):
        catalog.parser("hermez")
    with pytest.raises(UnknownName, match=r"no protocol 'chatt'; did you mean chat\? There are chat, completions, "):
        catalog.layers(msgspec.structs.replace(opening(), protocol="chatt"))


def test_entries_are_complete_and_no_name_is_given_twice() -> None:
    entries = catalog.names()
    given = [name for entry in entries for name in (entry.name, *entry.aliases)]
    assert len(given) == len(set(given))
    alone: dict[str, str] = {}
    for entry in entries:
        for name in (entry.name, *entry.aliases):
            key = "".join(char for char in name.lower() if char not in "-_.")
            assert alone.setdefault(key, entry.name) == entry.name
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
        (CODER_TEMPLATE, QWEN, "Qwen3-Coder-30B", "qwen3-xml"),
        (GLM_TEMPLATE, QWEN, "GLM-4.6", "glm"),
        (None, QWEN, "Qwen3-8B", "hermes"),
        (None, QWEN, "Qwen3-Coder-30B-A3B", "qwen3-xml"),
        (None, TokenizerFacts(added={"<tool_call>": 1, "<arg_key>": 2}), "m", "glm"),
        ("{{ messages }}", QWEN, "Qwen2.5-0.5B", "hermes"),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", QWEN, "m", "mistral"),
        ("{{ messages }}", NONE, "SmolLM2-135M-Instruct", "plain"),
        (None, NONE, "m", "plain"),
    ],
)
def test_detection(template: str | None, tokenizer: TokenizerFacts, model: str, name: str) -> None:
    assert catalog.detect(template, tokenizer, model) == name


MADE = [
    ("[TOOL_CALLS] tools", "m", "mistral"),
    ("tools <tool_call><function=f><parameter=p> <think>", "Qwen3.5-27B", "qwen3.5"),
    ("tools <tool_call><function=f><parameter=p> <think>", "MiMo-V2-Flash", "mimo"),
    ("tools <tool_call><function=f><parameter=p> <think>", "a-finetune", "qwen3.5"),
    ("tools <tool_call><arg_key>", "GLM-4.7", "glm47"),
    ("<｜tool▁calls▁begin｜> tool ```json", "DeepSeek-V3", "deepseek_v3"),
    ("<｜tool▁calls▁begin｜> tool ```json </think>", "DeepSeek-R1-0528", "deepseek_r1"),
    ("<｜tool▁calls▁begin｜> tool </think>", "DeepSeek-V3.1", "deepseek_v31"),
    ("<|tool_calls_section_begin|>", "Kimi-K2.6", "kimi_k25"),
    ("<|channel|>analysis<|message|> tools", "gpt-oss-20b", "harmony"),
    ("<|python_tag|> tools", "Llama-3.1-8B-Instruct", "llama3_json"),
    ("<|python_start|> tools", "Llama-4-Scout", "llama4_pythonic"),
    ("tools <|start_of_role|> <tool_call>", "granite-4.0-h-micro", "granite4"),
    ("tools in the prompt only", "ToolACE-8B", "pythonic"),
    ("tools in the prompt only", "xLAM-2-8b", "xlam"),
    ("tools in the prompt only", "Qwen3-8B", "plain"),
    (None, "DeepSeek-V3.2-Exp", "deepseek_v32"),
    (None, "Kimi-K2-Thinking", "kimi_k2"),
    (None, "gpt-oss-120b", "harmony"),
    (None, "Magistral-Small-2509", "mistral"),
    (None, "Hermes-3-Llama-3.1-8B", "hermes"),
]


@pytest.mark.parametrize(("template", "model", "name"), MADE)
def test_each_family_is_told(template: str | None, model: str, name: str) -> None:
    assert catalog.detect(template, NONE, model) == name


def test_detection_knows_the_catalog_and_nothing_else() -> None:
    known = {entry.name for entry in catalog.names()}
    told = {row.name for row in ROWS}
    assert told <= known
    # Nothing in a template tells these from others: they are for those who ask for them by name.
    assert known - told == {"plain", "think", "llama_function", "minimax_m2_append_think"}


# What users of the two servers type, tool parsers and reasoning parsers, and the families of public reports.
VLLM = """deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 ernie45 gigachat3 glm45 glm47 granite granite4
granite-20b-fc hermes hunyuan_a13b hy_v3 internlm jamba kimi_k2 kimi_k3 llama3_json llama4_json
llama4_pythonic longcat minimax_m2 minimax_m3 mistral olmo3 openai phi4_mini_json pythonic qwen3_coder
qwen3_xml seed_oss step3 step3p5 xlam gemma4 functiongemma lfm2 apertus cohere_command3 cohere_command4 dots
deepseek_r1 holo2 qwen3 nemotron_v3 granite_thinking openai_gptoss identity minimax_m2_append_think
poolside_v1 k2_horizon iquest_q1 mimo"""
SGLANG = """deepseekv3 deepseekv31 deepseekv32 glm glm45 glm47 gpt-oss kimi_k2 lfm2 llama3 mimo mistral pythonic qwen
qwen25 qwen3_coder step3 step3p5 minimax-m2 trinity interns1 hermes gigachat3 deepseek-r1 deepseek-v3
qwen3-thinking apertus2509"""
REPORTED = """deepseek-v3 deepseek-v31 deepseek-v4 forced-json functiongemma gemma generic glm gpt-oss granite hermes
internlm kimi kimi-k3 lfm2 llama3-json llama4-pythonic mimo minimax minimax-m3 mistral olmo3 phi4-mini
qwen3-xml seed-oss think-tags"""
FAMILIES = """reasoning-think hermes qwen3-xml seed-oss deepseek glm kimi llama-json pythonic mistral harmony gemma
minimax granite phi4-mini cohere internlm2 jamba xlam hunyuan ernie45 step3 lfm2 apertus longcat dots
gigachat3"""


@pytest.mark.parametrize("name", dict.fromkeys(f"{VLLM} {SGLANG} {REPORTED} {FAMILIES}".split()))
def test_the_names_that_people_type(name: str) -> None:
    form = catalog.parser(name).id
    if form == "parse.harmony@2":  # its reasoning and its calls are of one piece
        assert catalog.parser(f"openai_gptoss+{name}").id == form
        with pytest.raises(UnknownName, match="makes a pair with itself only"):
            catalog.parser(f"{name}+hermes")
    else:
        catalog.parser(f"deepseek_r1+{name}")
        catalog.parser(f"{name}+hermes")


def test_a_pair_takes_half_of_each() -> None:
    pair = catalog.parser("deepseek_r1+hermes")
    assert pair.id == "parse.deepseek_r1+hermes@3"
    with pytest.raises(UnknownName, match="no reasoning 'deepsek_r1'; did you mean deepseek_r1"):
        catalog.parser("deepsek_r1+hermes")
    with pytest.raises(UnknownName, match="no parser 'hermez'; did you mean hermes"):
        catalog.parser("deepseek_r1+hermez")


def test_stages_are_those_that_the_request_needs() -> None:
    full = catalog.layers(opening(stop=("x",)))
    assert catalog.stage_ids(full) == {
        "parser": "parse.hermes@3",
        "stop": "stop@2",
        "policy": "policy@2",
        "encoder": full.encoder.id,
        "framer": full.framer.id,
    }
    assert full.semantic.id == "parse.hermes@3|stop@2|policy@2"
    bare = catalog.layers(opening("plain", tools=()))
    assert list(catalog.stage_ids(bare)) == ["parser", "encoder", "framer"]
    assert catalog.layers(opening("plain", tools=()), catalog.parser("hermes")).semantic.id == "parse.hermes@3"
