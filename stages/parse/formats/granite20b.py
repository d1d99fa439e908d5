"""granite-20b-functioncalling: one JSON object behind each marker.

    output ::= content { "<function_call>" WS object WS }
    object ::= {"name": NAME, "arguments": OBJECT}                     (JSON)

The name ``no_function`` says that no function is called: such an object is structure.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import objects

_MARKER: Final = "<function_call>"
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"), nothing=("no_function",))
_BLOCKS: Final = JsonBlocks(calls="array", first="{", ends={_MARKER: ""})


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


GRANITE20B: Final = Format(
    name="granite-20b-fc",
    version=2,
    grammar="marked JSON objects",
    summary='{"name", "arguments"} behind each <function_call>',
    aliases=("granite20b", "granite-20b-functioncalling"),
    models=("granite-20b-functioncalling",),
    calls=Calls(openers=(_MARKER,), engine=_engine),
    spellings=(objects(f"{_MARKER} ", ""),),
    enders=("<|endoftext|>", "<|end_of_text|>"),
)
