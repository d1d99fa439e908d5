"""Tencent Hunyuan V3 and V4: key/value tags inside a section, which ends the output.

    output  ::= [ "<think>" TEXT "</think>" ] content [ section ]               (the prompt may have opened it)
    section ::= "<tool_calls>" WS { call WS } "</tool_calls>"
    call    ::= "<tool_call>" NAME [ "<tool_sep>" ] WS { pair WS } "</tool_call>"        (the separator: V3)
    pair    ::= "<arg_key>" KEY "</arg_key>" WS "<arg_value>" VALUE "</arg_value>"

Every literal may carry a suffix that is the checkpoint's own: ``<tool_calls:6124c78e>``. The vocabulary tells it. All
are added tokens.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from stages.opening import TokenizerFacts
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.format import Calls, Format
from stages.parse.reasonings import THINK
from stages.parse.site import Site
from stages.parse.spellings.tags import pairs

_Version = Literal["v3", "v4"]
_SPELLED: Final = re.compile(r"<(?:think|tool_calls)(:[^<>:\s]+)>")
_ALIASES: Final = {"v3": ("hyv3", "hunyuan_v3", "hunyuan3"), "v4": ("hyv4", "hunyuan_v4", "hunyuan4")}


def _suffix(tokenizer: TokenizerFacts) -> str:
    """What the checkpoint puts behind the names of its tags."""
    for text in (*tokenizer.added, *tokenizer.special):
        match = _SPELLED.fullmatch(text)
        if match is not None:
            return match[1]
    return ""


def _v3(tokenizer: TokenizerFacts) -> Format:
    return _table("v3", _suffix(tokenizer))


def _v4(tokenizer: TokenizerFacts) -> Format:
    return _table("v4", _suffix(tokenizer))


@lru_cache(maxsize=64)
def _table(version: _Version, suffix: str) -> Format:
    def tag(name: str) -> tuple[str, str]:
        return f"<{name}{suffix}>", f"</{name}{suffix}>"

    tags = KvTags(
        call=tag("tool_call"), key=tag("arg_key"), value=tag("arg_value"), section=tag("tool_calls"),
        name_end=tag("tool_sep")[0] if version == "v3" else "",
    )  # fmt: skip
    opener, closer = tag("think")

    def engine(site: Site) -> KvCalls:
        return KvCalls(site, tags)

    return Format(
        name=f"hy_{version}",
        version=2,
        grammar="key/value tags",
        summary=f"<tool_call> in <tool_calls>{', names ended by <tool_sep>' if version == 'v3' else ''}; "
        "a suffix from the vocabulary",
        aliases=_ALIASES[version],
        models=(f"Hunyuan {version.upper()}",),
        reasoning=replace(THINK, openers=(opener,), closers=(closer,)),
        calls=Calls(
            openers=tags.openers(), closers=tags.closers(), literals=tuple(tags.inner()), engine=engine, drop=True
        ),
        spellings=(pairs(tags, lines=version == "v3"),),
        variant=_v3 if version == "v3" else _v4,
    )


HY_V3: Final = _table("v3", "")
HY_V4: Final = _table("v4", "")
