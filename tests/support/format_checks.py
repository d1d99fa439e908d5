"""Every test of a format, as plain functions over (family, seed). CI runs some of it: ``tests/parse/test_formats_*``.

    python -m tests.support.format_checks FAMILY [SEEDS [FIRST]]     # all checks; FAMILY: a module of generate/

* ``check_generated``: valid output parses back to what was meant, under every split and both call policies.
* ``format_cases.check_case``: a worked example of ``tests/data/formats``; the module has the fields of the files.
* ``check_cut``: output that stops at any token (``check_cut_generated`` for a generated one).
* ``format_broken.check_broken``: output with pieces deleted, doubled, swapped, cut, and foreign markers in it.
* ``format_cost.check_cost``: work per token does not grow with the output; ``check_lag``: text goes out as it comes.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from replay.plain import is_list, is_map
from stages import catalog
from stages.events import CallEnd, CallStart, Content, FinishReason, Input, Reasoning, Semantic, TokensInput
from stages.events import Tokens as StepTokens
from stages.opening import Opening, Tool
from stages.parse.parser import Parser
from stages.stage import Stage, fold
from tests.support.generate import families
from tests.support.generate.family import Family, plain, tokenize
from tests.support.generate.message import Meant, tools_for
from tests.support.parse import (
    Collected,
    check_partition,
    check_stream,
    grouped,
    merged,
    message,
    opening,
    session,
    texts,
)

Policy = Literal["incremental", "whole"]
POLICIES: tuple[Policy, ...] = ("incremental", "whole")
Tokens = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Subject:
    """An output in a request, ready to be parsed."""

    family: Family
    raw: str
    """The output; BREAK in it tells letters from tokens."""
    tail: str
    tools: tuple[Tool, ...]
    finish: FinishReason = "eos"
    tokens: Tokens | None = None
    """What the engine emitted, where that is given: splits then group these."""
    asks: dict[str, Any] = field(default_factory=dict[str, Any])

    def opened(self, calls: Policy) -> Opening:
        """The opening of its session."""
        return opening(
            self.family.format.name, calls=calls, tokenizer=self.family.tokenizer, tools=self.tools, **self.asks
        )

    def stage(self, calls: Policy) -> Stage[Input, Semantic]:
        """The semantic stages, with the family's own parser."""
        return catalog.layers(self.opened(calls), Parser(self.family.format)).semantic

    def events(self, steps: Sequence[TokensInput], calls: Policy, finish: FinishReason | None = None) -> list[Semantic]:
        """The semantic events of these steps; the stream and the byte ranges are checked."""
        inputs = session(steps, tail=self.tail, finish=finish or self.finish)
        events = fold(self.stage(calls).start(self.opened(calls)), inputs)
        check_stream(events)
        check_partition(inputs, events)
        return events

    def pieces(self) -> Tokens:
        """As tokens."""
        return self.tokens if self.tokens is not None else tokenize(self.raw, self.family.tokenizer)

    @property
    def clear(self) -> bool:
        """The text alone tells what is a special token."""
        specials = self.family.tokenizer.special
        text = plain(self.raw)
        return all(text.count(word) == self.raw.count(word) for word in specials)


# --- splits ----------------------------------------------------------------------------------------------------------


def splits(subject: Subject, seeds: int = 2) -> Iterator[tuple[str, list[TokensInput]]]:
    """(name, steps) of the output under every kind of split that has ids."""
    tokens = subject.pieces()
    yield "one", grouped(tokens, [len(tokens)])
    yield "token", grouped(tokens, [1] * len(tokens))
    single = _bytewise(tokens, subject.family)
    if len(single) < 6000:
        yield "bytes", grouped(single, [1] * len(single))
    if subject.tokens is None:
        parts = _at_markers(subject)
        yield "marker", grouped(parts, [1] * len(parts))
    for seed in range(seeds):
        dice = random.Random(seed)
        some = tokens if subject.tokens is not None else tokenize(subject.raw, subject.family.tokenizer, dice)
        yield f"rand:{seed}", grouped(some, [dice.randint(1, 6) for _ in some])
        yield f"bytes:{seed}", grouped(single, [dice.randint(1, 40) for _ in single])


