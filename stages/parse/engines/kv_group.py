"""A section of key/value calls that stands or falls as a whole.

The section is read by ``kv_tags``, strictly, on a writer of its own. When its end has come, every name is a tool's and
no call has a key twice, it is read again in earnest; else all of it is content. Nothing goes out before that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

from stages.events import CallArguments, CallStart, FaultCode, Semantic
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, REPAIR, SPOILED
from stages.parse.engines.kv_table import KvTags
from stages.parse.engines.kv_tags import KvCalls
from stages.parse.site import Site
from stages.parse.writer import Writer, WriterState

_STEP: Final = 64
"""Characters that are read again at a time."""


class KvGroupState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    size: int
    trial: bytes
    writer: WriterState
    events: tuple[Semantic, ...]


class KvGroup:
    """See CallEngine."""

    __slots__ = ("_size", "_tags", "_trial", "_writer", "code", "seen", "site", "verdict", "writer")

    def __init__(self, site: Site, tags: KvTags) -> None:
        self.site = site
        self.writer = site.writer
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.seen = False
        self._tags = tags
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        # Nothing is committed there until a call is whole.
        self._writer = Writer(0, "", True, self.writer.alphabet)
        self._writer.begin()
        self._trial = KvCalls(Site(self._writer, self.site.tools, self.site.lexicon), self._tags, strict=True)
        self._trial.begin(opener, guarded)
        self._size = 0

    @property
    def state(self) -> str:
        """See CallEngine."""
        return f"trial: {self._trial.state}"

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return True

    @property
    def sure(self) -> bool:
        """See CallEngine."""
        return self._trial.sure

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "", self.writer.pos

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        trial = self._trial
        j = trial.feed(text, i, final)
        if j > i:
            self.writer.take(text[i:j])
            self._size += j - i
        self.verdict, self.code = trial.verdict, trial.code
        if trial.verdict in (LEAVE, REPAIR):
            self.verdict, self.code = BROKEN, FaultCode.MALFORMED_CALL
        elif trial.verdict == DONE and self._valid():
            self._read()
        elif trial.verdict == DONE:
            self.verdict, self.code = SPOILED, FaultCode.MALFORMED_CALL
        return j

    def repaired(self) -> None:
        """See CallEngine."""

    def _valid(self) -> bool:
        """Every call is of a tool, and has no key twice."""
        arguments: list[list[str]] = []
        for event in (*self._writer.out, *self._writer.pending):
            if isinstance(event, CallStart):
                if event.name not in self.site.tools.names:
                    return False
                arguments.append([])
            elif isinstance(event, CallArguments):
                arguments[-1].append(event.text)
        return all(map(_distinct, map("".join, arguments)))

    def _read(self) -> None:
        raw = self.writer.rollback()
        section, _ = self._tags.section or ("", "")
        opener = self.site.lexicon.form(section)
        begin = len(raw) - self._size
        self.writer.begin()
        if begin > len(opener):
            self.writer.marker(raw[: begin - len(opener)])
        self.writer.literal(opener)
        engine = KvCalls(self.site, self._tags)
        engine.begin(section, False)
        text = ""
        for i in range(begin, len(raw), _STEP):
            text += raw[i : i + _STEP]
            text = text[engine.feed(text, 0, False) :]

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        writer = self._writer
        return msgspec.msgpack.encode(
            KvGroupState(self._size, self._trial.snapshot(), writer.snapshot(), tuple(writer.out))
        )

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=KvGroupState)
        self.begin("", False)
        self._size = was.size
        self._writer.commit()
        self._writer.restore(was.writer)
        self._writer.out += was.events
        self._trial.restore(was.trial)


def _distinct(arguments: str) -> bool:
    """The object has no key twice (objects inside it may)."""
    try:
        found: bool = json.loads(arguments, object_pairs_hook=_no_key_twice, parse_int=str, parse_float=str)
    except RecursionError:
        return True
    return found


def _no_key_twice(pairs: list[tuple[str, object]]) -> bool:
    return len(dict(pairs)) == len(pairs)
