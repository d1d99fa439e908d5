"""Pythonic calls without markers: Llama 3.2, ToolACE, and fine-tunes.

    output ::= WS list WS [ content ] | content
    list   ::= "[" call { "," call } "]"                  (``engines/pythonic.py`` has the rest of the grammar)

The first character decides whether the answer may be a list, the first name, which must be one of an offered tool, that
it is one. Nothing is sent before. Values are typed by how they are written.
"""

from typing import Final

from stages.parse.engines.pythonic import Pythonic, PythonicCalls
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.python import NAME, Display, Python

_DIALECT: Final = Pythonic()
_ARGUMENTS: Final = Python(outer=Display(keywords=True, once=True), inner=Display())
_SPELLING: Final = Spelling(("", "(", ")"), opens="[", between=", ", closes="]", arguments=_ARGUMENTS, name=NAME)


def _engine(site: Site) -> PythonicCalls:
    return PythonicCalls(site, _DIALECT)


PYTHONIC: Final = Format(
    name="pythonic",
    version=2,
    grammar="pythonic calls",
    summary="[name(key=value)], the whole answer",
    aliases=("toolace", "llama3.2_pythonic", "llama3_pythonic"),
    models=("Llama 3.2 1B, 3B", "ToolACE 8B"),
    calls=Calls(openers=(), bare="[", engine=_engine),
    spellings=(_SPELLING,),
    enders=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
)
