"""Calls of a name and tagged pairs, as ``engines.kv_tags`` reads them.

call ::= opener NAME [ name-end ] NL { key KEY key-end NL [ type KIND type-end NL ] value VALUE value-end NL } closer
NL   ::= a newline, or nothing: as the family has it
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import msgspec

from stages.errors import Unheld
from stages.grammar import Json, Rule
from stages.parse.engines.kv_table import NAME, KvTags
from stages.parse.spelling import Spelling
from stages.parse.spellings.objects import Objects
from stages.parse.spellings.pairs import Pairs, json_or_string
from stages.parse.spellings.strings import Bare
from stages.parse.types import Types, coerce

_NULL: Final = r"[\s\x1c-\x1f]*[Nn][Uu][Ll][Ll][\s\x1c-\x1f]*"
_KINDS: Final = ("string", "number", "boolean", "null", "object", "array")
_COMBINED: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf", "patternProperties"))


def pairs(tags: KvTags, *, lines: bool = False) -> Spelling:
    """How a family with these tags writes calls. ``lines``: each tag on a line of its own."""
    line = "\n" if lines else ""
    arguments = Pairs(
        tags.key[0],
        f"{tags.key[1]}{line}{tags.value[0]}",
        _bare(tags, line),
        name=("<", "\n"),
        read=_nulled if tags.null else coerce,
        inside=(tags.value[1], tags.key[0], tags.call[0], *(tags.section or ())[1:]),
    )
    call = (tags.call[0], f"{tags.name_end}{line}", tags.call[1])
    if tags.section is None:
        return Spelling(call, between=line, arguments=arguments, name=NAME.pattern)
    opens, closes = tags.section
    call = (*call[:2], f"{call[2]}{line}")
    return Spelling(call, opens=f"{opens}{line}", closes=closes, arguments=arguments, name=NAME.pattern)


def group(tags: KvTags) -> Spelling:
    """The same where a key that comes twice breaks the call: with kinds, without, or as a JSON object."""
    plain = pairs(tags)
    assert isinstance(plain.arguments, Pairs)
    assert tags.type is not None
    before, behind = f"{tags.key[1]}{tags.type[0]}", f"{tags.type[1]}{tags.value[0]}"
    once = replace(plain.arguments, once=True)
    typed = replace(once, kinds={kind: f"{before}{kind}{behind}" for kind in _KINDS})
    objects = Spelling((f'{tags.call[0]}{{"name": "', '", "arguments": ', f"}}{tags.call[1]}"), arguments=_once)
    return replace(plain, arguments=once, also=(replace(plain, arguments=typed), objects))


def _bare(tags: KvTags, line: str) -> Bare:
    # The end of a call stands for that of a value too, where another call or the end of the section follows.
    behind = "|".join(map(re.escape, (tags.call[0], *(tags.section or ())[1:])))
    broken = rf"(?s:.*){re.escape(tags.call[1])}\s*(?:{behind})(?s:.*)"
    unlike = (broken, _NULL) if tags.null else (broken,)
    return Bare(until=(f"{tags.value[1]}{line}",), without=(tags.value[1], tags.key[0]), unlike=unlike)


def _nulled(raw: str, types: Types) -> str:
    return "null" if raw.strip().lower() == "null" else coerce(raw, types)


def _once(value: Json) -> Rule:
    """A JSON object in which no name comes twice: it has one at most that is not listed. Raises RequestError."""
    shapes = Objects(value.schema, value.param).shapes((value.schema,))
    if not any(shape.others for shape in shapes):
        return value
    names = {member.name for shape in shapes for member in shape.members}
    listed: Any = value.schema.get("properties", {})
    if _COMBINED & value.schema.keys() or any(name not in listed for name in names):
        raise Unheld(value.param, "a name may be written twice")
    closed = {"additionalProperties": False} if names else {"maxProperties": 1}
    return msgspec.structs.replace(value, schema={**value.schema, **closed})


def typed(opener: str, closer: str, section: str, taken: tuple[str, ...]) -> Spelling:
    """Tags that begin with ``opener`` or ``closer``; a parameter's says whether it is a string. ``section``: around all
    calls; ``taken``: see Pairs."""
    return Spelling(
        (f'\n{opener}invoke name="', '">\n', f"{closer}invoke>"),
        opens=f"{opener}{section}>",
        between="",
        closes=f"\n{closer}{section}>",
        arguments=Pairs(
            f'{opener}parameter name="',
            '" string="true">',
            Bare(until=(f"{closer}parameter>\n",), without=(closer,)),
            read=json_or_string,
            kinds=dict.fromkeys(("null", "boolean", "number", "object", "array"), '" string="false">'),
            taken=taken,
            inside=(closer,),
        ),
    )
