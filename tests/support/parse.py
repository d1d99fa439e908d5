"""What parser tests share: a vocabulary, splits, the collected message, and what must hold of any semantic stream."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from stages import catalog
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    Failure,
    Fault,
    Finish,
    FinishInput,
    FinishReason,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.opening import Ask, Opening, TokenizerFacts, Tool
from stages.stage import ChainSnapshot, Stage, fold

QWEN = TokenizerFacts(
    special={"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<|box_start|>": 151648},
    added={
        "<tool_call>": 151657,
        "</tool_call>": 151658,
        "<tool_response>": 151665,
        "</tool_response>": 151666,
        "<think>": 151667,
        "</think>": 151668,
    },
    eos=(151645, 151643),
)
TOOLS = tuple(Tool(name=name) for name in ("tide", "moon", "get_weather", "get_time"))
PROMPT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
THINKING = PROMPT + "<think>\n"
OFF = PROMPT + "<think>\n\n</think>\n\n"

TextEvent = Content | Reasoning | Refusal | CallArguments | Marker | Dropped
_MADE = ("{}", "{", "}")


def opening(
    parser: str = "hermes",
    *,
    calls: Literal["incremental", "whole"] = "incremental",
    tokenizer: TokenizerFacts = QWEN,
    max_held: int = 4 << 20,
    ask: Ask | None = None,
    **asks: Any,
) -> Opening:
    """An opening with tools; ``asks``: fields of the Ask."""
    fields: dict[str, Any] = {"tools": TOOLS, **asks}
    return Opening(
        session="s-1",
        key="key-1",
        response_id="chatcmpl-1",
        created=1,
        opened=1,
        model="m",
        parser=parser,
        calls=calls,
        max_held=max_held,
        tokenizer=tokenizer,
        ask=ask or Ask(**fields),
    )


def vocabulary(text: str, tokenizer: TokenizerFacts = QWEN, size: int = 4) -> list[tuple[int, bytes]]:
    """``text`` as (id, piece) pairs: special and added tokens by id, the rest in pieces of ``size`` characters."""
    ids = {**tokenizer.special, **tokenizer.added}
    known = sorted(ids, key=len, reverse=True)
    pattern = re.compile(f"({'|'.join(map(re.escape, known))})") if known else re.compile("(?!)()")
    tokens: list[tuple[int, bytes]] = []
    for part in pattern.split(text):
        if part in ids:
            tokens.append((ids[part], part.encode()))
        else:
            tokens += [(len(part) % 97, part[i : i + size].encode()) for i in range(0, len(part), size)]
    return tokens


def grouped(tokens: Sequence[tuple[int, bytes]], sizes: Iterable[int], choice: int = 0) -> list[TokensInput]:
    """Tokens as engine steps of the given sizes; the last step takes the rest."""
    steps: list[TokensInput] = []
    i = 0
    for size in sizes:
        part = tokens[i : i + size]
        if not part:
            break
        steps.append(TokensInput(choice, tuple(t[0] for t in part), tuple(t[1] for t in part), ""))
        i += size
    if i < len(tokens):
        steps += grouped(tokens[i:], [len(tokens)], choice)
    return steps


def tokens(text: str, tokenizer: TokenizerFacts = QWEN, size: int = 4, choice: int = 0) -> list[TokensInput]:
    """One token a step."""
    pieces = vocabulary(text, tokenizer, size)
    return grouped(pieces, [1] * len(pieces), choice)


def texts(pieces: Iterable[str], choice: int = 0) -> list[TokensInput]:
    """Steps of an engine that only releases text."""
    return [TokensInput(choice, (), (), piece) for piece in pieces]


def _bytewise(text: str, tokenizer: TokenizerFacts) -> list[tuple[int, bytes]]:
    """Tokens that cut characters: every ordinary token is one byte."""
    cut: list[tuple[int, bytes]] = []
    known = {*tokenizer.special.values(), *tokenizer.added.values()}
    for number, piece in vocabulary(text, tokenizer):
        cut += [(number, piece)] if number in known else [(1, piece[i : i + 1]) for i in range(len(piece))]
    return cut


def splits(text: str, tokenizer: TokenizerFacts = QWEN, seeds: int = 3) -> Iterator[tuple[str, list[TokensInput]]]:
    """(name, steps) of the same output under every kind of split."""
    pieces = vocabulary(text, tokenizer)
    yield "one", grouped(pieces, [len(pieces)])
    yield "token", grouped(pieces, [1] * len(pieces))
    single = _bytewise(text, tokenizer)
    yield "bytes", grouped(single, [1] * len(single))
    yield "marker", _at_markers(pieces, tokenizer)
    yield "text", texts([text])
    yield "char", texts(text)
    for seed in range(seeds):
        dice = random.Random(seed)
        some = vocabulary(text, tokenizer, dice.randint(1, 9))
        yield f"rand:{seed}", grouped(some, [dice.randint(1, 5) for _ in some])
        yield f"bytes:{seed}", grouped(single, [dice.randint(1, 7) for _ in single])


def _at_markers(pieces: list[tuple[int, bytes]], tokenizer: TokenizerFacts) -> list[TokensInput]:
    known = {*tokenizer.special.values(), *tokenizer.added.values()}
    sizes = [0]
    for number, _ in pieces:
        if number in known:
            sizes += [1, 0]
        else:
            sizes[-1] += 1
    return grouped(pieces, [size for size in sizes if size])


def session(
    steps: Iterable[Input],
    *,
    tail: str = PROMPT,
    finish: FinishReason = "eos",
    stop: str | int | None = None,
    n: int = 1,
) -> list[Input]:
    """A whole session around the steps."""
    body = list(steps)
    count = sum(len(step.ids) for step in body if isinstance(step, TokensInput))
    ends: list[Input] = [FinishInput(choice, finish, stop) for choice in range(n)]
    return [PromptInput((), tail, 3), *body, *ends, UsageInput(3, count)]


def semantic(opened: Opening, inputs: Iterable[Input], *, all_stages: bool = True) -> list[Semantic]:
    """The fold of a session's semantic stages."""
    stage = catalog.layers(opened).semantic if all_stages else catalog.parser(opened.parser)
    return fold(stage.start(opened), inputs)


