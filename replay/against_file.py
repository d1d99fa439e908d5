"""against_file: a replay against an earlier one, of which only the JSON report is there.

A report may be of 100,000 sessions: it is read line by line (a session is a line of its own), and of each session is
kept what decides whether it replays the same: the hash of its message, and all verdicts.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from replay.errors import ReplayError
from replay.result import SessionResult, Signature
from replay.signature import EARLIER, in_words
from replay.verdict import Depth, Mark, Verdict

_WIDE: Final = 36
"""Bytes of a session: 16 name it, 16 are the hash of its message, 4 the number of its profile."""
_NO_MESSAGE: Final = bytes(16)
_ID: Final = re.compile(r"[0-9a-f]{32}")
_LAYERS: Final = ("message", "semantic", "timing", "chunk", "frame", "upstream", "relay")
"""In the order in which each is made of the one before."""


class BadReport(ReplayError):
    """A file that is no report of a replay, or one that cannot be compared with."""


class _Error(msgspec.Struct, frozen=True):
    type: str


class _Session(msgspec.Struct, frozen=True):
    """What is read of a session."""

    session: str
    verdict: Verdict
    digest: str
    track: str = ""
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    uncompared: str = ""
    unreplayed: str = ""
    signature: Signature | None = None
    marks: tuple[Mark, ...] = ()
    error: _Error | None = None
    message: str = ""
    parser: str = ""


class _Summary(msgspec.Struct, frozen=True):
    sessions: int


class _Report(msgspec.Struct, frozen=True):
    """What is read of a report."""

    parser: str | None
    layer: Depth
    splits: tuple[str, ...]
    summary: _Summary
    sessions: list[_Session]
    track: str = ""


class Profile(msgspec.Struct, frozen=True):
    """All that is kept of a session but its name and message; most sessions share theirs with many."""

    verdict: Verdict
    track: str
    layers: tuple[tuple[str, Verdict], ...]
    splits: tuple[tuple[str, Verdict], ...]
    groups: tuple[tuple[str, ...], ...]
    unknown: bool
    """Nothing was replayed, or nothing compared."""
    error: str
    words: str
    """The signature."""
    marks: tuple[Mark, ...]
    parser: str


_line: Final = msgspec.json.Decoder(_Session).decode
_report: Final = msgspec.json.Decoder(_Report).decode


class Earlier:
    """The sessions of an earlier report. ``parser``, ``layer``, ``splits``: what it was made with.

    In memory 36 bytes a session, and 1 that says whether it was compared. Not for several threads.
    """

    def __init__(self, path: str, report: _Report, rows: list[bytes], profiles: list[Profile], texts: dict[bytes, str]):
        self.path = path
        self.parser = report.parser
        self.layer: Depth = report.layer
        self.splits = report.splits
        self._profiles = profiles
        self._texts = texts
        rows.sort()
        self._rows = b"".join(rows)
        self._seen = bytearray(len(rows))

    @classmethod
    def read(cls, path: str | Path, *, layer: Depth | None = None, splits: Sequence[str] | None = None) -> Earlier:
        """Read a report that ``playhead replay --json`` wrote. ``layer``, ``splits``: what it must have been made with.

        Raises BadReport: it cannot be read, is something else, is not whole, or was made with others.
        """
        reading = _Reading(str(path))
        try:
            with open(path, "rb") as file:
                report = reading.all(file)
        except OSError as error:
            raise BadReport(f"{path}: cannot be read: {error.strerror or error}") from error
        if layer is not None and report.layer != layer:
            raise BadReport(
                f"{path}: compared down to layer {report.layer}, and this run to {layer}: give --layer {report.layer}"
            )
        if splits is not None and set(splits) != set(report.splits):
            theirs = ",".join(report.splits)
            raise BadReport(f"{path}: made under the splits {theirs}, not {','.join(splits)}: give --splits {theirs}")
        return cls(str(path), report, reading.rows, list(reading.profiles), reading.texts)

    def __len__(self) -> int:
        """How many sessions it has."""
        return len(self._seen)

    def compare(self, result: SessionResult) -> SessionResult:
        """The result with a verdict against the earlier one: ``same`` where message and all verdicts are, ``changed``
        where not, ``uncompared`` where it has no such session, or nothing to compare on a side.

        What the replay says of the record stays in ``first`` and ``differences`` of what changed; the signature says
        how both compared with it; ``marks_before`` are those of the earlier replay.
        """
        found = self._found(_key(result.session), _message(result.message))
        if found is None:
            why = f"not in {self.path}"
            return _told(result, "uncompared", None, notes=(*result.notes, why), uncompared=why)
        message, before = found
        after = _profile(result)
        if before.unknown or after.unknown:
            if before.unknown and after.unknown:
                return _told(result, "uncompared", before, uncompared=result.uncompared)
            side = "in the earlier report" if before.unknown else "now"
            why = f"nothing was compared {side}"
            return _told(result, "uncompared", before, notes=(*result.notes, why), uncompared=why)
        equal = _message(result.message) == message
        if equal and _verdicts(before) == _verdicts(after):
            return _told(result, "same", before)
        notes = (*result.notes, *_notes(before, after, equal))
        return _told(result, "changed", before, notes=notes, signature=_signature(before, after, result))

    def see(self, session: str) -> None:
        """A session was met, and what it was compared with is known already."""
        self._found(_key(session), _NO_MESSAGE)

    def unseen(self) -> Iterator[str]:
        """The sessions that were not met so far, in no order that means anything, but always the same."""
        for place, seen in enumerate(self._seen):
            if not seen:
                key = self._rows[place * _WIDE : place * _WIDE + 16]
                yield self._texts.get(key) or key.hex()

    def _found(self, key: bytes, message: bytes) -> tuple[bytes, Profile] | None:
        """Of the sessions of this name (several sources may have it) the one that says the same, or else the first: its
        message and profile."""
        rows, size = self._rows, len(self._seen)
        first = bisect_left(range(size), key, key=lambda at: rows[at * _WIDE : at * _WIDE + 16])
        found: tuple[bytes, Profile] | None = None
        for place in range(first, size):
            row = rows[place * _WIDE : (place + 1) * _WIDE]
            if row[:16] != key:
                break
            self._seen[place] = 1
            if found is None or row[16:32] == message:
                found = row[16:32], self._profiles[int.from_bytes(row[32:], "big")]
        return found


class _Reading:
    """A report, read line by line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.rows: list[bytes] = []
        self.profiles: dict[Profile, int] = {}
        self.texts: dict[bytes, str] = {}
        """Sessions whose ids are no 32 hex digits."""

    def all(self, lines: Iterator[bytes] | Any) -> _Report:
        """Read all; returns the report without its sessions. Raises BadReport, OSError."""
        rest: list[bytes] = []
        for number, line in enumerate(lines, 1):
            text = line.strip().rstrip(b",")
            if number > 1 and text.startswith(b"{") and text.endswith(b"}"):
                self._take(self._session(text, number))
            else:
                rest.append(line)
                if number == 1 and not text.startswith(b"{"):
                    raise BadReport(f"{self._path}: no report of a replay: it does not begin as a JSON object")
        report = self._rest(b"".join(rest))
        for session in report.sessions:
            self._take(session)
        if len(self.rows) != report.summary.sessions:
            raise BadReport(
                f"{self._path}: not whole: it tells of {report.summary.sessions} sessions, and has {len(self.rows)}"
            )
        return report

    def _session(self, text: bytes, number: int) -> _Session:
        try:
            return _line(text)
        except msgspec.DecodeError as error:
            raise BadReport(f"{self._path}, line {number}: no session of a report ({error})") from error

    def _rest(self, data: bytes) -> _Report:
        try:
            return _report(data)
        except msgspec.ValidationError as error:
            raise BadReport(f"{self._path}: no report that playhead replay --json wrote ({error})") from error
        except msgspec.DecodeError as error:
            raise BadReport(f"{self._path}: no report of a replay, or not all of one ({error})") from error

    def _take(self, session: _Session) -> None:
        key = _key(session.session)
        if not _ID.fullmatch(session.session):
            self.texts[key] = session.session
        number = self.profiles.setdefault(_profile(session), len(self.profiles))
        self.rows.append(key + _message(session.message) + number.to_bytes(4, "big"))


