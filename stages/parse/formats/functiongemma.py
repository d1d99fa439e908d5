"""FunctionGemma: brace notation between tokens of its own.

    output ::= { content | call }
    call   ::= "<start_function_call>" "call:" NAME object "<end_function_call>"   (``engines/brace.py``)

Strings stand between ``<escape>`` tokens, verbatim; so may other values: an argument between them is a string if the
schema says so, else what it is as JSON.
"""

from typing import Final

from stages.parse.engines.brace import Brace, BraceCalls
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.braces import NAME, Braces

_BRACE: Final = Brace(quote="<escape>", closer="<end_function_call>", typed=True)
_SPELLING: Final = Spelling(
    ("<start_function_call>call:", "", _BRACE.closer),
    between="",
    arguments=Braces(_BRACE.quote, coerces=True),
    name=NAME,
)


def _engine(site: Site) -> BraceCalls:
    return BraceCalls(site, _BRACE)


FUNCTIONGEMMA: Final = Format(
    name="functiongemma",
    version=2,
    grammar="brace notation",
    summary="call:name{key:value} between <start_function_call> and <end_function_call>",
    aliases=("function_gemma",),
    models=("FunctionGemma 270M",),
    calls=Calls(openers=("<start_function_call>",), closers=(_BRACE.closer,), literals=(_BRACE.quote,), engine=_engine),
    spellings=(_SPELLING,),
    enders=("<end_of_turn>", "<start_function_response>", "<eos>"),
)
