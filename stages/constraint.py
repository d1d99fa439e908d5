"""What a model's output is held to while it is generated, in no library's terms.

    forced call     [ reasoning ] call { call }                 tool_choice required, named, or allowed tools required
    free call       { text call } text                          tool_choice auto, and a tool is strict
    answer          [ reasoning ] JSON                          response_format, text.format, output_config.format
    call or answer  [ reasoning ] ( call { call } | JSON )      tool_choice auto beside such a format

A call is written as the format's ``Spelling`` has it. A format without calls, and a parser that is none of ours, cannot
be held to them: there is no constraint then, and policy notes what the model does wrong.

Where a format writes messages, each of these is one, as its ``Spoken`` has it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from stages.errors import RequestError, Unheld
from stages.grammar import NOTHING, Again, Free, Json, Literal, Newlines, Number, OneOf, Row, Rule, one_of
from stages.opening import Ask, TokenizerFacts, Tool
from stages.parse.channels import begun
from stages.parse.format import TRIMS, Channels, Format, Reasoning
from stages.parse.modes import THINKS, Mode
from stages.parse.reasoning import start_mode
from stages.parse.spelling import NAME, NUMBER, Spelling
from stages.parse.types import Parameters
from stages.schema_size import LARGEST, size

_PARAMETERS: Final = {
    "chat": "tools[{}].function.parameters", "responses": "tools[{}].parameters", "messages": "tools[{}].input_schema",
}  # fmt: skip
_NAMES: Final = {"chat": "tools[{}].function.name", "responses": "tools[{}].name", "messages": "tools[{}].name"}
_ANSWERS: Final = {
    "chat": "response_format.json_schema.schema", "completions": "response_format.json_schema.schema",
    "responses": "text.format.schema", "messages": "output_config.format.schema",
}  # fmt: skip
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_NAMED: Final = 500
"""Arguments that are written by their names only."""
_EMPTY: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


class Constraint(msgspec.Struct, frozen=True):
    """``rule``: what follows the reasoning; ``form``: the format that the model writes; ``thinks``: it may reason where
    the prompt does not say so."""

    rule: Rule
    form: Format
    thinks: bool = False

    def after(self, tail: str) -> Rule:
        """What the whole output is held to behind a prompt that ends in ``tail``."""
        if self.form.channels is not None:
            return _behind(self.rule, self.form.channels, tail)
        table = self.form.reasoning
        if table is None or not table.closers:
            return self.rule
        mode = start_mode(self.form, tail, calls=True)
        if mode in THINKS:
            return self._thought(table)
        if mode is Mode.LEAD and self.thinks and not tail.rstrip().endswith(table.closers):
            openers = OneOf(tuple(Literal(opener) for opener in table.openers))
            return Row((Newlines(), OneOf((self.rule, Row((openers, self._thought(table)))))))
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
    channels = form.channels
    if not ask.tools or ask.tool_choice == "none":
        return answer if channels is None or answer is None else _told(channels, known, answer)
    spelling = next((one for one in form.spellings if not one.token or one.token in known), None)
    forced = ask.function is not None or ask.tool_choice == "required"
    strict = any(tool.strict for tool in ask.tools)
    if spelling is None or not (forced or answer is not None or strict):
        return None
    wanted = _wanted(ask, protocol, spelling, loose=not forced)
    # A named function is an answer in a form of its own: one.
    several = ask.parallel and ask.function is None and spelling.between is not None
    calls = Row((*_calls(spelling, wanted, several), *_line(spelling, several)))
    if channels is not None:
        last = None if forced else answer or _text(channels)
        return _told(channels, known, last, calls, preamble=not forced and not answer)
    if forced:
        return calls
    return _mixed(spelling, wanted, several, form) if answer is None else OneOf((calls, answer))


class _Wanted(NamedTuple):
    """A function that may be called: the ways to spell that, each with its arguments."""

    name: str
    ways: tuple[tuple[Spelling, Rule], ...]


def _wanted(ask: Ask, protocol: str, spelling: Spelling, *, loose: bool) -> list[_Wanted]:
    """The functions that may be called, and what their arguments are held to. ``loose``: only a strict tool's schema
    counts; of others, where arguments are not JSON, the names that it lists."""
    names = frozenset(ask.allowed if ask.function is None else (ask.function,))
    wanted: list[_Wanted] = []
    left = LARGEST
    for index, tool in enumerate(ask.tools):
        if names and tool.name not in names:
            continue
        if spelling.name and not re.fullmatch(spelling.name, tool.name):
            raise _unnamed(tool.name, _NAMES[protocol].format(index))
        free = loose and not tool.strict
        schema = _schema(tool) if not free else _OBJECT if spelling.arguments is None else _listed(tool)
        value = Json(schema, _PARAMETERS[protocol].format(index))
        left -= size(schema)
        if left < 0:  # spelling it would take as long as compiling it
            raise Unheld(value.param, f"all schemas together are too large: more than {LARGEST} parts")
        wanted.append(_Wanted(tool.name, _ways(spelling, tool.name, value)))
    return wanted


def _ways(spelling: Spelling, name: str, value: Json) -> tuple[tuple[Spelling, Rule], ...]:
    """Raises RequestError where the first of the spellings cannot hold the schema."""
    ways = [(spelling, value if spelling.arguments is None else spelling.arguments(value))]
    for other in spelling.also:
        if not other.name or re.fullmatch(other.name, name):
            with contextlib.suppress(RequestError):
                ways.append((other, value if other.arguments is None else other.arguments(value)))
    return tuple(ways)


def _listed(tool: Tool) -> dict[str, Any]:
    """Arguments that the tool lists, whatever they are: each once, which cannot be said of names that are made up; of
    two arguments of one name some formats make no call."""
    listed: Any = {} if tool.parameters is None else tool.parameters.get("properties")
    first: list[str] = [*cast("dict[str, Any]", listed)] if isinstance(listed, dict) else []
    names = dict.fromkeys((*first, *sorted(Parameters(tool.parameters).keys)))
    return {**_OBJECT, "properties": {name: {} for name in names}} if 0 < len(names) <= _NAMED else _OBJECT


def _unnamed(name: str, param: str) -> RequestError:
    message = f"{param}: the model's format cannot write a call of {name!r:.100}: a simpler name can be written"
    return RequestError(message, param=param, code="unsupported_schema")


def _schema(tool: Tool) -> dict[str, Any]:
    """Arguments are one object, whatever else the schema allows."""
    if tool.parameters is None:
        return _EMPTY
    kinds: Any = tool.parameters.get("type", "object")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        return {**tool.parameters, **_OBJECT}
    return {"allOf": [_OBJECT, tool.parameters]}  # nothing satisfies both: the engine will say so


# --- calls ----------------------------------------------------------------------------------------------------------


def _calls(spelling: Spelling, wanted: Sequence[_Wanted], several: bool, begun: str = "") -> tuple[Rule, ...]:
    """One call, or ``several``. ``begun``: what of it is written already."""
    first = OneOf(tuple(_call(spelling.opens, tool, begun) for tool in wanted))
    between = spelling.between
    if between is None or not several:
        return first, Literal(spelling.closes)
    return first, Again(OneOf(tuple(_call(between, tool, None) for tool in wanted))), Literal(spelling.closes)


def _line(spelling: Spelling, several: bool) -> tuple[Rule, ...]:
    """A newline behind the last call, where it may stand between two: to write it is not to promise another."""
    alone = several and not spelling.closes and (spelling.between or "").startswith("\n")
    return (OneOf((Literal("\n"), NOTHING)),) if alone else ()


def _call(lead: str, tool: _Wanted, begun: str | None) -> Rule:
    """``begun``: None: not the first call."""
    ways: list[Rule] = []
    for spelling, spelt in tool.ways:
        before, middle, behind = spelling.call
        head = f"{lead}{before}{tool.name}{middle.replace(NAME, tool.name)}"
        first = begun is not None
        text = (Literal(head.replace(NUMBER, spelling.first).removeprefix(begun or "")),) if first else _numbered(head)
        ways.append(Row((*text, spelt, Literal(behind))))
    return one_of(ways)


def _numbered(text: str) -> tuple[Rule, ...]:
    before, number, behind = text.partition(NUMBER)
    return (Literal(before), Number(), Literal(behind)) if number else (Literal(text),)


def _mixed(spelling: Spelling, wanted: Sequence[_Wanted], several: bool, form: Format) -> Rule:
    """Text, and calls once the format's opener is written."""
    assert form.calls is not None
    start = spelling.opens + spelling.call[0]
    openers = form.calls.openers
    begun = max((opener for opener in openers if start.startswith(opener)), key=len, default="")
    if not begun:  # nothing but its place tells that this is a call
        rest = Free(without=openers, first=form.calls.bare)
        return OneOf((rest, Row(_calls(spelling, wanted, several))))
    # A word of prose; with the beginning of a tag a call may begin that is spelled in another way.
    words = tuple(word for word in form.calls.words if word[0] != "<")
    if begun in words:  # one more character makes it an opener
        begun = start[: len(begun) + 1]
    free = Free(without=tuple(dict.fromkeys((*(opener for opener in openers if opener not in words), begun))))
    calls = _calls(spelling, wanted, several, begun)
    called = Row((*_around(form, free), replace(free, until=(begun,)), *calls))
    if form.calls.drop is True:  # nothing behind a block is output
        return OneOf((called, Row((*_around(form, free), free))))
    behind = replace(free, ahead=_glued(spelling.call[2] + spelling.closes, openers))
    more = Row((*_around(form, behind), replace(behind, until=(begun,)), *calls))
    return OneOf((
        Row((called, Again(more) if several else NOTHING, *_around(form, behind), behind)),
        Row((*_around(form, free), free)),
    ))  # fmt: skip


