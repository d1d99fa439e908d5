"""Where a list of pythonic calls stands: the phases of the engine, shared by its parts."""

from typing import Final

from stages.parse.engines import named

(
    OPEN, FIRST, NAME, PAREN, ARG, KEY, EQUALS, VALUE, ITEM, WORD, NUMBER, STRING, QUOTE, COMMA, IDENT, BEHIND_IDENT,
    CLOSER, AFTER, BEHIND, NEXT, TAIL, LOST,
) = range(22)  # fmt: skip
STATES: Final = named(globals())
