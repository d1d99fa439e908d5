"""Where a choice starts: what the prompt's tail says about reasoning."""

from __future__ import annotations

from stages.parse.format import Format
from stages.parse.modes import Mode

_BLANK = " \t\r\n"


def start_mode(form: Format, tail: str, calls: bool) -> Mode:
    """The mode in which output begins after a prompt that ends in ``tail``. ``calls``: call markers are on.

    Only the last turn counts. An opener without a closer: inside reasoning. A closer: reasoning is over, but a model
    may open it again at the very start. Neither: content, and an opener may come first.
    """
    table = form.reasoning
    if table is None:
        return Mode.LEAD if calls else Mode.CONTENT
    turn = tail[max(0, *(tail.rfind(opener) for opener in table.turns)) :]
    opened, closed = turn.rfind(table.opener), turn.rfind(table.closer)
    if opened > closed:
        begun = turn[opened + len(table.opener) :].strip(_BLANK)
        return Mode.REASONING if begun else Mode.REASONING_LEAD
    if closed >= 0 and turn.endswith(table.closer):
        return Mode.AFTER
    return Mode.LEAD
