"""Rules 116 to 131, of the messages protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.messages_view import DELTAS, TOOLS, Block, View
from stages.protocols.rules.reading import Event
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import integer, obj, string

RULES = Rules("messages")

_REASONS = (
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded",
)  # fmt: skip
_EMPTY: dict[str, Any] = {"type": "message", "role": "assistant", "content": [], "stop_reason": None}
_CUT = ("max_tokens", "model_context_window_exceeded")
_ERRORS = (
    "invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
    "conflict_error", "request_too_large", "rate_limit_error", "api_error", "timeout_error", "overloaded_error",
)  # fmt: skip


@RULES(116, "m_name", "E")
def m_name(case: Case) -> Iterator[Finding]:
    """Every event has a name, and it is the ``type`` of its JSON."""
    for event, _, value in case.reading.view(View).events:
        kind = value.get("type")
        if event.name != kind or not kind:
            yield at(event, f"name {shown(event.name)}, type {shown(kind)}")


@RULES(117, "m_first", "E")
def m_first(case: Case) -> Iterator[Finding]:
    """The first event but pings is message_start, the only one: an empty message of the assistant, not stopped, with
    counts of input and output tokens."""
    view = case.reading.view(View)
    first = next((one for one in view.events if one[1] != "ping"), None)
    if first is None:
        if case.ended:
            yield nowhere("no message_start")
    elif first[1] not in ("message_start", "error"):  # an error may come at any time
        yield at(first[0], f"the first event is {shown(first[1])}")
    for event, value in view.starts[:1]:
        message = obj(value.get("message"))
        for key, wanted in _EMPTY.items():
            if message.get(key) != wanted:
                yield at(event, f"{key} {shown(message.get(key))}", shown(wanted))
        for key in ("input_tokens", "output_tokens"):
            if integer(obj(message.get("usage")).get(key)) is None:
                yield at(event, f"usage {shown(message.get('usage'))}", f"with {key}")
    for event, _ in view.starts[1:]:
        yield at(event, "message_start again")


@RULES(118, "m_index", "E")
def m_index(case: Case) -> Iterator[Finding]:
    """Blocks start with index 0, 1, 2 and so on; deltas and stops have the index of an open block."""
    for event, seen in case.reading.view(View).misplaced:
        yield at(event, seen)


@RULES(119, "m_single", "E")
def m_single(case: Case) -> Iterator[Finding]:
    """A block stops before the next starts, and before message_delta or an error."""
    for event, seen in case.reading.view(View).overlaps:
        yield at(event, seen)


@RULES(120, "m_kind", "E")
def m_kind(case: Case) -> Iterator[Finding]:
    """A delta is of the kind of its block, and has its text; redacted thinking has none."""
    view = case.reading.view(View)
    for event, seen in view.textless:
        yield at(event, seen)
    for block in view.blocks:
        for event, kind, _ in block.deltas:
            if block.kind == "redacted_thinking" or (kind in DELTAS and block.kind not in DELTAS[kind][0]):
                yield at(event, f"{kind} in a {block.kind} block")


@RULES(121, "m_start", "E")
def m_start(case: Case) -> Iterator[Finding]:
    """A text block starts with text "", a thinking block with thinking "" and signature "", a tool_use block with id,
    name and input {}."""
    for block in case.reading.view(View).blocks:
        event, start = block.event, block.start
        if block.kind is None:
            yield at(event, f"a block of type {shown(start.get('type'))}")
        elif block.kind in ("text", "thinking"):
            if start.get(block.kind) != "":
                yield at(event, f"{block.kind} {shown(start.get(block.kind))}", '""')
            if block.kind == "thinking" and start.get("signature") != "":
                yield at(event, f"signature {shown(start.get('signature'))}", '""', "O")
        elif block.kind == "tool_use":
            for key in ("id", "name"):
                if not string(start.get(key)):
                    yield at(event, f"{key} {shown(start.get(key))}", "a text")
            if start.get("input") != {}:
                yield at(event, f"input {shown(start.get('input'))}", "{}")


@RULES(122, "m_sig", "E")
def m_sig(case: Case) -> Iterator[Finding]:
    """A thinking block has one signature_delta, and it is its last delta."""
    view = case.reading.view(View)
    for block in view.blocks:
        if block.kind != "thinking":
            continue
        places = [place for place, (_, kind, _) in enumerate(block.deltas) if kind == "signature_delta"]
        for place in places[1:]:
            yield at(block.deltas[place][0], "a signature_delta again")
        if places and places[0] != len(block.deltas) - 1 and len(places) == 1:
            yield at(block.deltas[places[0] + 1][0], f"{block.deltas[places[0] + 1][1]} after the signature")
        cut = bool(view.errors) and block is view.blocks[-1]
        if not places and block.stop is not None and not cut:
            yield at(block.stop, "no signature_delta", severity="O")


@RULES(123, "m_json", "E")
def m_json(case: Case) -> Iterator[Finding]:
    """The partial_json of a stopped block, joined, is nothing or one JSON object, unless the message was cut."""
    view = case.reading.view(View)
    reason = _last(view).get("stop_reason")
    if view.errors or not view.changes or reason in (*_CUT, "stop_sequence") or _filtered(case, reason):
        return
    for block in view.blocks:
        if block.kind in TOOLS and block.stop is not None and not block.finished():
            yield at(block.stop, f"input {shown(block.joined())}", "a JSON object")


def _last(view: View) -> dict[str, Any]:
    """The delta that counts: of the last message_delta."""
    return obj(view.changes[-1][1].get("delta")) if view.changes else {}


@RULES(124, "m_delta", "E")
def m_delta(case: Case) -> Iterator[Finding]:
    """Without error one message_delta comes, after the last block, with a stop_reason, a stop_sequence (or null) and
    usage.output_tokens."""
    view = case.reading.view(View)
    if view.errors:
        return
    if not view.changes:
        if case.ended:
            yield nowhere("no message_delta")
        return
    for event, _ in view.changes[1:]:
        yield at(event, "message_delta again", severity="O")
    for event in view.late:
        yield at(event, "a block's event after message_delta")
    for event, value in view.changes:
        usage = obj(value.get("usage"))
        if integer(usage.get("output_tokens")) is None:
            yield at(event, f"usage {shown(value.get('usage'))}", "with output_tokens")
    event, last = view.changes[-1][0], _last(view)
    if last.get("stop_reason") is None:
        yield at(event, "stop_reason null")
    if "stop_sequence" not in last:
        yield at(event, "no stop_sequence", "a text or null")


@RULES(125, "m_stop", "E")
def m_stop(case: Case) -> Iterator[Finding]:
    """Without error the last event is message_stop, the only one; with an error there is none."""
    view = case.reading.view(View)
    if view.errors:
        for event, _ in view.stops:
            yield at(event, "message_stop in a stream with an error", severity="O")
        return
    if not view.stops:
        if case.ended:
            yield nowhere("no message_stop")
        return
    for event, _ in view.stops[1:]:
        yield at(event, "message_stop again")
    last = view.events[-1][0]
    if last is not view.stops[-1][0]:
        yield at(last, "an event after message_stop")


def _filtered(case: Case, reason: str | None) -> bool:
    """A filter, which cuts too, ended the message; where the engine is not known, it may have been one."""
    engine = case.evidence.engine
    known = None if engine is None else engine.choices.get(0)
    return reason == "refusal" and (known is None or known.reason in (None, "filter"))


@RULES(126, "m_reason", "E")
def m_reason(case: Case) -> Iterator[Finding]:
    """stop_reason is one of the protocol's; it is tool_use where there are whole calls, and only there; stop_sequence
    has a text where it is the reason, and only there."""
    view = case.reading.view(View)
    if not view.changes:
        return
    event, last = view.changes[-1][0], _last(view)
    reason, stop = last.get("stop_reason"), last.get("stop_sequence")
    if reason is not None and reason not in _REASONS:
        yield at(event, f"stop_reason {shown(reason)}", " or ".join(_REASONS))
    if (stop is not None) != (reason == "stop_sequence") or (stop is not None and stop.__class__ is not str):
        yield at(event, f"stop_reason {shown(reason)}, stop_sequence {shown(stop)}")
    calls = [block for block in view.blocks if block.kind == "tool_use"]
    if reason == "tool_use" and not calls:
        yield at(event, "stop_reason tool_use without a tool_use block")
    whole = bool(calls) and all(map(Block.finished, calls))
    # What a stop string cut may read as if it were whole.
    if whole and (reason == "end_turn" or (reason == "stop_sequence" and not case.unfinished(0))):
        yield at(event, f"stop_reason {reason} after {len(calls)} whole calls", "tool_use")
    if reason == "tool_use" and case.evidence.meant is not None and case.unfinished(0):
        yield at(event, "stop_reason tool_use with a call that is not complete")


@RULES(127, "m_usage", "E")
def m_usage(case: Case) -> Iterator[Finding]:
    """output_tokens never falls; input_tokens stays as it began, but for those that a cache proves to have had; with
    the cached ones it is the prompt's tokens, which may be 0 in the beginning, where they are not known yet."""
    view = case.reading.view(View)
    first = obj(obj(view.starts[0][1].get("message")).get("usage")) if view.starts else {}
    prompt, output = integer(first.get("input_tokens")), integer(first.get("output_tokens"))
    if view.changes and (prompt is None or output is None):
        yield at(view.changes[0][0], "counts that message_start did not begin")
    counts = dict(first)
    for event, value in view.changes:
        usage = obj(value.get("usage"))
        new, told = integer(usage.get("output_tokens")), usage.get("input_tokens")
        if new is not None and output is not None and new < output:
            yield at(event, f"output_tokens {new} after {output}")
        output = output if new is None else new
        before = _input(counts)
        counts.update({key: one for key, one in usage.items() if one is not None})
        if told is not None and prompt is not None and told != prompt and before not in (0, _input(counts)):
            yield at(event, f"input_tokens {shown(told)}", str(prompt))
    engine = case.evidence.engine
    if engine is not None and engine.prompt is not None and view.starts:
        event = view.changes[-1][0] if view.changes else view.starts[0][0]
        yield from _prompt(event, counts, engine.prompt)


