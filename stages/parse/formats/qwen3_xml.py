r"""Qwen's XML: a function tag and parameter tags inside ``<tool_call>``, reasoning inside ``<think>`` tags.

    output    ::= [ reasoning ] body
    body      ::= { content | block | function }
    block     ::= [ NL ] "<tool_call>" WS function { WS function } WS "</tool_call>"
    function  ::= "<function=" NAME ">" WS { parameter WS } "</function>"
    parameter ::= "<parameter=" KEY ">" VALUE "</parameter>"
    VALUE     ::= NL RAW NL | RAW                              (one newline at each end is structure)

The template puts every tag on its own line. A value that begins with a newline therefore ends at a tag that stands on a
line of its own and is followed by one (``line`` of ``xml_values``): tags in mid-line are text. ``<tool_call>`` and
``</tool_call>`` are added tokens, all other tags ordinary text.

Header test: ``<function=`` behind ``<tool_call>``; else it is text. Without ``<tool_call>``, a function is called only
if it is offered, and never in reasoning. A tag that opens ends what was not closed; ``</function>``, or the tag that
stands for it, completes the call. A JSON object inside ``<tool_call>`` is read as hermes writes it. Types are the
schema's; templates write ``True`` and ``None``. The variants differ in reasoning, and in how values are written.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.xml_calls import XmlCalls
from stages.parse.engines.xml_table import XmlTable, XmlValues
from stages.parse.format import Calls, Format
from stages.parse.reasonings import INSIDE, R1, REASONINGS, THINK
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare

_TABLE: Final = XmlTable(
    block=("<tool_call>",),
    block_end=("</tool_call>",),
    call=("<function=", "< function=", "<function =", "< function ="),
    call_end=("</function>",),
    param=("<parameter=", "< parameter=", "<parameter =", "< parameter ="),
    param_end=("</parameter>",),
    values=XmlValues(
        until=("</parameter>", "<parameter=", "</function>"),
        end="line",
        trim="newline",
    ),
    equals=True,
    known=True,
    json=JsonKeys(name=("name",), arguments=("arguments", "parameters")),
    object=True,
)
_COMPACT: Final = replace(_TABLE, values=replace(_TABLE.values, end="first", trim="none"))
_SLASHED: Final = replace(_TABLE, values=replace(_TABLE.values, unescape="newlines"))


def _lines(site: Site) -> XmlCalls:
    return XmlCalls(site, _TABLE)


def _compact(site: Site) -> XmlCalls:
    return XmlCalls(site, _COMPACT)


def _slashed(site: Site) -> XmlCalls:
    return XmlCalls(site, _SLASHED)


_HEAD: Final = ("<tool_call>\n<function=", ">\n", "</function>\n</tool_call>")
_TAGS: Final = ("</parameter>", *(f"\n{tag}" for tag in (*_TABLE.param, *_TABLE.call_end)))
_BEGUN: Final = r"(?:< ?parameter ?=|</function>)(?s:.*)"
_BARE: Final = Bare(until=("\n</parameter>\n",), without=_TAGS, unlike=(_BEGUN,))
# What begins a block ends a value in which a closer stood in mid-line.
_PAIRS: Final = Pairs("<parameter=", ">\n", _BARE, inside=("<tool_call>",))
_SPELLING: Final = Spelling(_HEAD, between="\n", arguments=_PAIRS)
_INLINE: Final = ("</parameter>", "<parameter=", "</function>")
_COMPACT_SPELLING: Final = Spelling(
    ("<tool_call><function=", ">", "</function></tool_call>"),
    between="",
    arguments=Pairs("<parameter=", ">", Bare(until=("</parameter>",), without=_INLINE), inside=_INLINE),
)
# A backslash and an "n" are read as a newline, in JSON too.
_NEWLINE: Final = r"\n"
_SLASHED_SPELLING: Final = replace(
    _SPELLING, arguments=replace(_PAIRS, bare=replace(_BARE, escapes=(_NEWLINE,)), inside=("<tool_call>", _NEWLINE))
)

_CALLS: Final = Calls(
    openers=("<tool_call>", "<function="),
    closers=("</tool_call>",),
    words=("<function=",),
    engine=_lines,
    literals=_TABLE.literals(),
)

QWEN3_XML: Final = Format(
    name="qwen3-xml",
    version=2,
    grammar="XML parameters",
    summary="<function=…> and <parameter=…> inside <tool_call>, typed by the schema; <think> reasoning",
    aliases=("qwen3-coder", "qwen3-coder-next", "qwen-coder"),
    models=("Qwen3-Coder", "Qwen3-Coder-Next"),
    reasoning=THINK,
    calls=_CALLS,
    spellings=(_SPELLING,),
    enders=("<|im_end|>", "<|endoftext|>"),
    foreign=("<|im_start|>",),
)
QWEN3_5: Final = replace(
    QWEN3_XML,
    name="qwen3.5",
    summary="as qwen3-xml; output begins inside reasoning where the prompt is not known",
    aliases=(
        "qwen35",
        "qwen3.6",
        "qwen36",
        "qwen3.8",
        "qwen38",
        "qwen3-5-thinking",
        "granite4.2",
        "granite-4-2",
        "granite_thinking",
    ),
    models=("Qwen3.5", "Qwen3.6", "Qwen3.8", "Granite 4.2"),
    reasoning=INSIDE,
    enders=("<|im_end|>", "<|endoftext|>", "<|end_of_text|>"),
)
NEMOTRON3: Final = replace(
    QWEN3_5,
    name="nemotron3",
    summary="as qwen3.5; reasoning loses the white space at its ends",
    aliases=("nemotron-v3", "nemotron-3", "nano-v3"),
    models=("Nemotron 3",),
    reasoning=REASONINGS["nemotron_v3"],
)
STEP3P5: Final = replace(
    QWEN3_5,
    name="step3p5",
    summary="as qwen3.5, for Step's vocabulary",
    aliases=("step3.5", "step-3.5", "step-3.7", "step3.7", "step3p7"),
    models=("Step-3.5-Flash", "Step-3.7-Flash"),
    enders=("<|im_end|>", "<|endoftext|>", "<|EOT|>"),
)
STEP5: Final = replace(
    STEP3P5,
    name="step5",
    summary="as step3p5, with the reasoning of deepseek_r1",
    aliases=("step-5",),
    models=("Step-5",),
    reasoning=R1,
)
MIMO: Final = replace(
    QWEN3_XML,
    name="mimo",
    summary="as qwen3-xml, without line breaks between the tags: values are verbatim",
    aliases=("mimo-v2", "mimo-v2.6", "mimo-v2-flash", "xiaomi-mimo"),
    models=("MiMo-V2-Flash", "MiMo-V2.6"),
    reasoning=REASONINGS["mimo"],
    calls=replace(_CALLS, engine=_compact),
    spellings=(_COMPACT_SPELLING,),
)
MINICPMV: Final = replace(
    QWEN3_XML,
    name="minicpmv",
    summary=r"as qwen3-xml; \n in a value is a newline",
    aliases=("minicpm-v", "minicpmv4.6", "minicpm-v-4.6"),
    models=("MiniCPM-V 4.6",),
    calls=replace(_CALLS, engine=_slashed),
    spellings=(_SLASHED_SPELLING,),
)
