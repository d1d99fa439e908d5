"""Cohere Command 5 (COFL): calls as elements that say their types, thinking and the answer between tokens.

    output ::= { thinking | response | block | content }
    thinking ::= "<|START_THINKING|>" reasoning "<|END_THINKING|>"
    response ::= "<|START_RESPONSE|>" content "<|END_RESPONSE|>" | "<|START_TEXT|>" content "<|END_TEXT|>"
    block  ::= "<cofl:tool_calls>" WS { call WS } "</cofl:tool_calls>"
    call   ::= '<cofl:tool_call id="' ID '" name="' NAME '">' WS { value WS } "</cofl:tool_call>"
    value  ::= '<cofl:value name="' KEY '" type="' TYPE '">' ( TEXT | JSON | WS { value WS } ) "</cofl:value>"
    TYPE   ::= "raw" | "json" | "list" | "dict"

``raw`` is a string, as it is; ``json`` what it says, and a string if it is none; ``list`` and ``dict`` hold values, in
a list without names. An older spelling of a value is ``<cofl:tool_param name="KEY" string="true">``. The closer ends a
value: there is no escape. The ids on the wire count the calls of a message: they are not used. Text between the tags
of a call is dropped with a fault, between calls it is content.

Response and text tokens are structure wherever they stand; content is trimmed at its end. Where the prompt is not
known, output begins inside thinking.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.elements import Elements, ElementTable
from stages.parse.format import Calls, Format
from stages.parse.reasonings import COHERE
from stages.parse.site import Site
from stages.parse.spelling import NUMBER, Spelling
from stages.parse.spellings.pairs import Pairs, json_or_string
from stages.parse.spellings.strings import Bare

_TABLE: Final = ElementTable(
    section=("<cofl:tool_calls>",),
    section_end=("</cofl:tool_calls>",),
    call=("<cofl:tool_call",),
    call_end=("</cofl:tool_call>",),
    value=("<cofl:value", "<cofl:tool_param"),
    value_end=("</cofl:value>", "</cofl:tool_param>"),
    sep=">",
    types={"json": "json", "list": "list", "dict": "dict"},
    flag="string",
)


_CALL: Final = Spelling(
    (f'{_TABLE.call[0]} id="{NUMBER}" name="', '">', _TABLE.call_end[0]),
    opens=_TABLE.section[0],
    closes=_TABLE.section_end[0],
    arguments=Pairs(
        f'{_TABLE.value[0]} name="',
        '" type="raw">',
        Bare(until=_TABLE.value_end[:1], without=tuple(_TABLE.tags())),
        kinds=dict.fromkeys(("null", "boolean", "number", "object", "array"), '" type="json">'),
        read=json_or_string,
        inside=tuple(_TABLE.tags()),
    ),
)


def _engine(site: Site) -> Elements:
    return Elements(site, _TABLE)


COHERE_COMMAND5: Final = Format(
    name="cohere_command5",
    version=2,
    grammar="typed elements",
    summary='<cofl:tool_call name="…"> and <cofl:value name="…" type="…">, thinking and response tokens',
    aliases=("cofl", "command-5"),
    models=("Command 5",),
    reasoning=replace(COHERE, again=True, stray="always", inside=True),
    calls=Calls(
        openers=(*_TABLE.section, *_TABLE.call),
        closers=_TABLE.section_end,
        literals=_TABLE.literals(),
        engine=_engine,
        trim="space",
    ),
    spellings=(_CALL,),
    boundaries=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    enders=("<|END_OF_TURN_TOKEN|>",),
)
