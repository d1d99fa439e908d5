"""Parsing what no engine wrote in this process: a text, or a case's tokens, through any parser, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from replay.derive import SEMANTIC, Assemble
from replay.errors import ParserFailed
from replay.place import place
from replay.resolve import Parser, resolve
from replay.split import pieces, regroup
from replay.text import describe, sound
from stages import catalog
from stages.events import FinishInput, FinishReason, Input, PromptInput, Semantic, TokensInput, UsageInput
from stages.message import Collector, Message
from stages.opening import Ask, Opening, TokenizerFacts, Tool
from stages.stage import Machine


class Step(msgspec.Struct, frozen=True):
    """One input and what came of it. ``state``: where the parser then stood; "" where it does not tell."""

    input: Input
    events: tuple[Semantic, ...]
    state: str = ""


def opening_of(
    name: str = "parse",
    *,
    ask: Ask = Ask(),
    calls: Literal["incremental", "whole"] = "incremental",
    tokenizer: TokenizerFacts = TokenizerFacts(),
    model: str = "",
    request: bytes = b"{}",
) -> Opening:
    """The opening of something that is only parsed: no clock, and call ids that follow from ``name``."""
    return Opening(
        session=name, key=name, response_id=name, created=0, opened=0, model=model, ask=ask, calls=calls,
        tokenizer=tokenizer, request=request,
    )  # fmt: skip


def tokens_of(written: str | bytes, tokenizer: TokenizerFacts = TokenizerFacts()) -> list[TokensInput]:
    """A text as steps of markers and pieces of four characters. Bytes that are not UTF-8 come as tokens with bytes."""
    if isinstance(written, str):
        return [TokensInput(0, (), (), piece) for piece in pieces(written, tokenizer)]
    try:
        return tokens_of(written.decode(), tokenizer)
    except UnicodeDecodeError:
        cut = pieces(written.decode("utf-8", "surrogateescape"), tokenizer)
        return bytes_of([piece.encode("utf-8", "surrogateescape") for piece in cut], tokenizer)


def bytes_of(cut: Sequence[bytes], tokenizer: TokenizerFacts = TokenizerFacts()) -> list[TokensInput]:
    """Tokens of which only the bytes are known. Those that spell a special token are it; the others get unused ids."""
    known = {text.encode(): number for text, number in {**tokenizer.special, **tokenizer.added}.items()}
    free = max((-1, *known.values(), *tokenizer.eos)) + 1
    return [TokensInput(0, (known.get(piece, free + at),), (piece,), "") for at, piece in enumerate(cut)]


def session_of(
    tokens: Sequence[TokensInput], split: str, opening: Opening, tail: str = "", finish: FinishReason = "eos"
) -> list[Input]:
    """A whole session around the tokens, regrouped. ``tail``: the end of the rendered prompt. Raises BadSplit."""
    count = sum(len(token.ids) or 1 for token in tokens)
    ends: tuple[Input, ...] = FinishInput(0, finish), UsageInput(0, count)
    return regroup([PromptInput((), tail, 0), *tokens, *ends], split, opening.tokenizer)


def stepped(
    parser: Parser | str, opening: Opening, inputs: Iterable[Input], assemble: Assemble = catalog.layers
) -> Iterator[Step]:
    """What the parser, with the stop and policy stages that the opening asks for, makes of each input.

    Raises ReplayError: ParserFailed where the parser raises, or gives what is no semantic event.
    """
    watched = _Watched(resolve(parser, opening))
    stage = assemble(opening, watched).semantic
    event: Input | None = None
    try:
        step = stage.start(opening).step
        for event in inputs:
            out: list[Semantic] = []
            step(event, out)
            yield Step(event, tuple(out), watched.state())
    except (Exception, SystemExit) as error:  # a user's parser may raise anything
        at = "its start" if event is None else describe(event)
        line = place(error)
        told = f"{type(error).__name__}: {sound(str(error))} ({f'{line}, ' if line else ''}at {at})"
        raise ParserFailed(f"parser {watched.id} raised {told}") from error


def parse_text(
    parser: Parser | str,
    text: str | bytes,
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
    opening = opening_of(ask=Ask(tools=tuple(tools)), calls=calls, tokenizer=tokenizer, model=model)
    inputs = session_of(tokens_of(text, tokenizer), split, opening, prompt_tail, finish)
    return message_of(stepped(parser, opening, inputs, assemble), opening)


def message_of(steps: Iterable[Step], opening: Opening) -> Message:
    """The message that the steps give."""
    collector = Collector(named=opening.ask.named)
    for step in steps:
        for event in step.events:
            collector.take(event)
    return next(iter(collector.messages()), Message(0))


class _Watched:
    """A parser whose machine is looked at while it runs as a part of a chain."""

    def __init__(self, stage: Parser) -> None:
        self._stage = stage
        self._tell: Any = None

    @property
    def id(self) -> str:
        """See Stage."""
        return self._stage.id

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        """See Stage."""
        machine = self._stage.start(opening)
        self._tell = getattr(machine, "state", None)
        return _Checked(machine)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        """See Stage."""
        return _Checked(self._stage.resume(opening, snapshot))

    def state(self) -> str:
        """Where choice 0 stands; "" where the machine has no method ``state`` that tells it."""
        told: Any = self._tell(0) if callable(self._tell) else ""
        return told if isinstance(told, str) else ""


class _Checked:
    """A machine whose every output is seen to be a semantic event."""

    def __init__(self, machine: Machine[Input, Semantic]) -> None:
        self._machine = machine

    def step(self, event: Input, out: list[Semantic]) -> None:
        """See Machine."""
        mark = len(out)
        self._machine.step(event, out)
        for made in out[mark:]:
            if made.__class__ not in SEMANTIC:
                raise TypeError(f"emitted {made.__class__.__name__}, which is no semantic event")

    def snapshot(self) -> msgspec.Struct:
        """See Machine."""
        return self._machine.snapshot()
