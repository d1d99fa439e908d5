"""xLAM, and other models that write a bare JSON array of calls, in one of several envelopes.

    output   ::= [ reasoning "</think>" ] ( WS calls | content envelope ) [ content ] | content
    envelope ::= FENCE WS calls WS "```" | "[TOOL_CALLS]" WS calls | "<tool_call>" WS calls WS "</tool_call>"
    FENCE    ::= "```json" | "```"
    calls    ::= "[" object { "," object } "]" | object
    object   ::= {"name": NAME, "arguments": OBJECT}                   (JSON; also "parameters")

Bare and fenced JSON is an answer unless it calls an offered tool, with arguments. So an object is held until its name
is known and its arguments begin. This also reads what engines make a model write where a call is forced.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import array

_FENCES: Final = ("```json", "```")
_ENDS: Final = {"": "", "```json": "```", "```": "```", "[TOOL_CALLS]": "", "<tool_call>": "</tool_call>"}
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"), argued=True)
_BLOCKS: Final = JsonBlocks(calls="array", ends=_ENDS, known=("", *_FENCES))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


XLAM: Final = Format(
    name="xlam",
    version=2,
    grammar="bare JSON array",
    summary='[{"name", "arguments"}], bare, fenced, or behind [TOOL_CALLS] or <tool_call>',
    aliases=("xlam1", "xlam2", "json", "forced-json"),
    models=("xLAM 1, 2", "models that write bare JSON calls"),
    reasoning=replace(THINK, stray="restart"),
    calls=Calls(
        openers=(*_FENCES, "[TOOL_CALLS]", "<tool_call>"), literals=("</tool_call>",), words=_FENCES, bare="[{",
        engine=_engine,
    ),
    spellings=(array("", ""),),
    enders=("<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>"),
)  # fmt: skip
