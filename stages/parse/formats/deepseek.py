"""DeepSeek V3, R1 and V3.1: a header and JSON inside section markers, reasoning inside ``<think>`` tags.

    output  ::= [ reasoning "</think>" {NL} ] content [ [NL] section content ]
    section ::= "<｜tool▁calls▁begin｜>" call { WS call } [ "<｜tool▁calls▁end｜>" ]
    call    ::= "<｜tool▁call▁begin｜>" body "<｜tool▁call▁end｜>"
    body    ::= "function" "<｜tool▁sep｜>" NAME NL "```json" NL JSON NL "```"        (V3)
              | NAME "<｜tool▁sep｜>" JSON                                           (V3.1)

Fine-tunes mix the two bodies, so both names read both: what stands behind the separator tells. ``{``: the word before
it was the name. Else the word was the type, and the name follows, up to the end of its line. V3 takes any type word;
V3.1 takes ``function`` only, so that it has every other name at the separator. The fence and its label may be missing;
where the arguments end is a matter of the JSON, not of the fence. No body is ``{}``.

The markers are added tokens, not special ones: text decides. Header test: a section's opener needs a call's opener
behind it (white space between), else it is text; in reasoning it then ends it, without ``</think>``. A call without a
section is taken; there the separator is the test. ``</think>`` in content is swallowed wherever it stands. Text between
calls and behind a call's arguments, inside the section, is dropped with a fault; behind the section it is content.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.header_json import HeaderJson
from stages.parse.engines.header_table import Header
from stages.parse.format import Calls, Format
from stages.parse.reasonings import DEEPSEEK, R1
from stages.parse.site import Site
from stages.parse.spelling import Spelling

_V3: Final = Header(
    call="<｜tool▁call▁begin｜>",
    ends=("<｜tool▁sep｜>",),
    close="<｜tool▁call▁end｜>",
    section="<｜tool▁calls▁begin｜>",
    section_end="<｜tool▁calls▁end｜>",
    around=("```json", "```"),
    word="always",
)
_V31: Final = replace(_V3, word="function")


def _v3(site: Site) -> HeaderJson:
    return HeaderJson(site, _V3)


def _v31(site: Site) -> HeaderJson:
    return HeaderJson(site, _V31)


_CALLS: Final = Calls(
    openers=(_V3.section, _V3.call), closers=(_V3.section_end,), literals=_V3.literals(), engine=_v3
)  # fmt: skip
_ENDERS: Final = ("<｜end▁of▁sentence｜>",)

DEEPSEEK_V3: Final = Format(
    name="deepseek_v3",
    version=2,
    grammar="header and JSON",
    summary="name and fenced JSON inside <｜tool▁call▁begin｜>, with a type word; <think> reasoning",
    aliases=("deepseek", "deepseekv3", "deepseek-v3-0324"),
    models=("DeepSeek V3", "DeepSeek V3-0324"),
    reasoning=DEEPSEEK,
    calls=_CALLS,
    spellings=(
        Spelling(
            (f"{_V3.call}function{_V3.ends[0]}", "\n```json\n", f"\n```{_V3.close}"),
            opens=_V3.section,
            between="\n",
            closes=_V3.section_end,
        ),
    ),
    enders=_ENDERS,
    foreign=("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
)
DEEPSEEK_R1: Final = replace(
    DEEPSEEK_V3,
    name="deepseek_r1",
    summary="as deepseek_v3; output begins inside reasoning where the prompt is not known",
    aliases=("deepseekr1", "deepseek-r1-0528"),
    models=("DeepSeek R1", "DeepSeek R1-0528", "R1 distills"),
    reasoning=R1,
)
DEEPSEEK_V31: Final = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    summary="name and JSON inside <｜tool▁call▁begin｜>; <think> reasoning",
    aliases=("deepseekv31", "deepseek-v3.1"),
    models=("DeepSeek V3.1", "DeepSeek V3.1-Terminus"),
    calls=replace(_CALLS, engine=_v31),
    spellings=(Spelling((_V3.call, _V3.ends[0], _V3.close), opens=_V3.section, closes=_V3.section_end),),
)
