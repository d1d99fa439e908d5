"""The four arrays: from the entries of tokens, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stages.events import TokenLogprob, TopLogprob
from stages.protocols.openai_chat import UNKNOWN, entry
from stages.protocols.openai_completions.chunks import TextLogprobs


def arrays(
    items: Iterable[TokenLogprob], top: int, offset: int, first: bytes | None = None
) -> tuple[TextLogprobs, int]:
    """The arrays of some tokens, and the offset behind them. ``top``: alternatives of each at most; ``offset``: where
    they begin; ``first``: the bytes of a token before them that has no logprob."""
    tokens: list[str] = []
    numbers: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    if first is not None:
        tokens.append(first.decode("utf-8", "replace"))
        numbers.append(None)
        tops.append(None)
    for item in items:
        made = entry(item, top)
        tokens.append(made.token)
        numbers.append(made.logprob)
        # Of tokens that read the same, the likeliest is told; of those, the chosen one.
        best: dict[str, float] = {}
        for other in made.top_logprobs:
            best.setdefault(other.token, other.logprob)
        best[made.token] = made.logprob
        tops.append(best)
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return TextLogprobs(tuple(tokens), tuple(numbers), tuple(tops), tuple(offsets)), offset


def joined(parts: Sequence[TextLogprobs]) -> TextLogprobs:
    """The arrays of several parts of a choice as one."""
    return TextLogprobs(
        tuple(token for part in parts for token in part.tokens),
        tuple(number for part in parts for number in part.token_logprobs),
        tuple(top for part in parts for top in part.top_logprobs),
        tuple(offset for part in parts for offset in part.text_offset),
    )


def entries(logprobs: TextLogprobs, ids: Sequence[int] = ()) -> tuple[TokenLogprob, ...]:
    """The entries that arrays tell of. ``ids``: those of the tokens, where they are known."""
    known = ids if len(ids) == len(logprobs.tokens) else (UNKNOWN,) * len(logprobs.tokens)
    return tuple(
        TokenLogprob(number, piece(token), logprob or 0.0, _top(top))
        for number, token, logprob, top in zip(
            known, logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
        )
    )


def piece(token: str) -> bytes:
    """The bytes of a token that is told as text."""
    return token.encode("utf-8", "surrogatepass")


def _top(tops: dict[str, float] | None) -> tuple[TopLogprob, ...]:
    ranked = sorted((tops or {}).items(), key=_falling)
    return tuple(TopLogprob(UNKNOWN, piece(token), logprob) for token, logprob in ranked)


def _falling(pair: tuple[str, float]) -> float:
    return -pair[1]
