"""The catalogue of faults: each, made on a golden stream, breaks the rules that it lists, and none but those of ALSO.

Numbers as in the catalogue; a row is (stream, what is done to it, rules that it must break).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.wire import (
    ABSENT,
    Stream,
    ask,
    chunk,
    compact,
    drop,
    els,
    fired,
    full,
    golden,
    insert,
    put,
    raw,
    sub,
    swap,
)

Change = Callable[[Stream], Stream]


@dataclass(frozen=True)
class Row:
    """A fault. ``ready``: what makes the golden stream its base, where that is not the golden stream itself."""

    base: str
    what: str
    breaks: set[int]
    change: Change
    ready: Change = lambda stream: stream


CHOICE = ("choices", 0)
DELTA = ("choices", 0, "delta")
CALL = ("choices", 0, "delta", "tool_calls", 0)
TOOLS = golden("G02").request["tools"]


# --- edits that take more than a line -------------------------------------------------------------------------------


def umlaut(stream: Stream) -> Stream:
    return stream.edited(put(1, *DELTA, "content", to="Blåu"))


def cut_in_character(body: bytes) -> bytes:
    return body[: body.index("å".encode()) + 1]


def two_data_lines(body: bytes) -> bytes:
    """The payload of the second event, broken after its opening brace."""
    head, second, rest = body.split(b"\n\n", 2)
    assert second.startswith(b"data: {")
    return b"\n\n".join((head, second.replace(b"data: {", b"data: {\ndata: ", 1), rest))


def comment_inside(body: bytes) -> bytes:
    return body.replace(b"\n\n", b"\n: here\n\n", 1)


def everywhere(key: str, value: Any) -> Callable[[list[Any]], None]:
    """Set a key of every choice."""

    def edit(elements: list[Any]) -> None:
        for element in elements[:-1]:
            for choice in element["choices"]:
                choice[key] = value

    return edit


def call_indexes(shift: int) -> Callable[[list[Any]], None]:
    def edit(elements: list[Any]) -> None:
        for element in elements[:-1]:
            for entry in element["choices"][0]["delta"].get("tool_calls", ()):
                entry["index"] += shift

    return edit


def running(*counts: int) -> Callable[[list[Any]], None]:
    """Usage on the first chunks, as it runs."""

    def edit(elements: list[Any]) -> None:
        for element, count in zip(elements, counts, strict=False):
            element["usage"] = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}

    return edit


def continuous(stream: Stream) -> Stream:
    asked = stream.asking(stream_options={"include_usage": True, "continuous_usage_stats": True})
    return asked.edited(running(0, 2, 3, 4))


def message_parts_from_one(elements: list[Any]) -> None:
    for element in elements:
        if element.get("item_id") == "msg_1":
            element["content_index"] = 1


def call_arguments(text: str, *, last: str) -> Callable[[list[Any]], None]:
    """The call's arguments, the same in all places."""

    def edit(elements: list[Any]) -> None:
        elements[17]["delta"] = last
        elements[18]["arguments"] = text
        elements[19]["item"]["arguments"] = text
        elements[20]["response"]["output"][2]["arguments"] = text

    return edit


def misnamed(stream: Stream) -> Stream:
    return stream.reworked(sub(b"event: response.output_text.delta\n", b"event: response.output_text.part\n"))


def doubled_key(elements: list[Any]) -> None:
    text = compact(full("chat", elements[1], 1))
    elements[1] = text.replace('"content":"Blue"', '"content":"Blue","content":"Blue"')


def summary_without_part(elements: list[Any]) -> None:
    place = {"output_index": 0, "item_id": "rs_1", "summary_index": 0}
    elements[7:7] = [
        {"type": "reasoning_summary_text.delta", **place, "delta": "Tides."},
        {"type": "reasoning_summary_text.done", **place, "text": "Tides."},
    ]


