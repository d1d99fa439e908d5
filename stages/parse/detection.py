"""Which format a model writes, as its chat template, its vocabulary and its name tell.

A template that speaks of tools decides alone: it is what the model was made to read and write. Without one the model's
name decides, and then the vocabulary. A row fits where all its signs are there; of those that fit, the one with the
most signs, then the one with the longest hint in the model's name, then the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple


class Row(NamedTuple):
    """``name``: the format; ``signs``: text of the template, or entries of the vocabulary; ``hints``: parts of model
    names, in lower case. A format without signs writes nothing that would give it away."""

    name: str
    signs: tuple[str, ...]
    hints: tuple[str, ...] = ()


_XML: Final = ("<tool_call>", "<function=", "<parameter=")
_XML_THINK: Final = (*_XML, "<think>")
_SECTION: Final = "<｜tool▁calls▁begin｜>"

ROWS: Final = (
    Row("hermes", ("<tool_call>",), (
        "qwen2.5", "qwen2-5", "qwen3", "qwq", "hermes-2-pro", "hermes-3-llama", "hermes-4-", "exaone-4", "smollm3",
    )),
    Row("qwen3-xml", _XML, ("qwen3-coder",)),
    Row("qwen3.5", _XML_THINK, ("qwen3.5", "qwen3.6", "qwen3.8", "granite-4.2")),
    Row("nemotron3", _XML_THINK, ("nemotron-3", "nemotron-v3")),
    Row("step3p5", _XML_THINK, ("step-3.5", "step-3.7", "step3p5")),
    Row("step5", _XML_THINK, ("step-5",)),
    Row("mimo", _XML_THINK, ("mimo",)),
    Row("minicpmv", _XML_THINK, ("minicpm-v",)),
    Row("seed_oss", ("<seed:tool_call>",), ("seed-oss",)),
    Row("minimax_m2", ("<minimax:tool_call>",), ("minimax-m2",)),
    Row("minimax_m3", ("]<]minimax[>[",), ("minimax-m3",)),
    Row("dots", ("<dots_function_call>",), ("dots.llm", "dots-")),
    Row("step3", ("<｜tool_calls_begin｜>",), ("step3", "step-3")),
    Row("minicpm5", ("<function name=", "<param name="), ("minicpm5", "minicpm-5")),
    Row("deepseek_v3", (_SECTION, "```json"), ("deepseek-v3",)),
    Row("deepseek_r1", (_SECTION, "```json", "</think>"), ("deepseek-r1",)),
    Row("deepseek_v31", (_SECTION,), ("deepseek-v3.1",)),
    Row("deepseek_v32", ("｜DSML｜",), ("deepseek-v3.2",)),
    Row("deepseek_v4", ("｜DSML｜", "<｜latest_reminder｜>"), ("deepseek-v4",)),
    Row("gigachat3", ("<|function_call|>",), ("gigachat3", "gigachat-3")),
    Row("gigachat3", ("function call<|role_sep|>",)),
    Row("gigachat3.5", ("｜GCML｜",), ("gigachat3.5", "gigachat-3.5")),
    Row("kimi_k2", ("<|tool_calls_section_begin|>",), ("kimi-k2",)),
    Row("kimi_k25", ("<|tool_calls_section_begin|>",), ("kimi-k2.5", "kimi-k2.6")),
    Row("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>"), ("kimi-k3",)),
    Row("mistral", ("[TOOL_CALLS]",), ("mistral", "mixtral", "ministral", "devstral", "codestral", "pixtral",
                                       "magistral")),
    Row("magistral", ("[TOOL_CALLS]",), ("magistral-small-2506", "magistral-medium-2506")),
    Row("harmony", ("<|channel|>", "<|message|>"), ("gpt-oss",)),
    Row("gemma4", ("<|tool_call>",), ("gemma-4", "gemma4")),
    Row("functiongemma", ("<start_function_call>",), ("functiongemma",)),
    Row("gemma3", ("<start_of_turn>", "tool_code"), ("gemma-3", "gemma3")),
    Row("llama4_pythonic", ("<|python_start|>",), ("llama-4", "llama4")),
    Row("llama3_json", ("<|python_tag|>",), ("llama-3.1", "llama-3.2", "llama-3.3")),
    Row("pythonic", (), ("toolace",)),
    Row("olmo3", ("<function_calls>",), ("olmo-3", "olmo3")),
    Row("lfm2", ("<|tool_call_start|>",), ("lfm2",)),
    Row("glm", ("<tool_call>", "<arg_key>"), ("glm-4.5", "glm-4.6")),
    Row("glm47", ("<tool_call>", "<arg_key>"), ("glm-4.7", "glm-5")),
    Row("ling3", ("<tool_call>", "<arg_key>"), ("ling-3", "ring-3")),
    Row("poolside_v1", ("<tool_call>", "<arg_key>"), ("laguna",)),
    Row("spark2.5", ("<tool_call>", "<arg_key>"), ("spark-2.5", "spark2.5")),
    Row("iquest_q1", ("<iquest_tool_call>",), ("iquest",)),
    Row("longcat", ("<longcat_tool_call>",), ("longcat",)),
    Row("hy_v3", ("<tool_sep", "<arg_key"), ("hy-v3", "hunyuan-v3")),
    Row("hy_v4", ("<tool_calls", "<arg_key"), ("hy-v4", "hunyuan-v4")),
    Row("k2_horizon", ("<ifm|tool_call",), ("k2-horizon", "k2-v3")),
    Row("granite", ("<|tool_call|>", "<|start_of_role|>"), ("granite-3",)),
    Row("granite4", ("<tool_call>", "<|start_of_role|>"), ("granite-4.0",)),
    Row("granite-20b-fc", ("<function_call>",), ("granite-20b-functioncalling",)),
    Row("internlm", ("<|action_start|>",), ("internlm", "intern-s1")),
    Row("jamba", ("<tool_calls>",), ("jamba",)),
    Row("hunyuan_a13b", ("<tool_calls>", "<answer>"), ("hunyuan-a13b",)),
    Row("phi4_mini_json", ("functools[",), ("phi-4-mini",)),
    Row("xlam", (), ("xlam",)),
    Row("nemotron_nano", ("<TOOLCALL>",), ("nemotron-nano",)),
    Row("ernie45", ("<tool_call>", "<response>"), ("ernie-4.5",)),
    Row("apertus", ("<|tools_prefix|>",), ("apertus",)),
    Row("cohere_command3", ("<|START_ACTION|>",), ("command-r7b", "command-a")),
    Row("cohere_command4", ("<|START_ACTION|>",), ("command-4",)),
    Row("cohere_command5", ("<cofl:tool_call",), ("command-5",)),
    Row("inkling", ("<|content_invoke_tool_json|>",), ("inkling",)),
    Row("muse", ("<atem:function_calls>",), ("muse-spark",)),
    Row("muse_glimmer", ("<atem:function_calls>",), ("muse-glimmer",)),
    Row("trinity", ("<tool_call>",), ("trinity",)),
    Row("plamo3", ("<|plamo:begin_tool_request",), ("plamo-3",)),
)  # fmt: skip


def detected(template: str, vocabulary: Collection[str], model: str) -> str | None:
    """The format's name, or None. ``vocabulary``: special and added tokens."""
    name = model.lower()
    if "tool" in template:
        return _signed(lambda sign: sign in template, name) or _named(name, bare=True)
    return _named(name, bare=False) or _signed(lambda sign: sign in template or sign in vocabulary, name)


def _signed(has: Callable[[str], bool], name: str) -> str | None:
    fits = [row for row in ROWS if row.signs and all(map(has, row.signs))]
    best = max(fits, key=lambda row: (len(row.signs), _hint(row, name)), default=None)
    return None if best is None else best.name


def _named(name: str, *, bare: bool) -> str | None:
    """By the model's name; ``bare``: only what has no signs."""
    fits = [row for row in ROWS if _hint(row, name) and not (bare and row.signs)]
    best = max(fits, key=lambda row: _hint(row, name), default=None)
    return None if best is None else best.name


def _hint(row: Row, name: str) -> int:
    return max((len(hint) for hint in row.hints if hint in name), default=0)
