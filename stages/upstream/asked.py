"""What a request asks for, whoever it goes to: a body of any of the four protocols → Ask.

    chat                 stream, n, tools, tool_choice, parallel_tool_calls, stop, logprobs, …; functions, function_call
    completions          no tools; logprobs is a number
    responses            tools and tool_choice are flat; logprobs by include
    messages             input_schema, stop_sequences, disable_parallel_tool_use; tool_choice any is required

The fields of vLLM and SGLang are read in all of them. The server that is asked judges the request; here nothing is
refused: what is missing, of the wrong type or out of range is as if it were not there. A valid chat request asks for
what ``stages.protocols.openai_chat`` says.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from stages.opening import Ask, Tool
from stages.protocols.lenient import as_int, as_ints, as_list, as_object, as_objects, as_text, value_of

Scope = Literal["content", "reasoning", "arguments", "marker"]
_SCOPES: Final[dict[str, tuple[Scope, ...]]] = {
    "content": ("content",), "reasoning": ("reasoning",), "tools": ("arguments", "marker"),
}  # fmt: skip
_MODES: Final = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
_NAMED: Final = ("function", "custom", "tool")
_MOST: Final = 128
"""Choices: more, no server makes."""
_TOP: Final = 100
"""Alternatives of a token: more, no server tells."""
_DEEPEST: Final = 100
"""Levels of a schema: deeper, no store or template takes it."""


def asked(protocol: str, body: bytes) -> Ask:
    """What the request asks of the stages; the default Ask where the body is no JSON object."""
    wire = as_object(value_of(body))
    options = as_object(wire.get("stream_options"))
    usage = _flag(options, "include_usage")
    tools = () if protocol == "completions" else _tools(wire)
    choice = wire.get("function_call") if wire.get("tool_choice") is None else wire["tool_choice"]
    logprobs, top = _logprobs(wire, protocol)
    fields: dict[str, Any] = {}
    if wire.get("named_finish_reason") in ("stop", "tool_calls"):
        fields["named_finish"] = wire["named_finish_reason"]
    if wire.get("reasoning_field") in ("reasoning", "reasoning_content", "both"):
        fields["reasoning_field"] = wire["reasoning_field"]
    prompts = _prompts(wire.get("prompt")) if protocol == "completions" else 1
    single = _flag(as_object(choice), "disable_parallel_tool_use")
    return Ask(
        stream=_flag(wire, "stream"),
        n=_within(wire.get("n"), 1, _MOST) * prompts,
        prompts=prompts,
        tools=tools,
        tool_choice=_mode(choice) or ("auto" if tools else "none"),
        allowed=_allowed(as_object(choice)),
        parallel=_flag(wire, "parallel_tool_calls", True) and not single,
        include_reasoning=_flag(wire, "include_reasoning", True),
        stop=_stops(wire.get("stop_sequences" if protocol == "messages" else "stop")),
        include_stop=_flag(wire, "include_stop_str_in_output") or _flag(wire, "no_stop_trim"),
        stop_scopes=_scopes(wire.get("stop_scopes")),
        keep_special=not _flag(wire, "skip_special_tokens", True),
        ignore_eos=_flag(wire, "ignore_eos"),
        stop_ids=tuple(number for number in as_ints(wire.get("stop_token_ids")) or () if number >= 0),
        logprobs=logprobs,
        top_logprobs=top,
        end_token=_flag(wire, "end_token_logprob", True),
        return_token_ids=_flag(wire, "return_token_ids"),
        include_usage=usage,
        continuous_usage=usage and _flag(options, "continuous_usage_stats"),
        metrics=_flag(wire, "include_metrics"),
        **fields,
    )


def _prompts(given: Any) -> int:
    """How many prompts there are: texts, or lists of tokens; a list of tokens alone is one."""
    items = as_list(given)
    several = all(each.__class__ in (str, list) for each in items)
    return min(max(len(items), 1), _MOST) if several else 1


def model_of(body: bytes) -> str | None:
    """The model that a request names; None: none, or it is no JSON object."""
    return as_text(as_object(value_of(body)).get("model"))


def _flag(wire: dict[str, Any], name: str, default: bool = False) -> bool:
    value = wire.get(name)
    return value if isinstance(value, bool) else default


def _within(value: Any, least: int, most: int) -> int:
    number = as_int(value)
    return least if number is None or number < least else min(number, most)


def _stops(value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else as_list(value)
    return tuple(text for one in found if (text := as_text(one)))


def _scopes(value: Any) -> tuple[Scope, ...]:
    named = [name for name in _SCOPES if name in as_list(value)] or list(_SCOPES)
    return tuple(kind for name in named for kind in _SCOPES[name])


def _logprobs(wire: dict[str, Any], protocol: str) -> tuple[bool, int]:
    """Whether entries are wanted, and of how many alternatives."""
    told = wire.get("logprobs")
    if protocol == "completions" and not isinstance(told, bool):
        return as_int(told) is not None, _within(told, 0, _TOP)
    wanted = told is True
    if protocol == "responses":
        wanted = "message.output_text.logprobs" in as_list(wire.get("include"))
    return wanted, _within(wire.get("top_logprobs"), 0, _TOP)


# --- tools ------------------------------------------------------------------------------------------------------------


def _tools(wire: dict[str, Any]) -> tuple[Tool, ...]:
    """Declared functions, and whatever else has a name that can be called. A declaration stands in a field of its
    type's name, or it is flat."""
    found: list[Tool] = []
    for tool in (*as_objects(wire.get("tools")), *as_objects(wire.get("functions"))):
        spec = as_object(tool.get(as_text(tool.get("type")) or "")) or tool
        name = as_text(spec.get("name"))
        if name:
            schema = spec.get("parameters") if "parameters" in spec else spec.get("input_schema")
            strict = _flag(spec, "strict")
            found.append(Tool(name, as_text(spec.get("description")), _schema(schema), strict))
    return tuple(found)


def _schema(value: Any) -> dict[str, Any] | None:
    """A schema that a store takes."""
    if not isinstance(value, dict) or not _shallow(value):
        return None
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return None
    return as_object(value)


def _shallow(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [item for holder in level for item in _inside(holder)]
        if not level:
            return True
    return False


def _inside(value: Any) -> list[Any]:
    return list(as_object(value).values()) or as_list(value)


def _mode(choice: Any) -> str | None:
    """As Ask has it; None: nothing that is known."""
    if isinstance(choice, str):
        return _MODES.get(choice)
    wire = as_object(choice)
    kind = as_text(wire.get("type")) or ("function" if "name" in wire else "")
    if kind == "allowed_tools":
        mode = as_object(wire.get(kind)).get("mode", wire.get("mode"))
        return "required" if mode == "required" else "auto"
    if kind in _NAMED:
        name = as_text(as_object(wire.get(kind)).get("name", wire.get("name")))
        return f"name:{name}" if name else None
    return _MODES.get(kind)


def _allowed(choice: dict[str, Any]) -> tuple[str, ...]:
    """The names of ``allowed_tools``, in its order."""
    if choice.get("type") != "allowed_tools":
        return ()
    tools = as_objects(as_object(choice.get("allowed_tools")).get("tools", choice.get("tools")))
    names = (as_text((as_object(tool.get("function")) or tool).get("name")) for tool in tools)
    return tuple(dict.fromkeys(name for name in names if name))
