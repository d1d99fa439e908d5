"""Rules in llguidance's own notation: lexemes, which are regular expressions over the bytes of tokens, and rules over
them. Special tokens are no text to it: a rule names them by id."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, assert_never

from pipeline.engines.schemas import writable
from pipeline.engines.sparing import sparing
from stages.grammar import Again, Free, Json, Literal, Members, Newlines, Number, OneOf, Row, Rule, Spelled, String
from stages.parse.spellings.strings import quoted

_COMPACT: Final = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
_LINES: Final = {"whitespace_pattern": "[ ]|\\n {0,32}"}
"""White space has a bound: a model that is lost in it would write nothing else up to its last token."""
_SLASH: Final = re.compile(r"\\.|/", re.DOTALL)


class Writer:
    """A rule in the library's own notation. Equal parts become one rule."""

    def __init__(self, special: dict[str, int]) -> None:
        self._special = special
        self._names: dict[str, str] = {}
        self.schemas: list[Json] = []

    def grammar(self, rule: Rule) -> str:
        """All of it. May raise RecursionError for a schema."""
        # Without forcing, a text that is the only one possible may still be cut into tokens as the model has it.
        start = self._expression(rule)
        lines = [f"{name}{'[lazy]' * name.startswith('until')}: {body}" for body, name in self._names.items()]
        return "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *lines])

    def _expression(self, rule: Rule) -> str:
        match rule:
            case Literal():
                return " ".join(self._literal(rule.text)) or '""'
            case Row():
                return " ".join(self._expression(part) for part in rule.parts) or '""'
            case OneOf():
                return f"({' | '.join(self._expression(option) for option in rule.options)})"
            case Again():
                return f"({self._expression(rule.rule)})*"
            case Members():
                return self._members(rule)
            case Spelled():
                return self._spelled(rule)
            case _:
                return self._lexeme(rule)

    def _lexeme(self, rule: Json | Free | String | Number | Newlines) -> str:
        match rule:
            case Json():
                return self._json(rule)
            case Free():
                return self._free(rule)
            case String():
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

    def _spelled(self, rule: Spelled) -> str:
        self._note(Json(rule.schema, rule.param))
        schemas = self.schemas
        self.schemas = []  # those inside are parts of it
        written = self._expression(rule.rule)
        self.schemas = schemas
        return written

    def _members(self, rule: Members) -> str:
        """One rule for each place and for whether something stands before it, the last first."""
        between = self._expression(Literal(rule.between)) if rule.between else ""
        first = later = '""'
        if rule.others is not None:
            other = self._expression(rule.others)
            later = f"({between} {other})*" if between else f"({other})*"
            first = f'({other} {later} | "")' if between else later
        for part, required in reversed(rule.parts):
            written = self._expression(part)
            begun = self._named("members", f"{between} {written} {later}{'' if required else f' | {later}'}")
            first = (
                self._named("members", f"{written} {later}{'' if required else f' | {first}'}") if between else begun
            )
            later = begun
        return first

    def _string(self, rule: String) -> str:
        most = "" if rule.most is None else str(rule.most)
        parts = [f"/(?s:.{{{rule.least},{most}}})/", *(_between_slashes(each) for each in rule.patterns)]
        parts += [f"~{_between_slashes(each)}" for each in rule.unlike]
        if without := [quoted(marker) for marker in self._lettered(rule.without)]:
            parts.append(f"~/(?s:.*)({'|'.join(without)})(?s:.*)/")
        return self._up_to(self._named("TEXT", " & ".join(parts)), rule.until)

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

    def _note(self, rule: Json) -> None:
        """Its schema counts once, however often and in whatever ways it is written."""
        if not any(each.schema is rule.schema for each in self.schemas):
            self.schemas.append(rule)

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
        if rule.first:
            parts.append(f"~/\\s*({'|'.join(quoted(char) for char in rule.first)})(?s:.*)/")
        return " & ".join(parts)


def _between_slashes(pattern: str) -> str:
    return f"/{_SLASH.sub(lambda found: found[0] if found[0] != '/' else chr(92) + '/', pattern)}/"
