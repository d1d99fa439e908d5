"""What does not survive a vendor's writing and our reading, by definition.

Each loss is a sentence for people and the function that the tests apply, so the two cannot part. ``losses()`` of
``oracle_templates.py`` lists them by oracle.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.support.generate.message import Invocation, Meant, mapped_message


@dataclass(frozen=True)
class Loss:
    """Something of a message that does not survive the vendor's writing and our reading, by definition."""

    what: str
    """One sentence for people."""
    apply: Callable[[Meant], Meant]
    """The message without it."""


def told(meant: Meant, reasoning: Callable[[str], str] = str, content: Callable[[str], str] = str) -> Meant:
    """``meant`` with its texts changed; a text that becomes empty is none."""
    thought = None if meant.reasoning is None else reasoning(meant.reasoning) or None
    changed = [content(part) if isinstance(part, str) else part for part in meant.parts]
    return Meant(thought, tuple(part for part in changed if part != ""))


def before_calls(change: Callable[[str], str]) -> Callable[[Meant], Meant]:
    """A loss of content that calls follow."""
    return lambda meant: told(meant, content=change) if meant.calls else meant


def everywhere(change: Callable[[str], str]) -> Callable[[Meant], Meant]:
    """A loss of any text, arguments included."""
    return lambda meant: mapped_message(meant, change)


def after(meant: Meant, losses: Iterable[Loss]) -> Meant:
    """``meant`` after these losses, in this order."""
    for loss in losses:
        meant = loss.apply(meant)
    return meant


# --- openai-harmony --------------------------------------------------------------------------------------------------


def _joined(meant: Meant) -> Meant:
    first = True
    parts: list[str | Invocation] = []
    for part in meant.parts:
        parts.append("\n" + part if isinstance(part, str) and not first else part)
        first = first and not isinstance(part, str)
    return replace(meant, parts=tuple(parts))


HARMONY = (Loss("A newline stands for the end of one message of content and the start of the next.", _joined),)


# --- mistral-common --------------------------------------------------------------------------------------------------


def _either(meant: Meant) -> Meant:
    return replace(meant, parts=tuple(meant.calls)) if meant.calls else meant


def _thoughtless(meant: Meant) -> Meant:
    return replace(meant, reasoning=None)


NO_REASONING = Loss("Versions before v13 have no reasoning; it is not written.", _thoughtless)
EITHER = Loss("Before v7 a message has content or calls; content beside calls is not written.", _either)
BLANKS = Loss(
    "Blanks at the end of content are not written, where the content is one text.",
    lambda meant: told(meant, content=lambda text: text.rstrip(" ")) if meant.reasoning is None else meant,
)
BLANK_FIRST = Loss(
    "A SentencePiece vocabulary (v2, v3, v7) writes a blank before the first word of content. The pieces have it, "
    "so the content has; the library's decoder leaves it out.",
    lambda meant: told(meant, content=lambda text: " " + text),
)
_OLD = (NO_REASONING, EITHER, BLANKS)
_V7 = (NO_REASONING, BLANKS)
MISTRAL: dict[str, tuple[Loss, ...]] = {
    "v2": (*_OLD, BLANK_FIRST),
    "v3": (*_OLD, BLANK_FIRST),
    "v3-tekken": _OLD,
    "v7": (*_V7, BLANK_FIRST),
    "v7-tekken": _V7,
    "v11": _V7,
    "v13": (BLANKS,),
    "v15": (BLANKS,),
}
"""By version of the tokenizer."""


# --- chat templates --------------------------------------------------------------------------------------------------


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _newlines(text: str) -> str:
    return text.strip("\n")


def _calls_only(meant: Meant) -> Meant:
    return replace(meant, parts=tuple(meant.calls)) if meant.calls else meant


NFC = Loss("Qwen's tokenizer composes characters (Unicode NFC) before it cuts them into tokens.", everywhere(_composed))
THOUGHT_NEWLINES = Loss(
    "Newlines at both ends of reasoning are the template's.", lambda meant: told(meant, reasoning=_newlines)
)
THOUGHT_NEWLINE = Loss(
    "One newline at the start of reasoning, and those at its end, are taken for a template's.",
    lambda meant: told(meant, reasoning=lambda text: text.removeprefix("\n").rstrip("\n")),
)
THOUGHT_SPACE = Loss("The template trims reasoning.", lambda meant: told(meant, reasoning=str.strip))
THOUGHT_ENDS = Loss(
    "The format trims reasoning: what white space its templates write around it differs by version.",
    lambda meant: told(meant, reasoning=str.strip),
)
CONTENT_SPACE = Loss("The template trims content.", lambda meant: told(meant, content=str.strip))
CONTENT_ENDS = Loss(
    "The template trims the end of content; the format trims its start, behind reasoning.",
    lambda meant: told(meant, content=str.strip),
)
CONTENT_START = Loss(
    "Newlines between reasoning and content are taken for the template's.",
    lambda meant: told(meant, content=lambda text: text.lstrip("\n")),
)
CONTENT_BEHIND = Loss(
    "Newlines between reasoning and content are taken for the template's, though it writes none.",
    lambda meant: meant if meant.reasoning is None else told(meant, content=lambda text: text.lstrip("\n")),
)
CONTENT_END = Loss(
    "Newlines between content and a call are taken for the template's.", before_calls(lambda text: text.rstrip("\n"))
)
THOUGHT_BESIDE_CALLS = Loss(
    "The template writes reasoning only where calls follow.",
    lambda meant: meant if meant.calls else replace(meant, reasoning=None),
)
CALLS_ONLY = Loss("The template writes no content beside a call.", _calls_only)
