"""OLMo 3: pythonic calls, one a line, inside tags that are ordinary text.

    output ::= [ "<think>" reasoning "</think>" ] { content | block }            (Think models: the prompt opens it)
    block  ::= "<function_calls>" NL call { NL call } NL "</function_calls>"
    call   ::= NAME "(" [ kwarg { "," kwarg } ] ")"       (``engines/pythonic.py`` has the rest of the grammar)

White space around reasoning is part of it. Values are typed by how they are written.
"""

from typing import Final

from stages.parse.engines.pythonic import Pythonic, PythonicCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import REASONINGS
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.python import JSON, NAME, Display, Python

_END: Final = "</function_calls>"
_DIALECT: Final = Pythonic(brackets=False, ends=(_END,))
_ARGUMENTS: Final = Python(outer=Display(JSON, '"', keywords=True), inner=Display(JSON, '"'))
_SPELLING: Final = Spelling(
    ("", "(", ")"), opens="<function_calls>\n", between="\n", closes=f"\n{_END}", arguments=_ARGUMENTS, name=NAME
)


def _engine(site: Site) -> PythonicCalls:
    return PythonicCalls(site, _DIALECT)


OLMO3: Final = Format(
    name="olmo3",
    version=2,
    grammar="pythonic calls",
    summary="<think> reasoning, name(key=value) lines inside <function_calls> tags",
    models=("OLMo 3 Instruct, Think",),
    reasoning=REASONINGS["olmo3"],
    calls=Calls(openers=("<function_calls>",), closers=(_END,), engine=_engine),
    spellings=(_SPELLING,),
    enders=("<|im_end|>", "<|endoftext|>"),
)
