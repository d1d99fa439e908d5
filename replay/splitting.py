"""A session under other splits of its tokens: does its message depend on them?"""

from __future__ import annotations

from collections.abc import Sequence

from replay.derive import Derived, run
from replay.diff import Session
from replay.errors import BadSplit
from replay.message_diff import differences
from replay.relayed import Judge, split_place
from replay.result import Finding
from replay.split import regroup
from replay.upstream_diff import Told
from replay.verdict import worst
from stages.events import Input
from stages.message import Message, collect


def under_splits(
    splits: Sequence[str], found: Finding, session: Session, flush: tuple[Input, ...], derived: Derived, judge: Judge
) -> None:
    """Replay under each split and put what it shows into ``found``. ``judge``: what compares it with the record."""
    if "recorded" in splits:
        found.splits["recorded"] = found.verdict
    says = {"recorded": collect(derived.semantic.events, named=session.opening.ask.named)}
    for split in splits:
        if split != "recorded":
            got = _split(session, flush, split, judge, found)
            if got is not None:
                says[split] = got
    if not found.splits:
        found.verdict = "uncompared"
    _depends(found, says)


def _split(
    session: Session, flush: tuple[Input, ...], split: str, judge: Judge, found: Finding
) -> list[Message] | None:
    """The messages under a split; None where there are none."""
    opening = session.opening
    try:
        inputs = regroup([*session.inputs, *flush], split, opening.tokenizer)
    except BadSplit as error:
        found.notes += (f"not compared: {error}",)
        found.not_compared += (split,)
        return None
    track, failed = run(session.layers.semantic, "semantic", opening, inputs, range(len(inputs)))
    told = Told("failed") if failed else judge(track)
    found.splits[split] = told.verdict
    found.verdict = worst(found.verdict, told.verdict)
    found.error = found.error or failed
    found.first = found.first or split_place(told, split)
    return None if failed else collect(track.events, named=opening.ask.named)


def _depends(found: Finding, says: dict[str, list[Message]]) -> None:
    """Group the splits by what the replayed message is under them. That it depends on them is a change of its own."""
    groups: list[tuple[list[Message], list[str]]] = []
    for split, messages in says.items():
        same = next((names for known, names in groups if not differences(known, messages)), None)
        if same is None:
            groups.append((messages, [split]))
        else:
            same.append(split)
    if len(groups) > 1:
        found.split_groups = tuple(tuple(names) for _, names in groups)
        found.verdict = worst(found.verdict, "changed")
        found.notes += (f"depends on the split: {' and '.join(f'`{names[0]}`' for _, names in groups)} differ",)
    elif len(says) > 1 and found.verdict == "changed":
        found.notes += (f"does not depend on the split: the same under {', '.join(f'`{name}`' for name in says)}",)
