"""Values as models write them where a format has no types of its own: JSON text out of JSON, numbers, Python displays.

Each function gives JSON text, or None where the text is not what it reads. What is JSON already stays as it is. All are
linear, and use no stack however deep the text nests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isfinite
from typing import Final, NoReturn

from stages.parse.arguments import value_text
from stages.parse.text import OUT

PLAIN: Final[Callable[[str], re.Match[str] | None]] = re.compile(r'["\\\x00-\x1f]').search
"""Finds the first character that ``quoted`` would change."""


WHITE: Final = " \t\r\n"
"""JSON's white space."""


def quoted(text: str) -> str:
    r"""Text as the inside of a JSON string: ``"``, ``\`` and control characters escaped, all else as it is."""
    return text if PLAIN(text) is None else json.dumps(text, ensure_ascii=False)[1:-1]


# --- JSON -----------------------------------------------------------------------------------------------------------


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and Infinity


# Numbers stay text: a long one would cost much, or pass the limit of int().
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_SKIPPED: Final = re.compile(f"[{OUT}]").search


def json_text(text: str) -> str | None:
    """``text``, which has no white space around it, if it is JSON; raw control characters in its strings escaped."""
    if text[:1] in "-0123456789":
        return text if number_text(text) == text else None
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        # White space for the scanner is not always white space for a reader of JSON.
        return value_text(text) if _SKIPPED(text) is None else None
    return text


def guessed(raw: str) -> str:
    """The JSON text of a value of which no schema speaks: itself where it is JSON, else a string."""
    return json_text(raw.strip(WHITE)) or f'"{quoted(raw)}"'


# --- numbers --------------------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eE][+-]?[0-9]++)?")


def number_text(text: str) -> str | None:
    """A number as JSON: no plus sign, no leading zeros, digits on both sides of the point; infinite ones are none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    whole, fraction, exponent = match[2], match[3], match[4]
    if not whole and not fraction:
        return None
    sign = "-" if match[1] == "-" else ""
    whole = whole.lstrip("0") or "0"
    if fraction is None and exponent is None:
        return sign + whole
    if not isfinite(float(text)):
        return None
    return f"{sign}{whole}{'' if fraction is None else '.' + (fraction or '0')}{exponent or ''}"


def integer_text(text: str) -> str | None:
    """The same for a whole number; ``5.0`` is ``5``."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    if match[4] is None and not (match[3] or "").strip("0"):
        return ("-" if match[1] == "-" else "") + (match[2].lstrip("0") or "0")
    value = float(text)
    if not value.is_integer() or abs(value) >= 1 << 53:
        return None
    # Rounded: whole only if no digit stands behind the point.
    exponent = match[4] or ""
    point = len(match[2]) + int(exponent[1:] or "0") if len(exponent) < 8 else 0
    behind = f"{match[2]}{match[3] or ''}"[max(point, 0) :]
    return None if behind.strip("0") else str(int(value))


# --- Python ---------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""[ \t\r\n\f]*+(?:
        (?P<mark>[\[\]{}:,])
      | '(?P<one>(?:[^'\\]++|\\.)*+)'
      | "(?P<two>(?:[^"\\]++|\\.)*+)"
      | (?P<word>[A-Za-z]++)
      | (?P<number>[-+0-9.][-+0-9.eE]*+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PIECE: Final = re.compile(
    r"""([^\\]++) | \\(?: ([0-7]{1,3}+) | x([0-9a-fA-F]{2}) | u([0-9a-fA-F]{4}) | U([0-9a-fA-F]{8}) | ([^xuUN0-7]) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = {
    "a": r"\u0007", "b": r"\b", "f": r"\f", "n": r"\n", "r": r"\r", "t": r"\t", "v": r"\u000b", "\\": r"\\",
    "'": "'", '"': r"\"", "\n": "",
}  # fmt: skip
_WORDS: Final = {
    "None": "null", "True": "true", "False": "false", "null": "null", "true": "true", "false": "false",
}  # fmt: skip
_CLOSES: Final = {"{": "}", "[": "]"}

# What may come next: the first of a display or its end; behind a comma, the same; a colon; a value; a comma or the end.
_FIRST, _MORE, _COLON, _VALUE, _NEXT, _WRONG = range(6)


def python_text(text: str) -> str | None:
    """A Python dict or list display of JSON values, as ``repr`` writes it; trailing commas are allowed."""
    out: list[str] = []
    stack: list[str] = []
    state = _VALUE if text[:1] in _CLOSES else _WRONG
    at = 0
    while state != _WRONG and (stack or not out):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        state = _step(match, state, stack, out)
    return None if state == _WRONG or text[at:].strip() else "".join(out)


def _step(match: re.Match[str], state: int, stack: list[str], out: list[str]) -> int:
    kind = match.lastgroup or ""
    token = match[kind]
    opens = kind == "mark" and token in _CLOSES
    if kind == "mark" and not opens:
        return _mark(token, state, stack, out)
    if state in (_COLON, _NEXT):
        return _WRONG
    if state == _MORE:
        out.append(", ")
    key = state != _VALUE and stack[-1] == "{"
    if opens:
        out.append(token)
        stack.append(token)
        return _WRONG if key else _FIRST
    value = _WORDS.get(token) if kind == "word" else number_text(token) if kind == "number" else _text(token)
    if value is None or (key and kind == "word"):
        return _WRONG
    out.append(f'"{value}"' if key and kind == "number" else value)
    return _COLON if key else _NEXT


def _mark(token: str, state: int, stack: list[str], out: list[str]) -> int:
    if token == ",":
        return _MORE if state == _NEXT else _WRONG
    if token == ":":
        out.append(": ")
        return _VALUE if state == _COLON else _WRONG
    if state not in (_FIRST, _MORE, _NEXT) or _CLOSES[stack.pop()] != token:
        return _WRONG
    out.append(token)
    return _NEXT


def _text(body: str) -> str | None:
    """A string literal's inside as a JSON string."""
    if "\\" not in body:
        return f'"{quoted(body)}"'
    done = ['"']
    at = 0
    for match in _PIECE.finditer(body):
        if match.start() != at:
            return None
        at = match.end()
        plain, octal, byte, short, long, char = match.groups()
        if plain is not None:
            done.append(quoted(plain))
        elif char is not None:
            done.append(_ESCAPED.get(char) or ("" if char == "\n" else quoted("\\" + char)))
        else:
            code = int(octal, 8) if octal else int(byte or short or long, 16)
            if code > 0x10FFFF:
                return None
            # Two halves make one character in JSON too.
            done.append(f"\\u{code:04x}" if 0xD800 <= code < 0xE000 else quoted(chr(code)))
    return f'{"".join(done)}"' if at == len(body) else None
