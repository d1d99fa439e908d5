"""Call engines: one per kind of grammar, shared by the formats; how a feed may end; how phases are told to people."""

from typing import Any, Final

MORE: Final = 0
"""All was consumed."""
LEAVE: Final = 1
"""Calls are complete; what follows is not the engine's."""
REPAIR: Final = 2
"""All of a call is there but the end of its wrapper; only a closer makes it complete."""
BROKEN: Final = 3
"""The next character breaks the grammar; with another one in its place, reading can go on."""
SPOILED: Final = 4
"""What was read breaks the grammar, now that it is whole."""
DONE: Final = 5
"""The engine read the end of the block."""
TEXT: Final = 6
"""No call follows; what was read stays structure, what follows is content."""
SKIP: Final = 7
"""Calls are complete; what follows is none and no end of the block: dropped with a fault, up to the next marker."""
RESUME: Final = 8
"""Like BROKEN, but the engine reads on from there, to where the next call of the block may begin: ``repaired``."""


def named(scope: dict[str, Any]) -> tuple[str, ...]:
    """The names, by number, of the phases just defined in the module of these ``globals()``: ``A, B, C = range(3)``.

    They are its last names, back to the one that is 0. So an engine has one list of its phases, and plain numbers to
    work with.
    """
    names: list[str] = []
    for name in reversed(scope):
        names.append(name.lower())
        if scope[name] == 0:
            break
    return tuple(reversed(names))
