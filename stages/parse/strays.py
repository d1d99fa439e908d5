"""Stray markers: tokens of the format that mean nothing where they stand. They are text, and are reported."""

from __future__ import annotations

from stages.events import FaultCode
from stages.parse.held import Held


class Strays(Held):
    """Text that may have such tokens in it. A choice has one report: of a call that was taken back, all is text."""

    __slots__ = ()

    def _plain(self, text: str) -> None:
        """No marker of this mode is in the text. One of another mode is reported, where nothing was before: of a call
        that was taken back all the rest is text."""
        strayed = self.scan.strayed
        if strayed is None or self.writer.faulted:
            self._text(text)
            return
        before, self.sent = self.sent, ""
        match = strayed.search(before + text)
        if match is None or match.lastindex is None:
            self.sent = "" if match is None else match.group()
            self._text(text)
            return
        end = match.end() - len(before)
        self._text(text[:end])
        self._stray(match.group())
        if end < len(text):
            self._text(text[end:])

    def _stray(self, found: str, behind: int = 0) -> None:
        """Report it, where nothing was before, and where it is a token: letters are no news. ``behind``: bytes that
        were sent after it."""
        literal = self.reading.tokens.get(found)
        if literal is not None and not self.writer.faulted:
            end = self.writer.pos - behind
            src = end - self.writer.size(found), end
            self.writer.fault(FaultCode.STRAY_MARKER, src, detail=f"{literal} is text here")

    def _strays(self, sent: str) -> None:
        """The same of the first one in what was sent with what surrounds it; white space at its end may be held."""
        if self.writer.faulted:
            return
        places = [(sent.index(form), form) for form in self.reading.tokens if form in sent]
        if places:
            at, form = min(places)
            held = sum(map(self.writer.size, self.space))
            self._stray(form, self.writer.size(sent[at + len(form) :]) - held)
