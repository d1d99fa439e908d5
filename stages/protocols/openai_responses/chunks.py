"""The events of a responses stream, and the whole body of a response that does not stream.

Each event has a line ``event:`` with its type, the same type in its JSON, and a number: 0 for the first one, one more
for each that follows. All are Structs whose tag is that type. O, I, C, S of the specification are ``output_index``,
``item_id``, ``content_index``, ``summary_index``.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec

from stages.events import ErrorInput, Failure, FailureKind
from stages.protocols.openai_chat import LogprobEntry, error_chunk
from stages.protocols.openai_responses.objects import Item, Part, Response, SummaryText

_encode = msgspec.json.Encoder().encode


class StreamEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="event"):
    """Base of the events."""

    whole: ClassVar[bool] = False

    sequence_number: int

    @property
    def event(self) -> str:
        """The name of the event."""
        return str(self.__struct_config__.tag)

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        return _encode(self)


# --- the response as a whole ----------------------------------------------------------------------------------------


class LifecycleEvent(StreamEvent, frozen=True, gc=False, tag="lifecycle"):
    """Base of the events that show the response."""

    response: Response


class Created(LifecycleEvent, frozen=True, gc=False, tag="response.created"):
    """The first event."""


class Queued(LifecycleEvent, frozen=True, gc=False, tag="response.queued"):
    """The response waits. Other servers send it; we do not."""


class InProgress(LifecycleEvent, frozen=True, gc=False, tag="response.in_progress"):
    """The second event."""


class Completed(LifecycleEvent, frozen=True, gc=False, tag="response.completed"):
    """Terminal: the response is whole."""


class Incomplete(LifecycleEvent, frozen=True, gc=False, tag="response.incomplete"):
    """Terminal: the response was cut off by a limit or a filter."""


class Failed(LifecycleEvent, frozen=True, gc=False, tag="response.failed"):
    """Terminal: the response has an error; its output is what was done before."""


class ErrorEvent(StreamEvent, frozen=True, gc=False, tag="error"):
    """Terminal: an error that is no part of the response, behind events of which no state is known."""

    code: str | None
    message: str
    param: str | None = None


# --- items ----------------------------------------------------------------------------------------------------------


class ItemAdded(StreamEvent, frozen=True, gc=False, tag="response.output_item.added"):
    """An item begins; it is empty."""

    output_index: int
    item: Item


class ItemDone(StreamEvent, frozen=True, gc=False, tag="response.output_item.done"):
    """An item is over; all of it."""

    output_index: int
    item: Item


class ArgumentsDelta(StreamEvent, frozen=True, gc=False, tag="response.function_call_arguments.delta"):
    """A fragment of a call's arguments."""

    output_index: int
    item_id: str
    delta: str


class ArgumentsDone(StreamEvent, frozen=True, gc=False, tag="response.function_call_arguments.done"):
    """All of a call's arguments."""

    output_index: int
    item_id: str
    arguments: str


# --- parts of items -------------------------------------------------------------------------------------------------


class PartEvent(StreamEvent, frozen=True, gc=False, tag="part"):
    """Base of the events about a part of an item's content."""

    output_index: int
    item_id: str
    content_index: int


class PartAdded(PartEvent, frozen=True, gc=False, tag="response.content_part.added"):
    """A part begins; it is empty."""

    part: Part


class PartDone(PartEvent, frozen=True, gc=False, tag="response.content_part.done"):
    """A part is over; all of it."""

    part: Part


class TextDelta(PartEvent, frozen=True, gc=False, tag="response.output_text.delta"):
    """A piece of the answer. ``logprobs``: the entries of the tokens that begin in it, if asked for."""

    delta: str
    logprobs: tuple[LogprobEntry, ...] = ()


class TextDone(PartEvent, frozen=True, gc=False, tag="response.output_text.done"):
    """All of a text."""

    text: str
    logprobs: tuple[LogprobEntry, ...] = ()


class RefusalDelta(PartEvent, frozen=True, gc=False, tag="response.refusal.delta"):
    """A piece of a refusal."""

    delta: str


class RefusalDone(PartEvent, frozen=True, gc=False, tag="response.refusal.done"):
    """All of a refusal."""

    refusal: str


class ReasoningDelta(PartEvent, frozen=True, gc=False, tag="response.reasoning_text.delta"):
    """A piece of the reasoning."""

    delta: str


class ReasoningDone(PartEvent, frozen=True, gc=False, tag="response.reasoning_text.done"):
    """All of a reasoning text."""

    text: str


# --- summaries ------------------------------------------------------------------------------------------------------


class SummaryEvent(StreamEvent, frozen=True, gc=False, tag="summary"):
    """Base of the events about a part of a reasoning item's summary."""

    output_index: int
    item_id: str
    summary_index: int


class SummaryAdded(SummaryEvent, frozen=True, gc=False, tag="response.reasoning_summary_part.added"):
    """A part begins; it is empty."""

    part: SummaryText


class SummaryDone(SummaryEvent, frozen=True, gc=False, tag="response.reasoning_summary_part.done"):
    """A part is over; all of it."""

    part: SummaryText


class SummaryDelta(SummaryEvent, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"):
    """A piece of the summary."""

    delta: str


class SummaryTextDone(SummaryEvent, frozen=True, gc=False, tag="response.reasoning_summary_text.done"):
    """All of a summary's text."""

    text: str


# --- the whole ------------------------------------------------------------------------------------------------------


class ResponseBody(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="response"):
    """The body of a response that does not stream. On the wire it is the response alone."""

    whole: ClassVar[bool] = True

    response: Response

    @property
    def event(self) -> str:
        """It has none."""
        return ""

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        return _encode(self.response)


Chunk: TypeAlias = (
    Created | Queued | InProgress | Completed | Incomplete | Failed | ErrorEvent | ItemAdded | ItemDone | ArgumentsDelta
    | ArgumentsDone | PartAdded | PartDone | TextDelta | TextDone | RefusalDelta | RefusalDone | ReasoningDelta
    | ReasoningDone | SummaryAdded | SummaryDone | SummaryDelta | SummaryTextDone | ResponseBody
)  # fmt: skip

CODES: dict[FailureKind, str] = {"bad_request": "invalid_prompt", "rate_limited": "rate_limit_exceeded"}
"""The code of a response's own error, by the kind of the failure."""
OTHER_CODE = "server_error"
"""Of any other kind."""


def error_event(failure: Failure | ErrorInput, number: int) -> ErrorEvent:
    """A failure in a stream that has begun, where the encoder's state is not known. ``number``: the event's."""
    said = error_chunk(failure.kind, failure.message, failure.code, failure.param).body["error"]
    return ErrorEvent(number, said["code"], said["message"], failure.param)


def chunk_of(value: Any) -> Chunk | None:
    """An event's JSON value as its Struct; None where it is none of ours."""
    try:
        made: Chunk = msgspec.convert(value, Chunk)
    except msgspec.ValidationError:
        return None
    return made
