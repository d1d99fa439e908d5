"""Regular expressions of JSON Schema (those of ECMA-262) as the grammar library reads them, which are Rust's.

* Classes are spelled so that both mean the same: those of ECMA-262 are of ASCII, ``\\s`` and ``.`` differ in a few
  characters, ``[``, ``&`` and ``~`` are ordinary in a class.
* U+0001 is left out of everything: a class with all control characters and without ``"`` or ``\\`` lets these through
  in the library, written behind a backslash as JSON has them.

What is none is left as it is: the library refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from stages.errors import Unheld

_TOKEN: Final = re.compile(
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    |\\(?:[pP]\{[^}]*\}|u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|0(?![0-9])|.)
    |.""",
    re.DOTALL | re.VERBOSE,
)
_CONTROLS: Final = {"\\t": 9, "\\n": 10, "\\v": 11, "\\f": 12, "\\r": 13, "\\0": 0}
_SPACE: Final = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_DOT: Final = r"[^\n\r\x{2028}\x{2029}]"
_WORD: Final = "A-Za-z0-9_"
_SETS: Final = {
    "\\s": f"[{_SPACE}]", "\\S": f"[^{_SPACE}]", "\\d": "[0-9]", "\\D": "[^0-9]", "\\w": f"[{_WORD}]",
    "\\W": f"[^{_WORD}]",
}  # fmt: skip
_NONE: Final = r"[^\s\S]"
_ANY: Final = r"[\s\S]"
_LEFT_OUT: Final = 1
_LOOKS: Final = re.compile(r"\(\?<?[=!]")
_INTEGER: Final = "-?(?:0|[1-9][0-9]{0,39})"
NUMBERS: Final = {"integer": _INTEGER, "number": rf"{_INTEGER}(?:\.[0-9]{{1,40}})?(?:[eE][+-]?[0-9]{{1,2}})?"}
"""Of a kind, without a limit. JSON's numbers, but for those beyond a float."""
LONGEST: Final = 20_000
"""Squares of the lengths of names, all together, of which a pattern is made that is none of them."""


def translated(pattern: str) -> str:
    """The same expression, in the library's words."""
    return "".join(_parts(pattern))


def whole(pattern: str, param: str) -> str:
    """A pattern that matches anywhere in a text, as one of the whole text. Raises RequestError for what has no such
    form: look-around, a word's edge, a reference to a group, an anchor in mid-pattern."""
    ways = [_anchored(way, pattern, param) for way in _ways(_parts(pattern))]
    return ways[0] if len(ways) == 1 else "|".join(f"(?:{way})" for way in ways)


def _parts(pattern: str) -> list[str]:
    """In the library's words, a class or what else is one character, or none, each."""
    tokens: list[str] = _TOKEN.findall(pattern)
    made: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token == "[":
            end = next((index for index in range(at + 1, len(tokens)) if tokens[index] == "]"), None)
            if end is None:
                return tokens
            made.append(_class(tokens[at + 1 : end]))
            at = end
        else:
            made.append(_outside(token))
        at += 1
    return made


def _ways(parts: Sequence[str]) -> Iterator[list[str]]:
    """The alternatives at its top."""
    depth = 0
    way: list[str] = []
    for part in parts:
        depth += (part == "(") - (part == ")")
        if part == "|" and not depth:
            yield way
            way = []
        else:
            way.append(part)
    yield way


def _anchored(parts: list[str], pattern: str, param: str) -> str:
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    inner = parts[begins : len(parts) - ends]
    for at, part in enumerate(inner):
        look = _LOOKS.match("".join(inner[at : at + 4])) if part == "(" else None
        if look is not None or part in ("^", "$", "\\b", "\\B") or (part[0] == "\\" and part[1:].isdigit()):
            found = part if look is None else look[0]
            raise Unheld(param, f"{found} in the pattern {pattern!r} cannot be held to in this format")
    anything = "(?s:.*)"
    return f"{'' if begins else anything}(?:{''.join(inner)}){'' if ends else anything}"


