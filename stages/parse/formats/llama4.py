"""Llama 4: pythonic calls, with or without special tokens around them.

    output ::= WS list WS [ "<|python_end|>" ] [ content ] | { content | block }
    block  ::= "<|python_start|>" WS list WS [ "<|python_end|>" ]
    list   ::= "[" call { "," call } "]"                  (``engines/pythonic.py`` has the rest of the grammar)

The template writes every value as a double-quoted string. So where the schema says that a parameter is no string, the
text is read as what the schema says; numbers and words without quotes are what they are.
"""

from typing import Final

from stages.parse.engines.pythonic import Pythonic, PythonicCalls
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.python import NAME, Display, Python

_END: Final = "<|python_end|>"
_DIALECT: Final = Pythonic(ends=(_END,), tails=(_END,), coerce=True)
_ARGUMENTS: Final = Python(outer=Display(quotes='"', coerces=True, keywords=True, once=True), inner=Display(quotes='"'))
_SPELLING: Final = Spelling(("", "(", ")"), opens="[", between=", ", closes="]", arguments=_ARGUMENTS, name=NAME)


def _engine(site: Site) -> PythonicCalls:
    return PythonicCalls(site, _DIALECT)


LLAMA4: Final = Format(
    name="llama4_pythonic",
    version=2,
    grammar="pythonic calls",
    summary="[name(key=value)], the whole answer or behind <|python_start|>",
    aliases=("llama4",),
    models=("Llama 4 Scout, Maverick",),
    calls=Calls(openers=("<|python_start|>",), closers=(_END,), bare="[", engine=_engine),
    spellings=(_SPELLING,),
    enders=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
)
