"""There and back: a stream of our own, decoded to semantic events and written again from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from stages.events import Content, Finish, FinishReason, Frame, Reasoning, Refusal, Semantic, Tick, Usage
from stages.opening import Ask, Opening
from stages.protocols.lenient import as_object, as_text
from stages.protocols.openai_responses.chunks import Created, Failed, ItemDone, chunk_of
from stages.protocols.openai_responses.decode import ResponsesReader
from stages.protocols.openai_responses.encoder import AGAIN, machine
from stages.protocols.openai_responses.objects import Response
from stages.sse import FRAMER
from stages.stage import fold

_KINDS: Final[dict[str, type[Content] | type[Refusal] | type[Reasoning]]] = {
    "message": Content, "output_text": Content, "refusal": Refusal, "reasoning": Reasoning,
    "reasoning_text": Reasoning, "summary_text": Reasoning,
}  # fmt: skip
"""What an item or a part that is added is added for."""


def rewritten(values: Iterable[Any]) -> list[Frame]:
    """The frames of a stream of our own whose events are these, decoded and encoded again: the same stream. What is no
    object is passed over."""
    events = [as_object(value) for value in values if isinstance(value, dict)]
    first = chunk_of(events[0]) if events else None
    base = first.response if isinstance(first, Created) else Response("", 0, "")
    opening = Opening(
        session="", key="", response_id=base.id, created=0, opened=0, model=base.model, protocol="responses",
        parser=AGAIN, ask=Ask(stream=True, logprobs=True, top_logprobs=20),
    )  # fmt: skip
    # An error may be all that there is: by itself it would be no stream.
    semantic: list[Semantic] = [Tick()]
    reader = ResponsesReader(own=True)
    for value in events:
        reader.event("", value, semantic)
    broken = _finished(events, semantic)
    cut = isinstance(first, Created) and not reader.over
    if cut:
        semantic += _rest(events[-1])
    chunks = fold(machine(opening, base, broken), semantic)
    # The comment is the first of them.
    return fold(FRAMER.start(opening), chunks[: len(events) + 1] if cut else chunks)


def _finished(events: list[dict[str, Any]], semantic: list[Semantic]) -> str | None:
    """Of a response that failed: its items may all be done because the model had finished. Returns the error of one
    that failed for what the model wrote, which has its usage."""
    failed = chunk_of(events[-1]) if len(events) > 1 else None
    done = chunk_of(events[-2]) if len(events) > 1 else None
    if not isinstance(failed, Failed) or not isinstance(done, ItemDone):
        return None
    failure = semantic.pop()
    error = failed.response.error
    if error is None or failed.response.usage is None:
        semantic += Finish(0, _reason(events[-2])), failure
        return None
    semantic.insert(len(semantic) - 1, Finish(0, "eos"))
    return error.message


def _reason(done: dict[str, Any]) -> FinishReason:
    return "length" if as_object(done.get("item")).get("status") == "incomplete" else "eos"


def _rest(last: dict[str, Any]) -> list[Semantic]:
    """What follows in a stream that breaks off behind this event, so that its step is whole."""
    item = as_object(last.get("item"))
    rest: list[Semantic] = []
    if (as_text(last.get("type")) or "").endswith(".added"):
        kind = _KINDS.get(as_text((item or as_object(last.get("part"))).get("type")) or "")
        rest += [] if kind is None else [kind(0, "…", (0, 0))]
    return [*rest, Finish(0, _reason(last)), Usage(0, 0)]
