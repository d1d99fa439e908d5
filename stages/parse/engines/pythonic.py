"""Pythonic calls: ``[f(a=1), g()]``.

    list  ::= "[" WS [ call { WS "," WS call } [ "," ] ] WS "]"              (with brackets)
    calls ::= call { [ "," ] WS call }                                       (without)
    call  ::= NAME WS "(" WS [ kwarg { WS "," WS kwarg } [ "," ] ] WS ")"
    kwarg ::= IDENT WS "=" WS value                                          (``python_values``)
    NAME  ::= IDENT { ( "." | "-" ) IDENT }

A block without an opener is a list whose first name is one of an offered tool; else it is an ordinary answer. The name
goes out at its ``(``, a key at its ``=``, the end of the arguments at the ``)``. Behind a call that breaks off reading
goes on where that call ends: its neighbours stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, RESUME
from stages.parse.engines import python_phases as ph
from stages.parse.engines.python_held import PythonState
from stages.parse.engines.python_lost import Lost, PythonLost
from stages.parse.engines.python_quotes import IDENT_RUN, IDENT_START
from stages.parse.literals import quoted
from stages.parse.site import Site
from stages.parse.types import Parameters, Types

_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
_NAME_RUN: Final = re.compile(r"[\w.-]*")
_IDLE: Final = frozenset((ph.BEHIND, ph.NEXT, ph.TAIL, ph.LOST))
_NO_CALL: Final = frozenset((ph.OPEN, ph.FIRST, ph.NAME, ph.PAREN, *_IDLE))


@dataclass(frozen=True, slots=True)
class Pythonic:
    """What a family's lists are like.

    ``brackets``: they have brackets. ``ends``: literals that end a block that has an opener. ``tails``: literals that
    may stand behind one that has none. ``known``: openers behind which, as without one, only a call of an offered tool
    is one. ``loose``: strings are written without escaping. ``coerce``: all values are written as strings; the schema
    tells what they are.
    """

    brackets: bool = True
    ends: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    loose: bool = False
    coerce: bool = False


class PythonicState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    value: PythonState
    seen: bool
    sure: bool
    known: bool
    bare: bool
    guarded: bool
    start: int
    name: str
    key: str
    argued: bool
    used: tuple[str, ...]
    missing: bool
    lost: Lost | None


class PythonicCalls(PythonLost):
    """See CallEngine."""

    __slots__ = (
        "_argued", "_bare", "_guarded", "_key", "_known", "_missing", "_name", "_parameters", "_start", "_tails",
        "_used", "code", "dialect", "seen", "site", "sure",
    )  # fmt: skip

    def __init__(self, site: Site, dialect: Pythonic) -> None:
        super().__init__(site.writer, site.lexicon.scan(*dialect.ends), dialect.loose)
        self.site = site
        self.dialect = dialect
        self.code = FaultCode.MALFORMED_CALL
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._literals()
        self.reset()
        self.phase = ph.OPEN
        self.seen = False
        self.sure = False
        self._bare = not opener
        self._known = self._bare or opener in self.dialect.known
        self._guarded = guarded
        self._missing = False
        self.lost = None
        self._start = 0
        self._call("")

    def _literals(self) -> None:
        self.ends = self.site.lexicon.scan(*self.dialect.ends)
        self._tails = self.site.lexicon.scan(*self.dialect.tails)

    def _call(self, name: str) -> None:
        self._name = name
        self._parameters: Parameters | None = self.site.tools.get(name) if self.dialect.coerce else None
        self._key = ""
        self._argued = False
        self._used: set[str] = set()

    @property
    def state(self) -> str:
        """See CallEngine."""
        return ph.STATES[self.phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self.phase not in _IDLE

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self.finds if self.plain else None

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self.final = final
        self.stuck = False
        while i < n and not self.verdict and not self.stuck:
            i = self._PHASES[self.phase](self, text, i)
        if final and i == n and self.phase == ph.CLOSER:
            i = self.behind_closer(text, i)
        return i

    def fail(self) -> None:
        """The grammar breaks."""
        self.verdict = RESUME if self.seen else BROKEN
        if self.phase not in _NO_CALL:
            self.code = FaultCode.BAD_ARGUMENTS
        elif self.sure or (self.dialect.brackets and self.phase != ph.OPEN):
            self.code = FaultCode.MALFORMED_CALL
        else:
            self.code = FaultCode.STRAY_MARKER

    def repaired(self) -> None:
        """See CallEngine."""
        called = self.phase not in _NO_CALL
        self.lose(called, content=self.writer.whole or not called)

    def coerced(self) -> Types | None:
        """See PythonStrings."""
        if self.stack or self._parameters is None:
            return None
        types = self._parameters.types(self._key)
        return None if "string" in types.kinds else types

    # --- phases -----------------------------------------------------------------------------------------------------

    def _open(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == "[" and self.dialect.brackets:
            self.writer.marker(text[i])
            self.phase = ph.FIRST
            return i + 1
        if IDENT_START.match(text, i) and not self.dialect.brackets:
            self.phase = ph.NAME
        else:
            self.fail()
        return i

    def _first(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        if IDENT_START.match(text, i):
            self.phase = ph.NAME
        elif text[i] == "]" and not self._known and not self._guarded:
            # No calls.
            self.writer.marker(text[i])
            self.writer.commit()
            self.phase = ph.BEHIND
            self.verdict = LEAVE
            return i + 1
        else:
            self.fail()
        return i

    def _named(self, text: str, i: int) -> int:
        if not self.word:
            self._start = self.writer.pos
        match = _NAME_RUN.match(text, i)
        j = match.end() if match else i
        if j > i:
            self.word.append(text[i:j])
            self.writer.take(text[i:j])
        if j < len(text):
            self.phase = ph.PAREN
        return j

    def _paren(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        name = "".join(self.word)
        unknown = self._known and not self.sure and name not in self.site.tools.names
        if text[i] != "(" or unknown or not _NAME.fullmatch(name):
            self.fail()
            return i
        self.word.clear()
        self._call(name)
        self.sure = True
        self.seen = self.seen or not (self._known and self.writer.whole)
        self.writer.call_start(name, (self._start, self._start + len(name.encode())))
        self.writer.marker("(")
        self.phase = ph.ARG
        return i + 1

    def _argument(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == ")":
            self.take(text[i])
            self.closed(text[i])
            return i + 1
        if IDENT_START.match(text, i):
            self.phase = ph.KEY
        else:
            self.fail()
        return i

    def _keyed(self, text: str, i: int) -> int:
        match = IDENT_RUN.match(text, i)
        j = match.end() if match else i
        if j > i:
            self.word.append(text[i:j])
            self.take(text[i:j])
        if j < len(text):
            self.phase = ph.EQUALS
        return j

    def _equals(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        key = "".join(self.word)
        if text[i] != "=" or (self._known and key in self._used):
            self.fail()
            return i
        self.word.clear()
        if self._known:
            self._used.add(key)
        self._key = key
        self.give(f'{", " if self._argued else "{"}"{quoted(key)}": ')
        self._argued = True
        self.writer.marker("=")
        self.phase = ph.VALUE
        return i + 1

    def _after(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        if self.stack:
            return self.after(text, i)
        if text[i] == ",":
            self.writer.marker(text[i])
            self.phase = ph.ARG
        elif text[i] == ")":
            self.take(text[i])
            self.closed(text[i])
        else:
            self.fail()
            return i
        return i + 1

    def closed(self, char: str) -> None:
        """A closing bracket of the right kind was taken: of a container, or of the call."""
        if self.stack:
            super().closed(char)
            return
        self.give("}" if self._argued else "{}")
        self.writer.call_end(True)
        self.seen = True
        self.phase = ph.BEHIND

    # --- behind a call ----------------------------------------------------------------------------------------------

    def _behind(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if char == "," and self.dialect.brackets:
            self.writer.begin()
            self.writer.marker(char)
            self.phase = ph.NEXT
            return i + 1
        if char == ("]" if self.dialect.brackets else ","):
            self.writer.marker(char)
            if self.dialect.brackets:
                self._leave()
            return i + 1
        if IDENT_START.match(char) and not self.dialect.brackets:
            self.writer.begin()
            self.phase = ph.NAME
        else:
            self._missing = True
            self._leave()
        return i

    def _leave(self) -> None:
        if self._bare:
            self.phase = ph.TAIL
        else:
            self.phase = ph.BEHIND
            self.verdict = LEAVE

    def _next(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        if IDENT_START.match(text, i):
            self.phase = ph.NAME
        elif text[i] == "]":
            self.writer.marker(text[i])
            self.writer.commit()
            self._leave()
            return i + 1
        else:
            self.fail()
        return i

    def _tail(self, text: str, i: int) -> int:
        i = self.space(text, i)
        if i == len(text):
            return i
        literal, end = self._tails.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
            return i
        if literal is not None:
            self.writer.literal(text[i:end])
            i = end
        elif self._missing and self.lost is None:
            src = self.writer.pos, self.writer.pos + self.writer.size(text[i])
            self.writer.fault(FaultCode.MALFORMED_CALL, src, detail="text between a call and the end of its list")
        self.verdict = DONE
        return i

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            PythonicState(
                self.dump(), self.seen, self.sure, self._known, self._bare, self._guarded, self._start, self._name,
                self._key, self._argued, tuple(sorted(self._used)), self._missing, self.lost,
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=PythonicState)
        self._literals()
        self.load(was.value)
        self.seen, self.sure = was.seen, was.sure
        self._known, self._bare, self._guarded = was.known, was.bare, was.guarded
        self._start, self._missing = was.start, was.missing
        self._call(was.name)
        self._key, self._argued, self._used = was.key, was.argued, set(was.used)
        self.wanted = self.coerced() if was.value.wanted else None
        self.lost = was.lost

    _PHASES: ClassVar[dict[int, Callable[[PythonicCalls, str, int], int]]] = {
        ph.OPEN: _open, ph.FIRST: _first, ph.NAME: _named, ph.PAREN: _paren, ph.ARG: _argument, ph.KEY: _keyed,
        ph.EQUALS: _equals, ph.VALUE: PythonLost.value, ph.ITEM: PythonLost.value, ph.WORD: PythonLost.words,
        ph.NUMBER: PythonLost.number, ph.STRING: PythonLost.in_string, ph.QUOTE: PythonLost.behind_quote,
        ph.COMMA: PythonLost.behind_comma, ph.IDENT: PythonLost.ident, ph.BEHIND_IDENT: PythonLost.behind_ident,
        ph.CLOSER: PythonLost.behind_closer, ph.AFTER: _after, ph.BEHIND: _behind, ph.NEXT: _next, ph.TAIL: _tail,
        ph.LOST: PythonLost.rest,
    }  # fmt: skip