def _key(session: str) -> bytes:
    if _ID.fullmatch(session):
        return bytes.fromhex(session)
    return hashlib.sha256(session.encode("utf-8", "backslashreplace")).digest()[:16]


def _message(text: str) -> bytes:
    """Zeros where the message is not known."""
    return bytes.fromhex(text) if _ID.fullmatch(text) else _NO_MESSAGE


def _profile(result: SessionResult | _Session) -> Profile:
    return Profile(
        result.verdict, result.track, tuple(sorted(result.layers.items(), key=_rank)),
        tuple(sorted(result.splits.items())),
        result.split_groups, bool(result.unreplayed or result.uncompared),
        "" if result.error is None else result.error.type,
        "" if result.signature is None else in_words(result.signature), result.marks, result.parser,
    )  # fmt: skip


def _rank(layer: tuple[str, Verdict]) -> tuple[int, str]:
    name = layer[0]
    return (_LAYERS.index(name) if name in _LAYERS else len(_LAYERS)), name


def _verdicts(profile: Profile) -> tuple[Any, ...]:
    """What must be equal."""
    return profile.verdict, profile.layers, profile.splits, profile.groups, profile.error


def _told(
    result: SessionResult, verdict: Verdict, before: Profile | None, *, notes: tuple[str, ...] | None = None,
    uncompared: str = "", signature: Signature | None = None,
) -> SessionResult:  # fmt: skip
    """The result under another verdict. Its digest then says what it was compared with."""
    changed = verdict == "changed"
    told = f"{result.digest} {verdict} {'' if before is None else before}"
    return msgspec.structs.replace(
        result,
        verdict=verdict,
        layers={} if verdict == "uncompared" else {"message": verdict},
        first=result.first if changed else None,
        differences=result.differences if changed else (),
        signature=signature,
        marks_before=() if before is None else before.marks,
        baseline="" if before is None else before.parser,
        notes=result.notes if notes is None else notes,
        uncompared=uncompared,
        digest=hashlib.sha256(told.encode("utf-8", "backslashreplace")).hexdigest(),
    )