def text_splits(subject: Subject, seeds: int = 2) -> Iterator[tuple[str, list[TokensInput]]]:
    """(name, steps) of the output from an engine that only releases text."""
    text = plain(subject.raw)
    yield "text", texts([text] if text else [])
    if len(text) < 3000:
        yield "char", texts(text)
    tokens = subject.pieces()
    shown = [piece.decode("utf-8", "replace") for _, piece in tokens]
    if "".join(shown) == text:
        yield "ids, no bytes", [TokensInput(0, (tokens[i][0],), (), part) for i, part in enumerate(shown)]
    for seed in range(seeds):
        dice = random.Random(seed)
        cuts = sorted(dice.randrange(len(text) + 1) for _ in range(len(text) // 6))
        ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
        yield f"text:{seed}", texts(text[i:j] for i, j in ends if j > i)


def _bytewise(tokens: Tokens, family: Family) -> Tokens:
    """Tokens that cut characters: every ordinary token is one byte."""
    known = {*family.tokenizer.special.values(), *family.tokenizer.added.values()}
    cut: Tokens = []
    for number, piece in tokens:
        cut += [(number, piece)] if number in known else [(number, piece[i : i + 1]) for i in range(len(piece))]
    return cut


def _at_markers(subject: Subject) -> Tokens:
    """One token for each marker, whether the vocabulary has it or not, and one for each text between two."""
    tokenizer = subject.family.tokenizer
    literals = {*subject.family.markers, *tokenizer.special, *tokenizer.added}
    if not literals:
        return tokenize(subject.raw, tokenizer, 1 << 30)
    parts = re.split(f"({'|'.join(map(re.escape, sorted(literals, key=len, reverse=True)))})", subject.raw)
    return [token for part in parts for token in tokenize(part, tokenizer, 1 << 30)]


def check_invariance(subject: Subject, calls: Policy, *, seeds: int = 2, valid: bool = True) -> Collected:
    """The same events under every split, with ids and (unless tokens are given) without. Returns the message with ids.

    Text alone gives the same events as ids where it tells all (``Subject.clear``) and the output is ``valid``: inside a
    broken call only ids tell a special token from its letters.
    """
    first: list[Any] | None = None
    got: Collected | None = None
    for split, steps in splits(subject, seeds):
        events = subject.events(steps, calls)
        joined = merged(events)
        if first is None:
            first, got = joined, message(events)
        assert joined == first, f"{split} differs from one"
    assert got is not None
    told = first if valid and subject.clear else None
    for split, steps in text_splits(subject, seeds) if subject.tokens is None else ():
        joined = merged(subject.events(steps, calls))
        told = joined if told is None else told
        assert joined == told, f"{split} differs"
    return got


# --- generated output ------------------------------------------------------------------------------------------------


def generated(family: Family, seed: int) -> tuple[Subject, Meant]:
    """A valid output and what the parser is to give for it."""
    dice = random.Random(f"{family.name} {seed}")
    kind = dice.choice(list(family.tails))
    meant = family.draw(dice, kind)
    raw = family.output(meant, dice, kind)
    return Subject(family, raw, family.tails[kind], tools_for(meant, dice)), family.expect(meant, kind)


def check_generated(family: Family, seed: int) -> None:
    """What was meant comes back, without a fault, under every split and both call policies."""
    subject, meant = generated(family, seed)
    for calls in POLICIES:
        got = check_invariance(subject, calls)
        for mine, theirs in ((got.reasoning, meant.reasoning), (got.content, meant.content)):
            assert mine == theirs, f"{calls}: {mine!r} is not {theirs!r}"
        names = [[call.name for call in found] for found in (got.calls, meant.calls)]
        assert names[0] == names[1], f"{calls}: calls of {names[0]}, not of {names[1]}"
        for call, was in zip(got.calls, meant.calls, strict=True):
            assert call.complete is True, call
            assert same_value(call.value(), was.arguments), f"{call.arguments!r} is not {was.arguments!r}"
        faults = [fault for fault in got.faults if fault != "schema_mismatch"]
        assert not faults, f"{calls}: {faults}"
        _check_delivery(subject, calls)
        assert got.finish == "eos", got.finish


def _check_delivery(subject: Subject, calls: Policy) -> None:
    """``incremental``: a name goes out when its terminator is there. ``whole``: a call goes out at once. Call ids are
    distinct."""
    tokens = subject.pieces()
    events = subject.events(grouped(tokens, [1] * len(tokens)), calls)
    ids = [event.id for event in events if isinstance(event, CallStart)]
    assert len(ids) == len(dict.fromkeys(ids)), f"call ids {ids}"
    step = begun = 0
    written = [0, *itertools.accumulate(len(piece) for _, piece in tokens)]
    for event in events:
        if isinstance(event, StepTokens):
            step += 1
        elif isinstance(event, CallStart):
            begun = step
            late = written[step] - event.src[1]
            wanted = calls == "incremental" and subject.family.streams
            assert not wanted or late <= subject.family.tail, f"the name {event.name!r} comes {late} bytes late"
        elif isinstance(event, CallEnd):
            assert calls == "incremental" or begun == step, "a call in pieces"


def same_value(one: Any, other: Any) -> bool:
    """Equal as JSON values, types significant: 1 is not 1.0, and not true."""
    if is_map(one) and is_map(other):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and bool(one == other)


# --- cut output ------------------------------------------------------------------------------------------------------


def check_cut_generated(family: Family, seed: int) -> None:
    """A generated output, cut at every token."""
    subject, _ = generated(family, seed)
    check_cut(subject)


def check_cut(subject: Subject, *, most: int = 400) -> None:
    """The output cut at every token (at most ``most`` of them, evenly) with finish ``length``, both call policies.

    * reasoning and content: what the uncut output gives, up to some place; behind it may stand, verbatim, what was
      written last and not decided: white space, or the beginning of a marker (see ``_held``), at most ``family.tail``;
    * calls: the uncut output's, in order and by name; arguments a beginning of the uncut text. All but the last are as
      complete as the uncut ones, a complete one is equal to its uncut one. ``whole``: all are complete;
    * a call that is open has the fault ``unclosed_call``, under both policies; reasoning that is open,
      ``unclosed_reasoning``; where only content was written, there is none;
    * the finish stays ``length``.
    """
    tokens = subject.pieces()
    fulls = {calls: subject.events(grouped(tokens, [1] * len(tokens)), calls) for calls in POLICIES}
    stride = max(1, len(tokens) // most)
    for k in range(0, len(tokens), stride):
        written = b"".join(piece for _, piece in tokens[:k])
        steps = grouped(tokens[:k], [random.Random(k).randint(1, 20) for _ in range(k)])
        got = {calls: message(subject.events(steps, calls, "length")) for calls in POLICIES}
        for calls in POLICIES:
            try:
                _check_one_cut(subject.family, got[calls], fulls[calls], written)
            except AssertionError as error:
                shown = written.decode("utf-8", "replace")[-120:]
                raise AssertionError(f"{calls}, cut behind token {k}, {shown!r}: {error}") from error
        if any(not call.complete for call in got["incremental"].calls):
            assert "unclosed_call" in got["whole"].faults or message(fulls["incremental"]).faults, "whole: no fault"
        assert all(call.complete for call in got["whole"].calls), "whole: an incomplete call"


def _check_one_cut(family: Family, got: Collected, uncut: list[Semantic], written: bytes) -> None:
    full = message(uncut)
    assert got.finish == "length", got.finish
    text = written.decode("utf-8", "replace")
    _check_rest(family, "reasoning", got.reasoning or "", full.reasoning or "", text)
    _check_rest(family, "content", got.content or "", full.content or "", text)
    assert len(got.calls) <= len(full.calls), "a call was invented"
    for i, call in enumerate(got.calls):
        whole = full.calls[i]
        assert call.name == whole.name, f"call {i} is {call.name!r}, not {whole.name!r}"
        assert whole.arguments.startswith(call.arguments), f"{call.arguments!r} does not begin {whole.arguments!r}"
        if call.complete:
            assert is_map(call.value()), f"call {i} is complete with {call.arguments!r}"
            assert call.arguments == whole.arguments, f"call {i} is complete with {call.arguments!r}"
        elif i + 1 < len(got.calls):
            assert not whole.complete, f"call {i} is incomplete"
        else:
            assert got.faults, f"call {i} is incomplete without a fault"
            assert "unclosed_call" in got.faults or full.faults, f"call {i} is incomplete: {got.faults}"
    _check_place(got, full, uncut, len(written))


def _check_rest(family: Family, kind: str, mine: str, theirs: str, written: str) -> None:
    """``mine`` is a beginning of ``theirs``, but for what was undecided."""
    at = 0
    while at < min(len(mine), len(theirs)) and mine[at] == theirs[at]:
        at += 1
    rest = mine[at:]
    if not rest:
        return
    assert written.endswith(rest), f"{kind}: {rest!r} was not written last"
    assert len(rest) <= family.tail, f"{kind}: {rest!r} is too long to be undecided"
    # What agrees by chance (a newline in both) may belong to the undecided.
    starts = [mine[i:].lstrip() for i in range(max(0, at - family.tail), at + 1)]
    assert any(_held(family, kind, text) for text in starts), f"{kind}: {rest!r} is nothing that had to be held"


def _held(family: Family, kind: str, text: str) -> bool:
    """It may be undecided where output ends. In reasoning a whole marker may be a mere mention; in content it is a
    call that was cut, which is told by a fault and not as text. A call without an opener, or behind an ordinary word,
    may be an ordinary answer."""
    markers = (*family.markers, *family.tokenizer.special)
    if not text or any(marker.startswith(text) and marker != text for marker in markers):
        return True
    if kind == "reasoning":
        return any(text.startswith(marker) for marker in markers)
    calls = family.format.calls
    return calls is not None and (text[0] in calls.bare or text.startswith(calls.words))


def _check_place(got: Collected, full: Collected, uncut: list[Semantic], pos: int) -> None:
    """Faults tell what was open at byte ``pos``."""
    if full.faults:
        return
    for event in merged(uncut):
        if isinstance(event, Reasoning) and event.src[0] < pos <= event.src[1]:
            assert "unclosed_reasoning" in got.faults, "inside reasoning without a fault"
        elif isinstance(event, Content) and event.src[0] < pos <= event.src[1] and not got.calls:
            assert not got.faults, f"faults inside content: {got.faults}"


# --- command line ----------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """All checks of one module's families over many seeds; tells every failure."""
    from tests.support.format_broken import check_broken
    from tests.support.format_cases import cases_of, check_case
    from tests.support.format_cost import check_cost, check_lag

    count = int(arguments[1]) if len(arguments) > 1 else 50
    first = int(arguments[2]) if len(arguments) > 2 else 0
    failures = 0
    for family in families(arguments[0]):
        runs = [(check, seed) for seed in range(first, first + count) for check in (check_generated, check_broken)]
        runs += [(check_cut_generated, seed) for seed in range(first, first + max(1, count // 20))]
        jobs: list[tuple[str, Any]] = [(f"{c.__name__} {seed}", (c, (family, seed))) for c, seed in runs]
        jobs += [(f"example {case['id']}", (check_case, (family, case))) for case in cases_of(family)]
        jobs += [("cost", (check_cost, (family,))), ("lag", (check_lag, (family,)))]
        for name, (check, given) in jobs:
            try:
                check(*given)
            except Exception as error:  # a parser that raises is a failure to be told like any other
                failures += 1
                sys.stdout.write(f"{family.name}: {name}: {type(error).__name__}: {str(error)[:400]}\n")
        sys.stdout.write(f"{family.name}: {len(jobs)} checks\n")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
