"""Mistral, tokenizer versions v1 to v15: ``[TOOL_CALLS]`` and an array, or a name and JSON; ``[THINK]`` reasoning.

    output ::= { "[THINK]" reasoning "[/THINK]" | content } calls
    calls  ::= "[TOOL_CALLS]" WS ARRAY content                               (v2 to v7; one bare object is a call)
             | { "[TOOL_CALLS]" NAME [ "[CALL_ID]" ID ] "[ARGS]" WS JSON }    (v11 with an id; v13 to v15 without)
    ARRAY  ::= [{"name": NAME, "arguments": OBJECT, "id": ID}, ...]          (JSON)

v1 has no calls. NAME is letters, digits, ``_``, ``-`` and ``.``; white space around it does not matter. ``[ARGS]`` may
be missing before a ``{``. A call that another ``[TOOL_CALLS]`` follows without arguments has ``{}``. Text behind a
header's JSON is dropped, with a fault, up to the next ``[TOOL_CALLS]``; behind an array it is content.

An id on the wire is kept if it is nine letters and digits, as the templates demand of it later, and new in the message;
others are made, with nine of them. In an array it counts before the name only: behind the name the call has begun.

The markers are special tokens, with ids the same letters are text. In text alone the header test is ``[TOOL_CALLS]``,
NAME, and ``[ARGS]``, ``[CALL_ID]`` or ``{``; or an array or object that begins like a call. Else it is text.

Reasoning may come again; nothing in it is trimmed. ``[TOOL_CALLS]`` inside an open ``[THINK]`` ends it, as Mistral's
own server has it; the other reading, that it is reasoning up to ``[/THINK]``, cannot be had in the same stream. A stray
``[/THINK]`` in content is dropped. Magistral 2506 writes ``<think>`` as text instead: the format ``magistral``.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace
from typing import Final

from stages.parse.engines.header_mistral import HeaderOrArray
from stages.parse.engines.header_table import Header
from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import MISTRAL as REASONING
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import Spelling, array

_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments",), ids=("id",))
_ARRAY: Final = JsonBlocks(calls="array")


def _wire(head: str, number: str, used: Set[str]) -> tuple[str, str]:
    return head, number if _NINE.fullmatch(number) and number not in used else ""


_HEADER: Final = Header(
    call="[TOOL_CALLS]", ends=("[ARGS]",), number="[CALL_ID]", brace=True, names=re.compile(r"[\w.-]++"), wire=_wire
)  # fmt: skip


def _engine(site: Site) -> HeaderOrArray:
    return HeaderOrArray(site, _HEADER, JsonCalls(site, _KEYS, _ARRAY))


MISTRAL: Final = Format(
    name="mistral",
    version=2,
    grammar="header and JSON, or an array of JSON objects",
    summary="[TOOL_CALLS] and an array, or NAME[ARGS]JSON; [THINK] reasoning",
    aliases=("mistral-v3", "mistral-v7", "mistral-v11", "mistral-v13", "mistral-v15", "ministral", "devstral"),
    models=("Mistral", "Mixtral", "Ministral", "Devstral", "Codestral", "Pixtral", "Magistral from 2507 on"),
    reasoning=REASONING,
    calls=Calls(
        openers=(_HEADER.call,), literals=_HEADER.literals(), engine=_engine, trim="none", ids="nine"
    ),
    spellings=(Spelling((_HEADER.call, "[ARGS]", ""), token="[ARGS]"), array(_HEADER.call, "")),
)  # fmt: skip
MAGISTRAL: Final = replace(
    MISTRAL,
    name="magistral",
    summary="as mistral, with reasoning inside <think> tags that are text",
    aliases=("magistral-2506",),
    models=("Magistral 2506",),
    reasoning=THINK,
)
