"""Rules 90 to 115, of the responses protocol: here the ones about its events and the response as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules import responses_items, responses_parts
from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.reading import Event
from stages.protocols.rules.responses_view import LIFE, RULES, TERMINAL, View
from stages.protocols.rules.rule import Finding
from stages.protocols.rules.values import integer, obj, same, string

__all__ = ["RULES", "responses_items", "responses_parts"]

_CREATED, _QUEUED, _IN_PROGRESS = LIFE[:3]
_COMPLETED, _INCOMPLETE, _FAILED, _ERROR = TERMINAL
_REASONS = ("max_output_tokens", "content_filter", "max_messages", "steered")
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}


@RULES(90, "r_name", "E")
def r_name(case: Case) -> Iterator[Finding]:
    """Every event has a name, and it is the ``type`` of its JSON."""
    for event, _, value in case.reading.view(View).events:
        kind = value.get("type")
        if event.name != kind or not kind:
            yield at(event, f"name {shown(event.name)}, type {shown(kind)}")


@RULES(91, "r_seq", "E")
def r_seq(case: Case) -> Iterator[Finding]:
    """``sequence_number`` is 0 for the first event and rises by 1; in foreign streams it rises."""
    last = -1
    for event, _, value in case.reading.view(View).events:
        number = integer(value.get("sequence_number"))
        if number is None or number <= last:
            yield at(event, f"sequence_number {shown(value.get('sequence_number'))} after {last}")
            continue
        if number != last + 1:
            yield at(event, f"sequence_number {number}", str(last + 1), "O")
        last = number


@RULES(92, "r_first", "E")
def r_first(case: Case) -> Iterator[Finding]:
    """The first event is response.created with no output, queued or in progress; then response.in_progress comes,
    behind one response.queued at most."""
    events = case.reading.view(View).events
    if not events:
        return
    event, kind, value = events[0]
    if kind != _CREATED:
        yield at(event, f"the first event is {shown(kind)}")
        return
    response = obj(value.get("response"))
    if response.get("output") != []:
        yield at(event, f"output {shown(response.get('output'))}")
    if response.get("status") not in ("in_progress", "queued"):
        yield at(event, f"status {shown(response.get('status'))}")
    later = [one for one in events[1:5] if one[1] != "keepalive"]
    if later and later[0][1] == _QUEUED:
        del later[0]
    if later and later[0][1] not in (_IN_PROGRESS, _FAILED, _ERROR):
        yield at(later[0][0], f"{shown(later[0][1])} before {_IN_PROGRESS}")


@RULES(93, "r_term", "E")
def r_term(case: Case) -> Iterator[Finding]:
    """One event is terminal (completed, incomplete, failed, error), and it is the last; there is no [DONE]."""
    events = case.reading.events
    terminals = case.reading.view(View).terminals
    if not terminals:
        if case.ended:
            yield nowhere("no terminal event")
    else:
        for event, kind, _ in terminals[1:]:
            yield at(event, f"{kind} after {terminals[0][1]}")
        end = terminals[0][0].number
        after = {event.number for event, _, _ in terminals[1:]}
        late = [one for one in events if one.number > end and one.number not in after and one.text != "[DONE]"]
        if late:
            yield at(late[0], f"{len(late)} events after {terminals[0][1]}")
    for event in events:
        if event.text == "[DONE]":
            yield at(event, "[DONE]", severity="O")


@RULES(94, "r_respid", "E")
def r_respid(case: Case) -> Iterator[Finding]:
    """The response's id, created_at and model are there, and the same in all lifecycle events."""
    first: dict[str, Any] | None = None
    for event, kind, response in case.reading.view(View).life:
        if not response:
            yield at(event, f"{kind} without a response")
            continue
        first = response if first is None else first
        if not string(response.get("id")):
            yield at(event, f"id {shown(response.get('id'))}", "a string")
        for key in ("id", "created_at", "model"):
            if not same(response.get(key), first.get(key)):
                yield at(event, f"{key} {shown(response.get(key))}", shown(first.get(key)))


@RULES(109, "r_status", "E")
def r_status(case: Case) -> Iterator[Finding]:
    """A completed response has that status, no error and no incomplete_details; an incomplete one that status and a
    known reason; a failed one that status and an error with code and message."""
    for event, kind, response in case.reading.view(View).terminals:
        status = response.get("status")
        wanted = kind.removeprefix("response.")
        if kind != _ERROR and response and status != wanted:
            # Whoever cancels a response may have it reported as failed.
            cancelled = (kind, status) == (_FAILED, "cancelled")
            yield at(event, f"status {shown(status)}", wanted, "O" if cancelled else None)
        yield from _outcome(event, kind, response)


def _outcome(event: Event, kind: str, response: dict[str, Any]) -> Iterator[Finding]:
    error = response.get("error")
    details = response.get("incomplete_details")
    if kind == _COMPLETED:
        for key, value in (("error", error), ("incomplete_details", details)):
            if value is not None:
                yield at(event, f"{key} {shown(value)}", "null")
    elif kind == _INCOMPLETE:
        reason = obj(details).get("reason")
        if reason not in _REASONS:
            yield at(event, f"incomplete_details.reason {shown(reason)}", " or ".join(_REASONS))
    elif kind == _FAILED and response.get("status") != "cancelled":
        if not (string(obj(error).get("code")) and string(obj(error).get("message"))):
            yield at(event, f"error {shown(error)}", "an error with code and message")


@RULES(110, "r_usage", "E")
def r_usage(case: Case) -> Iterator[Finding]:
    """A completed or incomplete response has usage with all its fields; the lifecycle events before it have null."""
    for event, kind, response in case.reading.view(View).life:
        usage = response.get("usage")
        if kind not in TERMINAL:
            if usage is not None:
                yield at(event, f"usage {shown(usage)}", "null")
        elif kind != _FAILED:
            lacking = [key for key in _COUNTS if integer(obj(usage).get(key)) is None]
            if lacking:
                yield at(event, f"usage without {', '.join(lacking)}")
                continue
            for key, inner in _DETAILS.items():
                if any(integer(obj(obj(usage).get(key)).get(one)) is None for one in inner):
                    yield at(event, f"{key} {shown(obj(usage).get(key))}", f"with {' and '.join(inner)}", "O")


@RULES(113, "r_err", "E")
def r_err(case: Case) -> Iterator[Finding]:
    """An error event has its message at top level; no event has a truthy ``error`` there."""
    for event, kind, value in case.reading.view(View).events:
        if value.get("error"):
            yield at(event, f"error {shown(value['error'])}")
        if kind == _ERROR and not string(value.get("message")):
            yield at(event, f"message {shown(value.get('message'))}", "a text")


@RULES(114, "r_keep", "O")
def r_keep(case: Case) -> Iterator[Finding]:
    """There are no keepalive events; in foreign streams none before response.created, and none without a number."""
    created = False
    for event, kind, value in case.reading.view(View).events:
        created = created or kind == _CREATED
        if kind == "keepalive":
            numbered = integer(value.get("sequence_number")) is not None
            if case.own or not created or not numbered:
                yield at(event, "keepalive" if numbered else "keepalive without sequence_number")


@RULES(115, "r_n", "E")
def r_n(case: Case) -> Iterator[Finding]:
    """There is one response: no ``choices``, and no ``n`` but 1."""
    for event, _, value in case.reading.view(View).events:
        if "choices" in value:
            yield at(event, "choices")
    for event, _, response in case.reading.view(View).life:
        if "choices" in response:
            yield at(event, "choices in the response")
        if response.get("n", 1) not in (None, 1):
            yield at(event, f"n {shown(response['n'])}")
