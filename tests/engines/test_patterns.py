"""Patterns of JSON Schema in the library's words, and what is written that matches them."""

from __future__ import annotations

import json
import re

import jsonschema_rs
import pytest

from stages.errors import RequestError
from stages.grammar import Json
from stages.parse.spellings.patterns import LONGEST, others, translated
from tests.support.constrained import Vocabulary

TEXTS = Vocabulary()
SPACE = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        (r"^a\d{3}-\w+$", "^a[0-9]{3}-[A-Za-z0-9_]+$"),
        (r"\D[\W]", "[^0-9][[^A-Za-z0-9_]]"),
        ("[^a]", r"[^\x01a]"),
        (r"\[^a", r"\[^a"),
        (r"\\[^a]", r"\\[^\x01a]"),
        ("^[a^]$", r"^[a\x{5e}]$"),
        ("a.b", r"a[^\n\r\x{2028}\x{2029}]b"),
        (r"\s\S", f"[{SPACE}][^{SPACE}]"),
        (r"[\s\S\w]", f"[{SPACE}[^{SPACE}]A-Za-z0-9_]"),
        (r"[\x00-!\x01]", r"[\x{0}\x{2}-\x{21}]"),
        (r"[\x01-\x02]|[\x00-\x01]|[\x01]", r"[\x{2}-\x{2}]|[\x{0}]|[^\s\S]"),
        ("\\cA|\\x01|\\u{1}|\\u0001|\x01", "|".join([r"[^\s\S]"] * 5)),
        (r"\p{L}[\P{L}a]", r"[\p{L}--\x01][[\P{L}--\x01]a]"),
        # Ordinary in a class of ECMA-262, operators in one of Rust.
        ("[&&~~[-]", r"[\x{26}\x{26}\x{7e}\x{7e}\x{5b}\x{2d}]"),
        (r"[\w-.]", r"[A-Za-z0-9_\x{2d}\x{2e}]"),
        (r"[+--][\]\-\b]", r"[\x{2b}-\x{2d}][\x{5d}\x{2d}\x{8}]"),
        (r"\uD83D\uDE00[\uD83D\uDE00-\u{1F64F}]", r"\x{1f600}[\x{1f600}-\x{1f64f}]"),
        (r"\0\cJ\<\/", r"\x{0}\x{a}<\/"),
        ("[^]a[]", r"[\s\S]a[^\s\S]"),
        ("[abc", "[abc"),
    ],
)
def test_translated(pattern: str, want: str) -> None:
    assert translated(pattern) == want


@pytest.mark.parametrize("names", [["a"], ["a", "ab", ""], ['"', "\\", "\n", "^", "é"], ["ab", "cd"]])
def test_all_names_but_these(names: list[str]) -> None:
    plain = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), others(names))
    pattern = re.compile(plain.replace("$", r"\Z"))  # Python's $ is also before a newline
    for text in ("", "a", "ab", "aba", "b", "c", "cd", "cdx", '"', '"x', "\\", "\n", "\n\n", "^", "é"):
        assert bool(pattern.search(text)) is (text not in names)


def test_names_that_are_too_many() -> None:
    assert others(["a" * 100]) != ""
    assert others(["a" * (LONGEST // 100)]) == ""
    assert others([f"name {number}" for number in range(1000)]) == ""


CHARS = (
    '"', "\\", "\n", "\r", "\t", "\x00", "\x02", "\x1f", "\x7f", "\x85", "\xa0", "\ufeff", "\u2028", "/", "é", "😀",
    "a", "[", "&", "-",
)  # fmt: skip


def taken(pattern: str) -> list[str]:
    """The characters that may be written. Control characters are written by their number."""
    begin = TEXTS.grammars.compiled(Json({"type": "string", "pattern": pattern}, "x"))
    spelt = {char: json.dumps(char, ensure_ascii=False).replace("\x7f", "\\u007f") for char in CHARS}
    return [char for char in CHARS if TEXTS.takes(begin(), spelt[char])]


@pytest.mark.parametrize(
    "pattern",
    [
        '^[^"]$', r"^[^\\]$", '^(x|[^,"\\\\])$', r"^\s$", r"^\S$", r"^\D$", r"^\W$", r"^[^\d\s]$", r"^[\s\S]$",
        # Classes with all control characters, by themselves or put together.
        r"^[\x00-!#-\uffff]$", r"^[\x00-\x1f]$", r"^([\x00-\x0f]|[\x10-\x1f])$", r"^\p{Cc}$", r"^\P{P}$",
        '^([^"]|\\x01)$', r"^[^\S]$", "^[&-]$", r"^[\[&\-]$", "^[^&[]$", r"^\/$", r"^[^\P{Cc}]$",
    ],
)  # fmt: skip
def test_what_is_written_matches(pattern: str) -> None:
    """And the other way round: nothing that matches is lost."""
    valid = jsonschema_rs.validator_for({"pattern": pattern})
    assert taken(pattern) == [char for char in CHARS if valid.is_valid(char)]


def test_a_dot_is_no_end_of_a_line() -> None:
    assert taken("^.$") == [char for char in CHARS if char not in "\n\r\u2028"]


@pytest.mark.parametrize("pattern", ["(?=a)", r"\bfoo", "[abc", "a{,2}", "(a", r"^\u{ffffffff}$", r"^\ud800$"])
def test_what_is_no_pattern_or_none_of_the_librarys_is_refused(pattern: str) -> None:
    with pytest.raises(RequestError):
        TEXTS.grammars.compiled(Json({"type": "string", "pattern": pattern}, "x"))
