"""Name → stage: explicit dicts. Detects a format from the chat template, the vocabulary or the model's name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec

from stages import policy, sse, stop
from stages.errors import UnknownName
from stages.events import ErrorChunk, FailureKind, Input, Semantic
from stages.opening import Opening, TokenizerFacts
from stages.parse.detection import detected
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from stages.parse.formats.plain import PLAIN
from stages.parse.parser import Parser
from stages.parse.reasonings import REASONINGS, VERSION
from stages.parse.told import TOLD
from stages.protocols import anthropic, openai_chat, openai_completions, openai_responses
from stages.stage import Chain, Stage


def _key(name: str) -> str:
    """Case, blanks and ``-_.`` do not matter."""
    return "".join(char for char in name.lower() if char not in " \t\n-_.")


_BY_NAME: Final[dict[str, Format]] = {_key(name): form for form in FORMATS for name in (form.name, *form.aliases)}
_SPELLED: Final = tuple(name for form in FORMATS for name in (form.name, *form.aliases))
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
    """A protocol that is served.

    ``path``: where it is asked; ``chunk``: the union of its chunk Structs; ``prefix``: of the ids of responses, before
    that of the session; ``error``: kind, message, code, param → its error object, with its status.
    """

    path: str
    prefix: str
    encoder: Stage[Any, Any]
    chunk: Any
    error: Callable[[FailureKind, str, str | None, str | None], ErrorChunk]


class Layers(msgspec.Struct, frozen=True):
    """The three stages that derive a session's layers. ``parts``: the stages of ``semantic`` by role."""

    semantic: Stage[Input, Semantic]
    encoder: Stage[Any, Any]
    framer: Stage[Any, Any]
    parts: dict[str, Stage[Any, Any]]


PROTOCOLS: Final[dict[str, ProtocolEntry]] = {
    "chat": ProtocolEntry(
        "/v1/chat/completions", "chatcmpl-", openai_chat.ENCODER, openai_chat.Chunk, openai_chat.error_chunk
    ),
    "completions": ProtocolEntry(
        "/v1/completions", "cmpl-", openai_completions.ENCODER, openai_completions.Chunk, openai_chat.error_chunk
    ),
    "responses": ProtocolEntry(
        "/v1/responses", "resp_", openai_responses.ENCODER, openai_responses.Chunk, openai_chat.error_chunk
    ),
    "messages": ProtocolEntry("/v1/messages", "msg_", anthropic.ENCODER, anthropic.Chunk, anthropic.error_chunk),
}
"""By name, in the order of their specification."""


def protocol_at(path: str) -> str:
    """The protocol whose errors the clients of a path read: that of the paths below its own and of the streams of its
    responses, behind any prefix, and chat's for all others."""
    for name, entry in PROTOCOLS.items():
        if entry.path.removeprefix("/v1") in path or f"/streams/{entry.prefix}" in path:
            return name
    return "chat"


def parser(name: str) -> Stage[Input, Semantic]:
    """The parser of this name or alias, or of a pair ``reasoning+tools``; ``told``: of what another server says that
    its model meant, which is no format of a model. Raises UnknownName, with the nearest name."""
    if name == TOLD.name:
        return TOLD
    first, plus, second = name.partition("+")
    return Parser(_pair(first, second) if plus else _form(name))


def _form(name: str) -> Format:
    form = _BY_NAME.get(_key(name))
    if form is None:
        raise UnknownName(_unknown("parser", name, _SPELLED, [form.name for form in FORMATS]))
    return form


@lru_cache(maxsize=64)
def _pair(first: str, second: str) -> Format:
    """The reasoning of the first, the calls of the second."""
    calls = _form(second)
    key = _key(first)
    whole = _BY_NAME.get(key)
    if calls.channels is not None or (whole is not None and whole.channels is not None):
        if whole is not calls:
            name = calls.name if calls.channels is not None else first
            raise UnknownName(f"{name} writes messages on channels: it makes a pair with itself only")
        return calls
    reasoning = _REASONINGS.get(key) if whole is None else whole.reasoning
    if key in _REASONINGS:
        reasoning = _REASONINGS[key]
    elif key not in _BY_NAME:
        known = dict.fromkeys((*REASONINGS, *_SPELLED))
        raise UnknownName(_unknown("reasoning", first, known, [*REASONINGS]))
    name, version = f"{first.strip().lower()}+{calls.name}", calls.version + VERSION - 1

    @lru_cache(maxsize=16)  # a format is told apart by identity: one for each checkpoint's spelling
    def paired(form: Format) -> Format:
        own = form.reasoning if reasoning == calls.reasoning else reasoning
        return replace(form, name=name, version=version, aliases=(), reasoning=own, variant=None)

    if calls.variant is None:
        return paired(calls)
    variant = calls.variant

    def spelled(tokenizer: TokenizerFacts) -> Format:
        return paired(variant(tokenizer))

    return replace(paired(calls), variant=spelled)


def names() -> list[ParserEntry]:
    """All parsers."""
    return [ParserEntry(form.name, form.aliases, form.id, form.models, form.grammar, form.summary) for form in FORMATS]


def detect(template: str | None, tokenizer: TokenizerFacts, model: str) -> str:
    """The name of the parser for a model; ``plain`` where nothing tells. ``template``: the chat template's text, where
    known."""
    return detected(template or "", {*tokenizer.special, *tokenizer.added}, model) or PLAIN.name


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


_MOST: Final = 12
"""Names that a message lists."""


def _unknown(what: str, name: str, known: Iterable[str], names: Sequence[str]) -> str:
    """``known``: names and aliases; ``names``: without aliases."""
    spelled = {_key(each): each for each in reversed([*known])}
    near = difflib.get_close_matches(_key(name), spelled, n=1)
    meant = f"; did you mean {spelled[near[0]]}?" if near else "."
    if len(names) > _MOST:
        return f"no {what} {name!r}{meant} There are {len(names)}: playhead parse --list shows them"
    return f"no {what} {name!r}{meant} There {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
