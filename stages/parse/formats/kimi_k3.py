"""Kimi K3 (XTML): everything is in elements, whose tags are three special tokens and text.

    OPEN(x)  ::= "<|open|>" x "<|sep|>"          CLOSE(x) ::= "<|close|>" x "<|sep|>"
    output   ::= [ [ OPEN(think) ] reasoning CLOSE(think) ] [ OPEN(response) ] content CLOSE(response)
                 [ OPEN(tools) { call } CLOSE(tools) ] CLOSE(message)
    call     ::= OPEN(call tool="NAME" index="N") { argument | json } CLOSE(call)
    argument ::= OPEN(argument key="KEY" type="TYPE") VALUE CLOSE(argument)
    json     ::= OPEN(json type="object") OBJECT CLOSE(json)                      (holds all arguments)
    TYPE     ::= "string" | "number" | "boolean" | "null" | "object" | "array"

The prompt opens ``think``, or ``response`` where thinking is off. A string is VALUE as it is; another one is JSON, and
a string if it is none; an unknown TYPE is a string; without one the schema tells. In attributes ``&quot;``, ``&amp;``,
``&lt;`` and ``&gt;`` stand for characters. The tags of response and message are structure wherever they stand, and end
reasoning, as calls do. Text that stands in none of the elements is content.

A tag that opens beside an element, or closes what it stands in, ends it, so a call is complete at ``CLOSE(call)``, at
the next call, or at the end of the tools. The end of the output ends nothing; the beginning of a tag there is dropped.
Content is not trimmed; white space between elements is structure. The tokenizer writes the letters of a tag in a value
with ordinary tokens: ids tell them apart, text does not.
"""

from typing import Final

from stages.parse.engines.elements import Elements, ElementTable
from stages.parse.format import Calls, Format, Reasoning
from stages.parse.site import Site
from stages.parse.spelling import NUMBER, Spelling
from stages.parse.spellings.pairs import Pairs, json_or_string
from stages.parse.spellings.strings import Bare


def _open(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _close(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


_BOUNDARIES: Final = (_open("response"), _close("response"), _open('message role="assistant"'), _close("message"))
_TABLE: Final = ElementTable(
    section=(_open("tools"),),
    section_end=(_close("tools"),),
    call=("<|open|>call",),
    call_end=(_close("call"),),
    value=("<|open|>argument",),
    value_end=(_close("argument"),),
    sep="<|sep|>",
    name="tool",
    key="key",
    types={"number": "json", "boolean": "json", "null": "json", "object": "json", "array": "json"},
    json=("<|open|>json",),
    json_end=(_close("json"),),
    outside=(*_BOUNDARIES, _open("think")),
    implicit=True,
)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


_MARKERS: Final = ("<|open|>", "<|close|>")
_KINDS: Final = ("null", "boolean", "number", "object", "array")
_SPELLING: Final = Spelling(
    ('<|open|>call tool="', f'" index="{NUMBER}"<|sep|>', _close("call")),
    opens=_open("tools"),
    between="",
    closes=_close("tools") + _close("message"),
    first="1",
    arguments=Pairs(
        '<|open|>argument key="',
        '" type="string"<|sep|>',
        Bare(until=(_close("argument"),), without=_MARKERS),
        name=("<", '"', "\n"),
        read=json_or_string,
        kinds={kind: f'" type="{kind}"<|sep|>' for kind in _KINDS},
        encode=_attribute,
        inside=_MARKERS,
    ),
)


def _engine(site: Site) -> Elements:
    return Elements(site, _TABLE)


KIMI_K3: Final = Format(
    name="kimi_k3",
    version=2,
    grammar="typed elements",
    summary='<|open|>call tool="…"<|sep|> and <|open|>argument key="…" type="…"<|sep|>, in elements like all else',
    aliases=("kimi-k3", "xtml"),
    models=("Kimi K3",),
    reasoning=Reasoning(
        openers=(_open("think"),),
        closers=(_close("think"),),
        turns=("<|open|>message",),
        inside=True,
        trim="none",
        again=True,
        stray="always",
    ),
    calls=Calls(
        openers=(*_TABLE.section, *_TABLE.call),
        closers=_TABLE.section_end,
        literals=_TABLE.literals(),
        engine=_engine,
        trim="none",
    ),
    boundaries=_BOUNDARIES,
    spellings=(_SPELLING,),
    enders=("<|end_of_msg|>",),
)
