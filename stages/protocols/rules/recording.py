"""Rules 132-137: a recording against what else was made of the same events, and against what the socket took."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import Any

from msgspec import UNSET

from stages.events import Block, Frame
from stages.protocols import anthropic, openai_chat, openai_completions, openai_responses
from stages.protocols.rules.case import Case, at, nowhere, said_in, said_whole, shown
from stages.protocols.rules.compare import differences, unequal_tokens
from stages.protocols.rules.evidence import Need, Protocol
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.regroup import merged, split
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import same
from stages.strict import parse

RULES = Rules()
_CUT = ("truncated", "client_closed")


@RULES(132, "x_fold", "E", Need.WHOLE)
def x_fold(case: Case) -> Iterator[Finding]:
    """The stream says what the body of the same request without streaming says."""
    if case.evidence.marked in _CUT:
        return
    value, problem = parse((case.evidence.whole or b"").decode("utf-8", "replace"))
    if not isinstance(value, dict):
        yield nowhere(f"the body without streaming is no JSON object: {problem or shown(value)}")
    elif case.failed or value.get("error"):
        # What an error leaves is no message. Other servers have no whole message with half a call in it either.
        half = not case.own and case.evidence.protocol == "messages" and case.unfinished(0)
        if not value.get("error") or not (case.failed or half):
            yield nowhere(f"an error in the {'stream' if case.failed else 'body without streaming'} only")
    else:
        protocol = case.evidence.protocol
        yield from differences(case, said_whole(protocol, value), protocol, "without streaming")
        if protocol in ("chat", "completions"):
            yield from unequal_tokens(case.reading, value, "without streaming")


@RULES(133, "x_cross", "E", Need.OTHER)
def x_cross(case: Case) -> Iterator[Finding]:
    """The stream says what a stream of the same events in another protocol says, as far as both can say it."""
    if case.evidence.other is None or case.evidence.marked in _CUT:
        return
    protocol, body = case.evidence.other
    other = said_in(protocol, Reading(body))
    if case.failed and other.errors:
        return
    failed = case.evidence.protocol if case.failed else protocol if other.errors else None
    if failed is None:
        yield from differences(case, other, protocol, f"in {protocol}")
    elif failed == "responses" and case.unfinished(0):
        # A response with half a call in it fails, and says what others say all the same.
        yield from differences(case, other, protocol, f"in {protocol}", ends=False)
    else:
        yield nowhere(f"an error in {failed} only")


@RULES(134, "x_replay", "E", Need.REPLAYED)
def x_replay(case: Case) -> Iterator[Finding]:
    """Encoding the recorded semantic events again gives the recorded bytes, but for comments."""
    replayed = case.evidence.replayed or b""
    if replayed == case.evidence.body:
        return
    for mine, theirs in zip_longest(_frames(case.reading), _frames(Reading(replayed, case.evidence.first))):
        if mine is None:
            if case.evidence.marked != "truncated":
                seen = f"the end, where replaying goes on with {_text(theirs[1])}"
                yield Finding(case.reading.rest.number, len(case.evidence.body), seen)
        elif theirs is None:
            yield at(mine[0], f"a block that replaying does not give: {_text(mine[1])}")
        elif mine[1] != theirs[1]:
            place, one, two = _apart(mine[1], theirs[1])
            yield Finding(mine[0].number, mine[0].byte + place, one, f"{two} by replaying")
        else:
            continue
        return


def _frames(reading: Reading) -> list[tuple[Event, bytes]]:
    """Blocks with all their bytes, the tail too, but no comments. Empty lines go with the block in front of them."""
    blocks = [block for block in (*reading.blocks, reading.rest) if block.byte < len(reading.body)]
    starts = [0, *(block.byte for block in blocks[1:]), len(reading.body)]
    return [
        (block, reading.body[begin:end])
        for block, (begin, end) in zip(blocks, pairwise(starts), strict=False)
        if not (block.lines and all(line.startswith(b":") for _, line in block.lines))
    ]


def _text(data: bytes) -> str:
    return shown(data[:300].decode("utf-8", "replace"))


def _apart(one: bytes, other: bytes) -> tuple[int, str, str]:
    """Where two byte strings begin to differ, and what each of them has there."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    begin = max(low - 30, 0)
    return low, _text(one[begin : low + 60]), _text(other[begin : low + 60])


REWRITTEN: dict[Protocol, Callable[[list[Any]], list[Frame]]] = {
    "chat": openai_chat.rewritten,
    "completions": openai_completions.rewritten,
    "messages": anthropic.rewritten,
    "responses": openai_responses.rewritten,
}
"""By protocol: the events of one of our own streams ([DONE] is UNSET), decoded and encoded again. Only these can be
decoded to semantic events."""


@RULES(135, "x_round", "E", Need.EFFORT)
def x_round(case: Case) -> Iterator[Finding]:
    """A stream of our own, decoded to semantic events and encoded again, is the same stream."""
    mine = case.reading.events
    if any(event.value is UNSET and event.text != "[DONE]" for event in mine):
        return
    again = REWRITTEN[case.evidence.protocol]([event.value for event in mine])
    theirs = Reading(b"".join(frame.data for frame in again if isinstance(frame, Block))).events
    for one, two in zip_longest(mine, theirs):
        if one is None:
            # An error brings its end marker, which a recording that was cut may lack.
            if case.evidence.marked not in _CUT:
                yield at(case.reading.rest, "the end", f"{shown(two.text)} when encoded again")
        elif two is None:
            yield at(one, shown(one.text), "nothing when encoded again")
        elif not same(one.value, two.value):
            _, seen, want = _apart(_bytes(one), _bytes(two))
            yield at(one, seen, f"{want} when encoded again")
        else:
            continue
        return


def _bytes(event: Event) -> bytes:
    return (event.text or "").encode()


@RULES(136, "x_bytes", "E", Need.SENT)
def x_bytes(case: Case) -> Iterator[Finding]:
    """The recorded body is what the socket took; where the client left, the socket took its beginning."""
    sent = case.evidence.sent
    if sent is None:
        return
    body = case.evidence.body
    if sent.size > len(body) or (sent.size < len(body) and case.evidence.marked not in _CUT):
        yield Finding(
            case.reading.around(sent.size).number,
            min(max(sent.size, 0), len(body)),
            f"{len(body)} bytes recorded, {sent.size} handed over",
        )
    elif hashlib.sha256(body[: sent.size]).hexdigest() != sent.sha256.lower():
        yield nowhere(f"{sent.size} bytes recorded that are not the ones that were handed over")


@RULES(137, "x_reassoc", "E", Need.EFFORT)
def x_reassoc(case: Case) -> Iterator[Finding]:
    """Merging neighbouring deltas of one kind, or splitting them between characters, changes nothing that is said."""
    protocol = case.evidence.protocol
    for how, regroup in (("with merged deltas", merged), ("with split deltas", split)):
        other = said_in(protocol, Reading(regroup(protocol, case.reading)))
        yield from differences(case, other, protocol, how)
