"""The beginning of a JSON object, as an object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from stages.protocols.anthropic.chunks import input_of

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:"]', re.DOTALL)
_CLOSE: Final = {"{": "}", "[": "]"}


def beginning(text: str) -> str:
    """What can be read of arguments that were cut off, as one line of strict JSON: the members that are whole. A string
    without its end and a number or a word that nothing follows are left out; of what is no JSON, nothing is read."""
    end = max((at for at, _ in _whole(text)), default=0)
    closing: list[str] = []
    for at, still_open in _whole(text):
        if at == end:
            closing = [*still_open]
    return input_of(text[:end] + "".join(reversed(closing))) or "{}"


def _whole(text: str) -> Iterator[tuple[int, list[str]]]:
    """Places where nothing is missing but the closing brackets: behind a bracket or a string that is a value, before a
    comma. The list goes on changing."""
    still_open: list[str] = []
    before = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == '"':
            return
        if token in _CLOSE:
            still_open.append(_CLOSE[token])
            yield found.end(), still_open
        elif token in ("}", "]"):
            if not still_open or still_open.pop() != token:
                return
            yield found.end(), still_open
        elif token == ",":
            yield found.start(), still_open
        elif token != ":" and (before == ":" or still_open[-1:] == ["]"]):
            yield found.end(), still_open
        before = token
