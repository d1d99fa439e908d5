"""MiniMax M2: calls inside ``<minimax:tool_call>``, reasoning inside ``<think>`` tags.

    output    ::= reasoning "</think>" {NL} { content | block }
    block     ::= [ NL ] "<minimax:tool_call>" WS { invoke WS } "</minimax:tool_call>"
    invoke    ::= "<invoke" WS "name=" QNAME ">" WS { parameter WS } "</invoke>"
    parameter ::= "<parameter" WS "name=" QNAME ">" VALUE "</parameter>"

VALUE is verbatim; it ends at a closer behind which a tag of the call follows, so that XML in it survives; where the
closer is missing, at the next argument's tag or ``</invoke>``. The block's tags and those of reasoning are added
tokens, the rest is text. A call without a block is one only if the tool is offered. Types are the schema's.
``append_think``: reasoning stays in the content, with the opener that the prompt had.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import INSIDE, REASONINGS
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare

_TABLE: Final = XmlTable(
    block=("<minimax:tool_call>",),
    block_end=("</minimax:tool_call>",),
    call=("<invoke",),
    call_end=("</invoke>",),
    param=("<parameter",),
    param_end=("</parameter>",),
    values=XmlValues(until=("</parameter>",), end="follow"),
    section=True,
    known=True,
)
_MARKERS: Final = ("</parameter>", "<parameter", "</invoke>")
_SPELLING: Final = Spelling(
    ('\n<invoke name="', '">\n', "</invoke>"),
    opens="<minimax:tool_call>",
    between="",
    closes="\n</minimax:tool_call>",
    arguments=Pairs('<parameter name="', '">', Bare(until=("</parameter>\n",), without=_MARKERS), inside=_MARKERS),
)


def _engine(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


MINIMAX_M2: Final = Format(
    name="minimax_m2",
    version=2,
    grammar="XML parameters",
    summary='<invoke name="…"> and <parameter name="…"> inside <minimax:tool_call>, typed by the schema; <think>',
    aliases=("minimax", "minimax-m2.1", "minimax-m2.5"),
    models=("MiniMax-M2", "MiniMax-M2.1", "MiniMax-M2.5"),
    reasoning=INSIDE,
    calls=Calls(
        openers=("<minimax:tool_call>", "<invoke"),
        closers=("</minimax:tool_call>",),
        words=("<invoke",),
        engine=_engine,
        literals=_TABLE.literals(),
    ),
    spellings=(_SPELLING,),
    enders=("[e~[",),
    foreign=("]~b]", "]~!b["),
)
MINIMAX_M2_APPEND_THINK: Final = replace(
    MINIMAX_M2,
    name="minimax_m2_append_think",
    summary="as minimax_m2; reasoning stays in the content",
    aliases=("minimax-append-think",),
    reasoning=REASONINGS["minimax_m2_append_think"],
)
