"""What replaying a session shows."""

from __future__ import annotations

import msgspec

from replay.derive import StageFailure
from replay.verdict import Difference, Divergence, Verdict
from store.api import Mode, State


class SessionResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What replaying one session shows.

    ``parser``: id of the stage it was replayed with; ``stages``: where an id differs, the recorded one and the present
    one; ``layers``: verdict per layer compared, and for the message (``upstream``, ``relay``: what was made of another
    server's response, made again); ``splits``: verdict per split; ``split_groups``:
    where the replayed message depends on the split, the splits that agree, group by group (``recorded`` is always among
    them); ``not_compared``: splits that this session's tokens do not allow; ``unreplayed``: why no stage could be run;
    ``uncompared``: why its message was not compared; ``track``: what was compared with, where it is not what the client
    got;
    ``first``: the first divergence of the worst of layers and splits; ``faults_appeared``, ``faults_gone``: codes, once
    per occurrence; ``error``: the stage that failed; ``tokens``: recorded token ids (steps, where there are none);
    ``digest``: the same whenever the session replays the same.
    """

    session: str
    verdict: Verdict
    source: str = ""
    state: State = "closed"
    mode: Mode = "full"
    model: str = ""
    parser: str = ""
    track: str = ""
    stages: dict[str, tuple[str | None, str | None]] = {}
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    not_compared: tuple[str, ...] = ()
    unreplayed: str = ""
    uncompared: str = ""
    first: Divergence | None = None
    differences: tuple[Difference, ...] = ()
    faults_appeared: tuple[str, ...] = ()
    faults_gone: tuple[str, ...] = ()
    error: StageFailure | None = None
    notes: tuple[str, ...] = ()
    tokens: int = 0
    digest: str = ""


class Finding(msgspec.Struct):
    """The fields of a SessionResult that come out of the replay, in the making."""

    verdict: Verdict = "same"
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    not_compared: tuple[str, ...] = ()
    unreplayed: str = ""
    uncompared: str = ""
    first: Divergence | None = None
    differences: tuple[Difference, ...] = ()
    faults_appeared: tuple[str, ...] = ()
    faults_gone: tuple[str, ...] = ()
    error: StageFailure | None = None
    notes: tuple[str, ...] = ()
