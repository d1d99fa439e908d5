"""ERNIE 4.5 thinking: one JSON object inside ``<tool_call>`` tags, the answer inside ``<response>`` tags.

    output     ::= reasoning NL "</think>" { NL } ( "<response>" NL content NL "</response>" | content ) { call-block }
    call-block ::= { NL } "<tool_call>" WS object WS "</tool_call>" { NL }
    object     ::= {"name": NAME, "arguments": OBJECT}                 (JSON)

The prompt opens the reasoning.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import REASONINGS
from stages.parse.site import Site
from stages.parse.spelling import objects

_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS)


ERNIE45: Final = Format(
    name="ernie45",
    version=2,
    grammar="tagged JSON objects",
    summary='{"name", "arguments"} inside <tool_call> tags, <think> reasoning, <response> around the answer',
    aliases=("ernie4.5", "ernie"),
    models=("ERNIE 4.5 Thinking",),
    reasoning=REASONINGS["ernie45"],
    calls=Calls(openers=("<tool_call>",), closers=("</tool_call>",), engine=_engine),
    spellings=(objects("<tool_call>\n", "\n</tool_call>"),),
    enders=("</s>", "<|end_of_sentence|>"),
)
