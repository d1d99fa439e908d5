"""check: every rule that applies, over one piece of evidence."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stages.protocols.rules import chat, common, completions, framing, messages, recording, responses, transport
from stages.protocols.rules.case import Case
from stages.protocols.rules.evidence import Evidence, Need, Protocol
from stages.protocols.rules.rule import Finding, Rule

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
    ``checked``: numbers of the rules that were run; ``unchecked``: of those that apply but lack what they need, with
    what that is."""

    violations: tuple[Violation, ...]
    counts: dict[str, int]
    checked: tuple[int, ...]
    unchecked: dict[int, tuple[str, ...]]

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations that are errors."""
        return tuple(one for one in self.violations if one.severity == "error")


def check(evidence: Evidence, *, keep: int = 20) -> Report:
    """Run the rules. ``keep``: violations that are kept of each rule. Raises nothing, whatever the body is."""
    case = Case(evidence)
    violations: list[Violation] = []
    counts: dict[str, int] = {}
    checked: list[int] = []
    unchecked: dict[int, tuple[str, ...]] = {}
    for rule, missing in _applying(evidence.protocol, evidence):
        if missing:
            unchecked[rule.number] = missing
            continue
        checked.append(rule.number)
        for count, finding in enumerate(rule.check(case), 1):
            counts[rule.name] = count
            if count <= keep:
                violations.append(_weighed(rule, finding, evidence.own))
    violations.sort(key=lambda one: (one.byte, one.rule))
    return Report(tuple(violations), counts, tuple(checked), unchecked)


def _applying(protocol: Protocol, evidence: Evidence) -> list[tuple[Rule, tuple[str, ...]]]:
    absent = {need for need in Need if getattr(evidence, need.value) is None}
    return [
        (rule, tuple(sorted(rule.needs & absent))) for rule in RULES if protocol in rule.protocols
    ]


def _weighed(rule: Rule, finding: Finding, own: bool) -> Violation:
    severity = finding.severity or rule.severity
    weight: Weight = "error" if severity == "E" or (severity == "O" and own) else "warning"
    return Violation(
        rule.name, rule.key, weight, finding.frame, finding.byte, finding.seen, finding.want or rule.text
    )
