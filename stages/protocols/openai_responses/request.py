"""ResponsesRequest: the request's fields, their types and ranges. ``decode_request`` makes one of a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from stages.protocols.sampling import SamplingFields

_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
"""What a client notes of a response, or a conversation."""

LOGPROBS: Literal["message.output_text.logprobs"] = "message.output_text.logprobs"
"""What ``include`` has where logprobs are wanted."""


class StreamOptions(msgspec.Struct, frozen=True):
    """``include_usage`` and ``include_obfuscation`` are accepted and have no effect: the usage is always told;
    ``keep_alive``: seconds of silence before a comment, 0: no comments, None: the server's."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    keep_alive: Annotated[float, Meta(ge=0, le=3600)] | None = None


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool's declaration, flat. Only functions can be served."""

    type: str
    name: _Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AllowedTool(msgspec.Struct, frozen=True):
    """An entry of ``allowed_tools``."""

    name: str
    type: Literal["function"] = "function"


class FunctionChoice(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """``tool_choice``: this function."""

    name: str


class AllowedChoice(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """``tool_choice``: some of the tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1)]


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | FunctionChoice | AllowedChoice


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Free text."""


class ObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class SchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """A JSON value that satisfies this schema."""

    name: _Name
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


Format: TypeAlias = TextFormat | ObjectFormat | SchemaFormat


class TextConfig(msgspec.Struct, frozen=True):
    """What the answer is to look like."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct, frozen=True):
    """``summary`` (or its old name): the reasoning is sent as a summary. There is no other summary than all of it.
    ``context`` and ``mode`` have no effect: what of earlier reasoning the model is shown, its template says."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None

    @property
    def summarised(self) -> str | None:
        """The kind of summary that is wanted."""
        return self.summary or self.generate_summary


class Conversation(msgspec.Struct, frozen=True):
    """A reference to a stored conversation."""

    id: str


Includable: TypeAlias = Literal[
    "message.output_text.logprobs", "reasoning.encrypted_content", "file_search_call.results",
    "web_search_call.results", "web_search_call.action.sources", "message.input_image.image_url",
    "computer_call_output.output.image_url", "code_interpreter_call.outputs",
]  # fmt: skip


class ResponsesRequest(SamplingFields, frozen=True, kw_only=True):
    """A valid request. ``input``: as in the body (see ``items``); None only where a conversation goes on.
    ``tool_choice`` None: ``auto`` with tools, ``none`` without. What ``previous_response_id``, ``conversation``,
    ``store`` and ``background`` need is not here."""

    model: str | None = None
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None

    previous_response_id: str | None = None
    conversation: str | Conversation | None = None
    store: bool = True
    background: bool = False

    stream: bool = False
    stream_options: StreamOptions | None = None
    include: list[Includable] = []
    """Only the logprobs have an effect."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include_reasoning: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    max_output_tokens: _Positive | None = None
    max_tool_calls: _Positive | None = None
    """Of the calls of hosted tools, as the protocol has it: there are none here."""
    stop: str | Annotated[list[str], Meta(max_length=4)] = []
    truncation: Literal["auto", "disabled"] = "disabled"
    """Accepted; an input that is too long is refused either way."""

    tools: list[ToolSpec] = []
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    chat_template_kwargs: dict[str, Any] = {}

    user: str | None = None
    metadata: Metadata = {}
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    access_programs: dict[str, Any] | None = None
    background_options: dict[str, Any] | None = None
    image: dict[str, Any] | None = None

    # Official fields that change the answer and that this server cannot serve: anything but null is refused.
    prompt: Any = None
    moderation: Any = None
    context_management: Any = None

    @property
    def logprobs(self) -> bool:
        """Logprobs are wanted: they are included, and it is said how many alternatives they have."""
        return LOGPROBS in self.include and self.top_logprobs is not None

    @property
    def conversation_id(self) -> str | None:
        """The conversation's id."""
        return self.conversation.id if isinstance(self.conversation, Conversation) else self.conversation
