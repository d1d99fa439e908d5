"""custom: a user's own say on what counts as a difference: plain functions, called with care.

def arguments_only(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Difference]:
    ours, theirs = ([call for message in side for call in message.tool_calls] for side in (recorded, replayed))
    if [call.arguments for call in ours] != [call.arguments for call in theirs]:
        yield Difference(0, "call_arguments", "tool_calls", repr(ours), repr(theirs))

def ends(item: Difference) -> bool:
    return item.kind == "finish_reason"

Replayer("hermes", compare=arguments_only)
Replayer("hermes", ignore=[ends])
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from replay.errors import ReplayError
from replay.place import place
from replay.resolve import LOADED
from replay.text import complaint
from replay.verdict import MESSAGE_KINDS, Difference
from stages.message import Message

Comparer: TypeAlias = Callable[[Sequence[Message], Sequence[Message]], Iterable[Difference]]
"""The recorded messages and the replayed ones, in choice order → what counts as different; nothing: they are equal."""

Ignore: TypeAlias = Callable[[Difference], bool]
"""Whether a difference is left out."""


class Custom(msgspec.Struct, frozen=True):
    """``compare``: in place of the comparison of messages; ``ignore``: rules, of which any one leaves a difference
    out."""

    compare: Comparer | None = None
    ignore: tuple[Ignore, ...] = ()

    @property
    def given(self) -> bool:
        """There is anything of the user's."""
        return self.compare is not None or bool(self.ignore)

    def compared(self, recorded: Sequence[Message], replayed: Sequence[Message]) -> tuple[Difference, ...]:
        """What the user's comparer finds, and no rule leaves out. Raises ReplayError for what it raises."""
        if self.compare is None:
            return ()
        found: list[Any]
        try:
            found = list(self.compare(recorded, replayed))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise _raised("comparer", self.compare, error) from error
        strange = next((item for item in found if not isinstance(item, Difference)), None)
        if strange is not None:
            raise ReplayError(
                f"comparer {_name(self.compare)} gave a {type(strange).__name__}, which is no replay.Difference"
            )
        for item in found:
            _checked(self.compare, item)
        return self.kept(found)

    def kept(self, found: Iterable[Difference]) -> tuple[Difference, ...]:
        """What no rule leaves out. Raises ReplayError for what a rule raises."""
        if not self.ignore:
            return tuple(found)
        return tuple(item for item in found if not self.ignores(item))

    def ignores(self, item: Difference) -> bool:
        """A rule leaves it out. Raises ReplayError for what a rule raises."""
        for rule in self.ignore:
            try:
                if rule(item):
                    return True
            except (Exception, SystemExit) as error:  # a user's function may raise anything
                raise _raised("ignore rule", rule, error) from error
        return False


NONE = Custom()


def _raised(what: str, function: Any, error: BaseException) -> ReplayError:
    line = place(error)
    told = f"{type(error).__name__}: {complaint(error)}"
    return ReplayError(f"{what} {_name(function)} raised {told}{f' ({line})' if line else ''}")


def _checked(comparer: Any, item: Difference) -> None:
    """Its fields are what they are said to be. Raises ReplayError."""
    try:
        msgspec.convert(msgspec.to_builtins(item), Difference)
    except (msgspec.ValidationError, TypeError) as error:
        raise ReplayError(
            f"comparer {_name(comparer)} gave a replay.Difference with a field of the wrong kind: {error}; "
            f"kind is one of {', '.join(MESSAGE_KINDS)}"
        ) from error


def _name(function: Any) -> str:
    """``file.py:name`` of what a file defines, else ``module.name``."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    if module is not None and module.startswith(LOADED):
        return f"{Path(sys.modules[module].__file__ or '').name}:{name}" if module in sys.modules else str(name)
    return f"{module}.{name}" if module else str(name)
