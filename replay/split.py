"""Splits: the recorded tokens regrouped into other steps, as another engine, speed or batch would have given them.

    recorded        as they came
    one             all at once
    token           one by one
    marker          a step for each special or added token, and one for each run between them
    rand:SEED:MAX   1 to MAX at a time, the same for the same seed everywhere
    char            one character at a time: only where there are no ids

A split groups the tokens of one choice that no other input separates. It never cuts a token; where the engine gave no
ids, a step is the token.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from replay.errors import BadSplit
from stages.events import Input, TokensInput
from stages.opening import TokenizerFacts

Grouper: TypeAlias = Callable[[list[TokensInput], int], Iterator[list[TokensInput]]]
"""The tokens of a run of a choice, and the choice's number → groups, in order."""

_RAND = re.compile(r"rand:(\d{1,18}):([1-9]\d{0,8})\Z")
_LIKE_MARKER = re.compile(r"<\|?[^\s<>]{1,64}>|\[/?[A-Z_]{2,32}\]")
"""What markers look like, for text of unknown vocabulary."""
_BITS = (1 << 64) - 1


def check(split: str) -> str:
    """The split itself. Raises BadSplit for what is none."""
    if split in ("recorded", "one", "token", "marker", "char") or _RAND.match(split):
        return split
    raise BadSplit(f"there is no split {split!r}: use recorded, one, token, marker, char or rand:SEED:MAX (rand:1:7)")


def parse_splits(text: str) -> tuple[str, ...]:
    """Splits joined by commas, each once. Raises BadSplit."""
    return tuple(dict.fromkeys(check(part.strip()) for part in text.split(",")))


def regroup(inputs: Sequence[Input], split: str, tokenizer: TokenizerFacts) -> list[Input]:
    """The same inputs with the tokens regrouped; every other input stays where it is among them.

    A group takes the place of its last token, so that nothing comes before it was there. Raises BadSplit, also for
    ``char`` where there are ids.
    """
    check(split)
    if split == "recorded":
        return list(inputs)
    if split == "char" and any(isinstance(event, TokensInput) and event.ids for event in inputs):
        raise BadSplit("split 'char' cuts tokens, and this session's tokens have ids: use token or marker")
    group = _grouper(split, tokenizer)
    cut = _characters if split == "char" else _tokens
    out: list[Input] = []
    run: list[TokensInput] = []
    for event in inputs:
        if isinstance(event, TokensInput):
            run += cut(event)
            continue
        out += _grouped(run, group)
        run = []
        out.append(event)
    out += _grouped(run, group)
    return out


def pieces(text: str, tokenizer: TokenizerFacts = TokenizerFacts(), size: int = 4) -> list[str]:
    """Text without ids cut as tokens might be: each marker (of the vocabulary, or by its look), and pieces of ``size``
    characters between them."""
    known = sorted({*tokenizer.special, *tokenizer.added}, key=len, reverse=True)
    pattern = re.compile("|".join([re.escape(marker) for marker in known if marker] + [_LIKE_MARKER.pattern]))
    found: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        found += _every(text[at : match.start()], size)
        found.append(match.group())
        at = match.end()
    return found + _every(text[at:], size)


def _every(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _characters(event: TokensInput) -> list[TokensInput]:
    """A step without ids as steps of one character each."""
    return [msgspec.structs.replace(event, text=character) for character in event.text] or [event]


def _tokens(event: TokensInput) -> list[TokensInput]:
    """A step as steps of one token each."""
    count = len(event.ids)
    if count < 2:
        return [event]
    texts = _texts(event) if len(event.pieces) == count else None
    if texts is None:
        # The engine released the text with the step as a whole: it was known with the last token.
        texts = [""] * (count - 1) + [event.text]
    whole_pieces = event.pieces if len(event.pieces) == count else ()
    whole_logprobs = event.logprobs if len(event.logprobs) == count else ()
    return [
        TokensInput(event.choice, event.ids[i : i + 1], whole_pieces[i : i + 1], texts[i], whole_logprobs[i : i + 1])
        for i in range(count)
    ]


def _texts(event: TokensInput) -> list[str] | None:
    """The text that each piece completes, if that is the text of the step."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(piece) for piece in event.pieces]
    return texts if "".join(texts) == event.text else None


def _grouped(run: list[TokensInput], group: Grouper) -> list[TokensInput]:
    """The groups of a run, choice by choice, in the order of their last tokens."""
    if not run:
        return []
    by_choice: dict[int, list[tuple[int, TokensInput]]] = {}
    for place, token in enumerate(run):
        by_choice.setdefault(token.choice, []).append((place, token))
    placed: list[tuple[int, TokensInput]] = []
    for choice, tokens in by_choice.items():
        at = 0
        for members in group([token for _, token in tokens], choice):
            at += len(members)
            placed.append((tokens[at - 1][0], _joined(members)))
    placed.sort(key=lambda item: item[0])
    return [token for _, token in placed]


def _joined(tokens: list[TokensInput]) -> TokensInput:
    """Several steps of a choice as one. What some of them lack, the whole lacks."""
    if len(tokens) == 1:
        return tokens[0]
    whole = [(len(token.pieces) == len(token.ids), len(token.logprobs) == len(token.ids)) for token in tokens]
    return TokensInput(
        tokens[0].choice,
        tuple(id for token in tokens for id in token.ids),
        tuple(piece for token in tokens for piece in token.pieces) if all(known for known, _ in whole) else (),
        "".join(token.text for token in tokens),
        tuple(entry for token in tokens for entry in token.logprobs) if all(known for _, known in whole) else (),
    )


# --- the groupers ---------------------------------------------------------------------------------------------------


def _grouper(split: str, tokenizer: TokenizerFacts) -> Grouper:
    match = _RAND.match(split)
    if match:
        return _random(int(match[1]), int(match[2]))
    if split == "marker":
        return _marker(tokenizer)
    return _one if split == "one" else _each


def _one(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
    yield tokens


def _each(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
    for token in tokens:
        yield [token]


def _marker(tokenizer: TokenizerFacts) -> Grouper:
    ids = frozenset((*tokenizer.special.values(), *tokenizer.added.values()))
    texts = frozenset((*tokenizer.special, *tokenizer.added))

    def is_marker(token: TokensInput) -> bool:
        if token.ids:
            return not ids.isdisjoint(token.ids)
        text = token.text.strip()
        return text in texts or _LIKE_MARKER.fullmatch(text) is not None

    def group(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        run: list[TokensInput] = []
        for token in tokens:
            if not is_marker(token):
                run.append(token)
                continue
            if run:
                yield run
                run = []
            yield [token]
        if run:
            yield run

    return group


def _random(seed: int, largest: int) -> Grouper:
    def group(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        sizes = _sizes(seed, choice, largest)
        at = 0
        while at < len(tokens):
            size = next(sizes)
            yield tokens[at : at + size]
            at += size

    return group


def _sizes(seed: int, choice: int, largest: int) -> Iterator[int]:
    """SplitMix64: the same numbers in every Python, for ever."""
    state = (seed * 0x9E3779B97F4A7C15 + choice * 0xD1B54A32D192ED03) & _BITS
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _BITS
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
        yield 1 + (mixed ^ (mixed >> 31)) % largest
