"""Rules 26-34 and 40-43 (35-39 stand in ``common_calls``): what is said, in all protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from stages.message import Message
from stages.protocols.rules import common_calls
from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.reading import Event
from stages.protocols.rules.rule import Finding, Rules, Severity
from stages.protocols.rules.said import Delta, Kind, SaidChoice, SaidUsage
from stages.protocols.rules.values import integer

RULES = Rules()
_REPLACEMENT: Final = "\ufffd"
_BROKEN: Final = re.compile("[\ufffd\ud800-\udfff]")
_AROUND: Final = 10
"""Characters that are shown in front of where a text goes astray."""


# --- what was meant ---------------------------------------------------------------------------------------------------


@RULES(26, "a_text", "E", Need.MEANT)
def a_text(case: Case) -> Iterator[Finding]:
    """The joined content of each choice is the text that was meant, and so is its refusal."""
    as_one = case.evidence.protocol in ("messages", "completions")  # they have no field for refusals
    for choice, meant in _pairs(case):
        content, refusal = meant.content or "", meant.refusal or ""
        if as_one and refusal:
            yield from _apart(case, choice, "content", content + refusal)
        else:
            yield from _apart(case, choice, "content", content)
            yield from _apart(case, choice, "refusal", refusal)


@RULES(27, "a_reason", "E", Need.MEANT)
def a_reason(case: Case) -> Iterator[Finding]:
    """The joined reasoning of each choice is the reasoning that was meant; hidden reasoning is told by nothing, by no
    logprobs and no token ids either."""
    hidden = case.asked.hidden
    for choice, meant in _pairs(case):
        yield from _apart(case, choice, "reasoning", "" if hidden else meant.reasoning or "")
        if hidden:
            yield from _leaks(choice, meant)


def _leaks(choice: SaidChoice, meant: Message) -> Iterator[Finding]:
    if choice.tokens:
        yield at(choice.tokens[0], f"choice {choice.index}: logprobs or token ids beside hidden reasoning")
    secret = (meant.reasoning or "").strip()
    open_text = (meant.content or "") + (meant.refusal or "")  # in messages a refusal is text like other text
    place = (choice.text("content") or "").find(secret) if secret and secret not in open_text else -1
    delta = _holding(choice, "content", place) if place >= 0 else None
    if delta is not None:
        yield at(delta.event, f"choice {choice.index}: the hidden reasoning in the content")


@RULES(28, "a_args", "E", Need.MEANT)
def a_args(case: Case) -> Iterator[Finding]:
    """The joined arguments of each call are the arguments that were meant."""
    for choice, meant in _pairs(case):
        said, calls = choice.calls, meant.tool_calls
        for number, (call, want) in enumerate(zip(said, calls, strict=False)):
            text = call.arguments or ""
            last = number == len(said) - 1
            if text != want.arguments and not (last and _cut(case) and want.arguments.startswith(text)):
                if (text or "{}", case.evidence.protocol) == (want.arguments or "{}", "messages"):
                    continue  # no text stands for an empty object there
                seen = f"choice {choice.index}: call {number} has {shown(text)}"
                yield at(call.event, seen, f"{shown(want.arguments)} was meant")
        if len(said) > len(calls):
            seen = f"choice {choice.index}: {len(said)} calls"
            yield at(said[len(calls)].event, seen, f"{len(calls)} were meant")
        elif len(said) < len(calls) and not _cut(case):
            yield nowhere(f"choice {choice.index}: {len(said)} calls", f"{len(calls)} were meant")


def _pairs(case: Case) -> Iterator[tuple[SaidChoice, Message]]:
    meant = {message.choice: message for message in case.evidence.meant or ()}
    for index in sorted({*case.said.choices, *meant}):
        yield case.said.choices.get(index) or SaidChoice(index), meant.get(index) or Message(index)


def _cut(case: Case) -> bool:
    """The stream breaks off: what is there is a beginning."""
    return not case.ended or not case.said.terminals


def _apart(case: Case, choice: SaidChoice, kind: Kind, want: str) -> Iterator[Finding]:
    text = choice.text(kind) or ""
    if text == want or (_cut(case) and want.startswith(text)):
        return
    place = next((n for n, (one, two) in enumerate(zip(text, want, strict=False)) if one != two), None)
    place = min(len(text), len(want)) if place is None else place
    begin = max(place - _AROUND, 0)
    seen = f"choice {choice.index}: {kind} differs from character {place} on: {shown(text[begin : place + 60])}"
    instead = f"{shown(want[begin : place + 60])} was meant"
    delta = _holding(choice, kind, place)
    yield nowhere(seen, instead) if delta is None else at(delta.event, seen, instead)


def _holding(choice: SaidChoice, kind: Kind, place: int) -> Delta | None:
    """The piece that holds a character of the joined text; None behind its end."""
    for delta in choice.deltas:
        if delta.kind == kind:
            if place < len(delta.text):
                return delta
            place -= len(delta.text)
    return None


# --- characters -------------------------------------------------------------------------------------------------------


@RULES(29, "a_chars", "E")
def a_chars(case: Case) -> Iterator[Finding]:
    """No piece of text begins or ends inside a character, and none has U+FFFD where the engine did not write it."""
    body = case.evidence.body
    # Nearly no body can have such a character in it, and these questions are quick.
    written = not body.isascii() and (case.reading.bad_utf8 is not None or b"\xef\xbf\xbd" in body)
    if not written and not (b"\\" in body and b"\\u" in body):
        return
    for choice in case.said.choices.values():
        if not _BROKEN.search("".join([delta.text for delta in choice.deltas])):
            continue
        excused = _Excused(case, choice.index)
        for delta in choice.deltas:
            weight = excused.take(delta)
            if weight is not None:
                yield at(delta.event, f"choice {choice.index}: {delta.kind} {shown(delta.text)}", severity=weight)


class _Excused:
    """Where U+FFFD may stand: where it stands in what was meant, or as often as the engine's own bytes decode to it. Of
    a stream of our own of which neither is known (a torn recording) it is no more than likely that it may not: our
    parsers cut no characters."""

    def __init__(self, case: Case, index: int) -> None:
        meant = case.evidence.meant
        self._meant = None if meant is None else next((one for one in meant if one.choice == index), Message(index))
        engine = case.evidence.engine
        pieces = engine.choices[index].pieces if engine is not None and index in engine.choices else ()
        self._weight: Severity = "E" if meant is not None or pieces or not case.own else "W"
        self._left = b"".join(pieces).decode("utf-8", "replace").count(_REPLACEMENT)
        self._at: dict[tuple[str, int], int] = {}

    def take(self, delta: Delta) -> Severity | None:
        """The next piece: what its broken characters weigh; None: it has none, or they are excused."""
        key = (delta.kind, delta.call)
        begin = self._at.get(key, 0)
        self._at[key] = begin + len(delta.text)
        broken = [] if delta.text.isascii() else [found.start() for found in _BROKEN.finditer(delta.text)]
        if not broken:
            return None
        if any(delta.text[place] != _REPLACEMENT for place in broken):
            return "E"
        if self._meant is not None:
            text = _text_of(self._meant, delta)
            right = all(text[begin + place : begin + place + 1] == _REPLACEMENT for place in broken)
        else:
            self._left -= len(broken)
            right = self._left >= 0
        return None if right else self._weight


def _text_of(meant: Message, delta: Delta) -> str:
    if delta.kind == "arguments":
        return meant.tool_calls[delta.call].arguments if delta.call < len(meant.tool_calls) else ""
    return {"content": meant.content, "reasoning": meant.reasoning, "refusal": meant.refusal}[delta.kind] or ""


@RULES(30, "a_emptyd", "W")
def a_emptyd(case: Case) -> Iterator[Finding]:
    """Every delta brings something, but where the protocol has a use for an empty one."""
    for event in case.said.empty:
        yield at(event, "an empty delta")


# --- stop strings and markers -----------------------------------------------------------------------------------------


@RULES(31, "a_stopstr", "E", Need.REQUEST)
def a_stopstr(case: Case) -> Iterator[Finding]:
    """The content has no stop string in it, and no part of the one that matched, unless the request keeps it."""
    asked = case.asked
    if asked.keep_stop or not asked.stops or not asked.stop_content:
        return
    for choice in case.said.choices.values():
        raw = _raw(case, choice.index)
        prompt = asked.echoed(choice.index)
        if prompt is None:
            continue
        stops = [stop for stop in asked.stops if raw is None or stop in raw]
        for run in _runs(choice) if stops else ():
            text = "".join(delta.text for delta in run)
            for stop in stops:
                place = text.find(stop, prompt)
                if place >= 0:
                    yield at(_piece(run, place).event, f"choice {choice.index}: the stop string {shown(stop)}")
        yield from _half_stop(choice, raw, asked.stops)


def _half_stop(choice: SaidChoice, raw: str | None, stops: tuple[str, ...]) -> Iterator[Finding]:
    """The beginning of the stop string that matched, left at the end of the content.

    The text may have had that beginning by itself, in front of the match or in front of something else. Only the
    engine's own text tells; without it, it is no more than likely."""
    finish = choice.finish
    last = choice.deltas[-1] if choice.deltas else None
    if finish is None or last is None or last.kind != "content" or finish.stop not in stops:
        return
    stop = str(finish.stop)
    text = choice.text("content") or ""
    part = next((stop[:size] for size in range(len(stop) - 1, 0, -1) if text.endswith(stop[:size])), "")
    if not part:
        return
    seen = f"choice {choice.index}: {shown(part)}, the beginning of the stop string {shown(stop)}"
    if raw is not None:
        tail = text[-len(part) - _AROUND :]
        begins = [found.start() for found in re.finditer(f"(?={re.escape(stop)})", raw)]
        own = any(raw.endswith(tail, 0, begin) for begin in begins)
        if not own and any(raw.endswith(tail, 0, begin + len(part)) for begin in begins):
            yield at(last.event, seen)
    elif len(part) > 1 or (part + stop).find(stop) < len(part):
        yield at(last.event, seen, severity="W")


