"""tally: running totals over results, in any order and little memory: nothing in them depends on the order."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from replay.result import SessionResult, Signature
from replay.totals import CLUSTER_SHOWN, Cluster, Family, Paired, Summary, Unreadable
from replay.verdict import MARKS, Mark, Verdict

UNREADABLE_SHOWN = 1000
"""Sources and sessions that cannot be read, of which the report tells; all are counted."""


class Digest:
    """The digest of a run: a sum of hashes, so that no order changes it."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, session: str, digest: str) -> None:
        """One result."""
        told = f"{session} {digest}\n".encode("utf-8", "surrogatepass")
        self._sum += int.from_bytes(hashlib.sha256(told).digest(), "big")

    def hex(self) -> str:
        """64 characters."""
        return f"{self._sum % (1 << 256):064x}"


class _Key(NamedTuple):
    """How the sessions of a cluster are ordered: the first is its example. ``hidden``: what differs does not reach the
    last layer that was compared, so that the session shows less than the kind does."""

    hidden: bool
    tokens: int
    session: str
    source: str
    digest: str


class _Smallest:
    """The smallest of the keys that come, at most ``most`` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[_Reversed] = []

    def add(self, key: _Key) -> None:
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, _Reversed(key))
        elif key < self._heap[0].key:
            heapq.heapreplace(self._heap, _Reversed(key))

    def sorted(self) -> list[_Key]:
        return sorted(held.key for held in self._heap)


class _Reversed:
    """Makes a heap give the largest first."""

    __slots__ = ("key",)

    def __init__(self, key: _Key) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return other.key < self.key


class _Cluster:
    def __init__(self) -> None:
        self.count = self.tokens = 0
        self.models: Counter[str] = Counter()
        self.sessions = _Smallest(CLUSTER_SHOWN)
        self.least: _Key | None = None
        self.example = 0


class _Family:
    def __init__(self) -> None:
        self.sessions = self.tokens = self.ns = 0
        self.models: Counter[str] = Counter()
        self.verdicts: Counter[Verdict] = Counter()
        self.marks: Counter[Mark] = Counter()
        self.lag: Counter[int] = Counter()


class Tally:
    """``add`` each result; the properties are what the report says of all of them."""

    def __init__(self) -> None:
        self.digest = Digest()
        self.lag: Counter[int] = Counter()
        self.nothing_compared = ""
        """Why no split applies, while that is so of all sessions."""
        self.uncompared = ""
        """Why the first session whose message was not compared was not."""
        self._verdicts: Counter[Verdict] = Counter()
        self._sessions = self._tokens = self._unreplayed = self._compared = self._some_split = 0
        self._clusters: dict[Signature, _Cluster] = {}
        self._families: dict[str, _Family] = {}
        self._both: Counter[Mark] = Counter()
        self._before: Counter[Mark] = Counter()
        self._after: Counter[Mark] = Counter()
        self._unreadable: list[tuple[int, Unreadable]] = []
        self._lost = 0
        self._missing: list[str] = []
        self._missed = 0
        self._again: dict[str, None] = {}
        self._left: dict[str, None] = {}

    def add(self, result: SessionResult, place: int) -> None:
        """One result. ``place``: where it can be read again."""
        self._sessions += 1
        self._tokens += result.tokens
        self._unreplayed += bool(result.unreplayed)
        self._verdicts[result.verdict] += 1
        self.digest.add(result.session, result.digest)
        if result.not_compared and not result.splits:
            self.nothing_compared = self.nothing_compared or result.notes[-1].removeprefix("not compared: ")
        else:
            self._some_split += 1
        self.uncompared = self.uncompared or result.uncompared
        self.lag.update(result.lag)
        if result.signature is not None:
            self._cluster(result, result.signature, place)
        self._family(result)
        if result.verdict != "uncompared":
            self._pair(result)

    def unreadable(self, item: Unreadable, at: int) -> None:
        """What could not be read, and its place in the order of the run."""
        self._lost += 1
        self._unreadable.append((at, item))
        if len(self._unreadable) > 2 * UNREADABLE_SHOWN:
            self._unreadable = self._told()

    def missing(self, session: str) -> None:
        """A session that an earlier report has, and this run did not meet."""
        self._missed += 1
        if len(self._missing) < UNREADABLE_SHOWN:
            self._missing.append(session)

    def again(self, source: str) -> None:
        """A source, or a file in one, that was given once more, and is counted once."""
        if len(self._again) < UNREADABLE_SHOWN:
            self._again[source] = None

    def left(self, file: str) -> None:
        """A file in a folder that holds results of a replay, and is no source."""
        if len(self._left) < UNREADABLE_SHOWN:
            self._left[file] = None

    def _told(self) -> list[tuple[int, Unreadable]]:
        return sorted(self._unreadable, key=lambda held: (held[0], held[1].source, held[1].session))[:UNREADABLE_SHOWN]

    def _cluster(self, result: SessionResult, signature: Signature, place: int) -> None:
        cluster = self._clusters.get(signature)
        if cluster is None:
            cluster = self._clusters[signature] = _Cluster()
        cluster.count += 1
        cluster.tokens += result.tokens
        cluster.models[result.model] += 1
        hidden = next(reversed(result.layers.values()), result.verdict) != result.verdict
        key = _Key(hidden, result.tokens, result.session, result.source, result.digest)
        cluster.sessions.add(key)
        if cluster.least is None or key < cluster.least:
            cluster.least, cluster.example = key, place

    def _family(self, result: SessionResult) -> None:
        family = self._families.get(result.parser)
        if family is None:
            family = self._families[result.parser] = _Family()
        family.sessions += 1
        family.tokens += result.tokens
        family.ns += result.ns
        family.models[result.model] += 1
        family.verdicts[result.verdict] += 1
        family.marks.update(result.marks)
        family.lag.update(result.lag)

    def _pair(self, result: SessionResult) -> None:
        self._compared += 1
        before, after = set(result.marks_before), set(result.marks)
        self._both.update(before & after)
        self._before.update(before - after)
        self._after.update(after - before)

    # --- what the report says

    @property
    def sessions(self) -> int:
        """How many results were added."""
        return self._sessions

    @property
    def nothing_applies(self) -> bool:
        """There were sessions, and no split applies to any."""
        return bool(self._sessions) and not self._some_split and not self._lost

    @property
    def all_uncompared(self) -> bool:
        """There were sessions, each could be replayed, and none was compared with anything."""
        alone = self._verdicts["uncompared"] == self._sessions
        return bool(self._sessions) and alone and not self._lost and not self._unreplayed

    def summary(self) -> Summary:
        """Sessions by verdict."""
        return Summary(
            sessions=self._sessions, unreadable=self._lost, unreplayed=self._unreplayed, tokens=self._tokens,
            missing=self._missed,
            **{str(verdict): count for verdict, count in self._verdicts.items()},
        )  # fmt: skip

    def unreadables(self) -> tuple[Unreadable, ...]:
        """In the order of the run, at most UNREADABLE_SHOWN."""
        return tuple(item for _, item in self._told())

    def missed(self) -> tuple[str, ...]:
        """As they were told, at most UNREADABLE_SHOWN."""
        return tuple(self._missing)

    def counted_once(self) -> tuple[str, ...]:
        """As they were told, at most UNREADABLE_SHOWN."""
        return tuple(self._again)

    def left_out(self) -> tuple[str, ...]:
        """As they were told, at most UNREADABLE_SHOWN."""
        return tuple(self._left)

    def clusters(self, read: Callable[[int], SessionResult]) -> tuple[Cluster, ...]:
        """The largest first. ``read``: the result at a place."""
        made = [
            Cluster(
                signature=signature, count=held.count, tokens=held.tokens, models=dict(sorted(held.models.items())),
                example=read(held.example),
                sessions=tuple((key.source, key.session) for key in held.sessions.sorted()),
            )
            for signature, held in self._clusters.items()
        ]  # fmt: skip
        return tuple(sorted(made, key=lambda each: (-each.count, msgspec.json.encode(each.signature))))

    def families(self) -> tuple[Family, ...]:
        """By the parser's id."""
        return tuple(
            Family(
                parser=parser, sessions=held.sessions, tokens=held.tokens, ns=held.ns,
                models=dict(sorted(held.models.items())), verdicts=dict(sorted(held.verdicts.items())),
                marks={mark: held.marks[mark] for mark in MARKS if held.marks[mark]},
                lag=dict(sorted(held.lag.items())),
            )
            for parser, held in sorted(self._families.items())
        )  # fmt: skip

    def paired(self, of: Callable[[dict[Mark, tuple[int, int, int, int]]], tuple[Paired, ...]]) -> tuple[Paired, ...]:
        """The marks on both sides. ``of``: makes statistics of (both, before, after, neither)."""
        counts: dict[Mark, tuple[int, int, int, int]] = {}
        for mark in MARKS:
            both, before, after = self._both[mark], self._before[mark], self._after[mark]
            if both or before or after:
                counts[mark] = (both, before, after, self._compared - both - before - after)
        return of(counts)
