"""What a case expects, and where a message is not that."""

from __future__ import annotations

import difflib
import json
from typing import Any, NoReturn

import msgspec

from replay.plain import is_list, is_map
from replay.text import excerpt, first_difference, sound
from stages.message import Message, ToolCall


class ExpectedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call. ``arguments``: a JSON object, or its text; None: cut or invalid, and the text is ``arguments_prefix``
    where that is given."""

    name: str
    arguments: dict[str, Any] | str | None = None
    arguments_prefix: str | None = None


class Expected(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message. An absent text is none, absent calls are none; an absent finish reason and absent faults are not
    compared. ``arguments_text``: the arguments of the calls as text, to the character."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: tuple[ExpectedCall, ...] | None = ()
    finish_reason: str | None = None
    faults: tuple[str, ...] | None = None
    forbidden_in_content: tuple[str, ...] = ()
    arguments_text: tuple[str, ...] | None = None


class Mismatch(msgspec.Struct, frozen=True):
    """A field that is not as expected. ``place``: the first place in it that differs, "" for all of it; ``expected``
    and ``came``: both sides around it, for people."""

    field: str
    place: str
    expected: str
    came: str


def misspelt(at: str, part: Any, kind: type[msgspec.Struct]) -> str:
    """A complaint about a field of ``part`` that nearly has the name of one of ``kind``; "" if there is none."""
    known = kind.__struct_fields__
    for name in part if is_map(part) else ():
        near = [] if name in known else difflib.get_close_matches(str(name), known, n=1, cutoff=0.8)
        if near:
            return f"unknown field `{at}{name}`; did you mean `{at}{near[0]}`?"
    return ""


def misspelt_expected(part: Any) -> str:
    """The same for what a case expects, and its calls."""
    calls: Any = part.get("tool_calls") if is_map(part) else None
    wrong = (misspelt("expected.tool_calls.", call, ExpectedCall) for call in (calls if is_list(calls) else ()))
    return misspelt("expected.", part, Expected) or next(filter(None, wrong), "")


def in_words(item: Mismatch) -> str:
    """A mismatch in three lines: the place, what was expected, what came."""
    place = f" {item.place}" if item.place else ""
    return f"{item.field}{place}\n  expected {item.expected}\n  came     {item.came}"


def mismatches(expected: Expected, message: Message, *, trim: bool = False) -> list[Mismatch]:
    """Where the message is not what is expected. Texts are compared to the character (``trim``: without white space at
    their ends), arguments as JSON values with their types, faults in any order."""
    found: list[Mismatch] = []
    for field, wanted, came in (
        ("reasoning", expected.reasoning, message.reasoning),
        ("content", expected.content, message.content),
    ):
        found += _text(field, *((text or "").strip() if trim else text or "" for text in (wanted, came)))
    for text in expected.forbidden_in_content:
        at = (message.content or "").find(text)
        if at >= 0:
            found.append(
                Mismatch("content", f"at character {at}", f"no {text!r} in it", excerpt(message.content or "", at))
            )
    found += _calls(expected, message)
    if expected.finish_reason not in (None, message.finish_reason):
        found.append(Mismatch("finish_reason", "", str(expected.finish_reason), str(message.finish_reason)))
    if expected.faults is not None and sorted(expected.faults) != sorted(message.faults):
        found.append(Mismatch("faults", "", _listed(expected.faults), _listed(message.faults)))
    return found


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _text(field: str, wanted: str, came: str) -> list[Mismatch]:
    if wanted == came:
        return []
    at = first_difference(wanted, came)
    sides = (sound(excerpt(text, at)) if text else "nothing" for text in (wanted, came))
    return [Mismatch(field, f"at character {at}", *sides)]


# --- calls ------------------------------------------------------------------------------------------------------------


def _calls(expected: Expected, message: Message) -> list[Mismatch]:
    wanted, came = expected.tool_calls or (), message.tool_calls
    if [call.name for call in wanted] != [call.name for call in came]:
        names = (
            f"{len(calls)}: {', '.join(call.name for call in calls)}" if calls else "none" for calls in (wanted, came)
        )
        return [Mismatch("tool_calls", "", *(sound(text) for text in names))]
    found: list[Mismatch] = []
    for index, (one, other) in enumerate(zip(wanted, came, strict=True)):
        found += _arguments(f"tool_calls[{index}].arguments", one, other)
    for index, (text, call) in enumerate(zip(expected.arguments_text or (), came, strict=False)):
        found += _text(f"tool_calls[{index}].arguments", text, call.arguments)
    return found


def _arguments(field: str, wanted: ExpectedCall, came: ToolCall) -> list[Mismatch]:
    if wanted.arguments is None:
        if wanted.arguments_prefix is not None:
            return _text(field, wanted.arguments_prefix, came.arguments)
        return [Mismatch(field, "", "a call that is cut or invalid", excerpt(came.arguments))] if came.complete else []
    try:
        value = wanted.arguments if isinstance(wanted.arguments, dict) else _json(wanted.arguments)
    except ValueError:
        return _text(field, str(wanted.arguments), came.arguments)
    try:
        return _value(field, value, _json(came.arguments))
    except ValueError as error:
        return [Mismatch(field, "", _shown(value), f"{excerpt(came.arguments)}, which is not JSON ({error})")]
    except RecursionError:
        return _text(field, _shown(value), came.arguments)


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_no_number)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _value(field: str, wanted: Any, came: Any) -> list[Mismatch]:
    path = first_unequal(wanted, came)
    if path is None:
        return []
    for key in path:
        wanted, came = _inside(wanted, key), _inside(came, key)
    inside = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    if isinstance(wanted, str) and isinstance(came, str):
        return [
            Mismatch(sound(item.field), item.place, item.expected, item.came)
            for item in _text(field + inside, wanted, came)
        ]
    return [Mismatch(sound(field + inside), "", _shown(wanted), _shown(came))]


def _inside(value: Any, key: str | int) -> Any:
    if is_map(value):
        return value.get(key, msgspec.UNSET)
    return value[key] if is_list(value) and isinstance(key, int) and key < len(value) else msgspec.UNSET


def first_unequal(one: Any, other: Any) -> tuple[str | int, ...] | None:
    """The path to the first place at which two JSON values differ; None if nowhere. 1, 1.0, true and "1" all differ."""
    if is_map(one) and is_map(other):
        for key in {**one, **other}:
            mine, theirs = _inside(one, key), _inside(other, key)
            deeper = first_unequal(mine, theirs)
            if deeper is not None:
                return (key, *deeper)
        return None
    if is_list(one) and is_list(other):
        for at in range(max(len(one), len(other))):
            deeper = first_unequal(_inside(one, at), _inside(other, at))
            if deeper is not None:
                return (at, *deeper)
        return None
    return None if type(one) is type(other) and one == other else ()


def _shown(value: Any) -> str:
    if value is msgspec.UNSET:
        return "nothing"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "a deeply nested value"
    return sound(text if len(text) <= 160 else text[:160] + "…")
