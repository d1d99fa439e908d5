"""What of a request holds a model to something while it generates, for an upstream that is asked for tokens.

    chat           the client's own fields say it: nothing is put in
    generate       ``json_schema``, or ``structural_tag`` (SGLang)
    completion     ``json_schema`` (llama.cpp)
    completions    ``response_format`` (vLLM, SGLang): a schema, or a structural tag

An upstream that gets a bare prompt knows nothing of reasoning and of calls: it holds all that the model writes to what
it is told. A schema does for an answer and nothing else. For calls, for an answer behind reasoning, and where the model
may do either, the whole output is said, as a structural tag: see ``structural``. Where neither can be said it is lost,
and our stages note where the model does not keep to it.

vLLM, started with a reasoning parser, holds nothing until reasoning is over, and does not say that it was. So what
begins in reasoning is not said to it.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from pipeline.upstream.structural import Tag, loose, structural
from stages.constraint import constraint_of
from stages.errors import RequestError
from stages.opening import Ask, EngineFacts, TokenizerFacts
from stages.parse.format import Format
from stages.parse.modes import THINKS
from stages.parse.reasoning import start_mode

_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_KINDS: Final = ("vllm", "sglang", "playhead")
"""Servers whose completions know ``response_format``."""
_TAGGED: Final = (0, 5, 23)
"""The SGLang from which on ``/generate`` is known to take such tags: it would say that it does not only where an output
should begin."""
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


class Held(NamedTuple):
    """``fields``: to send; ``lost``: names of the request's fields, in chat's terms. ``less``: the same without a
    structural tag, for a server that refuses it."""

    fields: dict[str, Any]
    lost: tuple[str, ...]
    less: Held | None = None


def held(
    way: str, ask: Ask, form: Format | None, tail: str, engine: EngineFacts, tokenizer: TokenizerFacts | None = None
) -> Held:
    """What is sent in this way. ``form``: what the model writes, None where that is not known; ``tail``: of the prompt;
    ``engine``: which server it is."""
    if way == "chat":
        return Held({}, ())
    plain = _by_schema(way, ask, form, tail, engine.kind)
    if not plain.lost or form is None or not _takes_tags(way, form, tail, engine):
        return plain
    tag = _tag(ask, form, tail, tokenizer or TokenizerFacts())
    if tag is None:
        return plain
    lost = _passed_over(ask)
    if way == "generate":
        return Held({"structural_tag": msgspec.json.encode(tag).decode()}, lost)
    return Held({"response_format": tag}, lost, plain)


# --- by a schema ------------------------------------------------------------------------------------------------------


def _forced(ask: Ask) -> bool:
    return bool(ask.tools) and (ask.function is not None or ask.tool_choice == "required")


def _strict(ask: Ask) -> tuple[Any, ...]:
    """The schemas that calls are held to."""
    calls = bool(ask.tools) and ask.tool_choice != "none"
    return tuple(tool.parameters for tool in ask.tools if tool.strict) if calls else ()


def _by_schema(way: str, ask: Ask, form: Format | None, tail: str, kind: str) -> Held:
    calls = bool(ask.tools) and ask.tool_choice != "none"
    lost = (*(("tool_choice",) if _forced(ask) else ()), *(("tools.strict",) if _strict(ask) else ()))
    if ask.answer is None:
        return Held({}, lost)
    thinks = form is None or start_mode(form, tail, calls=False) in THINKS
    fields = {} if calls or thinks else _answer(way, ask.answer, kind)
    return Held(fields, lost if fields or _forced(ask) else (*lost, "response_format"))


def _answer(way: str, schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The answer's schema, {} for any object, as the server calls it; nothing where it has no name for it."""
    if way == "generate":
        return {"json_schema": msgspec.json.encode(schema or _OBJECT).decode()}
    if way == "completion":
        return {"json_schema": schema or _OBJECT}
    if kind not in _KINDS:
        return {}
    named = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named} if schema else {"type": "json_object"}}


# --- by a structural tag ----------------------------------------------------------------------------------------------


def _takes_tags(way: str, form: Format, tail: str, engine: EngineFacts) -> bool:
    if engine.kind == "vllm":
        return way == "completions" and form.channels is None and start_mode(form, tail, calls=True) not in THINKS
    if engine.kind != "sglang" or engine.arguments.get("grammar_backend", "xgrammar") != "xgrammar":
        return False
    version = _VERSION.match(engine.versions.get("sglang", ""))
    return way != "generate" or (version is not None and tuple(map(int, version.groups())) >= _TAGGED)


def _tag(ask: Ask, form: Format, tail: str, tokenizer: TokenizerFacts) -> Tag | None:
    try:
        constraint = constraint_of(ask, form, tokenizer, "chat")
    except RequestError:  # a schema that the format cannot be held to: here that is no reason to refuse it
        return None
    return None if constraint is None else structural(constraint.after(tail))


def _passed_over(ask: Ask) -> tuple[str, ...]:
    """What a tag holds in part."""
    lost = ("tools.strict",) if any(map(loose, _strict(ask))) else ()
    return (*lost, "response_format") if not _forced(ask) and loose(ask.answer) else lost
