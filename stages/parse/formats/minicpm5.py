"""MiniCPM5: a function tag with parameter tags, as they are; reasoning inside ``<think>`` tags.

    output   ::= [ reasoning ] { content | function }
    function ::= "<function" WS "name=" QNAME ">" WS { param WS } "</function>"
    param    ::= "<param" WS "name=" QNAME ">" VALUE "</param>"
    VALUE    ::= { TEXT | ENTITY | "<![CDATA[" TEXT "]]>" }

All of it is text. The blank behind ``<function`` and ``<param`` may be missing. A function is called only if it is
offered, and never in reasoning; else the tag is text. VALUE ends at the first closer outside CDATA; types are the
schema's. Parameters that the tool does not list are dropped; ``properties`` or ``arguments``, where they are not
listed, hold all of them.
"""

from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import CDATA, XmlTable, XmlValues, unescaped
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare
from stages.parse.types import Types, coerce

_TABLE: Final = XmlTable(
    call=("<function",),
    call_end=("</function>",),
    param=("<param",),
    param_end=("</param>",),
    values=XmlValues(until=("</param>", "</function>"), unescape="xml"),
    known=True,
    unwrap=("properties", "arguments"),
    listed=True,
)
_ENTITIES: Final = ("&lt;", "&gt;", "&amp;", "&quot;", "&apos;")
_MARKERS: Final = (*_TABLE.values.until, CDATA[0])


def _read(raw: str, types: Types) -> str:
    return coerce("".join(meant for meant, _ in unescaped(raw, "xml")), types)


_SPELLING: Final = Spelling(
    ('<function name="', '">', "</function>"),
    between="\n",
    arguments=Pairs(
        '<param name="',
        '">',
        Bare(until=("</param>",), without=_MARKERS, escapes=_ENTITIES),
        read=_read,
        listed=True,
        taken=_TABLE.unwrap,
        quotes=(CDATA[0], Bare(until=(f"{CDATA[1]}</param>",), without=("]>",))),
        inside=(*_MARKERS, *_ENTITIES),
    ),
)


def _engine(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


MINICPM5: Final = Format(
    name="minicpm5",
    version=2,
    grammar="XML parameters",
    summary='<function name="…"> and <param name="…">, typed by the schema; <think> reasoning',
    aliases=("minicpm-5",),
    models=("MiniCPM5",),
    reasoning=THINK,
    calls=Calls(openers=("<function",), words=("<function",), engine=_engine, literals=_TABLE.literals()),
    spellings=(_SPELLING,),
    enders=("<|im_end|>",),
)
