"""Granite 3: a JSON array behind a marker, reasoning between phrases or tags.

    output    ::= [ reasoning ] ( WS marker WS calls [ trail ] | content )
    reasoning ::= PHRASE ( " my thought process:" ) TEXT PHRASE " my response:"       (3.2; PHRASE: Here is, Here's)
                | "<think>" TEXT "</think>" [ "<response>" content "</response>" ]    (3.3)
    marker    ::= "<|tool_call|>" | "<tool_call>"                                     (3.1 spells the second)
    calls     ::= "[" [ object { "," object } ] "]" | object
    object    ::= {"name": NAME, "arguments": OBJECT}                                 (JSON)

Nothing closes the calls but the array itself; text behind it is content. Markers inside reasoning are text.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import GRANITE, RESPONSE
from stages.parse.site import Site
from stages.parse.spelling import array

_MARKERS: Final = ("<|tool_call|>", "<tool_call>")
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_BLOCKS: Final = JsonBlocks(calls="array", empty=True, ends=dict.fromkeys(_MARKERS, ""))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


GRANITE3: Final = Format(
    name="granite",
    version=2,
    grammar="JSON array",
    summary='[{"name", "arguments"}] behind <|tool_call|> or <tool_call>; reasoning between phrases or <think> tags',
    aliases=("granite3", "granite3.0", "granite3.1", "granite3.2", "granite3.3"),
    models=("Granite 3.0, 3.1, 3.2, 3.3",),
    reasoning=replace(
        GRANITE,
        openers=(*GRANITE.openers, *RESPONSE.openers),
        closers=(*GRANITE.closers, *RESPONSE.closers),
        turns=RESPONSE.turns,
        wrapper=RESPONSE.wrapper,
    ),
    calls=Calls(openers=_MARKERS, engine=_engine),
    spellings=(array(_MARKERS[0], "", token=_MARKERS[0]), array(_MARKERS[1], "")),
    enders=("<|end_of_text|>",),
)
