"""IQuest-Q1: key/value tags as GLM 4.7 writes them, inside tags of its own.

output ::= [ "<think>" TEXT "</think>" ] { content | call }          (the prompt opens the reasoning)
call   ::= "<iquest_tool_call>" NAME WS { pair WS } "</iquest_tool_call>"
pair   ::= "<arg_key>" KEY "</arg_key>" WS "<arg_value>" VALUE "</arg_value>"
"""

from typing import Final

from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import INSIDE
from stages.parse.site import Site
from stages.parse.spellings.tags import pairs

_TAGS: Final = KvTags(
    call=("<iquest_tool_call>", "</iquest_tool_call>"),
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
)


def _engine(site: Site) -> KvCalls:
    return KvCalls(site, _TAGS)


IQUEST: Final = Format(
    name="iquest_q1",
    version=2,
    grammar="key/value tags",
    summary="<arg_key> and <arg_value> inside <iquest_tool_call> tags",
    aliases=("iquest",),
    models=("IQuest-Q1",),
    reasoning=INSIDE,
    calls=Calls(openers=_TAGS.openers(), closers=_TAGS.closers(), literals=tuple(_TAGS.inner()), engine=_engine),
    spellings=(pairs(_TAGS),),
)
