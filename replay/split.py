"""Splits: the recorded tokens regrouped into other steps, as another engine, speed or batch would have given them.

    recorded         as they came
    one              all at once
    token            one by one
    marker           a step for each special or added token, and one for each run between them
    rand:SEED:MAX    1 to MAX at a time
    spec:SEED:K      as speculative decoding with K drafted tokens: 1 to K + 1 at a time
    interval:N       as a server with a stream interval: the first token at once, then N at a time, the rest at the end
    slow:SEED        as a slow client reads: one by one, but for rare stalls, after which all that waited comes at once
    histogram:SEED   as many at a time as the corpus has them, drawn from its own numbers of tokens in a step
    held:K           one by one, each token's text K tokens late: an engine holds text back, and releases ids
    char             one character at a time: only where there are no ids

A split groups the tokens of one choice that no other input separates. It never cuts a token; where the engine gave no
ids, a step is the token. What is drawn is the same for the same seed, everywhere (``replay.sizes``).
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from replay import sizes
from replay.errors import BadSplit
from replay.sizes import Histogram, Sizes
from stages.events import Input, TokensInput
from stages.opening import TokenizerFacts
from store.api import Trace

Grouper: TypeAlias = Callable[[list[TokensInput], int], Iterator[list[TokensInput]]]
"""The tokens of a run of a choice, and the choice's number → groups, in order."""

Cut: TypeAlias = Callable[[TokensInput], list[TokensInput]]
"""A step → what it is cut into."""

SPLITS = (
    "recorded", "one", "token", "marker", "char", "rand:SEED:MAX", "spec:SEED:K", "interval:N", "slow:SEED",
    "histogram:SEED", "held:K",
)  # fmt: skip
"""How splits are spelled. SEED: a whole number from 0; MAX, K and N: from 1."""

_SEED, _COUNT = r"(\d{1,18})", r"([1-9]\d{0,8})"
_SPELLED = {
    name: re.compile(re.sub(r":[A-Z]+", lambda part: ":" + (_SEED if part[0] == ":SEED" else _COUNT), name) + r"\Z")
    for name in SPLITS
}
_PIECE = 4
"""Characters."""
_LIKE_MARKER = re.compile(r"<\|?[^\s<>]{1,64}>|\[/?[A-Z_]{2,32}\]")
"""What markers look like, for text of unknown vocabulary."""


def check(split: str) -> str:
    """The split itself. Raises BadSplit for what is none."""
    if any(pattern.match(split) for pattern in _SPELLED.values()):
        return split
    raise BadSplit(f"there is no split {split!r}: use {', '.join(SPLITS[:-1])} or {SPLITS[-1]} (as in rand:1:7)")


def parse_splits(text: str) -> tuple[str, ...]:
    """Splits joined by commas, each once. Raises BadSplit."""
    return tuple(dict.fromkeys(check(part.strip()) for part in text.split(",")))


def regroup(inputs: Sequence[Input], split: str, tokenizer: TokenizerFacts, histogram: Histogram = ()) -> list[Input]:
    """The same inputs with the tokens regrouped; every other input stays where it is among them.

    A group takes the place of its last token, so that nothing comes before it was there. ``histogram``: what the split
    of this name draws from; empty: the session's own. Raises BadSplit, also for ``char`` where there are ids.
    """
    check(split)
    if split == "recorded":
        return list(inputs)
    if split == "char" and any(isinstance(event, TokensInput) and event.ids for event in inputs):
        raise BadSplit("split 'char' cuts tokens, and this session's tokens have ids: use token or marker")
    cut = characters if split == "char" else tokens
    return by_runs(inputs, cut, _grouper(split, inputs, tokenizer, histogram))


def by_runs(inputs: Iterable[Input], cut: Cut, group: Grouper) -> list[Input]:
    """The inputs with every step cut up, and what no other input separates grouped anew."""
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


