"""Token ids that we asked for and the client did not, taken out of a chat response; nothing else is touched.

``prompt_token_ids`` of the object and ``token_ids`` of its choices go, where they are arrays. What stands in their
place is what the upstream writes when it is not asked for them: ``null``, or (``absent``) not even the key. A key of
that name anywhere else, and text that looks like one, stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

How: TypeAlias = Literal["null", "absent"]

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = frozenset(b" \t\r\n")
_NULL: Final = Raw(b"null")
_OPEN: Final = b"{"[0]
_KEY: Final = re.compile(rb'(?<!\\)"(?:prompt_)?token_ids"[ \t\r\n]*+:[ \t\r\n]*+(\[[^\[\]{}"]*+\])')
"""In JSON a quote behind no backslash begins or ends a string, and what follows an end is never a letter."""
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}:,]', re.DOTALL)
_BLANK: Final = re.compile(rb"[ \t\r\n]*+")


class _Choice(msgspec.Struct, gc=False):
    delta: Raw = _NULL
    logprobs: Raw = _NULL
    finish_reason: Raw = _NULL
    token_ids: Raw = _NULL


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    prompt_token_ids: Raw = _NULL


_NOTHING: Final = _Chunk()
_read: Final = msgspec.json.Decoder(_Chunk).decode


class _Place(NamedTuple):
    """Where a key with its value is: half-open, the value to the end."""

    start: int
    value: int
    end: int


def without_ids(block: bytes, how: How) -> bytes | None:
    """A block of an event stream without the ids; itself where it has none; None where it is there for them only: its
    choices say nothing and go on."""
    count = block.count(b"token_ids")
    if not count:
        return block
    text = block
    try:
        chunk = _read(block[5:] if block.startswith(b"data:") else b"")
    except (ValueError, RecursionError):
        # More than one line of data, or other fields.
        text = _data_of(block)
        chunk = _chunk(text)
    choices = chunk.choices
    for choice in choices:
        # The delta first: it is what most of them have.
        if not _is_empty(choice.delta) or choice.finish_reason != _NULL or choice.logprobs != _NULL:
            break
    else:
        if choices:
            return None
    if count == 1 and len(choices) == 1:
        # Most blocks of most streams: the one place is the choice's.
        ids = bytes(choices[0].token_ids)
        if ids.startswith(b"["):
            made = block.replace(b',"token_ids":' + ids, b',"token_ids":null' if how == "null" else b"")
            if len(made) != len(block):
                return made
    return _cut(block, text, chunk, how)


def body_without_ids(body: bytes, how: How) -> bytes:
    """The body of a whole answer without the ids."""
    return _cut(body, body, _chunk(body), how) if b"token_ids" in body else body


def _is_empty(delta: Raw) -> bool:
    text = bytes(delta)
    return text == b"{}" or (text[0] == _OPEN and not text[1:-1].strip())


def _chunk(text: bytes) -> _Chunk:
    """What is told in it; nothing where it is no such object."""
    try:
        return _read(text)
    except (ValueError, RecursionError):
        return _NOTHING


def _data_of(block: bytes) -> bytes:
    """The block's data, each byte where it is in the block, and spaces where there is something else."""
    text = bytearray(b" " * len(block))
    at = len(_BOM) if block.startswith(_BOM) else 0
    for line in block[at:].splitlines(keepends=True):
        if line.startswith(b"data:"):
            text[at + 5 : at + len(line)] = line[5:]
        at += len(line)
    return bytes(text)


# --- where they are ---------------------------------------------------------------------------------------------------


def _cut(data: bytes, text: bytes, chunk: _Chunk, how: How) -> bytes:
    """``data``, whose JSON is ``text``, without what it has of ids. ``chunk``: what the JSON tells, if it is some."""
    places = [_Place(found.start(), found.start(1), found.end()) for found in _KEY.finditer(text)]
    told = [bytes(raw) for raw in (chunk.prompt_token_ids, *(choice.token_ids for choice in chunk.choices))]
    told = [value for value in told if value.startswith(b"[")]
    if sorted(text[place.value : place.end] for place in places) != sorted(told):
        # Others have keys of this name too, or it is no JSON throughout.
        places = list(_places(text))
    parts: list[bytes] = []
    done = 0
    for place in places:
        start, end = (place.value, place.end) if how == "null" else _with_comma(text, place)
        parts += (data[done:start], b"null" if how == "null" else b"")
        done = max(done, end)
    return b"".join((*parts, data[done:])) if parts else data


def _with_comma(text: bytes, place: _Place) -> tuple[int, int]:
    """The place of a key with the comma that goes with it: the one before it, or, of a first key, the one behind it."""
    before = _back(text, place.start)
    if text[before - 1 : before] == b",":
        return before - 1, place.end
    behind = _on(text, place.end)
    return place.start, _on(text, behind + 1) if text[behind : behind + 1] == b"," else place.end


def _on(text: bytes, at: int) -> int:
    """The first place from ``at`` on that is no white space."""
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _back(text: bytes, at: int) -> int:
    """The first place before ``at`` that has only white space between."""
    while at and text[at - 1] in _SPACE:
        at -= 1
    return at


def _places(text: bytes) -> Iterator[_Place]:
    """The places of the keys, told by the structure around them. Total on what is no JSON."""
    open_: list[bytes] = []
    names: list[bytes] = [b""]  # the last string of each level: a key, once a colon follows
    start = value = level = 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in (b",", b"}", b"]"):
            if value and len(open_) == level:
                if text[value : value + 1] == b"[":
                    yield _Place(start, value, _back(text, found.start()))
                value = 0
            if token != b"," and open_:
                open_.pop()
                names.pop()
        elif token in (b"{", b"["):
            open_.append(token)
            names.append(b"")
        elif token != b":":
            names[-1] = token
            start = start if value else found.start()
        elif not value and _is_ours(open_, names):
            value = _on(text, found.end())
            level = len(open_)


def _is_ours(open_: list[bytes], names: list[bytes]) -> bool:
    if len(open_) == 1:
        return open_[0] == b"{" and names[1] == b'"prompt_token_ids"'
    return open_ == [b"{", b"[", b"{"] and names[1] == b'"choices"' and names[3] == b'"token_ids"'
