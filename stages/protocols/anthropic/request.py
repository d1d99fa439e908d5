"""MessagesRequest: the request's fields, their types and ranges. ``decode_request`` makes one of a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from stages.protocols.sampling import SamplingFields

_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}\Z")]


class Block(msgspec.Struct, frozen=True):
    """A block of content, of any type; which fields it needs is checked where its type is known.

    ``text``, ``thinking`` (``signature`` is taken and not verified), ``redacted_thinking`` (dropped), ``tool_use``
    (``id``, ``name``, ``input``) and ``tool_result`` (``tool_use_id``, ``content``, ``is_error``) can be served.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class Turn(msgspec.Struct, frozen=True):
    """A message. ``system`` among the messages stays in its place."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool's declaration. ``type``: ``custom`` or null; any other is one that a server runs, and refused."""

    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    type: str | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """``tool``: the one that ``name`` names; ``any``: at least one call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """``budget_tokens`` is checked, and no engine is held to it; ``display``: ``omitted`` leaves the text out. When the
    model thinks, its template says: ``between_tools`` is as good as ``adaptive``."""

    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class Format(msgspec.Struct, frozen=True):
    """A JSON Schema that the answer is held to."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """How much to think and write, and in what form."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Format | None = None


class Metadata(msgspec.Struct, frozen=True):
    """Who asks."""

    user_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Ours. ``keep_alive``: seconds of silence before a comment, 0: no comments, None: the server's."""

    keep_alive: Annotated[float, Meta(ge=0, le=3600)] | None = None


class MessagesRequest(SamplingFields, frozen=True, kw_only=True):
    """A valid request. ``max_tokens``: None only where tokens are counted."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    model: str | None = None
    max_tokens: int | None = None

    system: str | list[Block] | None = None
    stream: bool = False
    stop_sequences: Annotated[list[str], Meta(max_length=64)] = []
    tools: list[ToolSpec] = []
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None

    # Ours, as in chat.
    stream_options: StreamOptions | None = None
    stop_scopes: Annotated[list[Literal["content", "reasoning", "tools"]], Meta(min_length=1)] | None = None
    include_reasoning: bool = True
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    chat_template_kwargs: dict[str, Any] = {}

    # Official fields without a meaning here: taken, and ignored.
    betas: Any = None
    billing_policy: Any = None
    cache_control: Any = None
    context_management: Any = None
    diagnostics: Any = None
    fallback_credit_token: Any = None
    fallbacks: Any = None
    inference_geo: Any = None
    service_tier: Any = None
    speed: Any = None

    # Official fields that this server cannot serve: anything but null (or an empty list) is refused.
    compaction: Any = None
    container: Any = None
    mcp_servers: Any = None
    output_format: Any = None
    thread: Any = None


class Asked(msgspec.Struct, frozen=True):
    """What the encoder reads of a request."""

    thinking: Thinking | None = None


def omits(body: bytes) -> bool:
    """A request's body asks for thinking to be told without its text. Raises nothing."""
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return asked.thinking is not None and asked.thinking.display == "omitted"


def dropped(text: str) -> bool:
    """A block of the system prompt that is about billing: it would end every prefix that a cache could share."""
    return text.startswith("x-anthropic-billing-header")