def _notes(before: Profile, after: Profile, equal: bool) -> Iterator[str]:
    """What else is not as it was, in the order in which layers follow from each other."""
    layers = _moves(before.layers, after.layers)
    if layers:
        yield f"by layer: {layers}"
    splits = _moves(before.splits, after.splits)
    if splits and {*dict(before.splits), *dict(after.splits)} != {"recorded"}:
        yield f"by split: {splits}"
    if equal:
        yield "the message is the same"


def _moves(before: tuple[tuple[str, Verdict], ...], after: tuple[tuple[str, Verdict], ...]) -> str:
    """``message was same, now changed``, of each that has another verdict; of a side that failed there are none."""
    now = dict(after)
    return "; ".join(f"{name} was {was}, now {now[name]}" for name, was in before if now.get(name, was) != was)


def _words(profile: Profile) -> str:
    """How a side compares with the record."""
    if not profile.words or profile.words.startswith(profile.verdict):
        return profile.words or profile.verdict
    return f"{profile.verdict}: {profile.words}"


def _signature(before: Profile, after: Profile, result: SessionResult) -> Signature:
    """From what to what."""
    kind = "message" if result.signature is None else result.signature.kind
    return Signature(
        verdict="changed", kind=kind, layer=EARLIER, recorded=_words(before), replayed=_words(after)
    )  # fmt: skip
