"""Step-3: XML calls between section markers; reasoning up to ``</think>``.

    output    ::= reasoning "</think>" {NL} content [ section content ]
    section   ::= "<｜tool_calls_begin｜>" WS { call WS } "<｜tool_calls_end｜>"
    call      ::= "<｜tool_call_begin｜>" "function" "<｜tool_sep｜>" invoke WS "<｜tool_call_end｜>"
    invoke    ::= '<steptml:invoke name="' NAME '">' WS { parameter WS } "</steptml:invoke>"
    parameter ::= '<steptml:parameter name="' KEY '">' VALUE "</steptml:parameter>"

The section markers are special tokens, the other tags text. VALUE loses the white space at its ends, and ends at the
first closer; types are the schema's. A call of another kind than ``function`` is dropped with a fault.
``</steptml:invoke>`` completes a call, or the marker behind it. Step-3.5 and later write Qwen's XML.
"""

from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlLead, XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import CLOSER
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare

_LEAD: Final = XmlLead("<｜tool_call_begin｜>", "function", "<｜tool_sep｜>", "<｜tool_call_end｜>")
_TABLE: Final = XmlTable(
    block=("<｜tool_calls_begin｜>",),
    block_end=("<｜tool_calls_end｜>",),
    lead=_LEAD,
    call=("<steptml:invoke",),
    call_end=("</steptml:invoke>",),
    param=("<steptml:parameter",),
    param_end=("</steptml:parameter>",),
    values=XmlValues(until=("</steptml:parameter>", "</steptml:invoke>", _LEAD.close), trim="space"),
    section=True,
)
_MARKERS: Final = _TABLE.values.until
_SPELLING: Final = Spelling(
    (f'\n{_LEAD.open}{_LEAD.word}{_LEAD.sep}<steptml:invoke name="', '">', f"</steptml:invoke>{_LEAD.close}"),
    opens="<｜tool_calls_begin｜>",
    between="",
    closes="\n<｜tool_calls_end｜>",
    arguments=Pairs(
        '<steptml:parameter name="',
        '">',
        # White space at the ends is structure.
        Bare(until=_MARKERS[:1], without=_MARKERS, unlike=(r"[ \t\r\n](?s:.*)", r"(?s:.*)[ \t\r\n]")),
        inside=_MARKERS,
    ),
)


def _engine(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


STEP3: Final = Format(
    name="step3",
    version=2,
    grammar="XML parameters",
    summary="<steptml:invoke> and <steptml:parameter> between section markers, typed by the schema; </think>",
    aliases=("step-3",),
    models=("Step-3",),
    reasoning=CLOSER,
    calls=Calls(
        openers=("<｜tool_calls_begin｜>", _LEAD.open),
        closers=("<｜tool_calls_end｜>",),
        engine=_engine,
        literals=_TABLE.literals(),
    ),
    spellings=(_SPELLING,),
    enders=("<｜EOT｜>", "<｜end▁of▁sentence｜>"),
    foreign=("<｜begin▁of▁sentence｜>",),
)