def _raw(case: Case, index: int) -> str | None:
    """What the engine wrote for a choice, where its bytes are known."""
    engine = case.evidence.engine
    choice = None if engine is None else engine.choices.get(index)
    return b"".join(choice.pieces).decode("utf-8", "replace") if choice is not None and choice.pieces else None


def _runs(choice: SaidChoice) -> Iterator[list[Delta]]:
    """Content that nothing else comes between."""
    run: list[Delta] = []
    for delta in choice.deltas:
        if delta.kind == "content":
            run.append(delta)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _piece(run: list[Delta], place: int) -> Delta:
    for delta in run:
        if place < len(delta.text):
            return delta
        place -= len(delta.text)
    return run[-1]


@RULES(32, "a_markers", "W", Need.ENGINE)
def a_markers(case: Case) -> Iterator[Finding]:
    """The content has none of the markers of the model's format in it."""
    markers = case.evidence.engine.markers if case.evidence.engine is not None else ()
    for choice in case.said.choices.values():
        text = choice.text("content") or ""
        for marker in markers:
            place = text.find(marker)
            if place >= 0:
                delta = _holding(choice, "content", place)
                seen = f"choice {choice.index}: the marker {shown(marker)}"
                yield nowhere(seen) if delta is None else at(delta.event, seen)


