"""One call as one JSON object: members in any order, of which some are its name and its arguments.

    object  ::= "{" [ member { "," member } ] "}"
    member  ::= NAME-KEY ":" string | ARGUMENTS-KEY ":" arguments | ID-KEY ":" string | WRAPPER-KEY ":" object | other
    object  ::= "{" NAME ":" arguments "}"                                                       (``JsonKeys.single``)
    arguments ::= JSON object | JSON string that holds one, or nothing | null

Arguments go out as written, from their ``{`` to its ``}``, as soon as the name is known. A JSON string that holds an
object is decoded once. ``null``, ``""`` and nothing are ``{}``. Raw control characters inside strings go out escaped:
their value is not in doubt. Members that mean nothing here are structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import LEAVE, MORE, REPAIR, SPOILED
from stages.parse.engines.json_held import (
    COLON,
    FIELD,
    FIELD_TEXT,
    FIELD_VALUE,
    ID,
    KEY,
    NAME,
    NEXT,
    NULL,
    OBJECT,
    OTHER,
    STRING,
    JsonHeld,
)

_WIRE: Final = re.compile("[a-zA-Z0-9]{9}")


class JsonObject(JsonHeld):
    """Reads one object from behind its ``{`` on. ``verdict``: MORE; LEAVE: the call is complete; REPAIR, BROKEN and
    SPOILED as in ``engines``."""

    __slots__ = ()

    def feed(self, text: str, i: int) -> int:
        """Read on; returns the index of the first character that was not consumed. All is decided at once."""
        n = len(text)
        self.verdict = MORE
        while i < n and not self.verdict:
            i = self._PHASES[self._phase](self, text, i)
        return i

    def end(self) -> None:
        """The object is over, or as good as."""
        if self._silent:
            self._writer.commit()
        else:
            if not self._argued:
                self._writer.arguments_at("{}", (self._writer.pos, self._writer.pos))
            self._writer.call_end(True)
        self.verdict = LEAVE

    # --- structure: each consumes a character at least, or sets the verdict --------------------------------------

    def _field(self, text: str, i: int) -> int:
        i = self._writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == '"' and (self._flat or not self._named):
            self.sure = self.sure or not self.keys.argued
            if self._flat:
                self._scan(FIELD_TEXT)
                return i
            self._begin_kept(KEY)
            return i + 1
        if text[i] == "}":
            return self._closed(text, i)
        self._broken()
        return i

    def _colon(self, text: str, i: int) -> int:
        i = self._writer.space(text, i)
        if i == len(text):
            return i
        if text[i] != ":":
            self._broken()
            return i
        if not self._flat and not self._keyed():
            return i
        self._writer.marker(":")
        self._phase = FIELD_VALUE
        return i + 1

    def _keyed(self) -> bool:
        """The single key is known; False: it is no name."""
        key = self._decoded()
        named = key in self.keys.name or key in self.keys.arguments
        if named and key not in self._tools.names:
            # Not a function of this name, but the key that says which it is.
            self._flat = True
            self._structure()
            return True
        if not key.strip():
            self._broken()
            return False
        self._start_call(key.strip(), self._name_src)
        return True

    def _next(self, text: str, i: int) -> int:
        i = self._writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == ",":
            self._writer.marker(",")
            self._phase = FIELD
            return i + 1
        if text[i] == "}":
            return self._closed(text, i)
        if self._named and self._argued:
            self.verdict = REPAIR
        else:
            self._broken()
        return i

    def _closed(self, text: str, i: int) -> int:
        if self._depth:
            self._depth -= 1
            self._phase = NEXT
        elif not self._named or (self.keys.argued and not self._argued):
            self._broken()
            return i
        else:
            self._writer.marker(text[i])
            self.end()
            return i + 1
        self._writer.marker(text[i])
        return i + 1

    def _value(self, text: str, i: int) -> int:
        i = self._writer.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        keys = self.keys
        if not self._flat:
            self._begin_arguments(char)
            return i
        field = self._decoded()
        if field in keys.name:
            if self._named or char != '"':
                self._broken()
                return i
            self._begin_kept(NAME)
            return i + 1
        if field in keys.arguments and not (keys.prefer and self._argued and keys.arguments.index(field) > self._alias):
            if self._argued:
                self._broken()
            else:
                self._alias = keys.arguments.index(field)
                self._begin_arguments(char)
        elif field in keys.wrapper and char == "{" and not self._named:
            self._depth += 1
            self._writer.marker("{")
            self._phase = FIELD
            return i + 1
        else:
            self._scan(ID if field in keys.ids and char == '"' else OTHER)
        return i

    def _begin_kept(self, phase: int) -> None:
        # The quotes are structure: the call's src covers the name alone.
        self._scan(phase)
        self._scanner.feed('"', 0)
        self._part.append('"')
        self._writer.marker('"')
        self._start = self._writer.pos

    def _begin_arguments(self, char: str) -> None:
        if self._silent:
            self._argued = True
            self._scan(OTHER)
        elif char == "{":
            self._scan(OBJECT)
            if not self._named:
                self._later = []
                self._later_src = (self._writer.pos, self._writer.pos)
            self._send_name()
        elif char == '"':
            self._keep(STRING)
        elif char == "n":
            self._keep(NULL)
        else:
            self._broken(FaultCode.BAD_ARGUMENTS)

    # --- phases that scan one JSON value -------------------------------------------------------------------------

    def _scanned(self, text: str, i: int) -> int:
        scanner = self._scanner
        j = scanner.feed(text, i)
        status = scanner.status
        if j > i:
            self._piece(text[i:j])
        if status == js.CONTROL:
            self._control(text[j])
            return j + 1
        if status == js.END:
            self._ENDS[self._phase](self)
        elif status == js.BAD:
            bad = self._phase in (OBJECT, STRING, NULL)
            self._broken(FaultCode.BAD_ARGUMENTS if bad else FaultCode.MALFORMED_CALL)
        return j

    def _end_field(self) -> None:
        self._phase = COLON

    def _end_key(self) -> None:
        self._name_src = (self._start, self._writer.pos)
        self._writer.marker('"')
        self._phase = COLON

    def _end_id(self) -> None:
        wire = self._decoded()
        if not self._named and _WIRE.fullmatch(wire) and wire not in self._used:
            self._wire = wire
        self._phase = NEXT

    def _end_other(self) -> None:
        self._phase = NEXT

    def _end_null(self) -> None:
        self._argue("{}", (self._start, self._writer.pos))
        self._phase = NEXT

    def _end_object(self) -> None:
        self._argued = True
        self._phase = NEXT

    def _end_string(self) -> None:
        value = self._decoded()
        text = js.object_text(value) if value.strip() else "{}"
        if text is None:
            self._broken(FaultCode.BAD_ARGUMENTS, SPOILED)
        else:
            self._argue(text, (self._start, self._writer.pos))
            self._phase = NEXT

    def _argue(self, text: str, src: tuple[int, int]) -> None:
        self._argued = True
        if self._named:
            self._send_name()
            self._writer.arguments_at(text, src)
        else:
            self._later, self._later_src = [text], src

    # --- the name ---------------------------------------------------------------------------------------------------

    def _end_name(self) -> None:
        name = self._decoded().strip()
        if not name or (self.known and name not in self._tools.names):
            self._writer.marker('"')
            self._broken(verdict=SPOILED)
            return
        self._phase = NEXT
        src = self._start, self._writer.pos
        if name in self.keys.nothing:
            self._named = self._silent = True
            self._later = None
            self._structure()
        elif self.keys.argued and not self._argued:
            self._named = True
            self._name, self._name_src = name, src
        else:
            self._start_call(name, src)
        self._writer.marker('"')

    def _structure(self) -> None:
        """All of the region so far is structure."""
        raw = self._writer.rollback()
        self._writer.begin()
        self._writer.marker(raw)

    def _send_name(self) -> None:
        """The name was waiting for the arguments."""
        if self._name:
            self._start_call(self._name, self._name_src)
            self._name = ""

    def _start_call(self, name: str, src: tuple[int, int]) -> None:
        self._named = self.sure = True
        if self._wire:
            self._used[self._wire] = None
        self._writer.call_start(name, src, self._wire)
        if self._later is not None:
            text = self._writer.alphabet.visible("".join(self._later), quoted=True)
            self._writer.arguments_at(text, self._later_src)
            self._later = None

    _PHASES: ClassVar[dict[int, Callable[[JsonObject, str, int], int]]] = {
        FIELD: _field, FIELD_TEXT: _scanned, KEY: _scanned, COLON: _colon, FIELD_VALUE: _value, NAME: _scanned,
        ID: _scanned, OBJECT: _scanned, STRING: _scanned, NULL: _scanned, OTHER: _scanned, NEXT: _next,
    }  # fmt: skip
    _ENDS: ClassVar[dict[int, Callable[[JsonObject], None]]] = {
        FIELD_TEXT: _end_field, KEY: _end_key, NAME: _end_name, ID: _end_id, OBJECT: _end_object, STRING: _end_string,
        NULL: _end_null, OTHER: _end_other,
    }  # fmt: skip
