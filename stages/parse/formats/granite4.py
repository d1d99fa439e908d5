"""Granite 4.0: one JSON object inside ``<tool_call>`` tags, no reasoning; text before and behind calls is content.

output     ::= { content | call-block }
call-block ::= [ NL ] "<tool_call>" WS object WS "</tool_call>"
object     ::= {"name": NAME, "arguments": OBJECT}                 (JSON)
"""

from typing import Final

from stages.parse.engines.json_calls import JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import objects

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS)


GRANITE4: Final = Format(
    name="granite4",
    version=2,
    grammar="tagged JSON objects",
    summary='{"name", "arguments"} inside <tool_call> tags, no reasoning',
    aliases=("granite4.0",),
    models=("Granite 4.0",),
    calls=Calls(openers=("<tool_call>",), closers=("</tool_call>",), engine=_engine),
    spellings=(objects("<tool_call>\n", "\n</tool_call>"),),
    enders=("<|end_of_text|>",),
)
