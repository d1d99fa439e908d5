"""Rules in llguidance's own notation: lexemes, which are regular expressions over the bytes of tokens, and rules over
them. Special tokens are no text to it: a rule names them by id."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, assert_never

from pipeline.engines.schemas import writable
from pipeline.engines.sparing import sparing
from stages.grammar import (
    Again,
    Defined,
    Free,
    Json,
    Literal,
    Members,
    Newlines,
    Number,
    OneOf,
    Refer,
    Row,
    Rule,
    Spelled,
    String,
    Text,
)  # fmt: skip
from stages.parse.spellings.patterns import quoted

_COMPACT: Final = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
_LINES: Final = {"whitespace_pattern": "[ ]|\\n {0,32}"}
"""White space has a bound: a model that is lost in it would write nothing else up to its last token."""
_SLASH: Final = re.compile(r"\\.|/", re.DOTALL)


class Writer:
    """A rule in the library's own notation. Equal parts become one rule."""

    def __init__(self, special: dict[str, int]) -> None:
        self._special = special
        self._names: dict[str, str] = {}
        self._rules: dict[str, str] = {}
        """Those that may refer to themselves: name → body."""
        self._scope: dict[str, str] = {}
        self._known: dict[int, tuple[Spelled, str]] = {}
        self._inside: Spelled | None = None
        self._noted: set[int] = set()
        self.schemas: list[Json | Spelled] = []
        """Each once, however often and in whatever ways it is written."""
        self.strings: dict[String, str] = {}
        """Those of which there may be none at all, and the place of their schema."""

    def grammar(self, rule: Rule) -> str:
        """All of it. May raise RecursionError for a schema."""
        # Without forcing, a text that is the only one possible may still be cut into tokens as the model has it.
        start = self._expression(rule)
        lines = [f"{name}{'[lazy]' * name.startswith('until')}: {body}" for body, name in self._names.items()]
        lines += [f"{name}: {body}" for name, body in self._rules.items()]
        return "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *lines])

    def _expression(self, rule: Rule) -> str:
        match rule:
            case Literal():
                return " ".join(self._literal(rule.text)) or '""'
            case Row():
                return " ".join(self._expression(part) for part in rule.parts) or '""'
            case OneOf():
                return self._one_of(rule)
            case Again():
                times = "*" if (rule.least, rule.most) == (0, None) else f"{{{rule.least},{_most(rule.most)}}}"
                return f"({self._expression(rule.rule)}){times}"
            case Members():
                return self._members(rule)
            case Refer():
                return self._scope[rule.name]
            case Defined():
                return self._defined(rule)
            case Spelled():
                return self._spelled(rule)
            case _:
                return self._lexeme(rule)

    def _one_of(self, rule: OneOf) -> str:
        other = not all(isinstance(option, String) for option in rule.options)
        ways = [
            # Of a string that cannot be, another way is left, unless a token has opened it.
            self._string(option)
            if other and isinstance(option, String) and (not option.opens or self._lettered((option.opens,)))
            else self._expression(option)
            for option in rule.options
        ]
        return f"({' | '.join(ways)})"

    def _lexeme(self, rule: Json | Free | String | Text | Number | Newlines) -> str:
        match rule:
            case Text():
                return self._named("TEXT", _between_slashes(rule.pattern))
            case Json():
                return self._json(rule)
            case Free():
                return self._free(rule)
            case String():
                narrow = rule.most is not None or rule.without or rule.unlike or len(rule.patterns) > 1
                if rule.least or (rule.patterns and narrow):
                    self.strings[rule] = "" if self._inside is None else self._inside.param
                return self._string(rule)
            case Number():
                return self._named("NUMBER", "/[1-9][0-9]{0,3}/")
            case Newlines():
                return self._named("NEWLINES", "/\\n{0,2}/")
            case _:
                assert_never(rule)

    def _named(self, kind: str, body: str) -> str:
        return self._names.setdefault(body, f"{kind}_{len(self._names)}")

    def _literal(self, text: str) -> Iterable[str]:
        """Special tokens by id, the rest as text."""
        while text:
            found = [(at, marker) for marker in self._special if marker and (at := text.find(marker)) >= 0]
            at, marker = min(found, key=lambda one: (one[0], -len(one[1])), default=(len(text), ""))
            if at:
                yield json.dumps(text[:at], ensure_ascii=False)
            if marker:
                yield f"<[{self._special[marker]}]>"
            text = text[at + len(marker) :]

    def _note(self, rule: Json | Spelled) -> None:
        """What is inside of one that is noted is a part of it."""
        if self._inside is None and id(rule.schema) not in self._noted:
            self._noted.add(id(rule.schema))
            self.schemas.append(rule)

    def _spelled(self, rule: Spelled) -> str:
        known = self._known.get(id(rule))
        if known is not None:  # the same one: of the first call, and of others
            return known[1]
        self._note(rule)
        outer, self._inside = self._inside, self._inside or rule
        written = self._expression(rule.rule)
        self._inside = outer
        self._known[id(rule)] = rule, written
        return written

    def _defined(self, rule: Defined) -> str:
        before = self._scope
        self._scope = {name: f"rule_{len(self._rules) + number}" for number, name in enumerate(rule.rules)}
        self._rules.update(dict.fromkeys(self._scope.values(), ""))
        for name, body in rule.rules.items():
            self._rules[self._scope[name]] = self._expression(body)
        written = self._expression(rule.rule)
        self._scope = before
        return written

    def _part(self, rule: Rule) -> str:
        """What is written more than once, but for names, is a rule: else its length would double with each level."""
        written = self._expression(rule)
        return self._named("part", written) if " " in written else written

    def _members(self, rule: Members) -> str:
        """One rule for each place and for whether something stands before it, the last first."""
        between = self._expression(Literal(rule.between)) if rule.between else ""
        first = later = '""'
        if rule.others is not None:
            other, times = self._part(rule.others), "?" if rule.once else "*"
            later = f"({between} {other}){times}" if between else f"({other}){times}"
            first = f'({other}{"" if rule.once else f" {later}"} | "")' if between else later
        for part, required in reversed(rule.parts):
            written = self._part(part)
            begun = self._named("members", f"{between} {written} {later}{'' if required else f' | {later}'}")
            first = (
                self._named("members", f"{written} {later}{'' if required else f' | {first}'}") if between else begun
            )
            later = begun
        return first

    def _string(self, rule: String) -> str:
        parts = [f"/(?s:.{{{rule.least},{_most(rule.most)}}})/", *(_between_slashes(each) for each in rule.patterns)]
        parts += [f"~{_between_slashes(each)}" for each in rule.unlike]
        if without := [quoted(marker) for marker in self._lettered(rule.without)]:
            parts.append(f"~/(?s:.*)({'|'.join(without)})(?s:.*)/")
        text = self._named("TEXT", " & ".join(parts))
        before = [*self._literal(rule.opens)]
        if before and not before[-1].startswith("<["):  # one text with what opens it
            text = self._named("TEXT", f"{before.pop()} {text}")
        return " ".join((*before, self._up_to(text, rule.until)))

    def _up_to(self, text: str, until: Iterable[str]) -> str:
        """A text, and one of ``until``: the first of them ends it."""
        ways: list[str] = []
        ends: list[str] = []
        for end in until:
            head, *behind = self._literal(end)
            if head.startswith("<["):
                ways.append(" ".join((text, head, *behind)))
            elif behind:
                ways.append(" ".join((self._named("TEXT", f"{text} {head}"), *behind)))
            else:
                ends.append(head)
        if ends:
            ways.append(self._named("until", f"{text} ({' | '.join(ends)})"))  # lazy
        return f"({' | '.join(ways)})"

    def _lettered(self, markers: Iterable[str]) -> list[str]:
        """Those that are written in letters: a text has no special token in it."""
        return [marker for marker in markers if not any(special and special in marker for special in self._special)]

    def _json(self, rule: Json) -> str:
        self._note(rule)
        schema = writable(rule.schema)
        if without := self._lettered(rule.without):
            schema = sparing(schema, without)
        schema = {**schema, "x-guidance": _COMPACT if rule.compact else _LINES}
        return self._named("json", f"%json {json.dumps(schema)}")

    def _free(self, rule: Free) -> str:
        text = self._named("TEXT", self._text(rule))
        return self._up_to(text, rule.until) if rule.until else text

    def _text(self, rule: Free) -> str:
        without = [quoted(marker) for marker in self._lettered(rule.without)]
        parts = ["/(?s:.*)/"]
        if without:
            parts.append(f"~/(?s:.*)({'|'.join(without)})(?s:.*)/")
        if rule.ahead:
            parts.append(f"~/({'|'.join(map(quoted, rule.ahead))})(?s:.*)/")
        if rule.first:
            parts.append(f"~/\\s*({'|'.join(quoted(char) for char in rule.first)})(?s:.*)/")
        return " & ".join(parts)


def _most(most: int | None) -> str:
    return "" if most is None else str(most)


def _between_slashes(pattern: str) -> str:
    pattern = pattern or "(?:)"  # two slashes are no expression
    return f"/{_SLASH.sub(lambda found: found[0] if found[0] != '/' else chr(92) + '/', pattern)}/"
