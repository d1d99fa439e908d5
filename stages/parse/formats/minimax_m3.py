"""MiniMax M3: nested XML, every tag behind a namespace token, reasoning inside ``<mm:think>`` tags.

    output  ::= [ "<mm:think>" TEXT "</mm:think>" ] content [ block ]          (the prompt may have opened or closed it)
    block   ::= NS "<tool_call>" WS { invoke WS } NS "</tool_call>"
    invoke  ::= NS '<invoke name="' NAME '">' { element } NS "</invoke>"
    element ::= NS "<" TAG ">" { TEXT | element } NS "</" TAG ">"
    NS      ::= "]<]minimax[>["                                                 (one token)

TAG is a parameter, the key of an object, or ``item`` in an array; the schema tells types. Text beside elements has the
key ``$text``. Nothing behind the block is output.
"""

from typing import Final

from stages.parse.engines.nested_tags import NestedXml
from stages.parse.engines.nested_xml import NestedCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import M3
from stages.parse.site import Site
from stages.parse.spellings.namespaced import elements

_NESTED: Final = NestedXml(namespace="]<]minimax[>[")


def _engine(site: Site) -> NestedCalls:
    return NestedCalls(site, _NESTED)


MINIMAX_M3: Final = Format(
    name="minimax_m3",
    version=2,
    grammar="nested namespaced XML",
    summary="<mm:think> reasoning, nested elements behind ]<]minimax[>[",
    aliases=("minimax3",),
    models=("MiniMax-M3",),
    reasoning=M3,
    calls=Calls(
        openers=_NESTED.openers(), closers=_NESTED.closers(), literals=(_NESTED.namespace,), engine=_engine, drop=True
    ),
    spellings=(elements(_NESTED),),
    enders=("[e~[",),
)
