"""DeepSeek V3.2, V4 and V4.1: tags that all begin with one token, reasoning inside ``<think>`` tags.

    output    ::= [ reasoning "</think>" {NL} ] content [ {NL} block ]
    block     ::= "<" D "tool_calls>" WS { invoke WS } "</" D "tool_calls>"
    invoke    ::= "<" D "invoke" attributes ">" WS { parameter WS } "</" D "invoke>" | "<" D "invoke" attributes "/>"
    parameter ::= "<" D "parameter" attributes ">" VALUE "</" D "parameter>"
    D         ::= "｜DSML｜" [ " " ]                            (V4.1 writes the blank)
    VALUE     ::= TEXT-until("</｜DSML｜")

The block is ``function_calls`` in V3.2, ``tool_calls`` in V4 and ``calls`` in V4.1; every version takes all of them.
Only ``｜DSML｜`` is a token (an added one), the rest is text. ``string="true"``: VALUE is the string, verbatim;
``"false"``: JSON, and a string if it is none; without it the schema tells, or else JSON tells itself. ``arguments`` or
``input``, of a tool that has no such parameter, hold all parameters; so does a JSON object in place of the tags.

Header test: ``<｜DSML｜`` with one of these tags, and behind a block's tag a call's; else it is text. In reasoning too,
a block ends it. A call without a block is taken. Text between the calls is dropped with a fault, everything behind
the block without one. ``</｜DSML｜invoke>`` completes a call; nothing else does. ``</think>`` in content is swallowed.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import DEEPSEEK
from stages.parse.site import Site
from stages.parse.spellings.tags import typed


def _spelled(before: str, *names: str, after: str = "") -> tuple[str, ...]:
    return tuple(f"{before}{blank}{name}{after}" for name in names for blank in ("", " "))


_NAMES: Final = ("function_calls", "tool_calls", "calls", "toolcalls", "tool")
_OPEN: Final = "<｜DSML｜"
_CLOSE: Final = "</｜DSML｜"
_TABLE: Final = XmlTable(
    block=_spelled(_OPEN, *_NAMES, after=">"),
    block_end=_spelled(_CLOSE, *_NAMES, after=">"),
    prefix=_OPEN,
    call=_spelled(_OPEN, "invoke"),
    call_end=_spelled(_CLOSE, "invoke>"),
    param=_spelled(_OPEN, "parameter"),
    param_end=_spelled(_CLOSE, "parameter>"),
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


DEEPSEEK_V32: Final = Format(
    name="deepseek_v32",
    version=2,
    grammar="typed XML",
    summary='<｜DSML｜invoke name="…"> and <｜DSML｜parameter name="…" string="…">; <think> reasoning',
    aliases=("deepseekv32", "deepseek-v3.2", "dsml"),
    models=("DeepSeek V3.2",),
    reasoning=DEEPSEEK,
    calls=Calls(openers=(_OPEN,), closers=_TABLE.block_end, engine=_engine, literals=_TABLE.literals(), drop=True),
    spellings=(typed(_OPEN, _CLOSE, "function_calls", _TABLE.unwrap),),
    enders=("<｜end▁of▁sentence｜>",),
    foreign=("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
)
DEEPSEEK_V4: Final = replace(
    DEEPSEEK_V32,
    name="deepseek_v4",
    aliases=("deepseekv4", "deepseek-v4.1", "deepseek-v41", "deepseekv41"),
    models=("DeepSeek V4", "DeepSeek V4.1"),
    spellings=(typed(_OPEN, _CLOSE, "tool_calls", _TABLE.unwrap),),
)
