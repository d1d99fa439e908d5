"""Rules as structural tags: how vLLM and SGLang are told what a whole output is held to (xgrammar's notation, as JSON).

Markers are letters to it: a model may spell one that its vocabulary has as a token, and the tag takes either. Nor does
it hold all that a schema may say: ``loose``.

Of white space in JSON it allows as much as our own grammars do, but anywhere, not behind commas and colons only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeGuard, assert_never

import msgspec

from pipeline.upstream import texts
from pipeline.upstream.expressions import read
from pipeline.upstream.texts import NoGrammar, Texts
from stages.grammar import (
    Again,
    Defined,
    Free,
    Json,
    Literal,
    Members,
    Newlines,
    Number,
    OneOf,
    Refer,
    Row,
    Rule,
    Spelled,
    String,
    Text,
)  # fmt: skip
from stages.parse.spellings.patterns import quoted

Tag: TypeAlias = dict[str, Any]

_SPACES: Final = {True: 1, False: 33}
"""White space at one place, of compact JSON and of indented: characters."""
_LEADING: Final = 32
"""Members that may all be missing, where something stands between two: any of them may be the first."""
_PASSED: Final = frozenset((
    "not", "if", "uniqueItems", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas",
    "multipleOf", "propertyNames",
))  # fmt: skip
"""Keywords that are passed over, or held in part."""
_LENGTHS: Final = frozenset(("minLength", "maxLength"))
_LIMITED: Final = frozenset(("pattern", "format", "$ref"))
"""Beside these, lengths are passed over."""
_WORDS: Final = re.compile(r"(?:[A-Za-z0-9|]|\\x\{[0-9a-f]{1,6}\})+")
_CODE: Final = re.compile(r"\\x\{([0-9a-f]+)\}")
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_NOTES: Final = frozenset(
    ("title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions")
)
_PATTERNS: Final = frozenset(("pattern", "patternProperties", "format"))
_VALUES: Final = frozenset(("enum", "const", "default", "examples"))


def structural(rule: Rule) -> Tag | None:
    """The whole tag. None: there is none that says this rule."""
    try:
        return {"type": "structural_tag", "format": _one(_parts(rule))}
    except (NoGrammar, RecursionError):
        return None


def loose(schema: Any) -> bool:
    """The schema says something that a tag does not hold an output to."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if _is_list(part):
            waiting += part
        elif _is_schema(part):
            if _passes(part):
                return True
            for key, value in part.items():
                if key in _NAMED and _is_schema(value):
                    waiting += value.values()
                elif key not in _VALUES:
                    waiting.append(value)
    return False


