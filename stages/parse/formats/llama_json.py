"""Llama 3 JSON: a bare JSON object is a call; ``<|python_tag|>`` may stand before it, and behind text.

    output ::= [ content ] "<|python_tag|>" WS calls | WS calls | content
    calls  ::= object { WS [ ";" | "," ] WS object } | "[" object { "," object } "]"
    object ::= {"name": NAME, "parameters": OBJECT} | {"type": "function", "function": object}        (JSON)

No marker closes a call: the end of the JSON is the end. Without the tag only what stands first in the answer can be a
call, and only of an offered tool: any other JSON is an answer. So an object is held until its name is known and its
arguments begin. Behind the tag the model may write code instead: that is content.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import objects

_TAG: Final = "<|python_tag|>"
_KEYS: Final = JsonKeys(
    name=("name",), arguments=("parameters", "arguments"), wrapper=("function",), prefer=True, argued=True
)
_BLOCKS: Final = JsonBlocks(calls="run", ends={"": "", _TAG: ""}, code=(_TAG,), known=("",))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


LLAMA_JSON: Final = Format(
    name="llama3_json",
    version=2,
    grammar="bare JSON objects",
    summary='bare {"name", "parameters"}, or behind <|python_tag|>',
    aliases=("llama3", "llama-json", "llama4_json", "llama3.1", "llama3.2", "llama3.3"),
    models=("Llama 3.1, 3.2, 3.3", "Llama 4 with the JSON template"),
    calls=Calls(openers=(_TAG,), engine=_engine, bare="{[", trim="none"),
    spellings=(objects("", "", arguments="parameters", between="; "),),
    enders=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
)
