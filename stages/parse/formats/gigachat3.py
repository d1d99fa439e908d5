"""GigaChat 3 and 3.1: one JSON object in a message of its own, or behind a token.

    output ::= content [ call ]
    call   ::= "<|message_sep|>" WS "function call<|role_sep|>" WS object ignored      (3)
             | "<|function_call|>" WS object ignored                                   (3.1)
    object ::= {"name": NAME, "arguments": OBJECT}                     (JSON)

``<|message_sep|>`` ends the turn unless it begins a call. The arguments must be an object: else the block is content,
so the name waits for them.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines import DONE, MORE
from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import objects

_NEXT: Final = "<|message_sep|>"
_CALL: Final = "<|function_call|>"
_ROLE: Final = "function call<|role_sep|>"
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments",), argued=True)
_BLOCKS: Final = JsonBlocks(
    calls="array", first="{", heads={_NEXT: {_ROLE: MORE, "": DONE}}, ends={_NEXT: "", _CALL: ""}
)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


GIGACHAT3: Final = Format(
    name="gigachat3",
    version=2,
    grammar="marked JSON object",
    summary='{"name", "arguments"} in a "function call" message, or behind <|function_call|>',
    aliases=("gigachat", "gigachat3.1"),
    models=("GigaChat 3, 3.1",),
    calls=Calls(openers=(_NEXT, _CALL), literals=(_ROLE,), engine=_engine, drop=True),
    spellings=(
        replace(objects(f"{_CALL}", "", between=None), token=_CALL),
        objects(f"{_NEXT}\n\n{_ROLE}\n", "", between=None),
    ),
    enders=("</s>",),
)
