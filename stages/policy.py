"""The policy stage: semantic → semantic. What the request does not want is dropped, what it did not offer is noted.

* ``include_reasoning`` false: reasoning becomes Dropped. The logprobs of all steps go too: they would tell it. The ids
  stay, because they are counted; no encoder shows them then.
* ``parallel`` false: calls after the first become Dropped.
* Tools offered: a called name that is not among them gets a fault; the call is unchanged.

No state beyond the call that is being dropped is kept: which call an event belongs to is its index.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stages.events import CallArguments, CallEnd, CallStart, Dropped, Fault, FaultCode, Reasoning, Semantic, Tokens
from stages.opening import Ask, Opening


def needed(ask: Ask) -> bool:
    """The stage has something to do."""
    offered = bool(ask.tools) and ask.tool_choice != "none"
    return not ask.include_reasoning or (not ask.parallel and offered) or offered


class PolicyState(msgspec.Struct, frozen=True):
    """The stage has no state."""


class _Policy:
    __slots__ = ("_hidden", "_names", "_single", "touches")

    def __init__(self, ask: Ask) -> None:
        self._hidden = not ask.include_reasoning
        self._single = not ask.parallel
        self._names = frozenset(tool.name for tool in ask.tools) if ask.tools and ask.tool_choice != "none" else None

        hiding = {Tokens, Reasoning} if self._hidden else set[type]()
        self.touches = frozenset({CallStart, CallArguments, CallEnd} | hiding)

    def step(self, event: Semantic, out: list[Semantic]) -> None:
        """See Machine."""
        if isinstance(event, Tokens):
            out.append(Tokens(event.choice, event.ids) if self._hidden else event)
        elif self._hidden and isinstance(event, Reasoning):
            out.append(Dropped(event.choice, event.text, event.src))
        elif isinstance(event, CallStart):
            self._call(event, out)
        elif self._single and isinstance(event, (CallArguments, CallEnd)) and event.index > 0:
            if isinstance(event, CallArguments):
                out.append(Dropped(event.choice, event.text, event.src))
        else:
            out.append(event)

    def _call(self, event: CallStart, out: list[Semantic]) -> None:
        if self._single and event.index > 0:
            out.append(Dropped(event.choice, event.name, event.src))
            return
        out.append(event)
        if self._names is not None and event.name not in self._names:
            out.append(Fault(event.choice, FaultCode.UNKNOWN_TOOL, event.src, detail="a tool that was not offered"))

    def snapshot(self) -> PolicyState:
        """See Machine."""
        return PolicyState()


class Policy:
    """See the module."""

    @property
    def id(self) -> str:
        """See Stage."""
        return "policy@1"

    def start(self, opening: Opening) -> _Policy:
        """See Stage."""
        return _Policy(opening.ask)

    def resume(self, opening: Opening, snapshot: PolicyState) -> _Policy:
        """See Stage."""
        del snapshot
        return _Policy(opening.ask)


POLICY: Final = Policy()
