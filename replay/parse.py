"""parse_text: what a parser makes of a text that no engine wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from replay.derive import Assemble, run
from replay.errors import ParserFailed
from replay.resolve import Parser, resolve
from replay.split import pieces, regroup
from stages import catalog
from stages.events import FinishInput, FinishReason, Input, PromptInput, TokensInput, UsageInput
from stages.message import Message, collect
from stages.opening import Ask, Opening, TokenizerFacts, Tool


def parse_text(
    parser: Parser | str,
    text: str,
    *,
    tools: Sequence[Tool] = (),
    prompt_tail: str = "",
    calls: Literal["incremental", "whole"] = "incremental",
    split: str = "recorded",
    finish: FinishReason = "eos",
    tokenizer: TokenizerFacts = TokenizerFacts(),
    model: str = "",
    assemble: Assemble = catalog.layers,
) -> Message:
    """The message that ``text`` is, streamed through the parser under a split.

    The text comes in markers and pieces of four characters, which splits regroup; ``prompt_tail``: the end of the
    rendered prompt, which may have opened reasoning. Raises ReplayError.
    """
    opening = Opening(
        session="parse", key="parse", response_id="parse", created=0, opened=0, model=model,
        ask=Ask(tools=tuple(tools)), calls=calls, tokenizer=tokenizer,
    )  # fmt: skip
    cut = pieces(text, tokenizer)
    inputs: list[Input] = [PromptInput((), prompt_tail, 0)]
    inputs += [TokensInput(0, (), (), piece) for piece in cut]
    inputs += [FinishInput(0, finish), UsageInput(0, len(cut))]
    stage = assemble(opening, resolve(parser, opening)).semantic
    track, failed = run(stage, "semantic", opening, regroup(inputs, split, tokenizer), range(len(inputs) + len(text)))
    if failed is not None:
        at = f"{failed.where}, " if failed.where else ""
        raise ParserFailed(
            f"parser {failed.stage} raised {failed.type}: {failed.message} ({at}at {failed.input or 'its start'})"
        )
    return next(iter(collect(track.events)), Message(0))
