"""Kimi K2, K2-Thinking, K2.5, K2.6: a header and JSON inside section tokens, reasoning inside ``<think>`` tags.

    output  ::= [ reasoning "</think>" ] content [ section content ]
    section ::= "<|tool_calls_section_begin|>" { call } [ "<|tool_calls_section_end|>" ]
    call    ::= "<|tool_call_begin|>" WS HEADER WS "<|tool_call_argument_begin|>" WS JSON WS [ "<|tool_call_end|>" ]
    HEADER  ::= [ "functions." ] NAME [ ":" DIGITS ]

The header is the call's id, as the model wants to see it again. The name is what is left without the prefix and without
the last ``:DIGITS``; it may hold dots, dashes and colons. An id that was sent before in this message gets digits behind
it. A header of digits only has no name: the arguments are held, and if their keys fit one tool alone (all are listed
there, and none that it requires is missing) it is that tool's call, else the text is restored. No body is ``{}``.

Nothing is trimmed but white space on its own beside a section. The call markers are special tokens, so with ids there
are no mentions. In text alone the header test is the call's opener behind the section's opener, or, without a section
(it may be missing), a header without blanks and ``<`` before the argument marker. An empty section is nothing. Text
between calls is dropped with a fault; behind the section it is content.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace
from typing import Final

from stages.parse.engines.header_json import HeaderJson
from stages.parse.engines.header_table import Header
from stages.parse.format import Calls, Format
from stages.parse.reasonings import KIMI
from stages.parse.site import Site
from stages.parse.spelling import NUMBER, Spelling

_COUNTED: Final = re.compile(r"(.*):[0-9]+", re.DOTALL)


def _free(stem: str, used: Set[str]) -> str:
    """An id that is not in use: digits behind ``stem``, 2 and so on. Bisected: a model may repeat one id endlessly."""
    low, high = 1, 2
    while f"{stem}{high}" in used:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if f"{stem}{middle}" in used:
            low = middle
        else:
            high = middle
    return f"{stem}{high}"


def _wire(head: str, number: str, used: Set[str]) -> tuple[str, str]:
    del number
    name = head.removeprefix("functions.")
    counted = _COUNTED.fullmatch(name)
    wire = head
    if wire in used:
        wire = _free(head if counted else f"{head}:", used)
    return counted[1] if counted else name, wire


_HEADER: Final = Header(
    call="<|tool_call_begin|>",
    ends=("<|tool_call_argument_begin|>",),
    close="<|tool_call_end|>",
    section="<|tool_calls_section_begin|>",
    section_end="<|tool_calls_section_end|>",
    wire=_wire,
    infer=True,
)


def _engine(site: Site) -> HeaderJson:
    return HeaderJson(site, _HEADER)


KIMI_K2: Final = Format(
    name="kimi_k2",
    version=2,
    grammar="header and JSON",
    summary="functions.NAME:i and JSON inside <|tool_call_begin|>, in a section; <think> reasoning",
    aliases=("kimi", "kimi-k2-instruct", "kimi-k2-0905", "kimi-k2-thinking"),
    models=("Kimi K2", "Kimi K2 0905", "Kimi K2 Thinking"),
    reasoning=KIMI,
    calls=Calls(
        openers=(_HEADER.section, _HEADER.call),
        closers=(_HEADER.section_end,),
        literals=_HEADER.literals(),
        engine=_engine,
        trim="none",
    ),
    spellings=(
        Spelling(
            (f"{_HEADER.call}functions.", f":{NUMBER}{_HEADER.ends[0]}", _HEADER.close),
            opens=_HEADER.section,
            closes=_HEADER.section_end,
        ),
    ),
    enders=("<|im_end|>",),
)
KIMI_K25: Final = replace(
    KIMI_K2,
    name="kimi_k25",
    summary="as kimi_k2; output begins inside reasoning where the prompt is not known",
    aliases=("kimi-k2.5", "kimi-k2.6", "kimi-k26"),
    models=("Kimi K2.5", "Kimi K2.6"),
    reasoning=replace(KIMI, inside=True),
)