def quoted(text: str) -> str:
    """An expression of this text."""
    return "".join(map(_char, map(ord, text)))


# --- all texts but some ---------------------------------------------------------------------------------------------

_Trie: TypeAlias = dict[str, "_Trie"]


def others(names: Collection[str]) -> str:
    """What every text matches but these; empty where they are too long, all together."""
    return f"^{unlike(names)}$" if sum(len(name) * len(name) for name in names) <= LONGEST else ""


def unlike(words: Iterable[str], firsts: str = "") -> str:
    """Of whole texts that are none of ``words``, and have none of the characters ``firsts``, as ``quoted`` has them."""
    root: _Trie = {}
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}  # a word ends
    return _other(root, firsts)


def _other(node: _Trie, firsts: str) -> str:
    ways = [f"{none_of((char for char in node if char), firsts)}{none_of((), firsts)}*"]
    ways += [f"{quoted(char)}{_other(then, firsts)}" for char, then in node.items() if char]
    return f"(?:{'|'.join(ways)})" + ("" if "" in node else "?")


def none_of(chars: Iterable[str], firsts: str = "") -> str:
    """One character, and none of these."""
    return f"[^\\x01{firsts}{''.join(map(quoted, sorted(set(chars))))}]"


# --- characters and classes -----------------------------------------------------------------------------------------


def _outside(token: str) -> str:
    if token == ".":
        return _DOT
    if token in ("\\<", "\\>"):
        return token[1]
    if token in _SETS:
        return _SETS[token]
    if token[:2] in ("\\p", "\\P") and len(token) > 2:
        return f"[{token}--\\x01]"
    code = _code(token)
    if code == _LEFT_OUT:
        return _NONE
    return token if code is None or (len(token) <= 2 and token[1:] != "0") else _char(code)


def _class(tokens: Sequence[str]) -> str:
    negated = bool(tokens) and tokens[0] == "^"
    inner = tokens[1:] if negated else tokens
    made: list[str] = []
    at = 0
    while at < len(inner):
        first = _inside(inner[at])
        last = _inside(inner[at + 2]) if inner[at + 1 : at + 2] == ["-"] and at + 2 < len(inner) else None
        if first is None or last is None:
            made.append(_part(inner[at]) if first is None else _range(first, first))
            at += 1
        else:
            made.append(_range(first, last))
            at += 3
    parts = "".join(made)
    if negated:
        return f"[^\\x01{parts}]" if inner else _ANY
    return f"[{parts}]" if parts else _NONE


def _part(token: str) -> str:
    """A set inside of a class."""
    if token[:2] in ("\\p", "\\P"):
        return f"[{token}--\\x01]"
    found = _SETS.get(token, token)
    return found[1:-1] if token in ("\\s", "\\d", "\\w") else found


def _range(first: int, last: int) -> str:
    if first == last:
        return "" if first == _LEFT_OUT else _char(first)
    if not first <= _LEFT_OUT <= last:
        return f"{_char(first)}-{_char(last)}"
    low = "" if first == _LEFT_OUT else _char(0)
    return low if last == _LEFT_OUT else f"{low}{_char(_LEFT_OUT + 1)}-{_char(last)}"


def _inside(token: str) -> int | None:
    """The character that a token is in a class; None: it is a set, or nothing that is known."""
    if token == "\\b":
        return 8
    code = _code(token)
    if code is None and len(token) == 2 and not token[1].isalnum():
        return ord(token[1])
    return code


def _code(token: str) -> int | None:
    """The character that a token is, where that is written as itself or by its number."""
    if len(token) == 1:
        return ord(token)
    if token in _CONTROLS:
        return _CONTROLS[token]
    digits = token[2:].strip("{}")
    if token.count("\\u") == 2:
        high, low = int(token[2:6], 16), int(token[8:], 16)
        return 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00
    if len(token) > 3 and token[1] in "xu":
        return int(digits, 16)
    return ord(digits) % 32 if len(token) == 3 and token[1] == "c" else None


def _char(code: int) -> str:
    """A character, as it may stand anywhere."""
    char = chr(code) if code < 0x110000 else ""
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"
