"""Where a choice starts: what the prompt's tail says about reasoning."""

from __future__ import annotations

from typing import NamedTuple

from stages.parse.channels import begun
from stages.parse.format import TRIMS, Format
from stages.parse.modes import Mode

_BLANK = " \t\r\n"


class Begin(NamedTuple):
    """Where output begins: the mode, or what the prompt has of the first message's header."""

    mode: Mode = Mode.CONTENT
    header: str = ""


def begin(form: Format, tail: str, calls: bool) -> Begin:
    """Where output begins after a prompt that ends in ``tail``. ``calls``: call markers are on."""
    return Begin(start_mode(form, tail, calls), "" if form.channels is None else begun(form.channels, tail))


def start_mode(form: Format, tail: str, calls: bool) -> Mode:
    """The mode in which output begins after a prompt that ends in ``tail``. ``calls``: call markers are on.

    Only the last turn counts. An opener without a closer: inside reasoning. A closer: reasoning is over, but a model
    may open it again at the very start. Neither: content, and an opener may come first.
    """
    table = form.reasoning
    if table is None:
        return Mode.LEAD if calls else Mode.CONTENT
    turn = tail[max((0, *(tail.rfind(opener) for opener in table.turns))) :]
    opened, opener = _last(turn, table.openers)
    closed, closer = _last(turn, table.closers)
    if opened > closed:
        begun = turn[opened + len(opener) :]
        if table.label and "\n" not in begun:
            return Mode.LABEL
        begun = begun[begun.find("\n") + 1 :] if table.label else begun
        return Mode.REASONING if begun.strip(_BLANK) else Mode.REASONING_LEAD
    if closed >= 0 and turn.endswith(closer):
        return Mode.AFTER if TRIMS[table.trim] else Mode.SECOND
    if closed < 0 and table.inside and (not tail or not table.openers):
        return Mode.REASONING_LEAD
    return Mode.LEAD


def _last(text: str, literals: tuple[str, ...]) -> tuple[int, str]:
    """Where the last of the literals stands, and which; (-1, "") without one."""
    return max(((text.rfind(literal), literal) for literal in literals), default=(-1, ""))
