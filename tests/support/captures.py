"""Responses that other servers sent (data/captures), and all that is known of each: the request, when which bytes came,
which tokens the engine was given to say, and what they mean.

``captures_make.py`` makes them. Where CAPTURES names a folder of more, these are read too.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from replay.evidence import markers_of
from stages.opening import Ask, Opening, Tool
from stages.protocols.rules import EngineFacts, Evidence, Http, Protocol, Write, Writes
from tests.support.tree import ROOT

FOLDER = ROOT / "tests" / "data" / "captures"
TWIN = "_no_token_ids"
"""How the name of a capture ends that asked for the same without token ids."""
PATHS: dict[Protocol, str] = {
    "chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
    "messages": "/v1/messages",
}  # fmt: skip


class Wrote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model wrote in one choice, read by hand or by a reader that is not ours. ``calls``: name, and the
    arguments as JSON text (compared as a value)."""

    reasoning: str | None = None
    content: str | None = None
    calls: tuple[tuple[str, str], ...] = ()


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine said. ``vocabulary``: the file in data/vocabularies that its ids are of; ``steps``: for each step
    in order its choice and how many of that choice's ids came; ``wrote``: per choice, None where that is no question of
    the format (a call that never ended, a marker that was never closed)."""

    vocabulary: str
    steps: tuple[tuple[int, int], ...]
    wrote: tuple[Wrote | None, ...]


class Capture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A response. ``parser``: Playhead's name of the format that the server parsed; ``writes``: when (in µs from the
    request on) how many bytes of the body were there; ``whole``: the body without streaming."""

    server: str
    protocol: Protocol
    parser: str | None
    marked: Literal["client_closed"] | None
    http: Http
    writes: tuple[tuple[int, int], ...] | None
    engine: EngineFacts | None
    request: dict[str, Any]
    whole: str | None
    body: str
    script: Script | None = None
    name: str = ""

    @property
    def data(self) -> bytes:
        """The body."""
        return self.body.encode()

    def chunks(self) -> list[bytes]:
        """The body in the server's own writes."""
        data = self.data
        ends = [end for _, end in self.writes] if self.writes else [len(data)]
        return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def steps_of(self, choice: int) -> list[tuple[int, ...]]:
        """The ids of each step of a choice."""
        assert self.engine is not None
        assert self.script is not None
        ids, at = self.engine.choices[choice].ids, 0
        found: list[tuple[int, ...]] = []
        for of, count in self.script.steps:
            if of == choice:
                found.append(ids[at : at + count])
                at += count
        return found

    def evidence(self) -> Evidence:
        """All that is known of it."""
        return Evidence(
            body=self.data,
            protocol=self.protocol,
            marked=self.marked,
            request=self.request,
            http=self.http,
            writes=None if self.writes is None else Writes([Write(at * 1000, end) for at, end in self.writes], begun=0),
            engine=self._engine(),
            whole=None if self.whole is None else self.whole.encode(),
            effort=True,
        )

    def _engine(self) -> EngineFacts | None:
        if self.engine is None or self.parser is None:
            return self.engine
        tools = (Tool("any"),) if self.request.get("tools") and self.request.get("tool_choice") != "none" else ()
        ask = Ask(keep_special=self.request.get("skip_special_tokens") is False, tools=tools)
        opening = Opening(
            session="", key="", response_id="", created=0, opened=0, model="", parser=self.parser, ask=ask
        )  # fmt: skip
        return msgspec.structs.replace(self.engine, markers=markers_of(opening))


@cache
def captures() -> dict[str, Capture]:
    """By name."""
    read = msgspec.json.Decoder(Capture).decode
    more = os.environ.get("CAPTURES")
    found: dict[str, Capture] = {}
    for folder in (FOLDER, *([Path(more)] if more else [])):
        for path in sorted(folder.glob("*.json")):
            found[path.stem] = msgspec.structs.replace(read(path.read_bytes()), name=path.stem)
    return found


def kept() -> set[str]:
    """The names of those in this repository."""
    return {path.stem for path in FOLDER.glob("*.json")}


def twin(name: str) -> Capture | None:
    """The same request without token ids, where it was captured too."""
    return captures().get(name + TWIN)


# --- without token ids ----------------------------------------------------------------------------------------------


def without_ids(capture: Capture) -> list[bytes]:
    """The chunks of a stream with token ids as they are where nobody asked for ids. vLLM: ids are null, and a chunk
    that then says nothing is not sent; SGLang: the chunk that has them is not there. Written from that rule, for the
    tests; nothing of it is our own code."""
    kept = [_without_ids(chunk) for chunk in capture.chunks()]
    return [chunk for chunk in kept if chunk]


def _without_ids(chunk: bytes) -> bytes:
    text = chunk.decode()
    if not text.startswith("data: {"):
        return chunk
    value: Any = json.loads(text[len("data: ") :])
    if "sglext" in value:
        return b""
    if value.get("prompt_token_ids") is not None:
        value["prompt_token_ids"] = None
    choices: list[Any] = value.get("choices") or []
    for choice in choices:
        if "token_ids" in choice:
            choice["token_ids"] = None
    if choices and all(
        choice.get("delta") == {} and choice.get("finish_reason") is None and not choice.get("logprobs")
        for choice in choices
    ):
        return b""
    return b"data: %b\n\n" % json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


_OWN = (
    (re.compile(rb'"(id|item_id)":"[^"]+"'), rb'"\1":"?"'),
    (re.compile(rb'"created":[0-9]+'), b'"created":0'),
)


def normalised(body: bytes) -> bytes:
    """A stream without what is a response's own: ids of response and calls, and its time."""
    for pattern, instead in _OWN:
        body = pattern.sub(instead, body)
    return body
