"""Rules 35-39: calls, and why a choice ended, in all protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.rule import Finding, Rules, Severity
from stages.protocols.rules.said import SaidCall, SaidChoice, SaidFinish
from stages.schema import Checker, checker
from stages.strict import parse

RULES = Rules()
_ITSELF: Final = ("stop", "calls")
"""Classes of finishes where nothing but the model ended the choice, or a stop string."""


@RULES(35, "a_idsuniq", "E")
def a_idsuniq(case: Case) -> Iterator[Finding]:
    """Call ids are not empty, and no two calls of the response have the same."""
    seen: dict[str, int] = {}
    for choice in case.said.choices.values():
        for call in choice.calls:
            if not call.id:
                yield at(call.event, f"choice {choice.index}: a call without an id")
            elif call.id not in seen:
                seen[call.id] = choice.index
            elif seen[call.id] == choice.index:
                yield at(call.event, f"choice {choice.index}: the id {shown(call.id)} again")
            else:
                # Formats whose ids are the model's own count from 0 in each choice, and only one choice is answered.
                text = f"choice {choice.index}: the id {shown(call.id)}, as in choice {seen[call.id]}"
                yield at(call.event, text, severity="W")


@RULES(36, "a_names", "W", Need.REQUEST)
def a_names(case: Case) -> Iterator[Finding]:
    """Every called name is one of the request's tools, where it has any."""
    tools = case.asked.tools
    if not tools:
        return
    for choice in case.said.choices.values():
        for call in choice.calls:
            if call.name is not None and call.name not in tools:
                yield at(call.event, f"choice {choice.index}: a call of {shown(call.name)}")


@RULES(37, "a_argsjson", "W", Need.REQUEST)
def a_argsjson(case: Case) -> Iterator[Finding]:
    """The arguments of a call that was not cut off are one JSON object, and satisfy the schema of a strict tool."""
    engine = case.evidence.engine
    constrained = engine is not None and engine.constrained
    checkers = {tool.name: checker(tool.schema) for tool in case.asked.tools.values() if tool.strict}
    for choice in case.said.choices.values():
        finish = choice.finish
        if finish is None or finish.kind not in _ITSELF or case.failed:
            continue
        for call in choice.calls[: -1 if _stopped_inside(case, choice, finish) else None]:
            strict = call.name in checkers
            severity: Severity = "E" if strict or constrained else "W"
            seen = _not_json(case, call) or (_misfit(checkers[call.name or ""], call) if strict else None)
            if seen is not None:
                yield at(call.event, f"choice {choice.index}: {shown(call.name)} has {seen}", severity=severity)


def _stopped_inside(case: Case, choice: SaidChoice, finish: SaidFinish) -> bool:
    """A stop string cut the last call: calls are not told by the finish then."""
    if finish.kind != "stop" or not choice.calls:
        return False
    meant = next((one for one in case.evidence.meant or () if one.choice == choice.index), None)
    if meant is not None and len(meant.tool_calls) == len(choice.calls) and meant.tool_calls[-1].complete:
        return False
    return case.asked.may_stop(finish.stop)


def _not_json(case: Case, call: SaidCall) -> str | None:
    # In messages an empty text is an empty object, and a rule of its own tells what is not JSON.
    if call.free or case.evidence.protocol == "messages":
        return None
    if not call.arguments:
        return "no arguments, not even {}"
    value, _ = parse(call.arguments)
    return None if isinstance(value, dict) else f"arguments that are no JSON object: {shown(call.arguments)}"


def _misfit(check: Checker | None, call: SaidCall) -> str | None:
    return None if check is None or call.free else check.fault(call.arguments or "{}")


@RULES(38, "a_choice", "E", Need.REQUEST)
def a_choice(case: Case) -> Iterator[Finding]:
    """The calls are what the tool choice wants: none, one tool's only, or at least one, and one at most where parallel
    calls are off."""
    asked = case.asked
    for choice in case.said.choices.values():
        calls, finish = choice.calls, choice.finish
        if asked.choice == "none" and calls:
            yield at(calls[0].event, f"choice {choice.index}: a call, where none was wanted")
        if asked.choice == "named":
            for call in calls:
                if call.name is not None and call.name != asked.named:
                    seen = f"choice {choice.index}: a call of {shown(call.name)}"
                    yield at(call.event, seen, f"only {shown(asked.named)} was wanted")
        done = finish is not None and finish.kind in _ITSELF and not case.failed
        if asked.choice == "required" and done and not calls:
            yield nowhere(f"choice {choice.index}: no call, where one was required")
        if not asked.parallel and len(calls) > 1:
            yield at(calls[1].event, f"choice {choice.index}: {len(calls)} calls, where one at most was wanted")


@RULES(39, "a_finwhy", "E")
def a_finwhy(case: Case) -> Iterator[Finding]:
    """A choice ends for its length where the engine came to its bound, at a stop string that was asked for, and for
    calls where there are some."""
    for choice in case.said.choices.values():
        finish = choice.finish
        if finish is None:
            continue
        if finish.kind == "calls" and not choice.calls:
            yield at(finish.event, f"choice {choice.index} finishes with {shown(finish.reason)}, and has no call")
        if finish.kind == "length":
            yield from _length(case, choice.index, finish)
        if isinstance(finish.stop, str) and case.evidence.request is not None:
            stops = case.asked.stops
            if not stops or (case.own and finish.stop not in stops):
                text = f"choice {choice.index} finishes at the stop string {shown(finish.stop)}"
                yield at(finish.event, text, f"{shown(stops)} were asked for")


def _length(case: Case, index: int, finish: SaidFinish) -> Iterator[Finding]:
    engine = case.evidence.engine
    choice = None if engine is None else engine.choices.get(index)
    if choice is None:
        return
    seen = f"choice {index} finishes with {shown(finish.reason)}"
    if choice.reason not in (None, "length", "context"):
        # In messages no other reason tells that an input is not whole.
        if case.evidence.protocol != "messages" or finish.reason != "max_tokens" or not case.unfinished(index):
            yield at(finish.event, seen, f"the engine ended with {choice.reason}")
    elif choice.reason == "length" and choice.cap is not None and choice.ids and len(choice.ids) != choice.cap:
        yield at(finish.event, f"{seen} after {len(choice.ids)} tokens", f"{choice.cap} tokens are the bound")
