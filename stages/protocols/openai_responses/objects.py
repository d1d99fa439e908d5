"""The objects of the responses protocol as they are on the wire: parts, items, the response."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.protocols.openai_chat import LogprobEntry

# --- parts ----------------------------------------------------------------------------------------------------------


class OutputText(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="output_text"):
    """What the model answers. ``logprobs``: one entry for each token that has a part in the text, if asked for."""

    text: str = ""
    annotations: tuple[Any, ...] = ()
    logprobs: tuple[LogprobEntry, ...] = ()


class RefusalPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="refusal"):
    """Why the model does not answer."""

    refusal: str = ""


class ReasoningText(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str = ""


class SummaryText(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="summary_text"):
    """The same, under the name that a request for a summary gives it."""

    text: str = ""


Part: TypeAlias = OutputText | RefusalPart | ReasoningText | SummaryText


# --- items ----------------------------------------------------------------------------------------------------------


class MessageItem(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="message"):
    """An answer; a message in the making has no content when it is added."""

    id: str
    status: str = "in_progress"
    role: str = "assistant"
    content: tuple[OutputText | RefusalPart, ...] = ()


class ReasoningItem(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="reasoning"):
    """Thoughts: as ``content``, or as ``summary`` where the request asks for one."""

    id: str
    summary: tuple[SummaryText, ...] = ()
    status: str | None = "in_progress"
    content: tuple[ReasoningText, ...] | UnsetType | None = UNSET


class FunctionCallItem(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="function_call"):
    """A call. ``call_id`` is what its output names; ``arguments``: JSON text, as the model wrote it."""

    id: str | None
    call_id: str
    name: str
    arguments: str = ""
    status: str | None = "in_progress"


Item: TypeAlias = MessageItem | ReasoningItem | FunctionCallItem


# --- the response ---------------------------------------------------------------------------------------------------


class InputDetails(msgspec.Struct, frozen=True, gc=False):
    """Of ``input_tokens``."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True, gc=False):
    """Of ``output_tokens``."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, gc=False):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True, gc=False):
    """Why a response failed. ``code``: one of the protocol's list."""

    code: str
    message: str
    param: str | UnsetType | None = UNSET


class IncompleteDetails(msgspec.Struct, frozen=True, gc=False):
    """Why a response is not whole."""

    reason: str


class ReasoningConfig(msgspec.Struct, frozen=True, gc=False):
    """What the request asked of the reasoning."""

    effort: str | None = None
    summary: str | None = None


class ConversationRef(msgspec.Struct, frozen=True, gc=False):
    """The conversation that the response is part of."""

    id: str


class Response(msgspec.Struct, frozen=True, gc=False):
    """The response object: what its request asked, and what became of it. ``created_at``: unix s; ``tool_choice``,
    ``tools`` and ``text``: as the request has them."""

    id: str
    created_at: int | float
    model: str
    object: str = "response"
    status: str | None = "in_progress"
    background: bool | None = False
    conversation: ConversationRef | UnsetType | None = UNSET
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: Any = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    output: tuple[Item, ...] = ()
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningConfig | None = ReasoningConfig()
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = True
    temperature: float | None = 1.0
    text: dict[str, Any] | None = None
    tool_choice: Any = "auto"
    tools: tuple[dict[str, Any], ...] = ()
    top_logprobs: int | None = 0
    top_p: float | None = 1.0
    truncation: str | None = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None
    metadata: dict[str, str] | None = msgspec.field(default_factory=dict[str, str])
