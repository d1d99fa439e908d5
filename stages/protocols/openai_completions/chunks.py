"""The objects of the completions protocol as it is on the wire. The error object is chat's.

A streamed object and a whole answer have the same shape and the same ``object`` on the wire. Where they are recorded
they are told apart: the tags of the Structs are never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.protocols.openai_chat import CompletionUsage, Metrics, tail

OBJECT: Final = "text_completion"
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def _envelope(response_id: str, created: int, model: str, fingerprint: str | None) -> bytes:
    """The JSON of an object up to its ``choices``."""
    keys: dict[str, Any] = {"id": response_id, "object": OBJECT, "created": created, "model": model}
    if fingerprint is not None:
        keys["system_fingerprint"] = fingerprint
    return _encode(keys)[:-1] + b',"choices":'


class TextLogprobs(msgspec.Struct, frozen=True, gc=False):
    """Four arrays, of one entry for each token that is told.

    ``token_logprobs``: from -9999 to 0; None, as in ``top_logprobs``, for the first token of a prompt, of which nothing
    tells how likely it was. ``top_logprobs``: by their text, the likeliest tokens and the chosen one. ``text_offset``:
    where each token begins in all that is told of the choice, in characters of ``tokens``.
    """

    tokens: tuple[str, ...]
    token_logprobs: tuple[float | None, ...]
    top_logprobs: tuple[dict[str, float] | None, ...]
    text_offset: tuple[int, ...]


class TextChoice(msgspec.Struct, frozen=True, gc=False):
    """A choice, or its part of a chunk. ``stop_reason``: on the finish chunk, the stop string or stop token id, if one
    ended the choice; absent otherwise. ``token_ids``: those of this step, ``prompt_token_ids``: on a choice's first
    chunk; both only if asked for."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: tuple[int, ...] | UnsetType | None = UNSET
    prompt_token_ids: tuple[int, ...] | UnsetType | None = UNSET


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """What a streamed object and a whole answer have in common. ``metrics``: on a stream's last one, if asked for."""

    event: ClassVar[str] = ""

    id: str
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: tuple[TextChoice, ...] = ()
    usage: CompletionUsage | UnsetType | None = UNSET
    metrics: Metrics | UnsetType = UNSET

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        head = _envelope(self.id, self.created, self.model, self.system_fingerprint)
        return head + _encode(self.choices) + tail(self.usage, UNSET, self.metrics)


class CompletionChunk(_Answer, frozen=True, gc=False, tag_field="object", tag="text_completion.chunk"):
    """One event of a stream."""

    whole: ClassVar[bool] = False

    @staticmethod
    def wires(chunks: Iterable[CompletionChunk], before: bytes, after: bytes) -> Iterator[bytes]:
        """See ``stages.sse.ProtocolChunk``."""
        # What surrounds the choices is made anew only where it is no longer the same objects.
        id: Any = object()
        created: Any = None
        model = fingerprint = usage = metrics = created
        head = end = b""
        join = b"".join
        for chunk in chunks:
            if (
                chunk.id is not id or chunk.created is not created or chunk.model is not model
                or chunk.system_fingerprint is not fingerprint or chunk.usage is not usage
                or chunk.metrics is not metrics
            ):  # fmt: skip
                id, created, model, fingerprint = chunk.id, chunk.created, chunk.model, chunk.system_fingerprint
                usage, metrics = chunk.usage, chunk.metrics
                head = before + _envelope(id, created, model, fingerprint)
                end = tail(usage, UNSET, metrics) + after
            yield join((head, _encode(chunk.choices), end))


class TextCompletion(_Answer, frozen=True, gc=False, tag_field="object", tag="text_completion"):
    """The answer to a request that does not stream."""

    whole: ClassVar[bool] = True


Chunk: TypeAlias = CompletionChunk | TextCompletion
