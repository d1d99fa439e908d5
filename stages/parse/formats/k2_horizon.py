"""IFM K2-Horizon and K2-V3: JSON objects or key/value tags, in a section that stands or falls as a whole.

    output  ::= reasoning { content | section }                          (the prompt opens the reasoning)
    section ::= "<ifm|tool_calls>" WS { call WS } "</ifm|tool_calls>"
    call    ::= "<ifm|tool_call>" WS ( object | NAME WS { pair WS } ) "</ifm|tool_call>"
    object  ::= {"name": NAME, "arguments": OBJECT}                                          (JSON)
    pair    ::= "<ifm|arg_key>" KEY "</ifm|arg_key>" WS [ type WS ] "<ifm|arg_value>" VALUE "</ifm|arg_value>"
    type    ::= "<ifm|arg_type>" TYPE "</ifm|arg_type>"

Which of the three a model writes is a switch of its template (``tool_call_format``: json, xml, xml_typed). Any error in
a section (an unknown name, a key twice, text between the tags) makes all of it content. ``<ifm|think>``, ``_fast`` and
``_faster`` are reasoning by effort.
"""

from typing import Final

from stages.parse.engines import DONE
from stages.parse.engines.group import Group
from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import HORIZON
from stages.parse.site import Site
from stages.parse.spellings.tags import group

_TAGS: Final = KvTags(
    call=("<ifm|tool_call>", "</ifm|tool_call>"),
    key=("<ifm|arg_key>", "</ifm|arg_key>"),
    value=("<ifm|arg_value>", "</ifm|arg_value>"),
    type=("<ifm|arg_type>", "</ifm|arg_type>"),
    section=("<ifm|tool_calls>", "</ifm|tool_calls>"),
    json=JsonKeys(name=("name",), arguments=("arguments", "parameters")),
)


def _calls(site: Site, strict: bool) -> KvCalls:
    return KvCalls(site, _TAGS, strict=strict)


def _engine(site: Site) -> Group:
    return Group(site, _calls, (DONE,))


K2_HORIZON: Final = Format(
    name="k2_horizon",
    version=2,
    grammar="key/value tags or tagged JSON objects",
    summary="<ifm|tool_call> in <ifm|tool_calls>: JSON, or tags with or without types; all or nothing",
    aliases=("k2horizon", "k2_v3", "ifm"),
    models=("K2-Horizon", "K2-V3"),
    reasoning=HORIZON,
    calls=Calls(
        openers=_TAGS.openers()[:1], literals=(_TAGS.call[0], *_TAGS.closers(), *_TAGS.inner()), engine=_engine
    ),
    spellings=(group(_TAGS),),
)
