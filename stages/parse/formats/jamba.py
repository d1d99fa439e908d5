"""Jamba: a JSON array between tags, at the end of the answer.

    output ::= content [ "<tool_calls>" WS array WS "</tool_calls>" ignored ]
    array  ::= "[" [ object { "," object } ] "]"
    object ::= {"name": NAME, "arguments": OBJECT}                     (JSON)

Content is often a single blank: white space alone is none. Jamba Reasoning thinks inside ``<think>`` tags.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import array

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


JAMBA: Final = Format(
    name="jamba",
    version=2,
    grammar="JSON array",
    summary='[{"name", "arguments"}] inside <tool_calls> tags',
    aliases=("jamba1.5", "jamba1.6", "jamba1.7"),
    models=("Jamba 1.5, 1.6, 1.7", "Jamba Reasoning"),
    reasoning=THINK,
    calls=Calls(openers=("<tool_calls>",), closers=("</tool_calls>",), engine=_engine, drop=True),
    spellings=(array("<tool_calls>", "</tool_calls>"),),
    enders=("<|eom|>", "<|endoftext|>"),
)