ITEM: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "status": "in_progress"}
LATE_TEXT: dict[str, Any] = {
    "type": "output_text.delta", "output_index": 1, "item_id": "msg_1", "content_index": 0, "delta": " late",
    "logprobs": [],
}  # fmt: skip

CHAT: dict[str, Row] = {
    "M001": Row("G01", "BOM in front", {11, 14}, raw(lambda body: b"\xef\xbb\xbf" + body)),
    "M002": Row("G01", "all LF become CR LF", {12}, raw(sub(b"\n", b"\r\n", -1))),
    "M004": Row("G01", "cut inside a character", {10, 13, 33, 43, 65, 67, 75}, raw(cut_in_character), umlaut),
    "M005": Row("G01", "data: without space", {14}, raw(sub(b"data: ", b"data:"))),
    "M007": Row("G01", "block with only retry", {14, 16}, els(insert(2, b"retry: 5\n\n"))),
    "M008": Row("G01", "block with only event", {17}, els(insert(2, b"event: ping\n\n"))),
    "M010": Row("G01", "payload over two data lines", {19}, raw(two_data_lines)),
    "M011": Row("G01", "payload is an array", {20}, els(insert(2, "[1]"))),
    "M013": Row("G06", "logprob NaN", {21, 73}, raw(sub(b'"logprob":-1.5', b'"logprob":NaN'))),
    "M014": Row("G01", "duplicate key", {21}, els(doubled_key)),
    "M016": Row("G01", "comment inside an event", {22}, raw(comment_inside)),
    "M017": Row("G01", "event after [DONE]", {24}, els(insert(6, chunk({}, usage=None)))),
    "M019": Row("G01", "object chat.completion", {44}, els(put(2, "object", to="chat.completion"))),
    "M020": Row("G01", "id changes", {45}, els(put(2, "id", to="chatcmpl-other"))),
    "M022": Row("G01", "choices [] in the middle", {47}, els(insert(2, {"choices": [], "usage": None}))),
    "M023": Row("G01", "choice index 1 with n=1", {48, 65}, els(everywhere("index", 1))),
    "M025": Row("G01", "delta null", {49}, els(put(1, *DELTA, to=None))),
    "M026": Row("G04", "choice 1 before choice 0", {50}, els(swap(0, 1))),
    "M028": Row("G01", "role repeated", {51}, els(put(1, *DELTA, "role", to="assistant"))),
    "M029": Row("G01", "content is a number", {53}, els(put(1, *DELTA, "content", to=5))),
    "M031": Row("G03", "reasoning after content", {55},
                els(insert(4, chunk({"reasoning": "?", "reasoning_content": "?"})))),
    "M032": Row("G01", "content and refusal", {56}, els(insert(3, chunk({"refusal": "No."}, usage=None)))),
    "M034": Row("G02", "first tool index is 1", {39, 58, 66}, els(call_indexes(1))),
    "M035": Row("G02", "header without id", {35, 59}, els(drop(1, *CALL, "id"))),
    "M037": Row("G02", "continuation without function", {37, 61}, els(drop(3, *CALL, "function"))),
    "M038": Row("G02", "calls interleaved", {62}, els(swap(3, 4))),
    "M040": Row("G02", "arguments cut", {37}, els(put(3, *CALL, "function", "arguments", to='"Brest"'))),
    "M041": Row("G02", "arguments empty", {37}, els(drop(5))),
    "M043": Row("G02", "finish stop with calls under auto", {66}, els(put(6, *CHOICE, "finish_reason", to="stop"))),
    "M044": Row("G01", "finish tool_calls without calls", {39, 66},
                els(put(3, *CHOICE, "finish_reason", to="tool_calls"))),
    "M046": Row("G02", "calls although none", {38}, ask(tool_choice="none")),
    "M047": Row("G01", "no call although required", {38}, ask(tools=TOOLS, tool_choice="required"), ask(tools=TOOLS)),
    "M049": Row("G01", "text on the finish chunk", {64}, els(put(3, *DELTA, "content", to="!"))),
    "M050": Row("G01", "no finish chunk", {33, 65}, els(drop(3))),
    "M052": Row("G01", "content after finish", {34, 63}, els(insert(4, chunk({"content": "!"}, usage=None)))),
    "M053": Row("G01", "usage chunk before finish", {67}, els(swap(3, 4))),
    "M055": Row("G01", "total_tokens wrong", {40}, els(put(4, "usage", "total_tokens", to=14))),
    "M056": Row("G01", "usage chunk without being asked", {68}, ask(stream_options=ABSENT)),
    "M058": Row("G06", "logprobs without being asked", {71}, ask(logprobs=ABSENT)),
    "M059": Row("G06", "positive logprob", {73},
                els(put(1, *CHOICE, "logprobs", "content", 0, "logprob", to=0.2))),
    "M061": Row("G01", "[DONE] missing", {43, 75}, els(drop(5))),
    "M062": Row("G01", "[DONE] twice", {24, 75}, els(insert(6, "[DONE]"))),
    "M064": Row("G05", "content after the error event", {42}, els(insert(3, chunk({"content": "ue"})))),
    "M065": Row("G01", "an event name", {77}, raw(sub(b'data: {"id"', b'event: chunk\ndata: {"id"'))),
    "M067": Row("G01", "objects without index", {78}, els(put(1, *DELTA, "annotations", to=[{"url": "x"}]))),
    "M068": Row("G01", "empty delta in the middle", {30}, els(insert(2, chunk({}, usage=None)))),
    "M070": Row("G01", "U+FFFD in content", {29}, els(put(1, *DELTA, "content", to="Bl\ufffde"))),
    "M071": Row("G01", "continuous usage falls", {69}, els(running(0, 3, 2, 4)), continuous),
}  # fmt: skip

