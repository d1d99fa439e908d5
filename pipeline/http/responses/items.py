"""Items as the API lists them: with ids, in pages.

The id of an item that came without one is made of the session that brought it and its place there, so it is the same
whenever it is asked for, and leads back to the item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from starlette.datastructures import QueryParams

from stages.errors import RequestError
from stages.protocols import openai_responses
from stages.protocols.body import refused

Item: TypeAlias = dict[str, Any]

MOST = 100
"""Items of a page."""
_USUAL = 20
_DIGITS = 9
"""Of a number, at most: Python reads no number of thousands."""
_PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco",
    "custom_tool_call": "ctc", "custom_tool_call_output": "ctco",
}  # fmt: skip
_SESSION_OF = re.compile(r"[a-z]+_([0-9a-f]{32})")


def listed(session: str, items: Iterable[Item]) -> list[Item]:
    """The items that a session brought, as they are told: each has an id, and what follows from its type. References
    are as they are."""
    return [_shown(session, at, item) for at, item in enumerate(items)]


def _shown(session: str, at: int, item: Item) -> Item:
    kind = openai_responses.kind_of(item)
    if kind == "item_reference":
        return item
    made: Item = {"id": item.get("id") or item_id(session, kind, at), "type": kind}
    made |= {name: value for name, value in item.items() if name not in made}
    if kind != "reasoning":
        made["status"] = item.get("status") or "completed"
    if kind == "message" and isinstance(item.get("content"), str):
        made["content"] = [_text(item.get("role"), item["content"])]
    return made


def _text(role: Any, text: str) -> Item:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def item_id(session: str, kind: str, at: int) -> str:
    """The id of the item that a session brought at this place."""
    return f"{_PREFIXES.get(kind, 'item')}_{session}i{at}"


def session_of(item: str) -> str | None:
    """The session that an id of ours leads to; None for any other."""
    found = _SESSION_OF.match(item)
    return found and found.group(1)


# --- pages ----------------------------------------------------------------------------------------------------------


def page(items: Sequence[Item], query: QueryParams) -> dict[str, Any]:
    """A page of these items, which are in order of time: ``after`` (an id), ``limit`` (1 to 100), ``order`` (``asc``,
    or ``desc`` if not said). Raises RequestError."""
    order, limit = query.get("order", "desc"), query.get("limit", str(_USUAL))
    if order not in ("asc", "desc"):
        raise refused("order", f"expected 'asc' or 'desc', not {order!r:.100}")
    if not limit.isascii() or not limit.isdigit() or len(limit) > _DIGITS or not 1 <= int(limit) <= MOST:
        raise refused("limit", f"expected a number from 1 to {MOST}, not {limit!r:.100}")
    listed = list(items if order == "asc" else reversed(items))
    after = query.get("after")
    if after:
        listed = listed[_behind(listed, after) :]
    return listing(listed[: int(limit)], more=len(listed) > int(limit))


def listing(items: Sequence[Item], *, more: bool = False) -> dict[str, Any]:
    """The list object. ``more``: there are items behind these."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": list(items), "first_id": first, "last_id": last, "has_more": more}


def _behind(items: Sequence[Item], after: str) -> int:
    for place, item in enumerate(items, 1):
        if item["id"] == after:
            return place
    raise RequestError(f"There is no item {after!r:.100} in this list.", param="after", code="not_found", status=404)
