"""The JSON scanner against the standard library's, in any pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.parse.arguments import BAD, CONTROL, END, JsonScanner, escaped, object_text, string_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
ALPHABET = st.sampled_from([*'{}[]:,"\\ \n0123456789.eE+-tfn', "true", "false", "null", '"a"', "\\n", "\\u00e9", "é"])


def _scan(text: str, cuts: list[int]) -> tuple[int, int]:
    """(status, how far it read) over the pieces that ``cuts`` make."""
    scanner = JsonScanner()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        i = 0
        piece = text[start:end]
        while i < len(piece):
            scanner = JsonScanner(scanner.snapshot())
            i = scanner.feed(piece, i)
            if scanner.status == CONTROL:
                i += 1
            elif scanner.status:
                return scanner.status, start + i
    return scanner.status, len(text)


@given(JSON, st.lists(st.integers(0, 60), max_size=4), st.booleans(), st.booleans())
def test_a_value_ends_where_it_ends(value: Any, cuts: list[int], ascii_only: bool, wide: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if wide else None)
    assert _scan(text + "}", cuts) == (END, len(text))


@given(st.lists(ALPHABET, max_size=12).map("".join), st.lists(st.integers(0, 20), max_size=3))
def test_it_accepts_what_json_accepts(text: str, cuts: list[int]) -> None:
    status, at = _scan(text + "\x00", cuts)
    assert (status, at) == _scan(text + "\x00", [])
    try:
        decoder = json.JSONDecoder(strict=False)
        start = len(text) - len(text.lstrip(" \n"))
        _, end = decoder.raw_decode(text, start)
    except ValueError:
        return
    # The library ends a number before a wrong continuation (1.x, 01); the scanner sees the mistake.
    if status != BAD:
        assert (status, at) == (END, end)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("01", None), ("-x", 1), ("1.x", 2), ("1ex", 2), ("tru]", 3), ('"\\x"', 2), ('"\\u00g0"', 5), ("{,", 1),
        ('{"a" 1', 5), ("[1,]", 3), ('{"a":1,}', 7), ("'", 0), ("NaN", 0), ("]", 0), ("[}", 1), ('{"a":1]', 6),
        ("{1", 1),
    ],
)  # fmt: skip
def test_it_stops_at_the_first_wrong_character(text: str, at: int | None) -> None:
    for cuts in ([], list(range(len(text)))):
        assert _scan(text, cuts) == ((BAD, at) if at is not None else (END, 1))


@pytest.mark.parametrize("text", ["[", '{"a', '{"a": 1', "12", "tr", '"\\', '"\\u00', "[1, 2", "-"])
def test_it_waits_for_the_rest(text: str) -> None:
    assert _scan(text, []) == (0, len(text))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{}", "{}"),
        (' {"a": 1}\n', '{"a": 1}'),
        ('{"a": "x\ny\x00"}', '{"a": "x\\ny\\u0000"}'),
        ('{"a": 1', None),
        ('{"a": 1} x', None),
        ("[]", None),
        ("", None),
        ('"{}"', None),
    ],
)
def test_object_text(text: str, want: str | None) -> None:
    assert object_text(text) == want


@given(st.text())
def test_escapes_and_values(text: str) -> None:
    assert string_value(json.dumps(text)) == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    for char in "\n\t\x00\x1f":
        assert json.loads(f'"{escaped(char)}"') == char


def test_lone_surrogates_become_replacement_characters() -> None:
    assert string_value(r'"a\ud800b\udc00"') == "a�b�"
    assert string_value(r'"\ud83d\ude00"') == "\U0001f600"
