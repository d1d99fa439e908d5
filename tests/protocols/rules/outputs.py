"""Responses streams of every kind of item, and what is asked about them."""

from __future__ import annotations

from typing import Any

from tests.support.wire import Edit, Elements, Stream, both, breaks, golden

WHOLE = golden("G09").asking(tools=[{"type": "function", "name": "get_tide", "parameters": {}}])
CUT, FAILED = golden("G10"), golden("G11")
USAGE: dict[str, Any] = WHOLE.elements[20]["response"]["usage"]


def of(rule: int, made: Stream) -> list[tuple[int, str]]:
    """Frame and weight of the findings of a rule."""
    return [(one.frame, one.severity) for one in made.report().violations if one.rule == f"INV-{rule:03}"]


def broken(rule: int, *edits: Edit, base: Stream = WHOLE) -> Stream:
    """The edited stream, which breaks the rule."""
    made = base.edited(both(*edits))
    breaks(rule, base, made)
    return made


def items(*kinds: tuple[str, dict[str, Any], list[dict[str, Any]], dict[str, Any]]) -> Stream:
    """A stream of items: of each the id's start, what is added, its events (without their place), what is done."""
    elements: Elements = [{"type": "created", "response": {}}, {"type": "in_progress", "response": {}}]
    output: list[dict[str, Any]] = []
    for index, (kind, added, events, done) in enumerate(kinds):
        name = {"id": f"{kind}_{index}", **added}
        elements.append({"type": "output_item.added", "output_index": index, "item": name})
        elements += [{"output_index": index, "item_id": name["id"], **event} for event in events]
        output.append({**name, **done})
        elements.append({"type": "output_item.done", "output_index": index, "item": output[-1]})
    end = {"status": "completed", "output": output, "usage": USAGE}
    return Stream("responses", [*elements, {"type": "completed", "response": end}], {"request": {"stream": True}})


def text(part: dict[str, Any], kind: str, field: str, *deltas: str, **more: Any) -> list[dict[str, Any]]:
    """The events of one part. ``more``: keys of the text's events."""
    place = {"content_index": 0}
    whole = "".join(deltas)
    return [
        {"type": "content_part.added", **place, "part": {**part, field: ""}},
        *({"type": f"{kind}.delta", **place, "delta": delta, **more} for delta in deltas),
        {"type": f"{kind}.done", **place, field: whole, **more},
        {"type": "content_part.done", **place, "part": {**part, field: whole}},
    ]


NEW = {"status": "in_progress"}
DONE = {"status": "completed"}
SUMMARY = items(
    (
        "rs",
        {"type": "reasoning", "summary": [], **NEW},
        [
            {"type": "reasoning_summary_part.added", "summary_index": 0, "part": {"type": "summary_text", "text": ""}},
            {"type": "reasoning_summary_text.delta", "summary_index": 0, "delta": "Ti"},
            {"type": "reasoning_summary_text.delta", "summary_index": 0, "delta": "des."},
            {"type": "reasoning_summary_text.done", "summary_index": 0, "text": "Tides."},
            {
                "type": "reasoning_summary_part.done",
                "summary_index": 0,
                "part": {"type": "summary_text", "text": "Tides."},
            },
        ],
        {"summary": [{"type": "summary_text", "text": "Tides."}], **DONE},
    ),
)  # fmt: skip
REFUSAL = items(
    (
        "msg",
        {"type": "message", "role": "assistant", "content": [], **NEW},
        text({"type": "refusal"}, "refusal", "refusal", "No", "."),
        {"content": [{"type": "refusal", "refusal": "No."}], **DONE},
    ),
)
CUSTOM = items(
    (
        "ctc",
        {"type": "custom_tool_call", "call_id": "call_1", "name": "sql", "input": ""},
        [
            {"type": "custom_tool_call_input.delta", "delta": "select 1"},
            {"type": "custom_tool_call_input.done", "input": "select 1"},
        ],
        {"input": "select 1"},
    ),
).asking(tools=[{"type": "custom", "name": "sql"}])
HOSTED = items(
    (
        "ws",
        {"type": "web_search_call", **NEW},
        [{"type": "web_search_call.in_progress"}, {"type": "web_search_call.completed"}],
        {"status": "completed", "action": {"type": "search", "query": "tides"}},
    ),
    (
        "mcp",
        {"type": "mcp_call", "name": "f", "server_label": "s", "arguments": "", **NEW},
        [
            {"type": "mcp_call_arguments.delta", "delta": "{}"},
            {"type": "mcp_call_arguments.done", "arguments": "{}"},
            {"type": "mcp_call.completed"},
        ],
        {"arguments": "{}", "status": "failed"},
    ),
)
