"""Rules 71-74 and 79: the logprobs and token ids of a chat completion stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.chat_choice import ChatChoice, entries_of
from stages.protocols.rules.chat_view import view
from stages.protocols.rules.evidence import EngineChoice, Need
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import array, number, obj

RULES = Rules("chat")
_FLOOR: Final = -9999.0
_INTS: Final = frozenset((int,))


@RULES(71, "c_lpreq", "E", Need.REQUEST)
def c_lpreq(case: Case) -> Iterator[Finding]:
    """Logprobs are there if they were asked for, in every choice that says anything, and only then."""
    asked = case.asked
    for index, choice in case.reading.view(view).choices.items():
        if not asked.logprobs:
            if choice.logprobs:
                yield at(choice.logprobs[0][0], f"choice {index}: logprobs that were not asked for")
        elif choice.said.deltas and not asked.hidden and not any(entries_of(told) for _, told in choice.logprobs):
            finish = choice.said.finish
            # What it says may be the token that ended it, kept in the text and left out of the logprobs.
            if asked.keep_stop and not asked.end_token and finish is not None and finish.stop.__class__ is int:
                continue
            yield at(choice.said.deltas[0].event, f"choice {index}: no logprobs")


@RULES(72, "c_lpcount", "E", Need.ENGINE)
def c_lpcount(case: Case) -> Iterator[Finding]:
    """A choice with logprobs has an entry for each of its tokens, but perhaps for the one that ended it; where
    reasoning is hidden it has none."""
    asked = case.asked
    for index, choice, engine in _choices(case):
        count = sum(len(entries_of(told)) for _, told in choice.logprobs)
        size = len(engine.ids)
        if asked.hidden:
            if count:
                yield at(choice.last, f"choice {index}: {count} logprob entries beside hidden reasoning")
        elif (count or asked.logprobs) and size and count not in (size, size - 1):
            if count > size or not _partial(case, choice):
                yield at(choice.last, f"choice {index}: {count} logprob entries", f"the engine generated {size} tokens")


@RULES(73, "c_lpentry", "E", Need.REQUEST)
def c_lpentry(case: Case) -> Iterator[Finding]:
    """A logprob entry has the token, a finite logprob from -9999 to 0, its bytes or null, and at most the alternatives
    that were asked for and the token itself, the most likely first."""
    most = case.asked.top
    for index, choice in case.reading.view(view).choices.items():
        for event, told in choice.logprobs:
            if told.__class__ is not dict:
                yield at(event, f"choice {index}: logprobs {shown(told)}")
            for key in ("content", "refusal"):
                entries = obj(told).get(key)
                if entries is not None and entries.__class__ is not list:
                    yield at(event, f"choice {index}: {key} {shown(entries)} in logprobs")
            for entry in entries_of(told):
                problem = _problem(entry, most)
                if problem is not None:
                    yield at(event, f"choice {index}: {problem} in {shown(entry)}")


def _problem(entry: Any, most: int) -> str | None:
    problem = _token_problem(entry)
    if problem is not None:
        return problem
    top = entry.get("top_logprobs")
    if top.__class__ is not list:
        return "top_logprobs that are no array"
    if most >= 0 and len(top) > most + 1:
        return f"{len(top)} alternatives, of {most} asked for,"
    for other in top:
        problem = _token_problem(other)
        if problem is not None:
            return f"{problem} of an alternative"
    scores = [other["logprob"] for other in top]
    return None if scores == sorted(scores, reverse=True) else "alternatives out of order"


def _token_problem(entry: Any) -> str | None:
    if entry.__class__ is not dict:
        return "no object"
    if not isinstance(entry.get("token"), str):
        return "no token"
    score = number(entry.get("logprob"))
    if score is None or not _FLOOR <= score <= 0:
        return f"the logprob {shown(entry.get('logprob'))}"
    if entry.get("bytes") is not None and _bytes(entry) is None:
        return f"the bytes {shown(entry['bytes'])}"
    return None


def _bytes(entry: Any) -> bytes | None:
    data = entry.get("bytes") if entry.__class__ is dict else None
    if data.__class__ is not list or not _INTS.issuperset(map(type, array(data))):
        return None
    try:
        return bytes(array(data))
    except ValueError:  # no byte
        return None


@RULES(74, "c_lpbytes", "W", Need.ENGINE)
def c_lpbytes(case: Case) -> Iterator[Finding]:
    """Where the content is all that the engine wrote, the bytes of the entries are the bytes of the content."""
    for index, choice, engine in _choices(case):
        said = choice.said
        text = (said.text("content") or "").encode("utf-8", "replace")
        entries = [entry for _, told in choice.logprobs for entry in entries_of(told)]
        pieces = [_bytes(entry) for entry in entries]
        if not entries or not engine.pieces or None in pieces or len(pieces) > len(engine.pieces):
            continue
        # The last token may be one that ends the output and has no text.
        if text not in (b"".join(engine.pieces), b"".join(engine.pieces[:-1])):
            continue
        whole, shorter = (b"".join(piece or b"" for piece in pieces[:size]) for size in (len(pieces), len(pieces) - 1))
        # Or it has a text, and no entry.
        left_out = len(pieces) == len(engine.pieces) - 1 and whole == b"".join(engine.pieces[:-1])
        if text not in (whole, shorter) and not left_out:
            seen = shown(whole.decode("utf-8", "replace"))
            yield at(choice.last, f"choice {index}: the bytes of the entries are {seen}")


@RULES(79, "c_tokids", "E", Need.ENGINE)
def c_tokids(case: Case) -> Iterator[Finding]:
    """Token ids of a choice are those that the engine generated; those of the prompt are told once."""
    engine, prompts = case.evidence.engine, case.reading.view(view).prompts
    for event, ids in prompts[1:]:
        yield at(event, f"{len(array(ids))} prompt ids again")
    if prompts and engine is not None and engine.prompt_ids and prompts[0][1] != list(engine.prompt_ids):
        yield at(prompts[0][0], f"prompt ids {shown(prompts[0][1])}", f"{shown(engine.prompt_ids)}")
    for index, choice, facts in _choices(case):
        ids = [one for _, told in choice.ids for one in array(told)]
        want = list(facts.ids)
        if not ids or not want or ids == want or (_partial(case, choice) and want[: len(ids)] == ids):
            continue
        pairs = enumerate(zip(ids, want, strict=False))
        place = next((n for n, (one, two) in pairs if one != two), min(len(ids), len(want)))
        seen = f"choice {index}: token ids differ from number {place} on: {shown(ids[place : place + 9])}"
        yield at(choice.ids[0][0], seen, f"the engine generated {shown(want[place : place + 9])}")


def _choices(case: Case) -> Iterator[tuple[int, ChatChoice, EngineChoice]]:
    engine = case.evidence.engine
    for index, choice in case.reading.view(view).choices.items():
        facts = None if engine is None else engine.choices.get(index)
        if facts is not None:
            yield index, choice, facts


def _partial(case: Case, choice: ChatChoice) -> bool:
    """Not all that the engine generated was sent: the stream broke off, or a stop string cut what came with it."""
    finish = choice.said.finish
    if finish is None or case.failed or not case.ended or not case.said.terminals:
        return True
    return case.asked.may_stop(finish.stop)
