"""Cohere Command R7B, A and 4: a JSON array between action tokens, the answer between response or text tokens.

    output   ::= { thinking | response | action | content }
    thinking ::= "<|START_THINKING|>" reasoning "<|END_THINKING|>"
    response ::= "<|START_RESPONSE|>" content "<|END_RESPONSE|>" | "<|START_TEXT|>" content "<|END_TEXT|>"
    action   ::= "<|START_ACTION|>" WS "[" [ object { "," object } ] "]" WS "<|END_ACTION|>"
    object   ::= {"tool_call_id": ID, "tool_name": NAME, "parameters": OBJECT}         (JSON)

Response and text tokens are structure wherever they stand; content is trimmed at its end. The ids on the wire count the
calls of a message: they are not used. Where the prompt is not known, Command 4 begins inside thinking.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import COHERE
from stages.parse.site import Site
from stages.parse.spelling import NUMBER, Spelling

_KEYS: Final = JsonKeys(name=("tool_name",), arguments=("parameters",))
_BLOCKS: Final = JsonBlocks(calls="array", first="[", empty=True)


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


_SUMMARY: Final = '[{"tool_name", "parameters"}] between action tokens, thinking and response tokens'
COHERE_COMMAND3: Final = Format(
    name="cohere_command3",
    version=2,
    grammar="JSON array",
    summary=_SUMMARY,
    aliases=("cohere", "command-r7b", "command-a"),
    models=("Command R7B", "Command A", "Command A Reasoning"),
    reasoning=replace(COHERE, again=True, stray="always"),
    calls=Calls(openers=("<|START_ACTION|>",), closers=("<|END_ACTION|>",), engine=_engine, trim="space"),
    boundaries=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    spellings=(
        Spelling(
            (f'    {{"tool_call_id": "{NUMBER}", "tool_name": "', '", "parameters": ', "}"),
            opens="<|START_ACTION|>[\n",
            between=",\n",
            closes="\n]<|END_ACTION|>",
        ),
    ),
    enders=("<|END_OF_TURN_TOKEN|>",),
)
COHERE_COMMAND4: Final = replace(
    COHERE_COMMAND3,
    name="cohere_command4",
    aliases=("command-4",),
    models=("Command 4",),
    reasoning=replace(COHERE, again=True, stray="always", inside=True),
)
