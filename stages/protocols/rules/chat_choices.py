"""Rules 48-52 and 63-65: the choices of a chat completion stream, how each begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.chat_choice import ABSENT
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.rule import Finding, Rules

RULES = Rules("chat")
_REASONS: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")
_DATA: Final = ("content", "reasoning", "reasoning_content", "tool_calls", "function_call")


@RULES(48, "c_index", "E", Need.REQUEST)
def c_index(case: Case) -> Iterator[Finding]:
    """The index of every choice is an integer from 0 to below n."""
    stream, n = case.reading.view(view), case.asked.n
    for seen in stream.indexless:
        yield at(seen.event, "a choice without an index" if seen.value is ABSENT else f"index {shown(seen.value)}")
    for index, choice in stream.choices.items():
        if not 0 <= index < n:
            yield at(choice.first, f"index {index}, where n is {n}")


@RULES(49, "c_delta", "E")
def c_delta(case: Case) -> Iterator[Finding]:
    """Every choice is an object with an object ``delta``."""
    for seen in case.reading.view(view).deltaless:
        yield at(seen.event, f"no {seen.key}" if seen.value is ABSENT else f"{seen.key}: {shown(seen.value)}")


@RULES(50, "c_intro", "E")
def c_intro(case: Case) -> Iterator[Finding]:
    """Choices appear in the order 0, 1, 2, …, and inside a chunk in rising order."""
    stream = case.reading.view(view)
    asked = None if case.evidence.request is None else case.asked.n
    before = 0
    for index, choice in stream.choices.items():
        if index < 0 or (asked is not None and index >= asked):
            continue  # not a choice of this request: rule 48
        if index > before:
            yield at(choice.first, f"choice {index} appears when {before} have appeared")
        before += 1
    for event in stream.unsorted:
        yield at(event, "choices in falling order")


@RULES(51, "c_role", "E")
def c_role(case: Case) -> Iterator[Finding]:
    """The first delta of each choice has the role ``assistant``, and no later delta of it has a role."""
    for index, choice in case.reading.view(view).choices.items():
        if choice.begun is not None and choice.opening.get("role") != "assistant":
            role = choice.opening.get("role")
            yield at(choice.begun, f"choice {index} begins with {'no role' if role is None else f'role {shown(role)}'}")
        for seen in choice.roles:
            yield at(seen.event, f"choice {index}: role {shown(seen.value)} again")


@RULES(52, "c_rolefirst", "O")
def c_rolefirst(case: Case) -> Iterator[Finding]:
    """The first delta of each choice has no content, reasoning or calls."""
    for index, choice in case.reading.view(view).choices.items():
        data = [key for key in _DATA if choice.opening.get(key)]
        if choice.begun is not None and data:
            yield at(choice.begun, f"choice {index} begins with {data[0]}")


@RULES(63, "c_fin", "E")
def c_fin(case: Case) -> Iterator[Finding]:
    """``finish_reason`` is null until the last chunk of its choice, then one of the protocol's words."""
    for index, choice in case.reading.view(view).choices.items():
        if choice.keyless is not None:
            yield at(choice.keyless, f"choice {index}: no finish_reason")
        for end in choice.ends:
            if end.event.number != choice.last.number:
                yield at(end.event, f"choice {index}: more chunks after finish_reason {shown(end.reason)}")
            if end.reason not in _REASONS:
                known = isinstance(end.reason, str) and not case.own
                seen = f"choice {index}: finish_reason {shown(end.reason)}"
                yield at(end.event, seen, severity="W" if known else None)


@RULES(64, "c_finchunk", "O")
def c_finchunk(case: Case) -> Iterator[Finding]:
    """The delta of the chunk with the finish reason is empty."""
    for index, choice in case.reading.view(view).choices.items():
        for end in choice.ends:
            data = [key for key, value in end.delta.items() if value or (case.own and value is not None)]
            if data:
                yield at(end.event, f"choice {index}: {data[0]} beside finish_reason")


@RULES(65, "c_finall", "E", Need.REQUEST)
def c_finall(case: Case) -> Iterator[Finding]:
    """Without an error all n choices finish."""
    if case.failed or not case.ended:
        return
    choices = case.reading.view(view).choices
    asked = {index: choice for index, choice in choices.items() if 0 <= index < case.asked.n}
    for index, choice in asked.items():
        if not choice.ends:
            yield at(choice.last, f"choice {index} does not finish")
    # One finding: a request may ask for any number.
    if len(asked) < case.asked.n:
        yield nowhere(f"{case.asked.n - len(asked)} of {case.asked.n} choices do not appear")