class Call(msgspec.Struct, frozen=True):
    """A collected call."""

    name: str
    arguments: str
    complete: bool | None = None

    def value(self) -> Any:
        """The arguments as JSON."""
        return json.loads(self.arguments)


class Collected(msgspec.Struct):
    """One choice's message. Absent reasoning and content are None; an open call is incomplete (None)."""

    reasoning: str | None = None
    content: str | None = None
    calls: list[Call] = []
    faults: list[str] = []
    finish: str | None = None
    detail: str | int | None = None


def message(events: Iterable[Semantic], choice: int = 0) -> Collected:
    """What one choice says."""
    got = Collected(calls=[], faults=[])
    for event in events:
        if getattr(event, "choice", None) != choice:
            continue
        if isinstance(event, Reasoning):
            got.reasoning = (got.reasoning or "") + event.text
        elif isinstance(event, Content):
            got.content = (got.content or "") + event.text
        elif isinstance(event, CallStart):
            got.calls.append(Call(event.name, ""))
        elif isinstance(event, CallArguments):
            got.calls[-1] = Call(got.calls[-1].name, got.calls[-1].arguments + event.text)
        elif isinstance(event, CallEnd):
            got.calls[-1] = msgspec.structs.replace(got.calls[-1], complete=event.complete)
        elif isinstance(event, Fault):
            got.faults.append(str(event.code))
        elif isinstance(event, Finish):
            got.finish, got.detail = event.reason, event.detail
    return got


def wrote(inputs: Iterable[Input], choice: int = 0) -> bytes:
    """All bytes that a choice wrote."""
    data: list[bytes] = []
    run: list[str] = []
    for event in inputs:
        if not isinstance(event, TokensInput) or event.choice != choice:
            continue
        if event.pieces:
            data += _encoded(run), *event.pieces
            run = []
        else:
            run.append(event.text)
    return b"".join((*data, _encoded(run)))


def _encoded(run: list[str]) -> bytes:
    return "".join(run).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def owned(events: Iterable[Semantic], choice: int = 0) -> list[tuple[Semantic, str, tuple[int, int]]]:
    """The events that own bytes, with their texts, by position."""
    found: list[tuple[Semantic, str, tuple[int, int]]] = []
    for event in events:
        if getattr(event, "choice", None) != choice:
            continue
        if isinstance(event, TextEvent) or (isinstance(event, Fault) and event.text):
            found.append((event, event.text, event.src))
        elif isinstance(event, CallStart):
            found.append((event, event.name, event.src))
    return sorted(found, key=lambda item: item[2])


