"""Decoding a request, with the checks that its types cannot make. Each refusal names the field and says what to do."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from stages.protocols.body import NO_CUSTOM, decoded, refused
from stages.protocols.body import unknown_fields as body_unknown
from stages.protocols.openai_responses.items import input_items, items_of
from stages.protocols.openai_responses.request import AllowedChoice, FunctionChoice, ResponsesRequest

UNSUPPORTED: Final = {
    "prompt": "stored prompts are not supported; give instructions and input",
    "moderation": "this server does not moderate; leave the field out",
    "context_management": "this server does not compact; leave the field out",
}
"""Fields that are refused, each with what to do."""


def decode_request(body: bytes) -> ResponsesRequest:
    """Decode and validate. Raises RequestError (400)."""
    request = decoded(body, ResponsesRequest)
    _input(request)
    for name, instead in UNSUPPORTED.items():
        if getattr(request, name) is not None:
            raise refused(name, instead)
    _output(request)
    _tools(request)
    _choice(request)
    return msgspec.structs.replace(request, top_k=max(request.top_k, 0))


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """The top-level fields of a request that have no meaning here, in the request's order. Raises RequestError where
    the body is no JSON object."""
    return body_unknown(body, ResponsesRequest)


def _input(request: ResponsesRequest) -> None:
    goes_on = request.previous_response_id is not None or request.conversation is not None
    if request.previous_response_id is not None and request.conversation is not None:
        raise refused("previous_response_id", "cannot be combined with conversation")
    if request.input is None and not goes_on:
        raise refused("input", "this field is required")
    if request.input == [] and not goes_on:
        raise refused("input", "expected at least one item")
    deque(items_of(input_items(request), "input"), maxlen=0)


def _output(request: ResponsesRequest) -> None:
    if request.stream_options is not None and not request.stream:
        raise refused("stream_options", "only allowed when stream is true")
    if request.max_output_tokens is not None and request.min_tokens > request.max_output_tokens:
        raise refused("min_tokens", f"expected at most {request.max_output_tokens}, the largest number of tokens")
    if request.stop == "":
        raise refused("stop", "a stop string must not be empty")
    if not isinstance(request.stop, str) and "" in request.stop:
        raise refused(f"stop[{request.stop.index('')}]", "a stop string must not be empty")


def _tools(request: ResponsesRequest) -> None:
    for index, spec in enumerate(request.tools):
        if spec.type == "custom":
            raise refused(f"tools[{index}].type", NO_CUSTOM)
        if spec.type != "function":
            raise refused(f"tools[{index}].type", f"tools of type {spec.type!r} are not supported; expected 'function'")
        if spec.name is None:
            raise refused(f"tools[{index}].name", "this field is required")


def _choice(request: ResponsesRequest) -> None:
    choice = request.tool_choice
    if choice in (None, "none", "auto"):
        return
    if not request.tools:
        raise refused("tool_choice", "only allowed when tools are given")
    names = {spec.name for spec in request.tools}
    if isinstance(choice, FunctionChoice) and choice.name not in names:
        raise refused("tool_choice.name", f"there is no tool named {choice.name!r}")
    if isinstance(choice, AllowedChoice):
        for index, entry in enumerate(choice.tools):
            if entry.name not in names:
                raise refused(f"tool_choice.tools[{index}].name", f"there is no tool named {entry.name!r}")
