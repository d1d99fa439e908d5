"""Apertus: an array of one-key objects, the key being the tool; calls may stand inside reasoning.

    output ::= { content | inner | tools }
    inner  ::= "<|inner_prefix|>" { reasoning | tools } "<|inner_suffix|>"
    tools  ::= "<|tools_prefix|>" WS "[" [ object { "," object } ] "]" WS "<|tools_suffix|>"
    object ::= {NAME: OBJECT}                                          (JSON)

A block of calls does not end reasoning. Where no tool is called ``name`` or ``arguments``, these keys say what they do
elsewhere.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import APERTUS as _INNER
from stages.parse.site import Site
from stages.parse.spelling import Spelling

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments",), single=True)
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


APERTUS: Final = Format(
    name="apertus",
    version=2,
    grammar="JSON array",
    summary="[{NAME: arguments}] between tools tokens, also inside reasoning",
    aliases=("apertus2509",),
    models=("Apertus",),
    reasoning=_INNER,
    calls=Calls(openers=("<|tools_prefix|>",), closers=("<|tools_suffix|>",), engine=_engine),
    spellings=(Spelling(('{"', '": ', "}"), opens="<|tools_prefix|>[", between=", ", closes="]<|tools_suffix|>"),),
    enders=("<|assistant_end|>",),
)