def joins(
    inputs: Sequence[Input], split: str, tokenizer: TokenizerFacts, histogram: Histogram = (), unit: Cut | None = None
) -> dict[int, frozenset[int]]:
    """What a split joins: of each choice, the tokens (from 0) that come in one step with the token before them.

    ``unit``: what a step is cut into, and what is counted; None: tokens. Raises BadSplit.
    """
    check(split)
    unit = tokens if unit is None else unit
    whole = split == "recorded"
    group = _one if whole else _grouper(split, inputs, tokenizer, histogram)
    counts: dict[int, int] = {}
    found: dict[int, set[int]] = {}

    def noted(run: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        for members in group(run, choice):
            first = counts.get(choice, 0)
            end = counts[choice] = first + sum(len(unit(member)) for member in members)
            found.setdefault(choice, set()).update(range(first + 1, end))
            yield members

    for event in inputs if whole else ():
        if isinstance(event, TokensInput):
            list(noted([event], event.choice))
    if not whole:
        by_runs(inputs, characters if split == "char" else tokens, noted)
    return {choice: frozenset(joined) for choice, joined in found.items()}


def joined_as(inputs: Iterable[Input], joined: Mapping[int, Container[int]], unit: Cut | None = None) -> list[Input]:
    """The inputs with each token in a step of its own, but for those that ``joined`` has, as ``joins`` tells them."""
    counts: dict[int, int] = {}

    def group(run: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        first, mine = counts.get(choice, 0), joined.get(choice, ())
        counts[choice] = first + len(run)
        start = 0
        for at in range(1, len(run)):
            if first + at not in mine:
                yield run[start:at]
                start = at
        yield run[start:]

    return by_runs(inputs, tokens if unit is None else unit, group)


def histogram(traces: Iterable[Trace]) -> Histogram:
    """How often the steps of these sessions brought so many tokens; empty where none told ids. In any order."""
    return _steps(event for trace in traces for event in trace.events("input", "engine"))


def _steps(inputs: Iterable[Input]) -> Histogram:
    counts = Counter(len(event.ids) for event in inputs if isinstance(event, TokensInput) and event.ids)
    return tuple(sorted(counts.items()))


def pieces(text: str, tokenizer: TokenizerFacts = TokenizerFacts()) -> list[str]:
    """Text without ids cut as tokens might be: each marker (of the vocabulary, or by its look), and pieces of a few
    characters between them."""
    known = sorted({*tokenizer.special, *tokenizer.added}, key=len, reverse=True)
    pattern = re.compile("|".join([re.escape(marker) for marker in known if marker] + [_LIKE_MARKER.pattern]))
    found: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        found += _cut(text[at : match.start()])
        found.append(match.group())
        at = match.end()
    return found + _cut(text[at:])


def _cut(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def characters(event: TokensInput) -> list[TokensInput]:
    """A step without ids as steps of one character each."""
    return [msgspec.structs.replace(event, text=character) for character in event.text] or [event]


def tokens(event: TokensInput) -> list[TokensInput]:
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


def _grouper(split: str, inputs: Sequence[Input], tokenizer: TokenizerFacts, histogram: Histogram) -> Grouper:
    name, *numbers = split.split(":")
    given = [int(number) for number in numbers]
    match name:
        case "rand":
            return _drawn(lambda choice: sizes.uniform(given[0], choice, given[1]), afresh=True)
        case "spec":
            return _drawn(lambda choice: sizes.speculative(given[0], choice, given[1]))
        case "slow":
            return _drawn(lambda choice: sizes.slow(given[0], choice))
        case "histogram":
            known = histogram or _steps(inputs)
            return _drawn(lambda choice: sizes.drawn(given[0], choice, known))
        case "interval":
            return _drawn(lambda choice: sizes.interval(given[0]))
        case "held":
            return _held(given[0])
        case "marker":
            return _marker(tokenizer)
        case "one":
            return _one
        case _:
            return _each


def _one(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
    yield tokens


def _each(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
    for token in tokens:
        yield [token]


def _held(late: int) -> Grouper:
    def group(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        """What the engine still holds at the end of a run comes with its last token."""
        texts = [token.text for token in tokens]
        for at, token in enumerate(tokens, 1):
            end = len(texts) if at == len(tokens) else max(0, at - late)
            yield [msgspec.structs.replace(token, text="".join(texts[max(0, at - late - 1) : end]))]

    return group


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


def _drawn(sizes_of: Callable[[int], Sizes], *, afresh: bool = False) -> Grouper:
    """Groups of drawn sizes. ``afresh``: they begin anew behind every other input; else a choice goes on drawing."""
    known: dict[int, Sizes] = {}

    def group(tokens: list[TokensInput], choice: int) -> Iterator[list[TokensInput]]:
        if afresh or choice not in known:
            known[choice] = sizes_of(choice)
        drawn = known[choice]
        at = 0
        while at < len(tokens):
            size = next(drawn)
            yield tokens[at : at + size]
            at += size

    return group
