"""What a model's output is held to while it is generated, in no library's terms.

    forced call     [ reasoning ] call { call }                 tool_choice required, named, or allowed tools required
    free call       { text call } text                          tool_choice auto, and a tool is strict
    answer          [ reasoning ] JSON                          response_format, text.format, output_config.format
    call or answer  [ reasoning ] ( call { call } | JSON )      tool_choice auto beside such a format

A call is written as the format's ``Spelling`` has it. A format without one, and a parser that is none of ours, cannot
be held to calls: there is no constraint then, and policy notes what the model does wrong.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from stages.errors import RequestError
from stages.grammar import NOTHING, Again, Free, Json, Literal, Newlines, Number, OneOf, Row, Rule
from stages.opening import Ask, TokenizerFacts, Tool
from stages.parse.format import TRIMS, Format, Reasoning
from stages.parse.modes import THINKS, Mode
from stages.parse.reasoning import start_mode
from stages.parse.spelling import NUMBER, Spelling
from stages.parse.spellings.shape import refuse
from stages.parse.types import types_of

_PARAMETERS: Final = {
    "chat": "tools[{}].function.parameters", "responses": "tools[{}].parameters", "messages": "tools[{}].input_schema",
}  # fmt: skip
_ANSWERS: Final = {
    "chat": "response_format.json_schema.schema", "completions": "response_format.json_schema.schema",
    "responses": "text.format.schema", "messages": "output_config.format.schema",
}  # fmt: skip
_NAMES: Final = 500
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_EMPTY: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


class Constraint(msgspec.Struct, frozen=True):
    """``rule``: what follows the reasoning; ``form``: the format that the model writes; ``thinks``: it may reason where
    the prompt does not say so."""

    rule: Rule
    form: Format
    thinks: bool = False

    def after(self, tail: str) -> Rule:
        """What the whole output is held to behind a prompt that ends in ``tail``."""
        table = self.form.reasoning
        if table is None or not table.closers:
            return self.rule
        mode = start_mode(self.form, tail, calls=True)
        if mode in THINKS:
            return self._thought(table)
        if mode is Mode.LEAD and self.thinks and not tail.rstrip().endswith(table.closers):
            openers = OneOf(tuple(Literal(opener) for opener in table.openers))
            return OneOf((self.rule, Row((openers, self._thought(table)))))
        return Row((Newlines(), self.rule)) if mode is Mode.AFTER else self.rule

    def _thought(self, table: Reasoning) -> Rule:
        openers = () if self.form.calls is None else self.form.calls.openers
        space = Newlines() if TRIMS[table.trim] else NOTHING
        return Row((Free(until=table.closers, without=openers), space, self.rule))


def constraint_of(ask: Ask, form: Format | None, tokenizer: TokenizerFacts, protocol: str) -> Constraint | None:
    """What a request holds a model to that writes ``form`` (None: nothing is known of what it writes). None: nothing,
    or the format does not allow to.

    ``protocol``: whose words name the fields. The schemas are not looked at: the engine says which it cannot take."""
    if form is None:
        return None
    if form.variant is not None:
        form = form.variant(tokenizer)
    known = {**tokenizer.special, **tokenizer.added}
    rule = _rule(ask, form, known, protocol)
    if rule is None:
        return None
    openers = () if form.reasoning is None else form.reasoning.openers
    return Constraint(rule, form, any(opener in known for opener in openers))


def _rule(ask: Ask, form: Format, known: dict[str, int], protocol: str) -> Rule | None:
    answer = None if ask.answer is None else Json(ask.answer or _OBJECT, _ANSWERS[protocol], compact=False)
    if not ask.tools or ask.tool_choice == "none":
        return answer
    spelling = next((one for one in form.spellings if not one.token or one.token in known), None)
    forced = ask.function is not None or ask.tool_choice == "required"
    strict = any(tool.strict for tool in ask.tools)
    if spelling is None or not (forced or answer is not None or strict):
        return None
    wanted = _wanted(ask, protocol, loose=None if forced else spelling)
    # A named function is an answer in a form of its own: one.
    several = ask.parallel and ask.function is None and spelling.between is not None
    calls = Row(_calls(spelling, wanted, several))
    if forced:
        return calls
    return _mixed(spelling, wanted, several, form) if answer is None else OneOf((calls, answer))


def _wanted(ask: Ask, protocol: str, *, loose: Spelling | None) -> list[tuple[str, Json]]:
    """The functions that may be called, and what their arguments are held to. ``loose``: only a strict tool's schema
    counts; of the others, that they can be written so."""
    names = frozenset(ask.allowed if ask.function is None else (ask.function,))
    wanted: list[tuple[str, Json]] = []
    for index, tool in enumerate(ask.tools):
        if not names or tool.name in names:
            schema = _schema(tool) if loose is None or tool.strict else _named(tool) if loose.known else _OBJECT
            wanted.append((tool.name, Json(schema, _PARAMETERS[protocol].format(index))))
    return wanted


def _named(tool: Tool) -> dict[str, Any]:
    """Any arguments, where the names must be known."""
    schema = tool.parameters or {}
    names = islice(types_of(schema, schema).members(), _NAMES)
    return {**_OBJECT, "properties": {name: {} for name in names}, "additionalProperties": {}}


def _schema(tool: Tool) -> dict[str, Any]:
    """Arguments are one object, whatever else the schema allows."""
    if tool.parameters is None:
        return _EMPTY
    kinds: Any = tool.parameters.get("type", "object")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        return {**tool.parameters, **_OBJECT}
    return {"allOf": [_OBJECT, tool.parameters]}  # nothing satisfies both: the engine will say so


# --- calls ----------------------------------------------------------------------------------------------------------


def _calls(spelling: Spelling, wanted: Sequence[tuple[str, Json]], several: bool, begun: str = "") -> tuple[Rule, ...]:
    """One call, or ``several``. ``begun``: what of it is written already."""
    first = OneOf(tuple(_call(spelling, spelling.opens, tool, begun) for tool in wanted))
    between = spelling.between
    if between is None or not several:
        return first, Literal(spelling.closes)
    return first, Again(OneOf(tuple(_call(spelling, between, tool, None) for tool in wanted))), Literal(spelling.closes)


def _call(spelling: Spelling, lead: str, tool: tuple[str, Json], begun: str | None) -> Rule:
    """``begun``: None: not the first call."""
    ways = [_way(spelling, lead, tool, begun)]
    for other in spelling.also:
        with contextlib.suppress(RequestError):
            ways.append(_way(other, lead, tool, begun))
    return ways[0] if len(ways) == 1 else OneOf(tuple(ways))


def _way(spelling: Spelling, lead: str, tool: tuple[str, Json], begun: str | None) -> Rule:
    name, arguments = tool
    if re.fullmatch(spelling.name, name) is None:
        refuse(arguments.param, f"the name {name!r} of the function cannot be written in this format")
    spelt = arguments if spelling.arguments is None else spelling.arguments(arguments)
    before, middle, behind = spelling.call
    head = f"{lead}{before}{name}{middle}"
    if begun is not None:
        return Row((Literal(head.replace(NUMBER, "0").removeprefix(begun)), spelt, Literal(behind)))
    return Row((*_numbered(head), spelt, Literal(behind)))


def _numbered(text: str) -> tuple[Rule, ...]:
    before, number, behind = text.partition(NUMBER)
    return (Literal(before), Number(), Literal(behind)) if number else (Literal(text),)


def _mixed(spelling: Spelling, wanted: Sequence[tuple[str, Json]], several: bool, form: Format) -> Rule:
    """Text, and calls once the format's opener is written."""
    assert form.calls is not None
    start = spelling.opens + spelling.call[0]
    openers = form.calls.openers
    begun = max((opener for opener in openers if start.startswith(opener)), key=len, default="")
    if not begun:  # nothing but its place tells that this is a call
        rest = Free(without=openers, first=form.calls.bare)
        return OneOf((rest, Row(_calls(spelling, wanted, several))))
    if begun in form.calls.words:  # an ordinary word: one more character makes it an opener
        begun = start[: len(begun) + 1]
    others = tuple(opener for opener in openers if opener not in form.calls.words)
    text, free = Free(until=(begun,), without=tuple(dict.fromkeys((*others, begun)))), Free(without=(*others, begun))
    called = Row((text, *_calls(spelling, wanted, several, begun)))
    if form.calls.drop is True:  # nothing behind a block is output
        return OneOf((called, free))
    return Row((Again(called) if several else OneOf((called, NOTHING)), free))
