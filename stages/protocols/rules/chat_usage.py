"""Rules 67-69: usage in a chat completion stream."""

from __future__ import annotations

from collections.abc import Iterator

from stages.protocols.rules.case import Case, at, nowhere
from stages.protocols.rules.chat_choice import ChatChoice
from stages.protocols.rules.chat_view import ChatView, UsageState, view
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.reading import Event
from stages.protocols.rules.rule import Finding, Rules

RULES = Rules("chat")


@RULES(67, "c_usage1", "E", Need.REQUEST)
def c_usage1(case: Case) -> Iterator[Finding]:
    """Usage that was asked for comes in one chunk without choices, after every finish, as the last chunk."""
    if not case.asked.include_usage or case.failed:
        return
    stream = case.reading.view(view)
    found = [event for event, usage, choices in stream.usage if usage.__class__ is dict and not choices]
    if not found:
        if case.ended:
            yield nowhere("no usage chunk")
    elif len(found) > 1:
        yield at(found[1], f"{len(found)} usage chunks")
    elif stream.last is not None and stream.last.number != found[0].number:
        yield at(found[0], "chunks after the usage chunk")


@RULES(68, "c_usage0", "O", Need.REQUEST)
def c_usage0(case: Case) -> Iterator[Finding]:
    """Where usage was asked for, all chunks but the usage chunk have ``usage: null``, unless it was asked for as it
    runs; where it was not, no chunk has the key."""
    asked, stream = case.asked, case.reading.view(view)
    if not asked.include_usage:
        if not asked.continuous or case.own:
            for event, state in stream.usages:
                if state != "absent":
                    yield at(event, "usage" if state == "there" else "usage: null", "no such key: it was not asked for")
        return
    if asked.continuous:
        return
    final = {event.number for event, _, choices in stream.usage if not choices}
    for event, state in _first(stream):
        if state != "null" and event.number not in final:
            yield at(event, "no usage" if state == "absent" else "usage beside other things", "usage: null")


def _first(stream: ChatView) -> Iterator[tuple[Event, UsageState]]:
    """The states, each absence only once: most servers leave null out."""
    told = False
    for event, state in stream.usages:
        if state != "absent" or not told:
            yield event, state
        told = told or state == "absent"


@RULES(69, "c_usagec", "E", Need.REQUEST)
def c_usagec(case: Case) -> Iterator[Finding]:
    """Running usage: prompt tokens stay the same, the completion tokens of a choice do not fall, and the final ones
    are the sum over the choices."""
    stream = case.reading.view(view)
    running = {index: choice for index, choice in stream.choices.items() if choice.running}
    if not running:
        return
    prompts = [usage for usage in case.said.usages if usage.prompt is not None]
    for usage in prompts:
        if usage.prompt != prompts[0].prompt:
            yield at(usage.event, f"prompt_tokens {usage.prompt}", f"{prompts[0].prompt} as before")
    for index, choice in running.items():
        before = 0
        for usage in choice.running:
            count = usage.completion
            if count is not None:
                if count < before:
                    yield at(usage.event, f"choice {index}: completion_tokens {count}", f"{before} or more, as before")
                before = count
    yield from _sum(case, stream)


def _sum(case: Case, stream: ChatView) -> Iterator[Finding]:
    final = case.said.usage
    last = [_last(choice) for choice in stream.choices.values()]
    if final is None or final.completion is None or None in last:
        return
    total = sum(count for count in last if count is not None)
    # What came in the step of a stop string, or after it, is counted in the end.
    finishes = [choice.said.finish for choice in stream.choices.values()]
    cut = any(finish is not None and case.asked.may_stop(finish.stop) for finish in finishes)
    if total != final.completion and not (cut and total < final.completion):
        yield at(final.event, f"completion_tokens {final.completion}", f"{total}: the sum over the choices")


def _last(choice: ChatChoice) -> int | None:
    """What was counted when the choice finished; None where that chunk has no count."""
    usage = choice.running[-1] if choice.running else None
    told = usage is not None and any(end.event.number == usage.event.number for end in choice.ends)
    return usage.completion if usage is not None and told else None
