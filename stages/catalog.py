"""Name → stage: explicit dicts. Detects a format from the chat template, the vocabulary or the model's name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from stages import policy, sse, stop
from stages.errors import UnknownName
from stages.events import Input, Semantic
from stages.opening import Opening, TokenizerFacts
from stages.parse.format import Format
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.plain import PLAIN
from stages.parse.parser import Parser
from stages.protocols import openai_chat
from stages.stage import Chain, Stage

_FORMATS: Final[tuple[Format, ...]] = (PLAIN, HERMES)
_BY_NAME: Final[dict[str, Format]] = {name: form for form in _FORMATS for name in (form.name, *form.aliases)}


class ParserEntry(msgspec.Struct, frozen=True):
    """A parser of the catalog, for people: ``name`` and ``aliases`` are what ``--parser`` takes."""

    name: str
    aliases: tuple[str, ...]
    id: str
    models: tuple[str, ...]
    grammar: str
    summary: str


class ProtocolEntry(msgspec.Struct, frozen=True):
    """A protocol: its encoder, and the union of its chunk Structs."""

    encoder: Stage[Any, Any]
    chunk: Any


class Layers(msgspec.Struct, frozen=True):
    """The three stages that derive a session's layers. ``parts``: the stages of ``semantic`` by role."""

    semantic: Stage[Input, Semantic]
    encoder: Stage[Any, Any]
    framer: Stage[Any, Any]
    parts: dict[str, Stage[Any, Any]]


PROTOCOLS: Final[dict[str, ProtocolEntry]] = {"chat": ProtocolEntry(openai_chat.ENCODER, openai_chat.Chunk)}


def parser(name: str) -> Stage[Input, Semantic]:
    """The parser of this name or alias (case does not matter). Raises UnknownName, which names the nearest."""
    form = _BY_NAME.get(name.strip().lower())
    if form is None:
        raise UnknownName(_unknown("parser", name, _BY_NAME, [form.name for form in _FORMATS]))
    return Parser(form)


def names() -> list[ParserEntry]:
    """All parsers."""
    return [ParserEntry(form.name, form.aliases, form.id, form.models, form.grammar, form.summary) for form in _FORMATS]


def detect(template: str | None, tokenizer: TokenizerFacts, model: str) -> str:
    """The name of the parser for a model. ``template``: the chat template's text, where known.

    The template decides where it speaks of tools: it is what the model was made to read and write. Else the vocabulary:
    ``<tool_call>`` as a token of its own, unless the model is one of those that write XML inside it.
    """
    text = template or ""
    vocabulary = {*tokenizer.special, *tokenizer.added}
    if any(mark in text or mark in vocabulary for mark in ("<function=", "<arg_key>")):
        return PLAIN.name
    if "<tool_call>" in text:
        return HERMES.name
    if "tool" in text or "<tool_call>" not in vocabulary:
        return PLAIN.name
    name = model.lower()
    return PLAIN.name if any(part in name for part in ("coder", "qwen3.5", "qwen3.6", "qwen3.8")) else HERMES.name


def layers(opening: Opening, parser: Stage[Input, Semantic] | None = None) -> Layers:
    """The stages of a session: ``opening.parser`` (or ``parser``), stop and policy where the Ask needs them, and the
    protocol's encoder. Raises UnknownName."""
    parts: dict[str, Stage[Any, Any]] = {"parser": _BY_OPENING(opening.parser) if parser is None else parser}
    if stop.needed(opening.ask):
        parts["stop"] = stop.STOP
    if policy.needed(opening.ask):
        parts["policy"] = policy.POLICY
    protocol = PROTOCOLS.get(opening.protocol)
    if protocol is None:
        raise UnknownName(_unknown("protocol", opening.protocol, PROTOCOLS, [*PROTOCOLS]))
    return Layers(Chain[Input, Semantic](tuple(parts.values())), protocol.encoder, sse.FRAMER, parts)


_BY_OPENING: Final = parser


def stage_ids(layers: Layers) -> dict[str, str]:
    """Role → id of the stages present, for ``Opening.stages``."""
    stages = {**layers.parts, "encoder": layers.encoder, "framer": layers.framer}
    return {role: stage.id for role, stage in stages.items()}


def _unknown(what: str, name: str, known: dict[str, Any], names: Sequence[str]) -> str:
    """``known``: names and aliases; ``names``: without aliases."""
    near = difflib.get_close_matches(name.strip().lower(), known, n=1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"no {what} {name!r}{meant} There {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
