"""GLM 4.5 to 5.x, and models that write the same: key/value tags, reasoning inside ``<think>`` tags.

    output ::= [ NL ] [ "<think>" [ NL ] TEXT "</think>" NL ] { content | call }   (the prompt may have opened it)
    call   ::= [ NL ] "<tool_call>" NAME WS { pair WS } "</tool_call>"
    pair   ::= "<arg_key>" KEY "</arg_key>" WS "<arg_value>" VALUE "</arg_value>"

Strings are written raw, all else as JSON, so that the schema tells what a value is. White space is optional everywhere
but in a VALUE, which is verbatim: GLM 4.5 and 4.6 put a newline behind the name and each tag, 4.7 and later none.
NAME ends at a tag, not at the newline. All tags are added tokens.

4.5 and 4.6 open reasoning themselves, behind a newline; off, their prompt ends in an empty pair. The prompt of 4.7 and
later opens it; off, it ends in the closer alone. Laguna thinks only when asked to.
"""

from dataclasses import replace
from typing import Final

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import INSIDE, THINK
from stages.parse.site import Site
from stages.parse.spellings.tags import pairs

_TAGS: Final = KvTags(
    call=("<tool_call>", "</tool_call>"),
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
    json=JsonKeys(name=("name",), arguments=("arguments", "parameters")),
)


def _engine(site: Site) -> KvCalls:
    return KvCalls(site, _TAGS)


GLM: Final = Format(
    name="glm",
    version=2,
    grammar="key/value tags",
    summary="<think> reasoning, <arg_key> and <arg_value> inside <tool_call> tags",
    aliases=("glm45", "glm4.5", "glm46", "glm4.6", "glm4_moe"),
    models=("GLM-4.5", "GLM-4.5-Air", "GLM-4.5V", "GLM-4.6", "GLM-4.6V"),
    reasoning=THINK,
    calls=Calls(openers=_TAGS.openers(), closers=_TAGS.closers(), literals=tuple(_TAGS.inner()), engine=_engine),
    spellings=(pairs(_TAGS, lines=True),),
    enders=("<|endoftext|>", "<|user|>", "<|observation|>"),
)
GLM47: Final = replace(
    GLM,
    name="glm47",
    summary="as glm, without newlines; the prompt opens the reasoning",
    aliases=("glm4.7", "glm5", "glm51", "glm5.1", "glm52", "glm5.2", "glm53", "glm5.3", "glm47_moe"),
    models=("GLM-4.7", "GLM-4.7-Flash", "GLM-5", "GLM-5.1", "GLM-5.2", "GLM-5.3"),
    reasoning=INSIDE,
    spellings=(pairs(_TAGS),),
)
LING3: Final = replace(
    GLM47, name="ling3", summary="as glm47", aliases=("ring3", "ling_3"), models=("Ling-3", "Ring-3"), enders=()
)
LAGUNA: Final = replace(
    GLM47, name="poolside_v1", summary="as glm47; thinks when asked to", aliases=("laguna", "poolside"),
    models=("Laguna",), reasoning=THINK, enders=(),
)  # fmt: skip
