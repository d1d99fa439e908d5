"""Llama 3.1's custom functions: ``<function=NAME>`` around JSON, where the system prompt asks for it.

    output ::= { content | call }
    call   ::= "<function=" NAME ">" WS JSON WS "</function>"

All of it is text. Header test: NAME (no blanks, ``<`` or ``{``) and ``>`` right behind it; else it is text. What has
XML parameters behind the name is not this format but Qwen's. A call whose tag is not closed is complete where its JSON
is.
"""

import re
from typing import Final

from stages.parse.engines.header_json import HeaderJson
from stages.parse.engines.header_table import Header
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling

_HEADER: Final = Header(
    call="<function=", ends=(">",), close="</function>", names=re.compile(r"[^\s<>{\ud800-\udfff]++")
)


def _engine(site: Site) -> HeaderJson:
    return HeaderJson(site, _HEADER)


LLAMA_FUNCTION: Final = Format(
    name="llama_function",
    version=2,
    grammar="header and JSON",
    summary="<function=NAME>JSON</function>, as Llama 3.1's custom tool prompt has it",
    aliases=("llama3-function", "llama3.1-custom", "llama-custom"),
    models=("Llama 3.1 (custom tool prompt)",),
    calls=Calls(
        openers=(_HEADER.call,), closers=(_HEADER.close,), literals=_HEADER.literals(), engine=_engine
    ),
    spellings=(Spelling((_HEADER.call, ">", _HEADER.close)),),
    enders=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
)  # fmt: skip