# --- the finish -------------------------------------------------------------------------------------------------------


@RULES(33, "a_onefin", "E")
def a_onefin(case: Case) -> Iterator[Finding]:
    """Every choice finishes, once; in a stream with an error it may not have finished."""
    # A message without a reason to stop is told by the rule about message_delta.
    exempt = case.failed or not case.ended or (case.evidence.protocol == "messages" and case.said.terminals)
    for choice in case.said.choices.values():
        finishes = choice.finishes
        if len(finishes) > 1:
            yield at(finishes[1].event, f"choice {choice.index} finishes {len(finishes)} times")
        elif not finishes and not exempt:
            yield nowhere(f"choice {choice.index} does not finish")


@RULES(34, "a_afterfin", "E")
def a_afterfin(case: Case) -> Iterator[Finding]:
    """A choice has no text, calls or logprobs after its finish."""
    for choice in case.said.choices.values():
        for event in choice.after:
            yield at(event, f"choice {choice.index} goes on after its finish")


# --- usage ------------------------------------------------------------------------------------------------------------


@RULES(40, "a_usage", "E")
def a_usage(case: Case) -> Iterator[Finding]:
    """Usage numbers are non-negative integers, the total is input and output, and no detail is more than what it is a
    part of."""
    for usage in case.said.usages:
        for seen in (*_counts(usage.raw), *_sums(case, usage)):
            yield at(usage.event, seen)


