"""The fields of requests that say how tokens are chosen: the same in all protocols."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

Natural: TypeAlias = Annotated[int, Meta(ge=0)]
TokenId: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a request. ``top_p``: over 0; ``top_k``: 0 is off (-1 on the wire too)."""

    min_tokens: Natural = 0
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    presence_penalty: _Penalty = 0.0
    frequency_penalty: _Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0)] = 1.0
    logit_bias: dict[Natural, Annotated[float, Meta(ge=-100, le=100)]] = {}
    stop_token_ids: list[TokenId] = []
    ignore_eos: bool = False


_NAMES: Final = SamplingFields.__struct_fields__


def sampling_of(request: SamplingFields) -> dict[str, Any]:
    """These fields of a request, by name; ``top_k`` from 0 on."""
    return {name: getattr(request, name) for name in _NAMES} | {"top_k": max(request.top_k, 0)}
