"""Text that an engine has consumed and that no event was made of yet."""

from __future__ import annotations

from stages.parse import arguments as js
from stages.parse.writer import Writer


class Taken:
    """``pend``: the text, in pieces; ``pend_start``: its first byte. Its range ends where the writer stands."""

    __slots__ = ("pend", "pend_start", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.pend: list[str] = []
        self.pend_start = 0

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self.pend_start if self.pend else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "".join(self.pend), self.since

    def take(self, text: str) -> None:
        """Consume what an event will be made of."""
        if not self.pend:
            self.pend_start = self.writer.pos
        self.pend.append(text)
        self.writer.take(text)

    def structure(self, text: str) -> None:
        """Consume structure; in the middle of what was taken it is part of that."""
        if self.pend:
            self.take(text)
        else:
            self.writer.marker(text)

    def space(self, text: str, i: int) -> int:
        """Consume white space."""
        j = js.space(text, i)
        if j > i:
            self.structure(text[i:j])
        return j

    def give(self, json: str) -> None:
        """What was taken stands for this JSON."""
        self.writer.arguments_at(json, (self.since, self.writer.pos))
        self.pend.clear()
