"""Rules that come to an end. What cannot is taken out: a model that went there would write until its last token."""

from __future__ import annotations

from collections.abc import Mapping, Set

from stages.grammar import NOTHING, Again, Members, OneOf, Refer, Row, Rule


def productive(rules: list[Rule], defined: Mapping[str, Rule]) -> tuple[list[Rule], dict[str, Rule]]:
    """Those that have an end, and the ones that these refer to, without the parts that have none."""
    ends = _ends(defined)
    kept = [_pruned(rule, ends) for rule in rules if _has_end(rule, ends)]
    made: dict[str, Rule] = {}
    waiting: list[Rule] = list(kept)
    while waiting:
        rule = waiting.pop()
        if isinstance(rule, Refer):
            if rule.name not in made:
                made[rule.name] = _pruned(defined[rule.name], ends)
                waiting.append(made[rule.name])
        else:
            waiting += _parts(rule)
    return kept, made


def _ends(defined: Mapping[str, Rule]) -> set[str]:
    """Which have an end. Each is looked at again when one that it refers to is found to have one."""
    users: dict[str, list[str]] = {}
    for name, rule in defined.items():
        for used in names(rule):
            users.setdefault(used, []).append(name)
    ends: set[str] = set()
    waiting = [*defined]
    while waiting:
        name = waiting.pop()
        if name not in ends and _has_end(defined[name], ends):
            ends.add(name)
            waiting += users.get(name, ())
    return ends


def names(rule: Rule) -> set[str]:
    """The rules that it refers to."""
    found: set[str] = set()
    waiting = [rule]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Refer):
            found.add(part.name)
        waiting += _parts(part)
    return found


def _parts(rule: Rule) -> list[Rule]:
    match rule:
        case Row():
            return [*rule.parts]
        case OneOf():
            return [*rule.options]
        case Again():
            return [rule.rule]
        case Members():
            return [*(part for part, _ in rule.parts), *([] if rule.others is None else [rule.others])]
        case _:
            return []


def _has_end(rule: Rule, ends: Set[str]) -> bool:
    match rule:
        case Refer():
            return rule.name in ends
        case Row():
            return all(_has_end(part, ends) for part in rule.parts)
        case OneOf():
            return any(_has_end(option, ends) for option in rule.options)
        case Again():
            return not rule.least or _has_end(rule.rule, ends)
        case Members():
            return all(_has_end(part, ends) for part, required in rule.parts if required)
        case _:
            return True


def _pruned(rule: Rule, ends: Set[str]) -> Rule:
    match rule:
        case Row():
            return Row(tuple(_pruned(part, ends) for part in rule.parts))
        case OneOf():
            return OneOf(tuple(_pruned(option, ends) for option in rule.options if _has_end(option, ends)))
        case Again():
            return Again(_pruned(rule.rule, ends), rule.least, rule.most) if _has_end(rule.rule, ends) else NOTHING
        case Members():
            parts = tuple((_pruned(part, ends), required) for part, required in rule.parts if _has_end(part, ends))
            others = rule.others if rule.others is not None and _has_end(rule.others, ends) else None
            return Members(parts, rule.between, None if others is None else _pruned(others, ends), rule.once)
        case _:
            return rule
