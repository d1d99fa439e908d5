"""LFM2 and LFM2.5: a list of calls between special tokens, pythonic or JSON.

    output ::= [ "<think>" reasoning "</think>" ] { content | block }
    block  ::= "<|tool_call_start|>" WS ( list | jsons ) WS "<|tool_call_end|>" [ WS echo WS "<|tool_call_end|>" ]
    list   ::= "[" [ call { "," call } ] "]"              (``engines/pythonic.py``; an empty one is structure)
    jsons  ::= "[" object { "," object } "]" | object     {"name": NAME, "arguments": OBJECT}

The template writes strings in single quotes and escapes nothing in them, so a quote ends one only where what follows,
also behind a closing bracket, can follow a value. ``echo``: the block's text again.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.python_or_json import PythonOrJson
from stages.parse.engines.pythonic import Pythonic
from stages.parse.format import Calls, Format
from stages.parse.reasonings import REASONINGS
from stages.parse.site import Site
from stages.parse.spelling import Spelling
from stages.parse.spellings.python import JSON, NAME, Display, Python

_END: Final = "<|tool_call_end|>"
_DIALECT: Final = Pythonic(ends=(_END,), loose=True)
_KEYS: Final = JsonKeys(name=("name",), arguments=("arguments", "parameters"))
_ARGUMENTS: Final = Python(outer=Display(quotes="'", keywords=True), inner=Display(JSON))
_SPELLING: Final = Spelling(
    ("", "(", ")"),
    opens="<|tool_call_start|>[",
    between=", ",
    closes=f"]{_END}",
    arguments=_ARGUMENTS,
    name=NAME,
)


def _engine(site: Site) -> PythonOrJson:
    return PythonOrJson(site, _DIALECT, _KEYS, _END)


LFM2: Final = Format(
    name="lfm2",
    version=2,
    grammar="pythonic calls",
    summary="[name(key=value)] between <|tool_call_start|> and <|tool_call_end|>",
    aliases=("lfm2.5", "lfm25"),
    models=("LFM2", "LFM2.5"),
    reasoning=REASONINGS["lfm2"],
    calls=Calls(openers=("<|tool_call_start|>",), closers=(_END,), engine=_engine),
    spellings=(_SPELLING,),
    enders=("<|im_end|>", "<|endoftext|>"),
)
