"""Hunyuan A13B: a JSON array between tags, reasoning inside ``<think>``, the answer inside ``<answer>`` tags.

    output ::= [ "<think>" NL reasoning NL "</think>" NL ] [ "<answer>" NL ] body [ NL "</answer>" ]
    body   ::= content [ "<tool_calls>" WS array WS "</tool_calls>" ]
    array  ::= "[" [ object { "," object } ] "]"
    object ::= {"name": NAME, "arguments": OBJECT}                     (JSON)

The tags of calls are text inside reasoning.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import HUNYUAN
from stages.parse.site import Site
from stages.parse.spelling import array

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


HUNYUAN_A13B: Final = Format(
    name="hunyuan_a13b",
    version=2,
    grammar="JSON array",
    summary='[{"name", "arguments"}] inside <tool_calls> tags, <think> reasoning, <answer> around the answer',
    aliases=("hunyuan",),
    models=("Hunyuan A13B",),
    reasoning=HUNYUAN,
    calls=Calls(openers=("<tool_calls>",), closers=("</tool_calls>",), engine=_engine),
    spellings=(array("<tool_calls>", "</tool_calls>"),),
    enders=("<|eos|>", "<|endoftext|>"),
)
