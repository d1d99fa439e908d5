"""Trinity: one JSON object inside ``<tool_call>`` tags, also inside reasoning, which goes on behind it.

output     ::= [ reasoning ] { content | call-block }
reasoning  ::= [ "<think>" NL ] { TEXT | call-block } NL "</think>" NL NL
call-block ::= [ NL ] "<tool_call>" WS object WS "</tool_call>"
object     ::= {"name": NAME, "arguments": OBJECT}                 (JSON)
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import objects

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS)


TRINITY: Final = Format(
    name="trinity",
    version=2,
    grammar="tagged JSON objects",
    summary="hermes, with calls inside the reasoning too",
    aliases=("arcee",),
    models=("Arcee Trinity",),
    reasoning=replace(THINK, calls="inside"),
    calls=Calls(openers=("<tool_call>",), closers=("</tool_call>",), engine=_engine),
    spellings=(objects("<tool_call>\n", "\n</tool_call>"),),
    enders=("<|im_end|>", "<|endoftext|>"),
)
