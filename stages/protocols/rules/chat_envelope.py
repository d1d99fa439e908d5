"""Rules 44-47, 70 and 75-77: what is around the choices of a chat completion stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.chat_choice import ABSENT
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import obj

RULES = Rules("chat")
_OBJECT: Final = "chat.completion.chunk"
_PLAIN: Final = frozenset(("id", "object", "created", "model", "system_fingerprint", "choices", "usage"))


@RULES(44, "c_object", "E")
def c_object(case: Case) -> Iterator[Finding]:
    """The ``object`` of every chunk is ``chat.completion.chunk``."""
    for event, (kind, *_) in case.reading.view(view).envelopes:
        if kind != _OBJECT:
            yield at(event, f"object {shown(kind)}")


@RULES(45, "c_const", "E")
def c_const(case: Case) -> Iterator[Finding]:
    """``id``, ``created`` and ``model`` are the same in all chunks; the id is not empty, the time an integer."""
    envelopes = case.reading.view(view).envelopes
    for number, (event, (_, id, created, model, _)) in enumerate(envelopes):
        first = envelopes[0][1]
        if number == 0:
            if not isinstance(id, str) or not id:
                yield at(event, f"id {shown(id)}")
            if created.__class__ is not int:
                yield at(event, f"created {shown(created)}")
            if not isinstance(model, str):
                yield at(event, f"model {shown(model)}")
        for key, value, before in (("id", id, first[1]), ("created", created, first[2]), ("model", model, first[3])):
            if value != before or value.__class__ is not before.__class__:
                yield at(event, f"{key} {shown(value)}", f"{shown(before)} as in the first chunk")


@RULES(46, "c_choices", "E")
def c_choices(case: Case) -> Iterator[Finding]:
    """``choices`` is an array in every chunk."""
    for seen in case.reading.view(view).shapeless:
        yield at(seen.event, "no choices" if seen.value is ABSENT else f"choices {shown(seen.value)}")


@RULES(47, "c_emptych", "O")
def c_emptych(case: Case) -> Iterator[Finding]:
    """Only the usage chunk has no choices; in other servers' streams also chunks that bring something of their own."""
    for event, chunk in case.reading.view(view).bare:
        if not obj(chunk.get("usage")):
            own = any(value is not None and key not in _PLAIN for key, value in chunk.items())
            if case.own or not own:
                yield at(event, "a chunk without choices and without usage")


@RULES(70, "c_fp", "O")
def c_fp(case: Case) -> Iterator[Finding]:
    """``system_fingerprint`` is the same in all chunks that have it, and the last chunk has it if any has."""
    stream = case.reading.view(view)
    first = None
    for event, (*_, value) in stream.envelopes:
        if first is None:
            first = value
        elif value is not None and value != first:
            yield at(event, f"system_fingerprint {shown(value)}", f"{shown(first)} as in an earlier chunk")
    if stream.last is not None and first is not None and stream.envelopes[-1][1][-1] is None:
        yield at(stream.last, "the last chunk has no system_fingerprint", f"{shown(first)} as in an earlier chunk")


@RULES(75, "c_done", "E")
def c_done(case: Case) -> Iterator[Finding]:
    """The last event is ``[DONE]``, and there is one."""
    done, events = case.said.terminals, case.reading.events
    if not done:
        if case.ended:
            yield nowhere("no [DONE]")
    elif len(done) > 1:
        yield at(done[1], f"[DONE] {len(done)} times")
    elif events[-1].number != done[0].number:
        yield at(done[0], "[DONE], and more events")


@RULES(76, "c_err", "E")
def c_err(case: Case) -> Iterator[Finding]:
    """An error event has no name and nothing but an ``error`` object whose message is not empty."""
    for event, chunk in case.reading.view(view).errors:
        error = chunk["error"]
        if error.__class__ is not dict:
            yield at(event, f"error {shown(error)}")
        elif not isinstance(error.get("message"), str) or not error["message"]:
            yield at(event, f"an error whose message is {shown(error.get('message'))}")
        if "choices" in chunk:
            yield at(event, "an error beside choices")
        if event.name is not None:
            yield at(event, f"an error event with the name {shown(event.name)}")


@RULES(77, "c_named", "O")
def c_named(case: Case) -> Iterator[Finding]:
    """No event has a name."""
    for event in case.reading.view(view).named:
        yield at(event, f"the name {shown(event.name)}")
