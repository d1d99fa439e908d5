"""PLaMo 3: a header and JSON between long markers, reasoning between others.

    output  ::= [ reasoning "<|plamo:end_think:plamo|>" ] content [ section content ]
    section ::= "<|plamo:begin_tool_requests:plamo|>" { request } "<|plamo:end_tool_requests:plamo|>"
    request ::= "<|plamo:begin_tool_request:plamo|>"
                "<|plamo:begin_tool_name:plamo|>" NAME "<|plamo:end_tool_name:plamo|>"
                "<|plamo:begin_tool_arguments:plamo|>" "<|plamo:constrain|>json" "<|plamo:msg|>" JSON
                "<|plamo:end_tool_arguments:plamo|>"
                "<|plamo:end_tool_request:plamo|>"

Every marker is several tokens: text decides. Header test: a request's opener behind the section's opener (white space
between); without a section, a name between its markers. Markers around the arguments may be missing. Text inside the
section that is no request is dropped with a fault. ``<|plamo:tag|>`` ends the turn.
"""

from typing import Final

from stages.parse.engines.header_json import HeaderJson
from stages.parse.engines.header_table import Header
from stages.parse.format import Calls, Format
from stages.parse.reasonings import PLAMO
from stages.parse.site import Site
from stages.parse.spelling import Spelling

_HEADER: Final = Header(
    call="<|plamo:begin_tool_request:plamo|>",
    lead=("<|plamo:begin_tool_name:plamo|>",),
    ends=("<|plamo:end_tool_name:plamo|>",),
    around=(
        "<|plamo:begin_tool_arguments:plamo|>", "<|plamo:constrain|>json", "<|plamo:constrain|>", "<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|>",
    ),
    close="<|plamo:end_tool_request:plamo|>",
    section="<|plamo:begin_tool_requests:plamo|>",
    section_end="<|plamo:end_tool_requests:plamo|>",
)  # fmt: skip


def _engine(site: Site) -> HeaderJson:
    return HeaderJson(site, _HEADER)


PLAMO3: Final = Format(
    name="plamo3",
    version=2,
    grammar="header and JSON",
    summary="name and JSON between <|plamo:...|> markers, which are text",
    aliases=("plamo", "plamo-3"),
    models=("PLaMo 3",),
    reasoning=PLAMO,
    calls=Calls(
        openers=(_HEADER.section, _HEADER.call),
        closers=(_HEADER.section_end,),
        literals=_HEADER.literals(),
        engine=_engine,
        trim="none",
    ),
    spellings=(
        Spelling(
            (
                f"{_HEADER.call}{_HEADER.lead[0]}",
                f"{_HEADER.ends[0]}{_HEADER.around[0]}{_HEADER.around[1]}{_HEADER.around[3]}",
                f"{_HEADER.around[4]}{_HEADER.close}",
            ),
            opens=_HEADER.section,
            closes=_HEADER.section_end,
        ),
    ),
    enders=("<|plamo:tag|>",),
)
