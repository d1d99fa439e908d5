"""Nemotron Nano 2 and Llama-Nemotron: a JSON array between ``<TOOLCALL>`` tags.

output    ::= [ reasoning ] content [ "<TOOLCALL>" WS array WS "</TOOLCALL>" ]
reasoning ::= TEXT NL "</think>" NL NL                             (the prompt opens it, or opens and closes it)
array     ::= "[" [ object { "," object } ] "]"
object    ::= {"name": NAME, "arguments": OBJECT}                  (JSON)
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import INSIDE
from stages.parse.site import Site
from stages.parse.spelling import array

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


NEMOTRON_NANO: Final = Format(
    name="nemotron_nano",
    version=2,
    grammar="JSON array",
    summary='[{"name", "arguments"}] inside <TOOLCALL> tags, <think> reasoning',
    aliases=("nemotron_nano_v2", "nemotron_json", "llama_nemotron"),
    models=("Nemotron Nano 9B v2, 12B v2", "Llama-Nemotron"),
    reasoning=INSIDE,
    calls=Calls(openers=("<TOOLCALL>",), closers=("</TOOLCALL>",), engine=_engine),
    spellings=(array("<TOOLCALL>", "</TOOLCALL>"),),
    enders=("<SPECIAL_12>", "<|eot_id|>", "</s>"),
)
