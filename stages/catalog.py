"""Name → stage: explicit dicts. Detects a format from the chat template, the vocabulary or the model's name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from stages import policy, sse, stop
from stages.errors import UnknownName
from stages.events import Input, Semantic
from stages.opening import Opening, TokenizerFacts
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.plain import PLAIN
from stages.parse.parser import Parser
from stages.parse.reasonings import REASONINGS, VERSION
from stages.protocols import openai_chat
from stages.stage import Chain, Stage


def _key(name: str) -> str:
    """Case, and which of ``-_.`` stands between the words, do not matter."""
    return name.strip().lower().replace("_", "-").replace(".", "-")


_BY_NAME: Final[dict[str, Format]] = {_key(name): form for form in FORMATS for name in (form.name, *form.aliases)}
_REASONINGS: Final = {_key(name): table for name, table in REASONINGS.items()}


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
    """The parser of this name or alias, or of a pair ``reasoning+tools``. Raises UnknownName, with the nearest name."""
    first, plus, second = name.partition("+")
    return Parser(_pair(first, second) if plus else _form(name))


def _form(name: str) -> Format:
    form = _BY_NAME.get(_key(name))
    if form is None:
        raise UnknownName(_unknown("parser", name, _BY_NAME, [form.name for form in FORMATS]))
    return form


def _pair(first: str, second: str) -> Format:
    """The reasoning of the first, the calls of the second."""
    calls = _form(second)
    key = _key(first)
    reasoning = _BY_NAME[key].reasoning if key in _BY_NAME else _REASONINGS.get(key)
    if key in _REASONINGS:
        reasoning = _REASONINGS[key]
    elif key not in _BY_NAME:
        known = dict.fromkeys((*_REASONINGS, *_BY_NAME))
        raise UnknownName(_unknown("reasoning", first, known, [*REASONINGS]))
    return replace(calls, name=f"{first.strip().lower()}+{calls.name}", version=calls.version + VERSION - 1,
                   aliases=(), reasoning=reasoning)  # fmt: skip


def names() -> list[ParserEntry]:
    """All parsers."""
    return [ParserEntry(form.name, form.aliases, form.id, form.models, form.grammar, form.summary) for form in FORMATS]


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


def _unknown(what: str, name: str, known: Iterable[str], names: Sequence[str]) -> str:
    """``known``: names and aliases; ``names``: without aliases."""
    near = difflib.get_close_matches(_key(name), known, n=1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"no {what} {name!r}{meant} There {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
