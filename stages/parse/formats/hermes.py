"""Hermes and Qwen: one JSON object inside ``<tool_call>`` tags, reasoning inside ``<think>`` tags.

    output     ::= [ reasoning ] body
    reasoning  ::= [ "<think>" NL ] TEXT NL "</think>" NL NL           (the prompt may have opened or closed it)
    body       ::= { content | call-block }
    call-block ::= [ NL ] "<tool_call>" WS object WS "</tool_call>"
    object     ::= {"name": NAME, "arguments": OBJECT}                 (JSON)

All of these are added tokens in Qwen vocabularies; Hermes models on other bases may spell them with ordinary tokens,
so the text decides where the vocabulary has none. ``<tool_call>`` while reasoning ends it only when ``{ "`` follows:
models write about the tag.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import objects

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS)


HERMES: Final = Format(
    name="hermes",
    version=3,
    grammar="tagged JSON objects",
    summary='<think> reasoning, {"name", "arguments"} inside <tool_call> tags',
    aliases=(
        "qwen", "qwen2.5", "qwen25", "qwen3", "qwen3-thinking", "hermes2", "hermes3", "hermes4", "smollm3", "exaone4",
        "exaone", "holo2", "nanbeige",
    ),
    models=("Qwen2.5", "Qwen3 (not Coder, not 3.5)", "QwQ", "Hermes 2 Pro, 3, 4", "SmolLM3", "EXAONE 4"),
    reasoning=THINK,
    calls=Calls(openers=("<tool_call>",), closers=("</tool_call>",), engine=_engine),
    spellings=(objects("<tool_call>\n", "\n</tool_call>"),),
    enders=("<|im_end|>", "<|endoftext|>"),
)  # fmt: skip