def _counts(raw: dict[str, Any]) -> Iterator[str]:
    for key, value in raw.items():
        if value.__class__ is dict:
            yield from _counts(value)
            whole = raw.get(key.removesuffix("_details"))
            if key.endswith("_details") and whole.__class__ is int:
                for part, number in value.items():
                    if number.__class__ is int and number > whole:
                        yield f"{part} {number} of {key.removesuffix('_details')} {whole}"
        elif value is not None and key.endswith("tokens") and (value.__class__ is not int or value < 0):
            yield f"{key} {shown(value)}"


def _sums(case: Case, usage: SaidUsage) -> Iterator[str]:
    prompt, completion, total = usage.prompt, usage.completion, usage.total
    if case.evidence.protocol != "messages":
        counts = (("input", prompt), ("output", completion), ("total", total))
        yield from (f"no {name} tokens" for name, count in counts if count is None)
        if prompt is not None and completion is not None and total is not None and total != prompt + completion:
            yield f"total {total} of input {prompt} and output {completion}"
    loose = integer(usage.raw.get("reasoning_tokens"))  # as some servers have it
    if loose is not None and completion is not None and loose > completion:
        yield f"reasoning_tokens {loose} of output {completion}"


@RULES(41, "a_usagetok", "E", Need.ENGINE)
def a_usagetok(case: Case) -> Iterator[Finding]:
    """Output tokens are those that the engine generated over all choices, input tokens are the prompt's, once."""
    usage, engine = case.said.usage, case.evidence.engine
    if usage is None or engine is None:
        return
    generated = sum(len(choice.ids) for choice in engine.choices.values())
    if generated and usage.completion is not None and usage.completion != generated:
        yield at(usage.event, f"output {usage.completion}", f"the engine generated {generated}")
    if engine.prompt is not None and usage.prompt is not None and usage.prompt != engine.prompt:
        yield at(usage.event, f"input {usage.prompt}", f"the prompt has {engine.prompt}")


# --- the end ----------------------------------------------------------------------------------------------------------


@RULES(42, "a_errterm", "E")
def a_errterm(case: Case) -> Iterator[Finding]:
    """An error event is the last one but for the end marker: no usage, no finish, no text follows it."""
    errors = case.said.errors
    if not errors:
        return
    after: list[Event] = []
    for event in reversed(case.reading.events):
        if event.number <= errors[0].number:
            break
        after.append(event)
    protocol = case.evidence.protocol
    # An error ends a message; other servers put a message_stop behind it.
    marks = case.said.terminals if protocol != "messages" or not case.own else []
    ends = {event.number for event in marks}
    for event in reversed(after):
        if event.number not in ends:
            yield at(event, f"an event after the error: {shown(event.text)}")


@RULES(43, "a_trunc", "E")
def a_trunc(case: Case) -> Iterator[Finding]:
    """A body without the protocol's end marker is marked as cut off."""
    if case.ended and not case.said.terminals:
        marked = case.evidence.marked
        yield nowhere("no end marker" if marked is None else f"no end marker, but marked as {marked}")


RULES.all += common_calls.RULES.all
