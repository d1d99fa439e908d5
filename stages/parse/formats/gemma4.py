"""Gemma 4: brace notation between special tokens, reasoning in a channel.

    output  ::= { channel | content | call }
    channel ::= "<|channel>" LABEL NL reasoning [ NL ] "<channel|>"                (LABEL: structure, whatever it is)
    call    ::= "<|tool_call>" "call:" NAME object "<tool_call|>"                  (``engines/brace.py``)

Strings stand between ``<|"|>`` tokens, verbatim. ``call:`` may be missing behind the opener; parentheses may stand for
the braces, double quotes for the quote tokens, and at the beginning of an answer ``call:`` and an offered tool's name
for the opener. The end of the turn may stand for the closer. ``<|tool_call>`` ends reasoning.
"""

from typing import Final

from stages.parse.engines.brace import Brace, BraceCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import REASONINGS
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.braces import NAME, Braces

_BRACE: Final = Brace(quote='<|"|>', closer="<tool_call|>")
_SPELLING: Final = Spelling(
    ("<|tool_call>call:", "", _BRACE.closer), between="", arguments=Braces(_BRACE.quote), name=NAME
)


def _engine(site: Site) -> BraceCalls:
    return BraceCalls(site, _BRACE)


GEMMA4: Final = Format(
    name="gemma4",
    version=2,
    grammar="brace notation",
    summary="<|channel> reasoning, call:name{key:value} between <|tool_call> and <tool_call|>",
    aliases=("gemma",),
    models=("Gemma 4",),
    reasoning=REASONINGS["gemma4"],
    calls=Calls(
        openers=("<|tool_call>",), closers=(_BRACE.closer,), literals=(_BRACE.quote,), bare="c", engine=_engine
    ),
    spellings=(_SPELLING,),
    enders=("<turn|>", "<|tool_response>", "<eos>"),
)