def _passes(schema: dict[str, Any]) -> bool:
    """Something of these keywords is passed over."""
    keys = schema.keys() - _NOTES
    every = schema.get("allOf")
    return (
        any(schema[key] is not False for key in keys & _PASSED)
        or bool(_LENGTHS & keys and _LIMITED & keys)
        or ("allOf" in keys and (len(keys) > 1 or not _is_list(every) or len(every) > 1))
    )


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_schema(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _parts(rule: Rule) -> list[Tag]:
    """What is written one behind the other. Raises NoGrammar."""
    match rule:
        case Row():
            return _row(_parts(part) for part in rule.parts)
        case OneOf():
            return _either([_parts(option) for option in rule.options])
        case Again():
            return _repeated(_parts(rule.rule), rule.least, rule.most)
        case Refer() | Defined():
            raise NoGrammar("a tag does not refer to itself")
        case Members():
            return _members(rule)
        case Spelled():
            return _parts(rule.rule)
        case _:
            return _leaf(rule)


def _leaf(rule: Literal | Json | Free | String | Text | Number | Newlines) -> list[Tag]:
    match rule:
        case Literal():
            return _text(rule.text)
        case Json():
            return [_json(rule)]
        case Free():
            return _free(rule)
        case String():
            return _row((_text(rule.opens), _string(msgspec.structs.replace(rule, opens=""))))
        case Text():
            return [{"type": "grammar", "grammar": texts.grammar(read(rule.pattern))}]
        case Number():
            return [{"type": "regex", "pattern": "[1-9][0-9]{0,3}"}]
        case Newlines():
            return [{"type": "regex", "pattern": r"\n{0,2}"}]
        case _:
            assert_never(rule)


def _json(rule: Json) -> Tag:
    spaces = _SPACES[rule.compact]
    tag: Tag = {"type": "json_schema", "json_schema": rule.schema, "max_whitespace_cnt": spaces}
    if rule.without:
        if _patterned(rule.schema):
            raise NoGrammar("what is left out of strings may stand in those of a pattern")
        tag["excludes"] = [*rule.without]
    return tag


def _patterned(schema: dict[str, Any]) -> bool:
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if _is_schema(part):
            if not _PATTERNS.isdisjoint(part):
                return True
            waiting += part.values()
        elif _is_list(part):
            waiting += part
    return False


def _text(text: str) -> list[Tag]:
    return [{"type": "const_string", "value": text}] if text else []


def _row(parts: Iterable[list[Tag]]) -> list[Tag]:
    """Texts that follow each other are one."""
    row: list[Tag] = []
    for tag in (tag for part in parts for tag in part):
        if row and row[-1]["type"] == tag["type"] == "const_string":
            row[-1] = {"type": "const_string", "value": row[-1]["value"] + tag["value"]}
        else:
            row.append(tag)
    return row


def _one(parts: Sequence[Tag]) -> Tag:
    if len(parts) == 1:
        return parts[0]
    return {"type": "sequence", "elements": [*parts]} if parts else {"type": "const_string", "value": ""}


def _either(options: Sequence[list[Tag]]) -> list[Tag]:
    if len(options) == 1:
        return options[0]
    ways = [_one(option) for option in options if option]
    if not ways:
        return []
    found = ways[0] if len(ways) == 1 else {"type": "or", "elements": ways}
    return [found] if all(options) else [{"type": "optional", "content": found}]


def _again(parts: list[Tag]) -> list[Tag]:
    return [{"type": "star", "content": _one(parts)}] if parts else []


def _repeated(parts: list[Tag], least: int, most: int | None) -> list[Tag]:
    if most is not None:
        return [{"type": "repeat", "min": least, "max": most, "content": _one(parts)}] if parts and most else []
    return _row((*([parts] * least), _again(parts)))


def _members(rule: Members) -> list[Tag]:
    between = _text(rule.between)
    others = [] if rule.others is None else _parts(rule.others)
    more = _row((between, others))
    later = [] if not others else _either([more, []]) if rule.once else _again(more)
    firsts: list[list[Tag]] = [others if rule.once else _row((others, later)), []] if others else [[]]
    for part, required in reversed(rule.parts):
        written = _parts(part)
        firsts = [_row((written, later)), *([] if required else firsts)]
        begun = _row((between, written))
        later = _row((begun if required else _either([begun, []]), later))
        if between and len(firsts) > _LEADING:
            raise NoGrammar(f"more than {_LEADING} members may be the first")
    return _either(firsts) if between else later


# --- texts ----------------------------------------------------------------------------------------------------------


def _free(rule: Free) -> list[Tag]:
    unlike = [rf"\s*[{''.join(map(quoted, rule.first))}](?s:.*)"] if rule.first else []
    unlike += [f"(?:{'|'.join(map(quoted, rule.ahead))})(?s:.*)"] if rule.ahead else []
    return _ended(rule.until, rule.without, [texts.negated(read(pattern)) for pattern in unlike])


def _string(rule: String) -> list[Tag]:
    if rule in (String(rule.until, rule.patterns), String(rule.until, rule.patterns, without=rule.without)):
        if len(rule.patterns) == 1 and _WORDS.fullmatch(rule.patterns[0]):
            return _words(rule)
    said = [*map(read, rule.patterns), *(texts.negated(read(pattern)) for pattern in rule.unlike)]
    if rule.least:
        said.append(texts.times(texts.ANY, rule.least, None))
    return _ended(rule.until, rule.without, said, rule.most)


def _words(rule: String) -> list[Tag]:
    """A list of texts needs no automaton."""
    words = [_CODE.sub(lambda code: chr(int(code[1], 16)), word) for word in rule.patterns[0].split("|")]
    markers = [marker for marker in (*rule.until, *rule.without) if marker]
    ways = [
        _text(word + end)
        for word in words
        for end in rule.until
        if not any(marker in (word + end)[:-1] or marker in word for marker in markers)
    ]
    if not ways:
        raise NoGrammar("none of the texts can be written")
    return _either(ways)


def _ended(until: Sequence[str], without: Sequence[str], said: Sequence[Texts], most: int | None = None) -> list[Tag]:
    """A text up to the first of ``until``; ``said``: what else it satisfies."""
    markers = [*dict.fromkeys((*without, *until))]
    bounds = [] if most is None else [texts.times(texts.ANY, 0, most)]
    ways: list[list[Tag]] = []
    for end in until or ("",):
        late = [begun for marker in until for begun in _begun(marker, end)]
        if said or late:
            grammar = texts.grammar(texts.both((*said, *bounds)), markers, late)
            written: Tag = {"type": "grammar", "grammar": grammar}
        else:
            written = {"type": "any_text", "excludes": markers} | ({} if most is None else {"max_chars": most})
        ways.append(_row(([written], _text(end))))
    return _either(ways)


def _begun(marker: str, end: str) -> list[str]:
    """Texts behind which ``end`` first makes this marker whole, before it is itself."""
    return [marker[:-size] for size in range(1, min(len(marker), len(end))) if marker.endswith(end[:size])]
