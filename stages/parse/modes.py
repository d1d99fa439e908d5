"""The modes of a choice, the roles of markers, and which role is legal in which mode."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from stages.events import Content, Dropped, Reasoning
from stages.parse.format import Format
from stages.parse.writer import Text


class Role(IntEnum):
    """What a literal does."""

    OPEN_REASONING = 1
    CLOSE_REASONING = 2
    OPEN_CALL = 3
    CLOSE_CALL = 4
    FOREIGN = 5
    """A special token outside the format: dropped."""
    ENDER = 6
    """An end of turn: acts as the end of the output."""
    OPEN_ANSWER = 7
    CLOSE_ANSWER = 8
    """What stands around a whole answer."""
    START_MESSAGE = 9
    """Begins a message's header."""
    PART = 10
    """Stands inside a header."""
    BODY = 11
    """Ends a header."""
    END_MESSAGE = 12
    BOUNDARY = 13
    """Structure between the parts of an output."""


class Mode(IntEnum):
    """Where a choice stands."""

    LEAD = 1
    """Before the first visible character; white space is held, reasoning may open."""
    AFTER = 2
    """Behind the closer of reasoning: its separator is dropped."""
    SECOND = 3
    """Like LEAD, but reasoning is over: it opens only where the prompt closed it, and the output has none yet."""
    CONTENT = 4
    """Content goes out as it comes."""
    CONTENT_OPEN = 5
    """Content inside a call block that was not closed: its closer is still consumed."""
    REASONING_LEAD = 6
    """Reasoning before its first visible character: a repeated opener is swallowed."""
    REASONING = 7
    """Reasoning goes out as it comes."""
    BETWEEN = 8
    """Behind a call block: white space is dropped."""
    BETWEEN_OPEN = 9
    """Behind a complete call whose block is still open."""
    REPAIR = 10
    """All of a call but its wrapper's end is there: only the closer makes it complete."""
    SKIP = 11
    """The rest of a broken call whose beginning was sent: dropped up to its closer."""
    CALL = 13
    """The call engine reads."""
    ENDED = 14
    """Behind the end of the output: dropped."""
    LABEL = 15
    """Behind an opener of reasoning: the rest of its line is structure."""
    ANSWERED = 16
    """Behind the end of a wrapped answer: it was the end if nothing visible follows."""
    HEADER = 17
    """Inside the header of a message."""


_LEGAL: Final[dict[Mode, tuple[Role, ...]]] = {
    Mode.LEAD: (Role.OPEN_REASONING, Role.CLOSE_REASONING, Role.OPEN_CALL, Role.OPEN_ANSWER),
    Mode.AFTER: (),
    Mode.SECOND: (Role.OPEN_REASONING, Role.CLOSE_REASONING, Role.OPEN_CALL, Role.OPEN_ANSWER),
    Mode.CONTENT: (Role.OPEN_CALL, Role.CLOSE_ANSWER),
    Mode.CONTENT_OPEN: (Role.OPEN_CALL, Role.CLOSE_CALL),
    Mode.REASONING_LEAD: (Role.OPEN_REASONING, Role.CLOSE_REASONING, Role.OPEN_CALL),
    Mode.REASONING: (Role.CLOSE_REASONING, Role.OPEN_CALL),
    Mode.BETWEEN: (Role.CLOSE_REASONING, Role.OPEN_CALL, Role.CLOSE_ANSWER),
    Mode.BETWEEN_OPEN: (Role.OPEN_CALL, Role.CLOSE_CALL),
    Mode.REPAIR: (Role.CLOSE_CALL,),
    Mode.SKIP: (Role.OPEN_CALL, Role.CLOSE_CALL),
    Mode.CALL: (),
    Mode.LABEL: (Role.CLOSE_REASONING,),
    Mode.ANSWERED: (Role.OPEN_CALL,),
}
_CONTENT: Final = frozenset((Mode.SECOND, Mode.CONTENT, Mode.CONTENT_OPEN, Mode.BETWEEN, Mode.BETWEEN_OPEN))


_HEADERS: Final = frozenset((Role.START_MESSAGE, Role.PART, Role.BODY))
_END: Final = frozenset((Role.END_MESSAGE,))
_MESSAGES: Final[dict[Mode, frozenset[Role]]] = {
    Mode.LEAD: _HEADERS | _END, Mode.HEADER: _HEADERS | _END, Mode.BETWEEN: _HEADERS | _END, Mode.CONTENT: _END,
    Mode.REASONING: _END, Mode.SKIP: _END, Mode.REPAIR: _END, Mode.CALL: frozenset(),
}  # fmt: skip
_BODIES: Final = frozenset((Mode.CONTENT, Mode.REASONING, Mode.SKIP))


def legal(form: Format) -> dict[Mode, frozenset[Role]]:
    """Which roles a format's markers have in which mode; elsewhere they are text."""
    if form.channels is not None:
        start = {Role.START_MESSAGE} if form.channels.breaks else frozenset[Role]()
        return {mode: roles | start if mode in _BODIES else roles for mode, roles in _MESSAGES.items()}
    table: dict[Mode, frozenset[Role]] = {}
    reasoning = form.reasoning
    for mode, roles in _LEGAL.items():
        here = {*roles, Role.BOUNDARY} if mode is not Mode.CALL else set(roles)
        if reasoning is not None:
            if reasoning.again and mode in _CONTENT:
                here.add(Role.OPEN_REASONING)
            if reasoning.stray in ("always", "restart") and mode in _CONTENT:
                here.add(Role.CLOSE_REASONING)
            elif reasoning.stray == "never" and mode not in (*THINKS, Mode.LABEL):
                here.discard(Role.CLOSE_REASONING)
            if reasoning.calls == "text" and mode in THINKS:
                here.discard(Role.OPEN_CALL)
        table[mode] = frozenset(here)
    return table


KINDS: Final[dict[Mode, Text]] = {
    Mode.CONTENT: Content, Mode.CONTENT_OPEN: Content, Mode.REASONING: Reasoning, Mode.SKIP: Dropped,
}  # fmt: skip
"""The modes that deliver text as it comes, and as what."""
SENDS: Final = frozenset((Mode.CONTENT, Mode.CONTENT_OPEN, Mode.REASONING))
THINKS: Final = frozenset((Mode.REASONING_LEAD, Mode.REASONING, Mode.LABEL))
GUARDED: Final = frozenset((Mode.REASONING_LEAD, Mode.REASONING, Mode.SKIP))
"""A call opener needs its header to follow, else it is a mere mention: text of the mode."""
DROPS_SPACE: Final = frozenset((Mode.BETWEEN, Mode.BETWEEN_OPEN, Mode.REPAIR))
"""White space is structure at once; elsewhere it waits for what follows."""
