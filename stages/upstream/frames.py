"""Bytes → frames: an event stream is cut at its blank lines, as the WHATWG HTML Standard defines lines.

A line ends with LF, CR LF, or CR; a blank line ends a block. Nothing is changed or lost: the frames' bytes are what was
read.

    block with its blank line                Block; Comment if all of its lines are comments
    blank lines where no block is open       Comment: some servers send them to keep a connection alive
    a block of more than ``most`` bytes      Blocks without a blank line, until its own comes
    what the end leaves unfinished           Block without a blank line

A frame comes out with the byte that completes its blank line. Where that is a CR at the end of a read, a LF that
follows is the first byte of the next frame: the line has ended without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from stages.events import Block, Comment

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(?:\r\n|\r|\n)")
_ONE: Final = re.compile(rb"\r\n|\r|\n")
_RUN: Final = re.compile(rb"[\r\n]+")
_SPECIAL: Final = frozenset(b":\r\n\xef")
"""First bytes of a block that may have nothing but comments."""
_ENDS: Final = (b"\n\n", b"\n\r", b"\r\r", b"\n\r\n", b"\r\r\n")


def is_complete(data: bytes) -> bool:
    """A frame's bytes end with a blank line."""
    return data.endswith(_ENDS)


def is_event_stream(headers: Iterable[tuple[str, str]]) -> bool:
    """A response with these headers (lower-case names) is an event stream: it is to be cut."""
    return media_type(headers) == "text/event-stream"


def is_encoded(headers: Iterable[tuple[str, str]]) -> bool:
    """The body of a response with these headers is compressed: it is not to be looked into."""
    return _value(headers, "content-encoding").lower() not in ("", "identity")


def media_type(headers: Iterable[tuple[str, str]]) -> str:
    """The media type of a response with these headers, in lower case; empty where they name none."""
    return _value(headers, "content-type").partition(";")[0].strip().lower()


def _value(headers: Iterable[tuple[str, str]], wanted: str) -> str:
    return next((value.strip() for name, value in headers if name == wanted), "")


class _At(IntEnum):
    """Where what was read ends: no block is open; inside a line; behind a line of a block."""

    START = 0
    INSIDE = 1
    BEHIND = 2


class FrameSplitter:
    """Cuts one response body. Linear in its size, however it is cut into reads."""

    def __init__(self, most: int = 4 << 20) -> None:
        """``most``: bytes held; more of a block are passed on without waiting for its blank line."""
        self._most = most
        self._held = bytearray()
        self._at = _At.START
        self._after_cr = False
        self._begun = False
        """Whether the stream begins with a byte order mark has been seen."""
        self._first = True
        self._between = False
        """Nothing of a block or of a line end was read yet, and the beginning of the stream was."""
        self._parted = False
        """The beginning of the open block has been passed on."""

    def feed(self, data: bytes) -> list[Block | Comment]:
        """The frames that ``data`` completes."""
        if not self._between or b"\r" in data:
            return self._any(data)
        # Most reads of most streams are one whole block, or a few.
        end = data.find(b"\n\n") + 2
        if end == len(data) > 1 and data[0] not in _SPECIAL:
            return [Block(data)]
        frames: list[Block | Comment] = []
        start = 0
        while end > 1 and data[start] not in _SPECIAL:
            frames.append(Block(data[start:end]))
            start = end
            end = data.find(b"\n\n", start) + 2
        return frames + self._any(data[start:]) if start < len(data) else frames

    def end(self) -> list[Block | Comment]:
        """What the end of the body leaves; nothing may be fed after it."""
        held = bytes(self._held)
        self._held.clear()
        if not held:
            return []
        return [Comment(held) if self._at is _At.START else Block(held)]

    def _any(self, data: bytes) -> list[Block | Comment]:
        """``feed``, whatever came before."""
        frames: list[Block | Comment] = []
        if not self._begun:
            data = bytes(self._held) + data
            self._held.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._held += data
                return frames
        if data:
            rest = self._cut(data, frames)
            self._begun = True
            self._held += data[rest:]
            if len(self._held) > self._most:
                self._parted = True
                frames.append(Block(bytes(self._held)))
                self._held.clear()
            self._between = not (self._held or self._at or self._after_cr)
        return frames

    def _cut(self, data: bytes, frames: list[Block | Comment]) -> int:
        """Append the frames that ``data``, not empty, completes; where the rest of it begins."""
        start = 0
        at = 1 if self._after_cr and data.startswith(b"\n") else 0
        if not self._begun and data.startswith(_BOM):
            at = len(_BOM)
        self._after_cr = data.endswith(b"\r")
        while at < len(data):
            if self._at is _At.INSIDE:
                found = _BLANK.search(data, at)
                if found is None:
                    self._at = _At.BEHIND if data.endswith((b"\r", b"\n")) else _At.INSIDE
                    break
            else:
                found = (_RUN if self._at is _At.START else _ONE).match(data, at)
                if found is None:
                    self._at = _At.INSIDE
                    continue
            at = found.end()
            frames.append(self._frame(data[start:at]))
            start = at
        return start

    def _frame(self, data: bytes) -> Block | Comment:
        """The frame that ends with ``data``."""
        if self._held:
            data = bytes(self._held) + data
            self._held.clear()
        block = self._at is not _At.START and (self._parted or self._tells(data))
        self._at = _At.START
        self._parted = self._first = False
        return Block(data) if block else Comment(data)

    def _tells(self, data: bytes) -> bool:
        """A line of the block is no comment."""
        if data[0] not in _SPECIAL:
            return True
        if self._first:
            data = data.removeprefix(_BOM)
        return not all(line.startswith(b":") for line in data.splitlines() if line)
