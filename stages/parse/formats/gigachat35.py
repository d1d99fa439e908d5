"""GigaChat 3.5: tags that all begin with one word, reasoning inside ``<think>`` tags.

    output    ::= [ reasoning "</think>" {NL} ] content [ {NL} block ]
    block     ::= "<｜GCML｜tool_calls>" WS { invoke WS } "</｜GCML｜tool_calls>"
    invoke    ::= "<｜GCML｜invoke" attributes ">" WS { parameter WS } "</｜GCML｜invoke>"
    parameter ::= "<｜GCML｜parameter" attributes ">" VALUE "</｜GCML｜parameter>"
    VALUE     ::= TEXT-until("</｜GCML｜")

``deepseek_dsml.py`` has the rules. ``<|message_sep|>`` ends the turn.
"""

from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import R1
from stages.parse.site import Site
from stages.parse.spellings.tags import typed

_OPEN: Final = "<｜GCML｜"
_CLOSE: Final = "</｜GCML｜"
_TABLE: Final = XmlTable(
    block=(f"{_OPEN}tool_calls>",),
    block_end=(f"{_CLOSE}tool_calls>",),
    prefix=_OPEN,
    call=(f"{_OPEN}invoke",),
    call_end=(f"{_CLOSE}invoke>",),
    param=(f"{_OPEN}parameter",),
    param_end=(f"{_CLOSE}parameter>",),
    values=XmlValues(until=(_CLOSE,)),
    section=True,
    loose=True,
    implicit=False,
    object=True,
    typed="string",
    unwrap=("arguments", "input"),
    python=False,
)


def _engine(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


GIGACHAT35: Final = Format(
    name="gigachat3.5",
    version=2,
    grammar="typed XML",
    summary='<｜GCML｜invoke name="…"> and <｜GCML｜parameter name="…" string="…">; <think> reasoning',
    aliases=("gigachat35",),
    models=("GigaChat 3.5",),
    reasoning=R1,
    calls=Calls(openers=(_OPEN,), closers=_TABLE.block_end, engine=_engine, literals=_TABLE.literals(), drop=True),
    spellings=(typed(_OPEN, _CLOSE, "tool_calls", _TABLE.unwrap),),
    enders=("<|message_sep|>", "</s>"),
)
