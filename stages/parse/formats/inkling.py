"""Inkling: messages whose bodies say what they are; the JSON of a call is one of them.

    output  ::= [ META ] kind body ender { "<|message_model|>" [ META ] kind body ender }   (the prompt has the first)
    kind    ::= "<|content_thinking|>" | "<|content_text|>" | "<|content_invoke_tool_json|>"
              | "<|content_invoke_tool_text|>" | "<|content_tool_error|>"
    ender   ::= "<|end_message|>" | "<|content_model_end_sampling|>"
    body    ::= TEXT | {"name": NAME, "args": OBJECT}                                    (JSON, for a call)

All literals are special tokens. META is dropped. A call written as text, and a tool's error, are content. A message
that begins ends the one before.
"""

from typing import Final

from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Body, Calls, Channels, Field, Format
from stages.parse.site import Site
from stages.parse.spelling import Spelling, Spoken

_THINKING: Final = "<|content_thinking|>"
_CALL: Final = "<|content_invoke_tool_json|>"
_OTHERS: Final = ("<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")
_KEYS: Final = JsonKeys(name=("name",), arguments=("args",))
_BLOCKS: Final = JsonBlocks(calls="array", first="{")


def read(fields: tuple[Field, ...], names: frozenset[str] | None) -> Body:
    """See Channels."""
    kind = fields[-1].literal
    if kind == _CALL and names is not None:
        return Body("call")
    return Body("reasoning" if kind == _THINKING else "content")


def _engine(site: Site) -> JsonCalls:
    return JsonCalls(site, _KEYS, _BLOCKS)


INKLING: Final = Format(
    name="inkling",
    version=2,
    grammar="channel messages",
    summary='<|content_thinking|>, <|content_text|> and <|content_invoke_tool_json|> {"name", "args"} messages',
    models=("Inkling",),
    calls=Calls(openers=(), engine=_engine),
    channels=Channels(
        starts=("<|message_model|>",), parts=(), bodies=(_THINKING, _CALL, *_OTHERS),
        enders=("<|end_message|>", "<|content_model_end_sampling|>"), open="<|message_model|>", lead=(), read=read,
        named=True, breaks=True,
        spoken=Spoken(
            start="<|message_model|>", ender="<|end_message|>", thought=_THINKING, answer="<|content_text|>"
        ),
    ),
    spellings=(
        Spelling(
            (f'{_CALL}{{"name": "', '", "args": ', "}"), between="<|end_message|><|message_model|>"
        ),
    ),
)  # fmt: skip
