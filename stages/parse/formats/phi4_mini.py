"""Phi-4-mini: a JSON array behind the word ``functools``, or between call tokens.

    output ::= content [ "functools" WS array [ trail ] | "<|tool_call|>" WS array WS "<|/tool_call|>" ]
    array  ::= "[" [ object { "," object } ] "]"
    object ::= {"name": NAME, "arguments": OBJECT}                     (JSON; also "parameters")

The word is an ordinary one: without an array behind it, it is prose. Phi-4-mini-reasoning thinks inside ``<think>``
tags.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import array

_WORD: Final = "functools"
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True, ends={_WORD: ""})


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


PHI4_MINI: Final = Format(
    name="phi4_mini_json",
    version=2,
    grammar="JSON array",
    summary='functools[{"name", "arguments"}]',
    aliases=("phi4-mini", "phi4", "phi-4-mini"),
    models=("Phi-4-mini",),
    reasoning=THINK,
    calls=Calls(
        openers=(_WORD, "<|tool_call|>"), closers=("<|/tool_call|>",), words=(_WORD,), engine=_engine
    ),
    spellings=(array("functools", ""),),
    enders=("<|end|>", "<|endoftext|>"),
)  # fmt: skip
