"""Rules 57-62 and 66: the calls of a chat completion stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.message import Message
from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.said import SaidCall, SaidChoice
from stages.protocols.rules.values import obj
from stages.strict import parse

RULES = Rules("chat")


@RULES(57, "c_tcentry", "E")
def c_tcentry(case: Case) -> Iterator[Finding]:
    """``tool_calls`` is an array of objects with an integer index from 0 on."""
    for index, choice in case.reading.view(view).choices.items():
        for seen in choice.wrong:
            yield at(seen.event, f"choice {index}: tool_calls with {shown(seen.value)}")


@RULES(58, "c_tcgap", "E")
def c_tcgap(case: Case) -> Iterator[Finding]:
    """A new call's index is the number of calls that the choice began before."""
    for index, choice in case.reading.view(view).choices.items():
        for number, (event, due) in choice.gaps.items():
            yield at(event, f"choice {index}: call index {number}", f"index {due}")


@RULES(59, "c_tchead", "E")
def c_tchead(case: Case) -> Iterator[Finding]:
    """The first entry of a call has an id, a type, a name, and its arguments as a string, be it an empty one."""
    for index, choice in case.reading.view(view).choices.items():
        for event, entry in choice.heads:
            lacking = [key for key in ("id", "type") if not isinstance(entry.get(key), str) or not entry[key]]
            spec = obj(entry.get("custom" if entry.get("type") == "custom" else "function"))
            if not isinstance(spec.get("name"), str) or not spec["name"]:
                lacking.append("name")
            if entry.get("type") == "function" and not isinstance(spec.get("arguments"), str):
                lacking.append("arguments")
            if lacking:
                yield at(event, f"choice {index}: a call begins without {', '.join(lacking)}: {shown(entry)}")


@RULES(60, "c_tccont", "E")
def c_tccont(case: Case) -> Iterator[Finding]:
    """Later entries of a call have no id and no name, not even empty ones."""
    for index, choice in case.reading.view(view).choices.items():
        for event, entry in choice.later:
            told: list[tuple[str, Any]] = [("id", entry.get("id"))]
            told += [(f"{key}.name", obj(entry.get(key)).get("name")) for key in ("function", "custom")]
            again = [f"{key} {shown(value)}" for key, value in told if value is not None]
            if again:
                yield at(event, f"choice {index}: {', '.join(again)} in a later entry of call {entry['index']}")


@RULES(61, "c_tcfunc", "E")
def c_tcfunc(case: Case) -> Iterator[Finding]:
    """Every entry of a function's call has a ``function`` object."""
    for index, choice in case.reading.view(view).choices.items():
        for event in choice.bare:
            yield at(event, f"choice {index}: an entry without a function")


@RULES(62, "c_tcseq", "E")
def c_tcseq(case: Case) -> Iterator[Finding]:
    """A call is over when the next one begins: indexes do not fall."""
    for index, choice in case.reading.view(view).choices.items():
        for event, number, before in choice.back:
            yield at(event, f"choice {index}: call {number} after call {before}")


@RULES(66, "c_tcfin", "E", Need.REQUEST)
def c_tcfin(case: Case) -> Iterator[Finding]:
    """A choice finishes with ``tool_calls`` where it has calls, all complete, and ended by itself or at a stop string,
    and no function was named."""
    meants = {message.choice: message for message in case.evidence.meant or ()}
    for choice in case.said.choices.values():
        finish = choice.finish
        # Other servers differ in what they say of a function that was named.
        if finish is None or (choice.calls and case.asked.choice == "named" and not case.own):
            continue
        meant = meants.get(choice.index)
        problem = None
        if finish.kind == "calls":
            problem = _no_calls(case, choice, meant)
        elif finish.kind == "stop" and not _named(case) and _complete(choice, meant):
            # Without word of what was meant, a stop string may have matched inside a call, behind its arguments.
            at_stop = meant is None and case.asked.may_stop(finish.stop)
            problem = None if at_stop else "its calls are complete"
        if problem is not None:
            yield at(finish.event, f"choice {choice.index} finishes with {shown(finish.reason)}: {problem}")


def _named(case: Case) -> bool:
    return case.asked.choice == "named" and case.asked.named_finish != "tool_calls"


def _no_calls(case: Case, choice: SaidChoice, meant: Message | None) -> str | None:
    if not choice.calls:
        return "it has no call"
    if _named(case):
        return "the function was named"
    if meant is not None and not all(call.complete for call in meant.tool_calls):
        return "a call is not complete"
    if meant is not None and meant.finish_reason in ("length", "content_filter"):
        return f"it ended with {meant.finish_reason}"
    return None


def _complete(choice: SaidChoice, meant: Message | None) -> bool:
    """There are calls, and all are complete: where nobody knows what was meant, their arguments can be read."""
    if meant is not None:
        return bool(meant.tool_calls) and all(call.complete for call in meant.tool_calls)
    return bool(choice.calls) and all(map(_readable, choice.calls))


def _readable(call: SaidCall) -> bool:
    return call.arguments is not None and (call.free or isinstance(parse(call.arguments)[0], dict))
