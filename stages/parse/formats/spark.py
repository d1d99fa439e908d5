"""iFlytek Spark 2.5: key/value tags as GLM 4.7 writes them.

    output ::= [ "<think>" TEXT "</think>" ] { content | call }
    call   ::= "<tool_call>" NAME WS { pair WS } "</tool_call>"
    pair   ::= "<arg_key>" KEY "</arg_key>" WS "<arg_value>" VALUE "</arg_value>"

The VALUE ``null``, in any case, is null also where the schema says string; 1 and 0 are booleans where it says so.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spellings.tags import pairs

_TAGS: Final = KvTags(
    call=("<tool_call>", "</tool_call>"),
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
    json=JsonKeys(name=("name",), arguments=("arguments", "parameters")),
    null=True,
)


def _engine(site: Site) -> KvCalls:
    return KvCalls(site, _TAGS)


SPARK: Final = Format(
    name="spark2.5",
    version=2,
    grammar="key/value tags",
    summary="<arg_key> and <arg_value> inside <tool_call> tags; the word null is null always",
    aliases=("spark", "spark25", "iflytek_spark"),
    models=("Spark 2.5",),
    reasoning=THINK,
    calls=Calls(openers=_TAGS.openers(), closers=_TAGS.closers(), literals=tuple(_TAGS.inner()), engine=_engine),
    spellings=(pairs(_TAGS),),
)
