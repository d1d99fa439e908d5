"""Seed-OSS: Qwen's function and parameter tags inside ``<seed:tool_call>``, reasoning inside ``<seed:think>``.

    output    ::= [ "<seed:think>" reasoning "</seed:think>" ] { content | block }
    block     ::= [ NL ] "<seed:tool_call>" WS function WS "</seed:tool_call>"
    function  ::= "<function=" NAME ">" WS { "<parameter=" KEY ">" VALUE "</parameter>" WS } "</function>"

Values stand inline, as Python writes them (``True``, ``None``, ``{'a': 1}``); strings as they are. ``qwen3_xml.py`` has
the rules. The budget notes inside reasoning, ``<seed:cot_budget_reflect>``, are reasoning. The tags with ``seed:`` are
added tokens.
"""

from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import SEED
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare

_TABLE: Final = XmlTable(
    block=("<seed:tool_call>",),
    block_end=("</seed:tool_call>",),
    call=("<function=",),
    call_end=("</function>",),
    param=("<parameter=",),
    param_end=("</parameter>",),
    values=XmlValues(until=("</parameter>", "<parameter=", "</function>"), end="line", trim="newline"),
    equals=True,
    known=True,
    object=True,
)
_MARKERS: Final = _TABLE.values.until
_SPELLING: Final = Spelling(
    ("<seed:tool_call>\n<function=", ">\n", "</function>\n</seed:tool_call>"),
    between="\n",
    arguments=Pairs(
        "<parameter=",
        ">",
        # A newline at one of its ends is structure.
        Bare(until=("</parameter>\n",), without=_MARKERS, unlike=(r"\n(?s:.*)", r"(?s:.*)\n")),
        inside=_MARKERS,
    ),
)
_NOTES: Final = ("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>")


def _engine(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


SEED_OSS: Final = Format(
    name="seed_oss",
    version=2,
    grammar="XML parameters",
    summary="<function=…> and <parameter=…> inside <seed:tool_call>, typed by the schema; <seed:think> reasoning",
    aliases=("seed",),
    models=("Seed-OSS-36B",),
    reasoning=SEED,
    calls=Calls(
        openers=("<seed:tool_call>", "<function="),
        closers=("</seed:tool_call>",),
        words=("<function=", *_NOTES),
        engine=_engine,
        # The notes are no markers: where their tags are special tokens, they are not to be dropped.
        literals=(*_TABLE.literals(), *_NOTES),
    ),
    spellings=(_SPELLING,),
    enders=("<seed:eos>",),
    foreign=("<seed:bos>",),
)
