"""Checks of a request that its types cannot make. Each refusal names the field and says what to do instead."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stages.protocols.anthropic.request import Block, MessagesRequest, ToolSpec, Turn
from stages.protocols.body import refused

_BLOCKS: Final = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
"""The types of blocks that a message of each role may have."""
_NEEDED: Final = {
    "text": ("text",), "thinking": ("thinking",), "redacted_thinking": (), "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
}  # fmt: skip
_UNSUPPORTED: Final = {
    "compaction": "this server does not sum up; leave the field out",
    "container": "this server has no containers; leave the field out",
    "mcp_servers": "this server calls no tools by itself; declare them in tools, with an input_schema",
    "output_format": "this field is not supported; give the format in output_config.format",
    "thread": "this server keeps no messages; send the whole conversation",
}
_LEAST_BUDGET: Final = 1024


def check(request: MessagesRequest, *, counting: bool) -> None:
    """Raises RequestError (400) for the first thing that is wrong. ``counting``: nothing is to be generated."""
    if not counting:
        _max_tokens(request)
    _messages(request)
    if isinstance(request.system, list):
        for index, block in enumerate(request.system):
            _block(block, f"system[{index}]", "system")
    for name, instead in _UNSUPPORTED.items():
        value: Any = getattr(request, name)
        if value is not None and value != []:
            raise refused(name, instead)
    if "" in request.stop_sequences:
        raise refused(f"stop_sequences[{request.stop_sequences.index('')}]", "a stop sequence must not be empty")
    _tools(request)
    _choice(request)
    _thinking(request, counting)


def _max_tokens(request: MessagesRequest) -> None:
    if request.max_tokens is None:
        raise refused("max_tokens", "this field is required")
    if request.max_tokens < 1:
        # 0 fills a cache elsewhere; here is none that a request could fill for another.
        raise refused("max_tokens", "expected `int` >= 1")
    if request.min_tokens > request.max_tokens:
        raise refused("min_tokens", f"expected at most {request.max_tokens}, the largest number of tokens")


# --- messages -------------------------------------------------------------------------------------------------------


def _messages(request: MessagesRequest) -> None:
    for index, turn in enumerate(request.messages):
        if isinstance(turn.content, list):
            for place, block in enumerate(turn.content):
                _block(block, f"messages[{index}].content[{place}]", turn.role)
    last = request.messages[-1]
    if last.role == "assistant":
        _prefill(last, f"messages[{len(request.messages) - 1}].content")
    elif last.role == "system" and len(request.messages) == 1:
        raise refused("messages", "expected a message of the user")


def _prefill(turn: Turn, path: str) -> None:
    """The answer goes on with what the last message has, if that is the assistant's."""
    blocks = [] if isinstance(turn.content, str) else turn.content
    if any(block.type == "tool_use" for block in blocks):
        raise refused(path, "a call must be followed by its tool_result; only text can be continued")
    if not (turn.content if isinstance(turn.content, str) else any(block.text for block in blocks)):
        raise refused(path, "expected text, which the answer goes on with")


def _block(block: Block, path: str, role: str) -> None:
    allowed = _BLOCKS[role]
    if block.type not in allowed:
        known = any(block.type in types for types in _BLOCKS.values())
        where = f"in messages of role {role!r}; " if known and path.startswith("messages") else ""
        told = f"blocks of type {block.type!r:.100} are not supported {where}".rstrip()
        raise refused(path, f"{told}{'' if where else ';'} expected {' or '.join(map(repr, allowed))}")
    for name in _NEEDED[block.type]:
        if getattr(block, name) is None:
            raise refused(f"{path}.{name}", "this field is required")
    if block.type == "tool_use":
        if not block.id or not block.name:
            raise refused(f"{path}.{'name' if block.id else 'id'}", "expected text")
        if not isinstance(block.input, dict):
            raise refused(f"{path}.input", "expected an object")
    elif block.type == "tool_result":
        results(block, path)


def results(block: Block, path: str = "content") -> list[str]:
    """The texts of a tool's result. Raises RequestError for what is no text."""
    if block.content is None or isinstance(block.content, str):
        return [block.content or ""]
    try:
        inner = msgspec.convert(block.content, list[Block])
    except msgspec.ValidationError:
        raise refused(f"{path}.content", "expected text, or a list of blocks") from None
    for index, one in enumerate(inner):
        _block(one, f"{path}.content[{index}]", "system")
    return [one.text or "" for one in inner]


# --- tools and thinking -----------------------------------------------------------------------------------------------


def _tools(request: MessagesRequest) -> None:
    for index, tool in enumerate(request.tools):
        _tool(tool, f"tools[{index}]")
    names: set[str | None] = set()
    for index, tool in enumerate(request.tools):
        if tool.name in names:
            raise refused(f"tools[{index}].name", f"there are two tools named {tool.name!r:.150}")
        names.add(tool.name)


def _tool(tool: ToolSpec, path: str) -> None:
    if tool.type not in (None, "custom"):
        raise refused(
            f"{path}.type",
            f"tools that a server runs ({tool.type!r:.100}) are not supported; declare one with an input_schema",
        )
    if tool.name is None:
        raise refused(f"{path}.name", "this field is required")
    if (
        not tool.name
        or len(tool.name) > 128
        or not all(char.isascii() and (char.isalnum() or char in "_-") for char in tool.name)
    ):
        raise refused(f"{path}.name", "expected 1 to 128 letters, digits, '_' and '-'")
    if tool.input_schema is None:
        raise refused(f"{path}.input_schema", "this field is required")


def _choice(request: MessagesRequest) -> None:
    choice = request.tool_choice
    if choice is None or choice.type == "none":
        return
    if not request.tools:
        raise refused("tool_choice", "only allowed when tools are given")
    if choice.type == "tool":
        if choice.name is None:
            raise refused("tool_choice.name", "this field is required")
        if choice.name not in {tool.name for tool in request.tools}:
            raise refused("tool_choice.name", f"there is no tool named {choice.name!r:.150}")


def _thinking(request: MessagesRequest, counting: bool) -> None:
    thinking = request.thinking
    if thinking is None or thinking.type != "enabled":
        return
    budget = thinking.budget_tokens
    if budget is None:
        raise refused("thinking.budget_tokens", "this field is required")
    if budget < _LEAST_BUDGET:
        raise refused("thinking.budget_tokens", f"expected `int` >= {_LEAST_BUDGET}")
    if not counting and request.max_tokens is not None and budget >= request.max_tokens:
        raise refused("thinking.budget_tokens", f"expected less than max_tokens, which is {request.max_tokens}")
