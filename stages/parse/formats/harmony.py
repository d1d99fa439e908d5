"""Harmony (gpt-oss): messages on channels.

    output ::= header body ender { "<|start|>" "assistant" header body ender }       (the prompt has the first start)
    header ::= [" to=" RCPT] "<|channel|>" CHAN [" to=" RCPT] [" "] [ ["<|constrain|>"] TYPE ] "<|message|>"
    ender  ::= "<|end|>" | "<|call|>" | "<|return|>"

A recipient ``functions.N``, or one that is the name of an offered tool, makes the body a call's arguments, whatever the
channel. Channel analysis is reasoning, other channels are content. Built-in tools (browser, python, container) run on
the server's side: what is said to them is reasoning. Messages of other roles are dropped. All literals are special
tokens; inside a body only the enders mean anything.
"""

import re
from typing import Final

from stages.parse.engines.json_body import JsonBody
from stages.parse.format import Body, Calls, Channels, Field, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling, Spoken

_ENDERS: Final = ("<|end|>", "<|call|>", "<|return|>")
_TO: Final = re.compile(r"(?:^|\s)to=(\S+)")
_PREFIX: Final = "functions."
_BUILT_IN: Final = ("browser", "python", "container")


def read(fields: tuple[Field, ...], names: frozenset[str] | None) -> Body:
    """See Channels."""
    role = channel = ""
    to: tuple[str, int] | None = None
    for literal, text, at in fields:
        match = _TO.search(text)
        if match is not None:
            to = match.group(1), at + match.start(1)
        words = text[: match.start()].split() if match is not None else text.split()
        if literal in ("", "<|start|>") and words:
            role = words[0]
        elif literal == "<|channel|>" and words:
            channel = words[0]
    if role not in ("", "assistant"):
        return Body("dropped")
    if to is not None:
        return _addressed(to[0], to[1], names)
    return Body("reasoning" if channel == "analysis" else "content")


def _addressed(name: str, at: int, names: frozenset[str] | None) -> Body:
    if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        return Body("content" if names is None else "call", (at + len(_PREFIX), at + len(name)))
    if names is not None and name in names:
        return Body("call", (at, at + len(name)))
    return Body("reasoning" if name.partition(".")[0] in _BUILT_IN else "content")


def _engine(site: Site) -> JsonBody:
    return JsonBody(site, _ENDERS)


HARMONY: Final = Format(
    name="harmony",
    version=2,
    grammar="channel messages",
    summary="messages on channels analysis, commentary and final; calls by recipient",
    aliases=("gpt-oss", "gpt-oss-20b", "gpt-oss-120b", "openai", "openai_gptoss"),
    models=("gpt-oss-20b", "gpt-oss-120b"),
    calls=Calls(openers=(), engine=_engine),
    channels=Channels(
        starts=("<|start|>",), parts=("<|channel|>", "<|constrain|>"), bodies=("<|message|>",), enders=_ENDERS,
        open="<|start|>", lead=("to=",), read=read,
        spoken=Spoken(
            start="<|start|>assistant", ender="<|end|>", thought="<|channel|>analysis<|message|>",
            answer="<|channel|>final<|message|>", preamble="<|channel|>commentary<|message|>",
        ),
    ),
    spellings=(
        Spelling(
            ("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", ""),
            between="<|end|><|start|>assistant",
            # As the model's template tells it of its calls before.
            also=(
                Spelling((" to=functions.", "<|channel|>commentary json<|message|>", "")),
                Spelling((" to=functions.", "<|channel|>commentary <|constrain|>json<|message|>", "")),
            ),
        ),
    ),
    enders=("<|endoftext|>",),
)  # fmt: skip