def check_partition(inputs: Sequence[Input], events: Sequence[Semantic], choice: int = 0) -> None:
    """Every byte that the choice wrote is owned by exactly one event, whose text says what the bytes say."""
    data = wrote(inputs, choice)
    at = 0
    for event, text, (start, end) in owned(events, choice):
        assert start == at, f"{event} should begin at {at}"
        assert end >= start, event
        at = end
        # A call's name and arguments may be decoded, also where a stage dropped them.
        if not isinstance(event, CallArguments | CallStart) and len(text.encode()) == end - start and text not in _MADE:
            assert data[start:end].decode("utf-8", "replace") == text, event
    assert at == len(data), f"{at} of {len(data)} bytes are owned"


def check_stream(events: Sequence[Semantic]) -> None:
    """What holds of any semantic stream, whatever the model wrote."""
    calls: dict[int, int] = {}
    opened: dict[int, int | None] = {}
    done: set[int] = set()
    for event in events:
        msgspec.json.encode(event)  # whole characters only
        if isinstance(event, TextEvent):
            assert event.text, event
        if isinstance(event, Start):
            assert event.choice not in opened, event
            opened[event.choice] = None
            calls[event.choice] = 0
        elif isinstance(event, Finish):
            assert event.choice not in done, event
            assert opened[event.choice] is None, event
            done.add(event.choice)
        else:
            _check_calls(event, calls, opened)
    assert End() not in events[:-1]
    if events and events[-1] == End():
        assert isinstance(events[-2], Usage | Failure)
        assert all(call is None for call in opened.values())


def _check_calls(event: Semantic, calls: dict[int, int], opened: dict[int, int | None]) -> None:
    if isinstance(event, CallStart):
        assert opened[event.choice] is None, event
        assert event.index == calls[event.choice], event
        assert event.name.strip(), event
        calls[event.choice] += 1
        opened[event.choice] = event.index
    elif isinstance(event, CallArguments):
        assert event.index == opened[event.choice], event
    elif isinstance(event, CallEnd):
        assert event.index == opened[event.choice], event
        opened[event.choice] = None
    elif isinstance(event, Content | Reasoning):
        assert opened[event.choice] is None, event


def merged(events: Iterable[Semantic]) -> list[Any]:
    """The stream without Tokens, adjacent deltas of one kind joined; faults that own nothing in a list of their own at
    the end (a bad byte is reported when it arrives, which may be before text that is held)."""
    out: list[Any] = []
    faults: list[Any] = []
    for event in events:
        if isinstance(event, Tokens | Tick | Usage):
            continue
        if isinstance(event, Fault) and not event.text:
            faults.append(event)
            continue
        last: Any = out[-1] if out else None
        if (
            isinstance(event, Content | Reasoning | CallArguments | Dropped)
            and last.__class__ is event.__class__
            and last.choice == event.choice
            and last.src[1] == event.src[0]
            and getattr(last, "index", None) == getattr(event, "index", None)
        ):
            text, src = last.text + event.text, (last.src[0], event.src[1])
            out[-1] = msgspec.structs.replace(last, text=text, src=src)
        else:
            out.append(event)
    return out + faults


def check_resume(stage: Stage[Input, Semantic], opened: Opening, inputs: Sequence[Input]) -> None:
    """A machine resumed after any event continues identically, also from a snapshot that went through bytes."""
    machine = stage.start(opened)
    straight = fold(stage.start(opened), inputs)
    done: list[Semantic] = []
    for i, event in enumerate(inputs):
        machine.step(event, done)
        taken = machine.snapshot()
        for state in (taken, _through_bytes(taken)):
            rest = fold(stage.resume(opened, state), inputs[i + 1 :])
            assert done + rest == straight, f"resumed after event {i}"


def _through_bytes(state: Any) -> Any:
    if isinstance(state, ChainSnapshot):
        return ChainSnapshot(tuple(_through_bytes(part) for part in state.parts))
    decoder: Any = msgspec.msgpack.Decoder(state.__class__)
    return decoder.decode(msgspec.msgpack.encode(state))
