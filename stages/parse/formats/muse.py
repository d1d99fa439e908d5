"""Muse Spark and Muse Glimmer: messages to recipients; those to tools hold XML calls.

    output ::= header body ender { "<|start|>" "assistant" header body ender }          (the prompt has the first start)
    header ::= [ " to=" RCPT ] "<|message|>"
    ender  ::= "<|eom|>" | "<|eot|>"
    body   ::= TEXT | "<atem:function_calls>" WS { invoke WS } "</atem:function_calls>"            (for a tool)
    invoke ::= '<atem:invoke name="' NAME '">' WS { parameter WS } "</atem:invoke>"
    parameter ::= '<atem:parameter name="' KEY '">' VALUE "</atem:parameter>"

What is said to ``self`` is reasoning, to ``user`` or ``commentary`` content, to ``developer`` it is dropped; everybody
else is a tool. Without a recipient Spark reasons and Glimmer answers. Messages of other roles are dropped. A message
that begins ends the one before. VALUE is JSON, and a string if it is none; in Spark, where the tool lists the
parameter, it is what the schema says.

The literals in ``<|`` are special tokens, the tags are text. Where calls are not wanted, a tool's message is content.
"""

import re
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from stages.parse.engines.elements import Elements, ElementTable
from stages.parse.format import Body, Calls, Channels, Field, Format
from stages.parse.site import Site
from stages.parse.spelling import NAME, Spelling, Spoken
from stages.parse.spellings.pairs import Pairs, json_or_string
from stages.parse.spellings.strings import Bare
from stages.parse.types import ANY, Types, coerce

_ENDERS: Final = ("<|eom|>", "<|eot|>")
_TABLE: Final = ElementTable(
    section=("<atem:function_calls>",),
    section_end=("</atem:function_calls>",),
    call=("<atem:invoke",),
    call_end=("</atem:invoke>",),
    value=("<atem:parameter",),
    value_end=("</atem:parameter>",),
    sep=">",
    type="",
    untyped="known",
    outside=("<|start|>", *_ENDERS),
)
_TO: Final = re.compile(r"(?:^|\s)to=(\S+)")
_KINDS: Final[dict[str, Body]] = {
    "self": Body("reasoning"), "user": Body("content"), "commentary": Body("content"), "developer": Body("dropped"),
}  # fmt: skip


def read(fields: tuple[Field, ...], names: frozenset[str] | None, alone: Body) -> Body:
    """See Channels. ``alone``: what is said to nobody."""
    text = " ".join(field.text for field in fields)
    to = _TO.search(text)
    role = text[: to.start()] if to is not None else text
    if role.split()[:1] not in ([], ["assistant"]):
        return Body("dropped")
    if to is None:
        return alone
    return _KINDS.get(to.group(1), Body("content" if names is None else "call"))


def _engine(site: Site, untyped: Literal["known", "json"]) -> Elements:
    return Elements(site, replace(_TABLE, untyped=untyped))


_CHANNELS: Final = Channels(
    starts=("<|start|>",), parts=(), bodies=("<|message|>",), enders=_ENDERS, open="<|start|>", lead=("to=",),
    read=partial(read, alone=Body("reasoning")), breaks=True,
    spoken=Spoken(
        start="<|start|>assistant", ender="<|eom|>", thought=" to=self<|message|>", answer=" to=user<|message|>",
        preamble=" to=commentary<|message|>",
    ),
)  # fmt: skip
_HEAD: Final = (
    " to=",
    f'<|message|><atem:function_calls>\n<atem:invoke name="{NAME}">\n',
    "</atem:invoke>\n</atem:function_calls>",
)  # fmt: skip
_PAIRS: Final = Pairs(
    '<atem:parameter name="',
    '">',
    Bare(
        until=("</atem:parameter>\n",),
        without=(*_TABLE.tags(), *_TABLE.outside),
        unlike=(r'\s*"(?s:.*)',),  # JSON's strings are read as that
    ),
    inside=(*_TABLE.tags(), *_TABLE.outside),
)


def _known(raw: str, types: Types) -> str:
    return json_or_string(raw, types) if types is ANY else coerce(raw, types)


def _spelling(untyped: Literal["unlisted", "all"]) -> Spelling:
    pairs = replace(_PAIRS, untyped=untyped, read=_known if untyped == "unlisted" else json_or_string)
    return Spelling(_HEAD, between="<|eom|><|start|>assistant", arguments=pairs)


_SUMMARY: Final = "messages to=self, to=user and to tools; <atem:invoke> calls"
MUSE: Final = Format(
    name="muse",
    version=2,
    grammar="channel messages",
    summary=_SUMMARY,
    aliases=("muse_spark",),
    models=("Muse Spark",),
    calls=Calls(openers=(), engine=partial(_engine, untyped="known"), literals=_TABLE.literals()),
    channels=_CHANNELS,
    spellings=(_spelling("unlisted"),),
)
MUSE_GLIMMER: Final = replace(
    MUSE,
    name="muse_glimmer",
    aliases=("glimmer",),
    models=("Muse Glimmer",),
    calls=Calls(openers=(), engine=partial(_engine, untyped="json"), literals=_TABLE.literals()),
    channels=replace(_CHANNELS, read=partial(read, alone=Body("content"))),
    spellings=(_spelling("all"),),
)
