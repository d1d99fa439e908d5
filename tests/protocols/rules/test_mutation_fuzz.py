"""Golden streams dropped, doubled, swapped, cut and retyped: a report comes, and the same again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from stages.protocols.rules import PROTOCOLS, RULES, Report, Sent, Write, Writes, check
from tests.support.wire import ABSENT, GOLDENS, Elements, Stream, fired, golden
from tests.support.wire_bases import HTTP, PLAIN

ROUNDS = 52
"""Mutants of one stream at one level: 13 streams at 3 levels make 2,028."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 1.5, -1e300, 2**70, "", "x", "0", "\ufffd", "[DONE]", [], {}, [None], [[1]], {"a": []},
    [{"index": 0}], {"error": {"message": "x"}}, "stop", "error", "a" * 5000,
)  # fmt: skip
BYTES = (
    b"\xff",
    b"\r",
    b"\n",
    b"\n\n",
    b":",
    b"\x00",
    b"\xef\xbb\xbf",
    b"id: 1\n",
    b"retry\n",
    b"data\n",
    b"[DONE]",
    b'"',
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all nodes inside a JSON value."""
    steps: Any = ()
    if value.__class__ is dict:
        steps = value
    elif value.__class__ is list:
        steps = range(len(value))
    return [path for step in steps for path in ((*here, step), *paths(value[step], (*here, step)))]


def parent(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value


# --- three levels ---------------------------------------------------------------------------------------------------


def events(stream: Stream, random: Random) -> Stream:
    """Whole events."""

    def edit(elements: Elements) -> None:
        if not elements:
            return
        one, other = random.randrange(len(elements)), random.randrange(len(elements))
        match random.choice(("drop", "double", "swap", "cut", "retype")):
            case "drop":
                del elements[one]
            case "double":
                elements.insert(other, copy.deepcopy(elements[one]))
            case "swap":
                elements[one], elements[other] = elements[other], elements[one]
            case "cut":
                del elements[one:]
            case _:
                elements[one] = random.choice(("{}", "null", "[]", "[DONE]", "x", '{"error":{}}', b": x\n\n", b"\n"))

    return stream.edited(edit)


def nodes(stream: Stream, random: Random) -> Stream:
    """Places inside the JSON of an event, or of the request."""
    if random.random() < 0.15:
        request = stream.request
        node(request, random)
        return stream.known(request=request)
    return stream.edited(lambda elements: node(elements, random))


def node(value: Any, random: Random) -> None:
    # Types of events stay: what an element stands for is found by it.
    least = 2 if value.__class__ is list else 1
    here = [path for path in paths(value) if len(path) >= least and (len(path) != 2 or path[1] != "type")]
    if not here:
        return
    path = random.choice(here)
    inside, step = parent(value, path), path[-1]
    match random.choice(("drop", "double", "swap", "cut", "retype", "retype")):
        case "drop":
            inside[step] = ABSENT if inside.__class__ is dict else None
        case "double":
            twice(inside, step)
        case "swap":
            other = random.choice(here)
            elsewhere, its = parent(value, other), other[-1]
            mine, yours = copy.deepcopy(inside[step]), copy.deepcopy(elsewhere[its])
            elsewhere[its] = mine
            if path[: len(other)] != other:
                inside[step] = yours
        case "cut":
            inside[step] = inside[step][: len(inside[step]) // 2] if isinstance(inside[step], str | list) else None
        case _:
            inside[step] = copy.deepcopy(random.choice(VALUES))


def twice(inside: Any, step: Any) -> None:
    if inside.__class__ is list:
        inside.insert(step, copy.deepcopy(inside[step]))
    elif isinstance(inside[step], str | list):
        inside[step] = inside[step] + inside[step]
    else:
        inside[f"{step}_2"] = copy.deepcopy(inside[step])


def cuts(stream: Stream, random: Random) -> Stream:
    """Bytes."""

    def edit(body: bytes) -> bytes:
        if len(body) < 8:
            return body + b"data"
        one = random.randrange(len(body) - 4)
        two = random.randrange(one, min(len(body), one + random.choice((4, 40, 400))))
        match random.choice(("drop", "double", "swap", "cut", "retype", "retype")):
            case "drop":
                return body[:one] + body[two:]
            case "double":
                return body[:two] + body[one:]
            case "swap":
                middle = (one + two) // 2
                return body[:one] + body[middle:two] + body[one:middle] + body[two:]
            case "cut":
                return body[:two]
            case _:
                return body[:one] + random.choice(BYTES) + body[one + random.randrange(3) :]

    return stream.reworked(edit)


# --- what is known beside -------------------------------------------------------------------------------------------


def knowing(stream: Stream, random: Random) -> Stream:
    """The same, with some of what rules may need, fitting or not."""
    other = golden(random.choice(GOLDENS))
    ends = sorted(random.randrange(len(stream.body) + 1) for _ in range(4))
    known: dict[str, Any] = {
        "own": random.random() < 0.5,
        "marked": random.choice((None, "complete", "truncated", "client_closed")),
        "http": random.choice((None, HTTP)),
        "writes": random.choice((None, Writes([Write(10 * end, end) for end in ends], 0, 9, 5))),
        "engine": random.choice((None, PLAIN.facts["engine"])),
        "meant": random.choice((None, PLAIN.facts["meant"], [])),
        "whole": random.choice((None, b"", b"{}", b'{"choices":[{}]}', b'{"output":[1],"content":[2]}', b"\xff")),
        "replayed": random.choice((None, stream.body, b"")),
        "sent": random.choice((None, Sent(3, "00"))),
        "other": random.choice((None, (other.protocol, other.body))),
        "effort": random.choice((None, True)),
    }
    return stream.known(**known)


BY_NAME = {rule.name: rule for rule in RULES}
LEVELS: dict[str, Callable[[Stream, Random], Stream]] = {"events": events, "nodes": nodes, "bytes": cuts}


def holds(stream: Stream, report: Report) -> None:
    """What is true of every report."""
    assert set(report.counts) <= set(BY_NAME)
    assert all(stream.protocol in BY_NAME[name].protocols for name in report.counts)
    assert fired(report) <= set(report.checked)
    assert not set(report.checked) & set(report.unchecked)
    assert [one.byte for one in report.violations] == sorted(one.byte for one in report.violations)
    kept = [one.rule for one in report.violations]
    assert {name: kept.count(name) for name in set(kept)} == {
        name: min(20, count) for name, count in report.counts.items()
    }
    for one in report.violations:
        assert 0 <= one.byte <= len(stream.body)
        assert one.frame >= -1
        assert "\n" not in one.seen
        assert len(one.seen) < 2000


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GOLDENS)
def test_any_mutant_gets_a_report(name: str, level: str) -> None:
    random = Random(f"{name} {level}")
    for _ in range(ROUNDS):
        stream = golden(name)
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            stream = LEVELS[level](stream, random)
        if random.random() < 0.5:
            stream = knowing(stream, random)
        evidence = stream.evidence()
        report = check(evidence)
        holds(stream, report)
        assert check(evidence) == report


@pytest.mark.parametrize("name", GOLDENS)
def test_any_stream_may_be_taken_for_another_protocol(name: str) -> None:
    random = Random(name)
    stream = golden(name)
    for protocol in PROTOCOLS:
        other = knowing(Stream(protocol, [], {**stream.facts, "body": stream.body}), random)
        holds(other, other.report())


def test_every_cut_of_every_stream_gets_a_report() -> None:
    for name in GOLDENS:
        stream = golden(name)
        for cut in range(0, len(stream.body), 97):
            part = stream.known(body=stream.body[:cut])
            holds(part, check(part.evidence()))
