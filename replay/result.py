"""What replaying a session shows."""

from __future__ import annotations

import msgspec

from replay.derive import StageFailure
from replay.verdict import Difference, Divergence, Mark, Oracle, Verdict
from store.api import Mode, State


class Breach(msgspec.Struct, frozen=True, omit_defaults=True):
    """An oracle that the replay breaks. ``detail``: what is wrong, in words; ``step``: seq of the engine-layer input
    at which it shows (-1: nowhere in particular); ``split``: under which grouping of the tokens."""

    oracle: Oracle
    detail: str
    choice: int | None = None
    step: int = -1
    split: str = "recorded"


class Signature(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What kind of divergence this is: sessions with the same signature are one cluster.

    ``kind``: the most telling difference, or the type of an exception; ``layer``: where it shows first; ``recorded``,
    ``replayed``: what the events there are called; ``state``: where the replaying parser stood; ``marker``: the last
    marker before the place, or at it ("" where there was none).
    """

    verdict: Verdict
    kind: str = ""
    layer: str = ""
    recorded: str = ""
    replayed: str = ""
    state: str = ""
    marker: str = ""


class SplitPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest pair of splits found that give different messages.

    Both have every token of ``choice`` in a step of its own, but for ``groups``: (first, end) token indexes that are
    one step in the first, and those of ``other`` in the second. ``shown``: the tokens around, in words, both ways;
    ``differences``: what the second message says otherwise; ``runs``: replays that it took to find; ``splits``: the
    first grouping is this split, the second is like it but for some tokens, which are grouped as in the other split.
    """

    choice: int
    groups: tuple[tuple[int, int], ...]
    other: tuple[tuple[int, int], ...]
    shown: tuple[str, str]
    differences: tuple[Difference, ...] = ()
    runs: int = 0
    splits: tuple[str, str] = ("", "")


class Finding(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What comes out of a replay, in the making; see SessionResult."""

    verdict: Verdict = "same"
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    split_pair: SplitPair | None = None
    cuts: int = 0
    not_compared: tuple[str, ...] = ()
    unreplayed: str = ""
    uncompared: str = ""
    signature: Signature | None = None
    first: Divergence | None = None
    differences: tuple[Difference, ...] = ()
    faults_appeared: tuple[str, ...] = ()
    faults_gone: tuple[str, ...] = ()
    rules_appeared: tuple[str, ...] = ()
    rules_gone: tuple[str, ...] = ()
    breaches: tuple[Breach, ...] = ()
    marks: tuple[Mark, ...] = ()
    marks_before: tuple[Mark, ...] = ()
    lag: dict[int, int] = {}
    error: StageFailure | None = None
    notes: tuple[str, ...] = ()
    message: str = ""
    ns: int = 0


class SessionResult(Finding, frozen=True, omit_defaults=True, kw_only=True):  # type: ignore[misc] # msgspec allows it
    """What replaying one session shows.

    ``parser``: id of the stage it was replayed with; ``stages``: where an id differs, the recorded one and the present
    one; ``layers``: verdict per layer compared, and for the message (``upstream``, ``relay``: what was made of another
    server's response, made again); ``splits``: verdict per split; ``split_groups``: where the replayed message depends
    on the split, the splits that agree, group by group (``recorded`` is always among them), and ``split_pair`` the
    smallest case of it; ``cuts``: how many places the session was cut at; ``not_compared``: splits that this session's
    tokens do not allow; ``unreplayed``: why no stage could be run; ``uncompared``: why its message was not compared;
    ``track``: what was compared with, where it is not what the client got; ``baseline``: id of the parser whose output
    was compared with, where that was asked for;
    ``signature``: the kind of divergence; ``first``: the first divergence of the worst of layers and splits;
    ``faults_appeared``, ``faults_gone``: codes, once per occurrence; ``rules_…``: likewise, rules of the protocol;
    ``breaches``: oracles that the replay breaks; ``marks``: all that is wrong with the replay, ``marks_before`` with
    what it is compared with; ``lag``: text that both sides have, by how many tokens later the replay sends it (earlier:
    below 0) → characters;
    ``error``: the stage that failed; ``tokens``: recorded token ids (steps, where there are none); ``message``: hash
    of the replayed message; ``ns``: CPU time of the parser, in ns; ``digest``: the same whenever the session replays
    the same.
    """

    session: str
    # Without a default it is always told.
    # Without a default here: a result always says its verdict. msgspec allows what dataclasses do not.
    verdict: Verdict  # pyright: ignore[reportGeneralTypeIssues]
    source: str = ""
    state: State = "closed"
    mode: Mode = "full"
    model: str = ""
    parser: str = ""
    track: str = ""
    baseline: str = ""
    stages: dict[str, tuple[str | None, str | None]] = {}
    tokens: int = 0
    digest: str = ""
