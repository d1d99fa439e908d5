"""Gemma 3: pythonic calls without markers, or in a code fence.

    output ::= WS list WS [ content ] | { content | block }
    block  ::= ( "```tool_code" | "```python" ) WS list WS "```"
    list   ::= "[" call { "," call } "]"                  (``engines/pythonic.py`` has the rest of the grammar)

It has no tool tokens: prompts ask for such calls. Without a fence, and in one of ordinary code, the first name must be
one of an offered tool; else it is an answer. Values are typed by how they are written.
"""

from typing import Final

from stages.parse.engines.pythonic import Pythonic, PythonicCalls
from stages.parse.format import Calls, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.python import JSON, NAME, Display, Python

_CODE: Final = "```python"
_DIALECT: Final = Pythonic(ends=("```",), known=(_CODE,))
_ARGUMENTS: Final = Python(outer=Display(JSON, '"', keywords=True), inner=Display(JSON, '"'))
_SPELLING: Final = Spelling(
    ("", "(", ")"), opens="```tool_code\n[", between=", ", closes="]\n```", arguments=_ARGUMENTS, name=NAME
)


def _engine(site: Site) -> PythonicCalls:
    return PythonicCalls(site, _DIALECT)


GEMMA3: Final = Format(
    name="gemma3",
    version=2,
    grammar="pythonic calls",
    summary="[name(key=value)], the whole answer or in a tool_code fence",
    aliases=("gemma3_pythonic",),
    models=("Gemma 3",),
    calls=Calls(openers=("```tool_code", _CODE), closers=("```",), bare="[", words=(_CODE,), engine=_engine),
    spellings=(_SPELLING,),
    enders=("<end_of_turn>", "<eos>"),
)
