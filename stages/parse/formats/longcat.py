"""Meituan LongCat: a JSON object or key/value tags inside ``<longcat_tool_call>`` tags.

    output ::= [ "<longcat_think>" [ NL ] TEXT "</longcat_think>" NL ] { content | call }   (the prompt may open it)
    call   ::= "<longcat_tool_call>" WS ( object | NAME WS { pair WS } ) "</longcat_tool_call>"
    object ::= {"name": NAME, "arguments": OBJECT}                                          (JSON)
    pair   ::= "<longcat_arg_key>" KEY "</longcat_arg_key>" WS "<longcat_arg_value>" VALUE "</longcat_arg_value>"

The first character decides. One dialect writes all arguments as one JSON object in the place of a KEY, without a VALUE.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import LONGCAT as REASONING
from stages.parse.site import Site
from stages.parse.spelling import objects
from stages.parse.spellings.tags import pairs

_TAGS: Final = KvTags(
    call=("<longcat_tool_call>", "</longcat_tool_call>"),
    key=("<longcat_arg_key>", "</longcat_arg_key>"),
    value=("<longcat_arg_value>", "</longcat_arg_value>"),
    json=JsonKeys(name=("name",), arguments=("arguments", "parameters")),
    object_key=True,
)


def _engine(site: Site) -> KvCalls:
    return KvCalls(site, _TAGS)


_JSON: Final = objects("<longcat_tool_call>\n", "\n</longcat_tool_call>")

LONGCAT: Final = Format(
    name="longcat",
    version=2,
    grammar="tagged JSON objects or key/value tags",
    summary="<longcat_think> reasoning, JSON or <longcat_arg_key> tags inside <longcat_tool_call>",
    aliases=("longcat_flash", "longcat2"),
    models=("LongCat-Flash-Chat", "LongCat-Flash-Thinking", "LongCat-Flash-Lite", "LongCat-2.0"),
    reasoning=REASONING,
    calls=Calls(openers=_TAGS.openers(), closers=_TAGS.closers(), literals=tuple(_TAGS.inner()), engine=_engine),
    spellings=(replace(pairs(_TAGS, lines=True), token=_TAGS.key[0], also=(_JSON,)), _JSON),
    enders=("</longcat_s>",),
)
