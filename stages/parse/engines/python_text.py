"""Escapes and numbers as Python writes them."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from stages.parse.literals import number_text

_ESCAPE: Final = re.compile(
    r"""\\(?: (?P<char>[\\'"abfnrtv]) | (?P<octal>[0-7]{1,3}) | x(?P<byte>[0-9a-fA-F]{2})
      | u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})
      | u(?P<short>[0-9a-fA-F]{4}) | U(?P<long>[0-9a-fA-F]{8}) | N\{(?P<name>[^{}'"\\\n]{1,88})\}
      | (?P<nothing>\r?\n|\r) )""",
    re.VERBOSE,
)
_CUT: Final = re.compile(
    r"""\\(?: [0-7]{0,2} | x[0-9a-fA-F]? | u[0-9a-fA-F]{0,3} | u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?
      | U[0-9a-fA-F]{0,7} | N(?:\{[^{}'"\\\n]{0,88})? | \r )\Z""",
    re.VERBOSE,
)
_CHARS: Final = {
    "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_BASED: Final = re.compile(r"-?0(?:[xX](?:_?[0-9a-fA-F])++|[oO](?:_?[0-7])++|[bB](?:_?[01])++)")
# Groups are not repeated possessively here: up to 3.11.3 Python ends such a match inside the repeat that failed.
_DIGITS: Final = r"[0-9]++(?:_[0-9]++)*"
_DECIMAL: Final = re.compile(rf"-?(?:{_DIGITS})?(?:\.(?:{_DIGITS})?)?(?:[eE][+-]?{_DIGITS})?")
_LONGEST: Final = 2000
"""Characters of a hexadecimal, octal or binary number: to convert one costs more than it is long."""


def escape(text: str, i: int) -> tuple[str, int] | None:
    r"""What the escape at ``i`` (a backslash) stands for, and its end. The backslash itself where it is no escape.

    None: more is needed. One half of a surrogate pair is U+FFFD.
    """
    if _CUT.match(text, i):
        return None
    match = _ESCAPE.match(text, i)
    value = None if match is None else _value(match)
    return ("\\", i + 1) if match is None or value is None else (value, match.end())


def _value(match: re.Match[str]) -> str | None:
    kind = match.lastgroup or ""
    body = match[kind]
    if kind == "char":
        return _CHARS[body]
    if kind == "nothing":
        return ""
    if kind == "name":
        try:
            return unicodedata.lookup(body)
        except KeyError:
            return None
    if kind == "low":
        return chr(0x10000 + ((int(match["high"], 16) - 0xD800) << 10) + int(body, 16) - 0xDC00)
    code = int(body, 8 if kind == "octal" else 16)
    if code > 0x10FFFF:
        return None
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def number(text: str) -> str | None:
    """A number as JSON; None if it is none, or has no end."""
    if _BASED.fullmatch(text):
        return str(int(text, 0)) if len(text) <= _LONGEST else None
    return number_text(text.replace("_", "")) if _DECIMAL.fullmatch(text) else None