OTHERS: dict[str, Row] = {
    "M073": Row("G07", "index 1 with one prompt", {81}, els(everywhere("index", 1))),
    "M074": Row("G07", "text null", {82}, els(put(1, *CHOICE, "text", to=None))),
    "M076": Row("G08", "echo without the prompt", {84}, els(drop(0))),
    "M077": Row("G08", "arrays of unequal length", {85}, els(drop(0, *CHOICE, "logprobs", "token_logprobs", 1))),
    "M079": Row("G08", "text_offset falls", {86}, els(put(1, *CHOICE, "logprobs", "text_offset", to=[2]))),
    "M080": Row("G07", "usage chunk missing", {87}, els(drop(3))),
    "M082": Row("G07", "delta in a choice", {89}, els(put(1, *CHOICE, "delta", to={}))),
    "M083": Row("G09", "name differs from type", {90}, misnamed),
    "M085": Row("G09", "in_progress before created", {92}, els(swap(0, 1))),
    "M086": Row("G09", "created carries an item", {92}, els(put(0, "response", "output", to=[ITEM]))),
    "M088": Row("G09", "[DONE] at the end", {93}, els(insert(21, "[DONE]"))),
    "M089": Row("G09", "response id changes", {94}, els(put(20, "response", "id", to="resp_b2"))),
    "M091": Row("G09", "item_id is wrong", {96}, els(put(11, "item_id", to="msg_9"))),
    "M092": Row("G09", "text delta after the item's end", {97, 105}, els(insert(15, LATE_TEXT))),
    "M094": Row("G09", "the call's item never done", {99, 108}, els(drop(19))),
    "M095": Row("G09", "call_id changes", {99, 108}, els(put(19, "item", "call_id", to="call_k9"))),
    "M097": Row("G09", "done item in progress", {101, 108}, els(put(14, "item", "status", to="in_progress"))),
    "M098": Row("G09", "content_index starts at 1", {102, 104, 105}, els(message_parts_from_one)),
    "M100": Row("G09", "text delta on the reasoning item", {103, 105},
                els(put(4, "type", to="output_text.delta"), put(4, "logprobs", to=[]))),
    "M101": Row("G09", "content_part.done missing", {104}, els(drop(13))),
    "M103": Row("G09", "done arguments differ", {106}, els(put(18, "arguments", to='{"port":"Bergen"}'))),
    "M104": Row("G09", "summary without part.added", {107}, els(summary_without_part)),
    "M106": Row("G09", "completed in progress", {109}, els(put(20, "response", "status", to="in_progress"))),
    "M107": Row("G10", "incomplete without reason", {109}, els(put(8, "response", "incomplete_details", to=None))),
    "M109": Row("G09", "terminal without usage", {110}, els(put(20, "response", "usage", to=None))),
    "M110": Row("G09", "text delta without logprobs", {111}, els(drop(10, "logprobs"))),
    "M112": Row("G09", "nested error object", {113},
                els(put(20, to={"type": "error", "error": {"code": "server_error", "message": "engine lost it"}}))),
    "M113": Row("G09", "keepalive first", {92, 114}, els(insert(0, {"type": "keepalive"}))),
    "M115": Row("G09", "event after completed", {24, 93, 97}, els(insert(21, LATE_TEXT))),
    "M116": Row("G09", "arguments not JSON", {37}, els(call_arguments('{"port":"Brest"', last='"Brest"'))),
    "M118": Row("G12", "no message_start", {117, 127}, els(drop(0))),
    "M119": Row("G12", "message_start without usage", {117, 127}, els(drop(0, "message", "usage"))),
    "M121": Row("G12", "block 1 not stopped", {119}, els(drop(9))),
    "M122": Row("G12", "text_delta in thinking", {120}, els(put(3, "delta", to={"type": "text_delta", "text": "N"}))),
    "M124": Row("G12", "thinking after the signature", {122}, els(swap(3, 4))),
    "M125": Row("G12", "tool input cut", {123}, els(put(12, "delta", "partial_json", to='{"port":"Brest"'))),
    "M127": Row("G12", "message_delta without stop_reason", {124}, els(put(14, "delta", "stop_reason", to=None))),
    "M128": Row("G12", "message_delta missing", {124}, els(drop(14))),
    "M130": Row("G12", "message_stop missing", {43, 125}, els(drop(15))),
    "M131": Row("G13", "message_stop after error", {24, 42, 125}, els(insert(5, {"type": "message_stop"}))),
    "M133": Row("G12", "stop_sequence without the string", {126},
                els(put(14, "delta", "stop_reason", to="stop_sequence"))),
    "M134": Row("G12", "output_tokens falls", {127}, els(put(0, "message", "usage", "output_tokens", to=20))),
    "M136": Row("G12", "ping with extra keys", {129}, els(put(1, "n", to=1))),
    "M137": Row("G12", "[DONE] at the end", {130}, els(insert(16, "[DONE]"))),
}  # fmt: skip

ROWS = {**CHAT, **OTHERS}

LITERAL = "[DONE] is no event text outside chat and completions"
BEHIND = "it follows the terminal marker"

ALSO: dict[str, dict[int, str]] = {
    "M017": {75: "the last event is not [DONE]"},
    "M088": {20: LITERAL, 24: BEHIND},
    "M137": {20: LITERAL, 24: BEHIND},
}
"""Rules that a fault breaks beyond the catalogue's list, by the rules' own text, and why."""


def test_the_catalogue_is_whole() -> None:
    assert len(ROWS) == 92


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_breaks_what_it_lists(name: str) -> None:
    row = ROWS[name]
    base = row.ready(golden(row.base))
    mutant = row.change(base)
    assert (mutant.body, mutant.request) != (base.body, base.request)
    broken = fired(mutant.report())
    assert row.breaks - broken == set(), f"not reported; reported: {sorted(broken)}"
    assert broken == row.breaks | ALSO.get(name, {}).keys()
    assert fired(base.report()) == frozenset()
