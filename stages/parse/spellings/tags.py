"""Calls of a name and tagged pairs, as ``engines.kv_tags`` reads them.

call ::= opener NAME [ name-end ] NL { key KEY key-end NL value VALUE value-end NL } closer       (NL: a newline, or none)
"""

from __future__ import annotations

import re
from typing import Final

from stages.parse.engines.kv_table import NAME, KvTags
from stages.parse.spelling import Spelling
from stages.parse.spellings.pairs import Pairs
from stages.parse.spellings.strings import Bare
from stages.parse.types import Types, coerce

_NULL: Final = r"[\s\x1c-\x1f]*[Nn][Uu][Ll][Ll][\s\x1c-\x1f]*"


def pairs(tags: KvTags, *, lines: bool = False, distinct: bool = False) -> Spelling:
    """How a family with these tags writes calls. ``lines``: each tag on a line of its own; ``distinct``: a key that
    comes twice would break the call."""
    line = "\n" if lines else ""
    # The end of a call stands for that of a value too, where another call or the end of the section follows.
    behind = "|".join(map(re.escape, (tags.call[0], *(tags.section or ())[1:])))
    bare = Bare(
        until=(f"{tags.value[1]}{line}",),
        without=(tags.value[1], tags.key[0]),
        unlike=(rf"(?s:.*){re.escape(tags.call[1])}\s*(?:{behind})(?s:.*)", *((_NULL,) if tags.null else ())),
    )
    arguments = Pairs(
        tags.key[0], f"{tags.key[1]}{line}{tags.value[0]}", bare, name=("<", "\n"),
        read=_nulled if tags.null else coerce, distinct=distinct,
        kind=None if tags.type is None else (f"{tags.key[1]}{line}{tags.type[0]}", f"{tags.type[1]}{line}{tags.value[0]}"),
    )  # fmt: skip
    call = (tags.call[0], f"{tags.name_end}{line}", tags.call[1])
    if tags.section is None:
        return Spelling(call, between=line, arguments=arguments, name=NAME.pattern)
    opens, closes = tags.section
    return Spelling(
        (*call[:2], f"{call[2]}{line}"), opens=f"{opens}{line}", closes=closes, arguments=arguments, name=NAME.pattern
    )


def _nulled(raw: str, types: Types) -> str:
    return "null" if raw.strip().lower() == "null" else coerce(raw, types)
