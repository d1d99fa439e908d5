"""Asked: what a request asks for, in no protocol's terms, for the rules. What has the wrong type is not there."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stages.protocols.rules.evidence import Protocol
from stages.protocols.rules.values import array, integer, obj, string

Wanted: TypeAlias = Literal["auto", "none", "required", "named"]
_MODES: dict[str, Wanted] = {"none": "none", "required": "required", "any": "required"}


class AskedTool(msgspec.Struct, frozen=True):
    """A declared tool. ``schema``: of its arguments."""

    name: str
    strict: bool = False
    schema: dict[str, Any] | None = None


class Asked(msgspec.Struct, frozen=True):
    """``stops``: the stop strings; ``keep_stop``: they stay in the text; ``stop_content``: they are looked for in the
    content; ``tools``: by name; ``choice`` and ``named``: of the tool choice, with the one tool that it names;
    ``named_finish``: how a choice that calls it is to finish; ``hidden``: reasoning is not to be sent;
    ``include_usage`` and ``continuous``: of the stream's options; ``top``: alternatives that a logprob entry may
    have; ``end_token``: the token that ends a choice is to have one; ``echo``: the prompts that choices begin with."""

    n: int
    stops: tuple[str, ...]
    keep_stop: bool
    stop_content: bool
    tools: dict[str, AskedTool]
    choice: Wanted
    named: str | None
    named_finish: str | None
    parallel: bool
    hidden: bool
    include_usage: bool
    continuous: bool
    logprobs: bool
    top: int
    end_token: bool
    echo: tuple[str | None, ...]

    def echoed(self, index: int) -> int | None:
        """How many characters of a choice are its prompt; None where that is not known."""
        if not self.echo:
            return 0
        prompt = self.echo[index // self.n] if 0 <= index < len(self.echo) * self.n else None
        return None if prompt is None else len(prompt)

    def may_stop(self, stop: str | int | None) -> bool:
        """A choice whose finish tells this stop may have ended at a stop string: not all that the engine generated is
        in it then, and a call may be cut anywhere. Many servers tell nothing."""
        return isinstance(stop, str) or (stop is None and bool(self.stops))


def read(request: dict[str, Any], protocol: Protocol) -> Asked:
    """A request's body, read."""
    options = obj(request.get("stream_options"))
    choice, named = _choice(request.get("tool_choice"))
    n = integer(request.get("n")) or 1
    single = request.get("parallel_tool_calls") is False
    if protocol == "messages":
        single = obj(request.get("tool_choice")).get("disable_parallel_tool_use") is True
    return Asked(
        n=n if n > 0 else 1,
        stops=_strings(request.get("stop_sequences" if protocol == "messages" else "stop")),
        keep_stop=request.get("include_stop_str_in_output") is True or request.get("no_stop_trim") is True,
        stop_content=request.get("stop_scopes") is None or "content" in array(request["stop_scopes"]),
        tools=_tools(request),
        choice=choice,
        named=named,
        named_finish=string(request.get("named_finish_reason")),
        parallel=not single,
        hidden=request.get("include_reasoning") is False
        or (protocol == "messages" and obj(request.get("thinking")).get("display") == "omitted"),
        include_usage=options.get("include_usage") is True,
        continuous=options.get("continuous_usage_stats") is True,
        logprobs=request.get("logprobs") is True,
        top=integer(request.get("top_logprobs")) or 0,
        end_token=request.get("end_token_logprob") is not False,
        echo=tuple(prompts(request)) if protocol == "completions" and request.get("echo") is True else (),
    )


def prompts(request: dict[str, Any]) -> list[str | None]:
    """The prompts of a completions request: their text, None where they are tokens or embeddings."""
    prompt = request.get("prompt")
    embeds = request.get("prompt_embeds")
    found: list[str | None] = []
    if isinstance(prompt, list) and prompt and not any(one.__class__ is int for one in array(prompt)):
        found += [string(one) for one in array(prompt)]
    elif prompt is not None:
        found.append(string(prompt))
    if embeds is not None:
        found += [None] * (len(array(embeds)) if isinstance(embeds, list) else 1)
    return found or [None]


def _strings(value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else array(value)
    return tuple(one for one in found if isinstance(one, str) and one)


def _choice(value: Any) -> tuple[Wanted, str | None]:
    """``auto``, ``none`` and ``required`` may be words or (messages) objects with that type."""
    if isinstance(value, str):
        return _MODES.get(value, "auto"), None
    told = obj(value)
    kind = told.get("type")
    if kind == "allowed_tools":
        mode = obj(told.get("allowed_tools")).get("mode", told.get("mode"))
        return ("required" if mode == "required" else "auto"), None
    if kind in ("function", "custom", "tool"):
        name = obj(told.get(kind)).get("name", told.get("name"))
        return ("named", name) if isinstance(name, str) else ("auto", None)
    return _MODES.get(kind, "auto") if isinstance(kind, str) else "auto", None


def _tools(request: dict[str, Any]) -> dict[str, AskedTool]:
    """A declaration may stand in a field of its type's name, or flat; the old ``functions`` are declarations too."""
    found: dict[str, AskedTool] = {}
    for value in (*array(request.get("tools")), *array(request.get("functions"))):
        tool = obj(value)
        spec = obj(tool.get(tool["type"])) if isinstance(tool.get("type"), str) else {}
        spec = spec or tool
        name = spec.get("name")
        if isinstance(name, str):
            schema = obj(spec.get("parameters") or spec.get("input_schema"))
            found[name] = AskedTool(name, spec.get("strict") is True, schema or None)
    return found
