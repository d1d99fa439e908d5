"""What a call engine stands on."""

from __future__ import annotations

from stages.parse.lexicon import Lexicon
from stages.parse.types import Tools
from stages.parse.writer import Writer


class Site:
    """One choice's writer, the request's tools, and how the format's literals read.

    ``lexicon`` changes once, when the first step tells whether there are ids: engines ask for their scans in ``begin``
    and when they are restored. ``ended``: the model itself ended its output (nothing cut it off).
    """

    __slots__ = ("ended", "lexicon", "tools", "writer")

    def __init__(self, writer: Writer, tools: Tools, lexicon: Lexicon) -> None:
        self.writer = writer
        self.tools = tools
        self.lexicon = lexicon
        self.ended = False