def _around(form: Format, free: Free) -> tuple[Rule, ...]:
    """Where messages have parts, text may stand in them."""
    return (Again(Row((free, OneOf(tuple(map(Literal, form.boundaries)))))),) if form.boundaries else ()


def _glued(closer: str, openers: Sequence[str]) -> tuple[str, ...]:
    """What would make an opener of the end of a call."""
    cuts = [(opener, size) for opener in openers for size in range(1, len(opener)) if closer.endswith(opener[:size])]
    return tuple(opener[size:] for opener, size in cuts)


# --- messages -------------------------------------------------------------------------------------------------------


def _told(
    channels: Channels, known: Container[str], answer: Rule | None, calls: Rule | None = None, *, preamble: bool = False
) -> Rule:
    """Messages behind the start of the first: reasoning, where a message is ``known`` to the vocabulary, then calls or
    the answer. ``preamble``: other text, too."""
    spoken = channels.spoken
    thought = spoken.thought if any(literal in known for literal in channels.bodies) else ""
    before = tuple(Row((Literal(head), _body(channels))) for head in (thought, spoken.preamble * preamble) if head)
    last = () if answer is None else (Row((Literal(spoken.answer), answer)),)
    end = OneOf((Literal(spoken.ender), NOTHING))
    others = Again(OneOf(before)) if before else NOTHING
    return Row((others, OneOf((*last, *(() if calls is None else (calls,)))), end))


def _text(channels: Channels) -> Free:
    """The body of a message, to the end of the output."""
    return Free(without=(*channels.enders, *(channels.starts if channels.breaks else ())))


def _body(channels: Channels) -> Rule:
    """The body of a message, its end, and the start of the next."""
    spoken = channels.spoken
    return Row((replace(_text(channels), until=(spoken.ender,)), Literal(spoken.start)))


def _behind(rule: Rule, channels: Channels, tail: str) -> Rule:
    """Messages behind a prompt, which may have begun the body of one."""
    if any(literal in begun(channels, tail) for literal in channels.bodies):
        return Row((_body(channels), rule))
    return rule if channels.open in tail else Row((Literal(channels.spoken.start), rule))
