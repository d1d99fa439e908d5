"""A session under other splits of its tokens: does its message depend on them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replay.derive import Derived, Track, run
from replay.diff import Session
from replay.errors import BadSplit
from replay.message_diff import in_words
from replay.pair import apart, smallest
from replay.relayed import Judge, split_place
from replay.result import Breach, Finding
from replay.sizes import Histogram
from replay.split import regroup
from replay.upstream_diff import Told
from replay.verdict import Difference, worst
from stages.events import CallArguments, CallEnd, CallStart, Content, Finish, Input, Reasoning, Refusal, Semantic, Start
from stages.message import Message

ONE_SHOT = "one_shot"
"""What another engine's parser makes of the whole text at once, told as a split of its own. (Ours have no such path:
the split ``one`` is theirs.)"""


def under_splits(
    splits: Sequence[str],
    found: Finding,
    session: Session,
    flush: tuple[Input, ...],
    derived: Derived,
    judge: Judge,
    histogram: Histogram = (),
) -> None:
    """Replay under each split and put what it shows into ``found``. ``judge``: what compares it with the record;
    ``histogram``: see ``replay.split.regroup``."""
    if "recorded" in splits:
        found.splits["recorded"] = found.verdict
    inputs = [*session.inputs, *flush]
    says = {"recorded": derived.semantic}
    for split in splits:
        if split != "recorded":
            got = _split(session, inputs, split, judge, found, histogram)
            if got is not None:
                says[split] = got
    if not found.splits:
        found.verdict = "uncompared"
    if derived.one_shot is not None:
        says[ONE_SHOT] = _one_shot(session, derived, derived.one_shot)
        _judged(found, ONE_SHOT, judge(says[ONE_SHOT]))
    elif derived.one_shot_error:
        # It streamed: that the other path gives nothing is a disagreement of the two.
        _judged(found, ONE_SHOT, Told("changed"))
        detail = f"streaming gives a message, and the one-shot path raises {derived.one_shot_error}"
        found.notes += (detail,)
        found.breaches += (Breach("one_shot", detail),)
    _depends(found, session, inputs, says, histogram)


def _split(
    session: Session, inputs: Sequence[Input], split: str, judge: Judge, found: Finding, histogram: Histogram
) -> Track | None:
    """What comes out under a split; None where nothing does."""
    opening = session.opening
    try:
        grouped = regroup(inputs, split, opening.tokenizer, histogram)
    except BadSplit as error:
        found.notes += (f"not compared: {error}",)
        found.not_compared += (split,)
        return None
    track, failed = run(session.layers.semantic, "semantic", opening, grouped, range(len(grouped)))
    _judged(found, split, Told("failed") if failed else judge(track))
    found.error = found.error or failed
    return None if failed else track


def _judged(found: Finding, split: str, told: Told) -> None:
    found.splits[split] = told.verdict
    found.verdict = worst(found.verdict, told.verdict)
    found.first = found.first or split_place(told, split)


def _one_shot(session: Session, derived: Derived, messages: Sequence[Message]) -> Track:
    """The one-shot messages as events. Nothing is known of when they come: it is with the last input."""
    events = [event for message in messages for event in _events(message)]
    # How a choice ended is the engine's to say, in both ways of parsing.
    events += [event for event in derived.semantic.events if event.__class__ is Finish]
    steps = [len(session.inputs) - 1] * len(events)
    return Track(events, steps, steps)


def _events(message: Message) -> Iterator[Semantic]:
    choice, nowhere = message.choice, (0, 0)
    yield Start(choice, 0)
    if message.reasoning:
        yield Reasoning(choice, message.reasoning, nowhere)
    if message.content:
        yield Content(choice, message.content, nowhere)
    if message.refusal:
        yield Refusal(choice, message.refusal, nowhere)
    for index, call in enumerate(message.tool_calls):
        yield CallStart(choice, index, call.id, call.name, nowhere)
        if call.arguments:
            yield CallArguments(choice, index, call.arguments, nowhere)
        yield CallEnd(choice, index, call.complete)


# --- does it depend on them? ------------------------------------------------------------------------------------------


def _depends(
    found: Finding, session: Session, inputs: Sequence[Input], says: dict[str, Track], histogram: Histogram
) -> None:
    """Group the splits by what the replayed message is under them. That it depends on them is a change of its own."""
    groups: list[tuple[Track, list[str]]] = []
    for split, track in says.items():
        same = next((names for known, names in groups if not apart(session, known, track)), None)
        if same is None:
            groups.append((track, [split]))
        else:
            same.append(split)
    if len(groups) > 1:
        found.split_groups = tuple(tuple(names) for _, names in groups)
        found.verdict = worst(found.verdict, "changed")
        _tell(found, session, inputs, says, histogram)
    elif len(says) > 1 and found.verdict == "changed":
        found.notes += (f"does not depend on the split: the same under {_names(list(says))}",)


def _tell(
    found: Finding, session: Session, inputs: Sequence[Input], says: dict[str, Track], histogram: Histogram
) -> None:
    """What differs between splits, and between them and the one-shot path."""
    at_once = says.get(ONE_SHOT)
    if at_once is not None and (told := apart(session, says["recorded"], at_once)):
        detail = f"streaming and one-shot differ: {in_words(told[0])}"
        found.notes += (detail,)
        found.breaches += (Breach("one_shot", detail, told[0].choice, -1),)
    streamed = [
        names for names in ([name for name in group if name != ONE_SHOT] for group in found.split_groups) if names
    ]
    if len(streamed) < 2:
        return
    first, other = streamed[0][0], streamed[1][0]
    found.notes += (f"depends on the split: one message under {', another under '.join(map(_names, streamed))}",)
    got = smallest(session, inputs, says, histogram)
    if got is None:
        told = apart(session, says[first], says[other])
        found.breaches += (_breach(f"{first} and {other} differ", told, -1, other),)
        return
    pair = found.split_pair = got.pair
    if not got.whole:
        found.notes += (f"the pair of splits may not be the smallest: the search ended after {pair.runs} replays",)
    detail = f"{pair.shown[1]} gives another message than {pair.shown[0]}"
    found.breaches += (_breach(detail, pair.differences, got.step, got.split),)


def _names(splits: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in splits)


def _breach(detail: str, told: Sequence[Difference], step: int, split: str) -> Breach:
    return Breach("split", f"{detail}: {in_words(told[0])}", told[0].choice, step, split)
