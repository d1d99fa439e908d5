"""check: every rule that applies, over one piece of evidence."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stages.protocols.rules import chat, common, completions, framing, messages, recording, responses, transport
from stages.protocols.rules.case import Case
from stages.protocols.rules.evidence import Evidence, Need, Protocol
from stages.protocols.rules.reading import opens
from stages.protocols.rules.rule import Finding, Rule, Severity
from stages.strict import parse

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for room in (transport, framing, common, chat, completions, responses, messages, recording)
            for rule in room.RULES.all
        ),
        key=lambda rule: rule.number,
    )
)
"""All rules, by number."""

_ANY_BODY = frozenset((*(rule.number for rule in transport.RULES.all), 134, 136))
"""The rules that hold for a body that is no stream, too: a whole one, an error's."""
_LONGEST = 400
Weight: TypeAlias = Literal["error", "warning"]


class Violation(msgspec.Struct, frozen=True):
    """A finding, weighed. ``rule``: ``INV-044``; ``key``: its short name; the rest as in Finding."""

    rule: str
    key: str
    severity: Weight
    frame: int
    byte: int
    seen: str
    want: str


class Report(msgspec.Struct, frozen=True):
    """What the rules say. ``counts``: breaches per rule, of which ``violations`` holds the first few of each;
    ``error_counts``: of these, the errors; ``checked``: numbers of the rules that were run; ``unchecked``: of those
    that apply but lack what they need, with what that is: fields of Evidence; ``stream`` (the response is no event
    stream but JSON); ``decoder`` (a stream of another server, or of a protocol that is not decoded)."""

    violations: tuple[Violation, ...]
    counts: dict[str, int]
    checked: tuple[int, ...]
    unchecked: dict[int, tuple[str, ...]]
    error_counts: dict[str, int] = {}

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations that are errors."""
        return tuple(one for one in self.violations if one.severity == "error")


def check(evidence: Evidence, *, keep: int = 20) -> Report:
    """Run the rules. ``keep``: violations that are kept of each rule. Raises nothing, whatever the body is."""
    case = Case(evidence)
    violations: list[Violation] = []
    counts: dict[str, int] = {}
    errors: dict[str, int] = {}
    checked: list[int] = []
    unchecked: dict[int, tuple[str, ...]] = {}
    for rule, missing in _applying(evidence.protocol, evidence):
        if missing:
            unchecked[rule.number] = missing
            continue
        checked.append(rule.number)
        for count, finding in enumerate(rule.check(case), 1):
            counts[rule.name] = count
            weight = _weight(finding.severity or rule.severity, evidence.own)
            if weight == "error":
                errors[rule.name] = errors.get(rule.name, 0) + 1
            if count <= keep:
                violations.append(_violation(rule, finding, weight))
    violations.sort(key=lambda one: (one.byte, one.rule))
    return Report(tuple(violations), counts, tuple(checked), unchecked, errors)


def _applying(protocol: Protocol, evidence: Evidence) -> list[tuple[Rule, tuple[str, ...]]]:
    absent = {need for need in Need if getattr(evidence, need.value) is None}
    streamed = _is_stream(evidence)
    rounded = evidence.own and protocol in recording.REWRITTEN
    found: list[tuple[Rule, tuple[str, ...]]] = []
    for rule in RULES:
        if protocol in rule.protocols:
            missing: tuple[str, ...] = tuple(sorted(rule.needs & absent))
            if not streamed and rule.number not in _ANY_BODY:
                missing = ("stream",)
            elif not rounded and rule.check is recording.x_round:
                missing = (*missing, "decoder")
            found.append((rule, missing))
    return found


def _is_stream(evidence: Evidence) -> bool:
    """The body is a stream, or should be one: its status and its request (its media type, where that is not known) do
    not say otherwise."""
    refused = evidence.http is not None and evidence.http.status != 200
    if evidence.request is None:
        unasked = _is_object(evidence.body) or (
            evidence.http is not None and ("content-type", "application/json") in evidence.http.headers
        )
    else:
        unasked = evidence.request.get("stream") is not True
    return not (refused or unasked) or opens(evidence.body) is True


def _is_object(body: bytes) -> bool:
    value, _ = parse(body.decode("utf-8", "replace")) if body.lstrip()[:1] == b"{" else (None, None)
    return isinstance(value, dict)


def _weight(severity: Severity, own: bool) -> Weight:
    return "error" if severity == "E" or (severity == "O" and own) else "warning"


def _violation(rule: Rule, finding: Finding, weight: Weight) -> Violation:
    want = rule.text if finding.want is None else _plain(finding.want)
    return Violation(rule.name, rule.key, weight, finding.frame, finding.byte, _plain(finding.seen), want)


def _plain(text: str) -> str:
    """Not too long, and UTF-8 whatever the body has."""
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return short.encode("utf-8", "backslashreplace").decode()
