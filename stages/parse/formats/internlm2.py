"""InternLM 2, 2.5 and 3: one JSON object between action tokens.

    output ::= content [ "<|action_start|>" WS ( "<|plugin|>" WS object | "<|interpreter|>" CODE ) WS "<|action_end|>" ]
    object ::= {"name": NAME, "parameters": OBJECT}                    (JSON; older models: "arguments")

Text behind a block is dropped; another block is another call. Code for the interpreter is no call: it is content.
White space before a block stays content.
"""

from typing import Final

from stages.parse.engines import MORE, TEXT
from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spelling import objects

_START: Final = "<|action_start|>"
_KEYS: Final = JsonKeys(name=("name",), arguments=("parameters", "arguments"), prefer=True)
_HEADS: Final = {"<|plugin|>": MORE, "<|interpreter|>": TEXT}
_BLOCKS: Final = JsonBlocks(calls="array", first="{", heads={_START: _HEADS})


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


INTERNLM2: Final = Format(
    name="internlm",
    version=2,
    grammar="tagged JSON objects",
    summary='{"name", "parameters"} between <|action_start|><|plugin|> and <|action_end|>',
    aliases=("internlm2", "internlm2.5", "internlm3", "interns1"),
    models=("InternLM 2, 2.5, 3", "InternVL", "Intern-S1"),
    reasoning=THINK,
    calls=Calls(
        openers=(_START,), closers=("<|action_end|>",), literals=tuple(_HEADS), engine=_engine, trim="none",
        drop="text",
    ),
    spellings=(objects(f"{_START}<|plugin|>\n", "<|action_end|>", arguments="parameters", between=""),),
    enders=("<|im_end|>", "</s>"),
)  # fmt: skip