_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _input(counts: dict[str, Any]) -> int:
    return sum(integer(counts.get(key)) or 0 for key in _INPUT)


def _prompt(event: Event, counts: dict[str, Any], prompt: int) -> Iterator[Finding]:
    found = [integer(counts.get(key)) or 0 for key in _INPUT]
    if sum(found) != prompt:
        yield at(event, f"{' + '.join(map(str, found))} tokens of input", str(prompt))


@RULES(128, "m_err", "E")
def m_err(case: Case) -> Iterator[Finding]:
    """An error has a known type and a message, and is the last event."""
    view = case.reading.view(View)
    for event, value in view.errors:
        error = obj(value.get("error"))
        if error.get("type") not in _ERRORS:
            yield at(event, f"error.type {shown(error.get('type'))}", " or ".join(_ERRORS))
        if not string(error.get("message")):
            yield at(event, f"error.message {shown(error.get('message'))}", "a text")
    if view.errors:
        end = view.errors[0][0].number
        late = [one for one in view.events if one[0].number > end and one[1] != "message_stop"]
        if late:
            yield at(late[0][0], f"{late[0][1]} after an error")


@RULES(129, "m_ping", "E")
def m_ping(case: Case) -> Iterator[Finding]:
    """A ping is {"type":"ping"}."""
    for event, kind, value in case.reading.view(View).events:
        if (kind == "ping" or event.name == "ping") and value != {"type": "ping"}:
            yield at(event, shown(value))


@RULES(130, "m_nodone", "E")
def m_nodone(case: Case) -> Iterator[Finding]:
    """There is no [DONE]."""
    for event in case.reading.events:
        if event.text == "[DONE]":
            yield at(event, "[DONE]")


@RULES(131, "m_block0", "O")
def m_block0(case: Case) -> Iterator[Finding]:
    """A message without error has a block."""
    view = case.reading.view(View)
    if not view.blocks and not view.errors and (view.changes or view.stops):
        yield nowhere("a message without blocks")
