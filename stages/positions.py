"""Positions: the number of an event in a stream, from 1 on; comments do not count, nor does the head. And ids: a
position on the wire, for a client that asks for it. The record has none: they are put in where it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stages.events import Block, Comment, Frame, Head
from stages.upstream.frames import is_complete

_LEAD = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*")
"""What may stand before a block's first line: a mark of byte order, the second half of a line end."""
_ID_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))id(?::[^\r\n]*)?(?:\r\n|\r|\n)")


class Positions:
    """Counts the events of a stream by its blocks. Another server's may be cut into several blocks, of which only the
    last has the blank line."""

    def __init__(self, n: int = 0) -> None:
        self.n = n
        """Events that are whole."""
        self._open = b""

    def take(self, block: Block) -> bool:
        """The next block. Whether it is the first of its event."""
        first = not self._open
        if is_complete(self._open + block.data):
            self.n += 1
            self._open = b""
        else:
            self._open = (self._open + block.data)[-2:]
        return first

    def behind(self, n: int, frames: Sequence[Frame], *, plain: bool) -> list[Frame]:
        """Take frames, of which none is a comment, until so many events are whole: those that follow. ``plain``: each
        is a whole event, so that none needs to be looked at."""
        if plain:
            at = min(n - self.n, len(frames))
            self.n += at
            return list(frames[at:])
        for at, frame in enumerate(frames):
            if self.n == n:
                return list(frames[at:])
            if isinstance(frame, Block):
                self.take(frame)
        return []

    def with_ids(self, frames: Iterable[Frame]) -> list[bytes]:
        """The bytes of frames, without heads; each event has its position as its id, in place of any that it had."""
        made: list[bytes] = []
        for frame in frames:
            match frame:
                case Block(data=data):
                    position = self.n + 1
                    made.append(_with_id(data, position) if self.take(frame) else data)
                case Comment(data=data):
                    # As one line without its blank line: to some clients any blank line behind an id ends an event.
                    made.append(data.strip(b"\r\n") + b"\n" if data.strip(b"\r\n") else b"")
                case Head():
                    pass
                case _:
                    made.append(frame.data)
        return made


def _with_id(data: bytes, position: int) -> bytes:
    lead = _LEAD.match(data)
    end = lead.end() if lead else 0
    return b"%bid: %d\n%b" % (data[:end], position, _ID_LINE.sub(b"", data[end:]))
