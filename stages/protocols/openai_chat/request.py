"""ChatRequest: the request's fields, their types and ranges. ``decode`` makes one of a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from stages.protocols.sampling import SamplingFields

_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
_Positive: TypeAlias = Annotated[int, Meta(ge=1)]


# --- messages -------------------------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """A part of a message's content. Only ``text`` (and an assistant's ``refusal``) can be served."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content: TypeAlias = str | list[Part]


class SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Content
    name: str | None = None


class DeveloperMessage(msgspec.Struct, frozen=True, tag_field="role", tag="developer"):
    """Instructions, under their newer name."""

    content: Content
    name: str | None = None


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """What the user said."""

    content: Content
    name: str | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """``arguments``: JSON text, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """An earlier call of the assistant."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer. Its reasoning may have either name. ``function_call`` and ``audio``, which the SDK's own
    messages carry as null, cannot be served."""

    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Any = None
    audio: Any = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of a call; null is an empty one."""

    content: Content | None
    tool_call_id: str
    name: str | None = None


AnyMessage: TypeAlias = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


# --- the other fields -----------------------------------------------------------------------------------------------


class StreamOptions(msgspec.Struct, frozen=True):
    """``continuous_usage_stats`` needs ``include_usage``; ``include_obfuscation`` is accepted and has no effect;
    ``keep_alive``: seconds of silence before a comment, 0: no comments, None: the server's."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = None
    keep_alive: Annotated[float, Meta(ge=0, le=3600)] | None = None


class FunctionSpec(msgspec.Struct, frozen=True):
    """A function's declaration; without ``parameters`` it takes no arguments."""

    name: _Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool's declaration. Only functions can be served."""

    type: str
    function: FunctionSpec | None = None


class NamedFunction(msgspec.Struct, frozen=True):
    """A reference to a declared function."""

    name: str


class AllowedTool(msgspec.Struct, frozen=True):
    """An entry of ``allowed_tools``."""

    function: NamedFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct, frozen=True):
    """A choice among some of the tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1)]


class NamedChoice(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """``tool_choice``: this function."""

    function: NamedFunction


class AllowedChoice(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """``tool_choice``: some of the tools."""

    allowed_tools: AllowedTools


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedChoice | AllowedChoice


class SchemaFormat(msgspec.Struct, frozen=True):
    """A JSON Schema that the answer should satisfy."""

    name: _Name
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """``json_schema`` goes with the type of that name. ``structural_tag`` is accepted and recorded, no more."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: SchemaFormat | None = None

    @property
    def answer(self) -> dict[str, Any] | None:
        """See ``Ask.answer``."""
        if self.type not in ("json_object", "json_schema"):
            return None
        return {} if self.json_schema is None or self.json_schema.schema is None else self.json_schema.schema


Effort: TypeAlias = (
    Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | Annotated[float, Meta(ge=0, le=0.99)]
)
Scope: TypeAlias = Literal["content", "reasoning", "tools"]


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """A valid request. ``tool_choice`` None: ``auto`` with
    tools, ``none`` without. ``max_tokens`` is the cap in force, whichever of the two fields gave it."""

    messages: Annotated[list[AnyMessage], Meta(min_length=1)]
    model: str | None = None

    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    end_token_logprob: bool = True
    """The token that ends a choice has an entry among the logprobs."""
    return_token_ids: bool = False
    include_metrics: bool = False
    include_reasoning: bool = True
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] | None = None
    """None: as the server is set."""
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] = []
    stop_scopes: Annotated[list[Scope], Meta(min_length=1)] | None = None
    """The kinds of text in which stop strings are looked for; None: all. ``tools``: arguments, and the markers of the
    format."""

    tools: list[ToolSpec] = []
    """Empty is the same as absent."""
    tool_choice: ToolChoice | None = None
    named_finish_reason: Literal["stop", "tool_calls"] = "stop"
    """The finish reason of a choice that called the function that ``tool_choice`` names."""
    parallel_tool_calls: bool = True

    add_generation_prompt: bool | None = None
    """None: true, unless the final message is continued."""
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}

    reasoning_effort: Effort | None = None
    """A word, or (as SGLang has it) a number; ``none`` and 0 turn reasoning off."""
    verbosity: Literal["low", "medium", "high"] | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    metadata: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
    ] = {}
    store: bool = False
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    # Official fields that change the answer and that this server cannot serve: anything but null is refused, except for
    # modalities ["text"].
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    moderation: Any = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
