"""Dots: calls inside ``<dots_function_call>``, which stands or falls as a whole; reasoning inside ``<think>`` tags.

    output    ::= [ reasoning ] content { block }
    block     ::= "<dots_function_call>" WS ( { invoke WS } | object ) "</dots_function_call>"
    invoke    ::= "<invoke" WS "name=" QNAME ">" WS { parameter WS } "</invoke>"
    parameter ::= "<parameter" WS "name=" QNAME ">" VALUE "</parameter>"
    object    ::= {"name": NAME, "arguments": OBJECT}           (JSON)

VALUE loses the white space at its ends, and ends at the first closer. A tool that is not offered, a key that comes
twice, anything else that is none of this: the whole block is content. So nothing goes out before its end.
"""

from typing import Final

from stages.parse.engines.group import Group
from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare

_TABLE: Final = XmlTable(
    block=("<dots_function_call>",),
    block_end=("</dots_function_call>",),
    call=("<invoke",),
    call_end=("</invoke>",),
    param=("<parameter",),
    param_end=("</parameter>",),
    values=XmlValues(until=("</parameter>",), trim="space"),
    json=JsonKeys(name=("name",), arguments=("arguments",)),
)
_MARKERS: Final = _TABLE.values.until
_SPELLING: Final = Spelling(
    ('\n<invoke name="', '">', "</invoke>"),
    opens="<dots_function_call>",
    between="",
    closes="\n</dots_function_call>",
    arguments=Pairs(
        '<parameter name="',
        '">',
        # White space at the ends is structure.
        Bare(until=_MARKERS, without=_MARKERS, unlike=(r"[ \t\r\n](?s:.*)", r"(?s:.*)[ \t\r\n]")),
        inside=_MARKERS,
        once=True,
    ),
)


def _calls(site: Site, strict: bool) -> XmlCalls:
    return XmlCalls(site, _TABLE, strict)


def _engine(site: Site) -> Group:
    return Group(site, _calls)


DOTS: Final = Format(
    name="dots",
    version=2,
    grammar="XML parameters",
    summary='<invoke name="…"> and <parameter name="…"> inside <dots_function_call>, all or nothing; <think> reasoning',
    aliases=("dots1", "dots-llm", "rednote-dots"),
    models=("dots.llm1", "dots.llm2"),
    reasoning=THINK,
    calls=Calls(
        openers=("<dots_function_call>",),
        closers=("</dots_function_call>",),
        engine=_engine,
        literals=_TABLE.literals(),
        trim="space",
    ),
    spellings=(_SPELLING,),
    enders=("<|endofresponse|>", "<|endoftext|>"),
)
