"""What the key/value tags of a family are called, and what can be told of them by looking ahead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from stages.parse import arguments as js
from stages.parse.engines.json_calls import JsonKeys
from stages.parse.lexicon import Lexicon

NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]+")
"""What a tool's name is made of; anything else behind the opener: it was a mention."""
FAR: Final = 320
"""How many characters are looked at ahead: a key or a name, and tags."""


@dataclass(frozen=True, slots=True)
class KvTags:
    """The tags, each with its end.

    ``type``: a tag between key and value. ``name_end``: what may stand behind the name. ``section``: what stands around
    all calls. ``json``: a call may be a JSON object with these members, or a name and an object. ``null``: the word is
    null, whatever the schema says. ``object_key``: a key without a value may be the whole object of the arguments.
    """

    call: tuple[str, str]
    key: tuple[str, str]
    value: tuple[str, str]
    type: tuple[str, str] | None = None
    name_end: str = ""
    section: tuple[str, str] | None = None
    json: JsonKeys | None = None
    null: bool = False
    object_key: bool = False

    def openers(self) -> tuple[str, ...]:
        """What begins a block: the section, and a call by itself (reading goes on there behind a broken one)."""
        return (self.call[0],) if self.section is None else (self.section[0], self.call[0])

    def closers(self) -> tuple[str, ...]:
        """What ends a block."""
        return ((self.section or self.call)[1],)

    def inner(self) -> Iterator[str]:
        """All other literals."""
        yield from (*self.key, *self.value, *(self.type or ()))
        if self.section is not None:
            yield self.call[1]
        if self.name_end:
            yield self.name_end


class KvScans:
    """The scans of each place, for one lexicon."""

    __slots__ = ("behind_call", "behind_key", "behind_name", "key", "notable", "pairs", "tags", "types", "value")

    def __init__(self, tags: KvTags, lexicon: Lexicon) -> None:
        self.tags = tags
        key, value, call = tags.key, tags.value, tags.call
        section = tags.section or call
        kind = tags.type or key
        self.behind_name = lexicon.scan(*dict.fromkeys((tags.name_end or key[0], key[0], call[1], value[1])))
        self.pairs = lexicon.scan(*dict.fromkeys((key[0], *call, section[1])))
        self.key = lexicon.scan(*dict.fromkeys((*key, *value, *call, section[1])))
        self.behind_key = lexicon.scan(*dict.fromkeys((kind[0], key[0], value[0], call[1])))
        self.types = lexicon.scan(kind[1], *dict.fromkeys((key[0], value[0], *call, section[1])))
        self.value = lexicon.scan(value[1], key[0], call[1])
        self.behind_call = lexicon.scan(call[0], *(tags.section or ())[1:])
        firsts = sorted({lexicon.form(tag)[0] for tag in (value[1], key[0], call[1])})
        self.notable: Callable[[str], object] = re.compile(f'["\\\\\x00-\x1f{re.escape("".join(firsts))}]').search

    def ends_value(self, tag: str, text: str, i: int, ended: bool) -> bool | None:
        """Whether a key or the end of the call, which stands in a value and ends at ``i``, is structure: the end of the
        value was forgotten. None: that takes more text. ``ended``: ``text`` is all that the model wrote."""
        ahead = text[i : i + FAR]
        found = self._pair(ahead) if tag == self.tags.key[0] else self._end(ahead, ended)
        return False if found is None and len(ahead) == FAR else found

    def _pair(self, ahead: str) -> bool | None:
        """A key with its end, and a value's (or type's) beginning."""
        _, found, i = self.key.find(ahead, 0, False)
        if found != self.tags.key[1]:
            return None if found is None else False
        i = js.space(ahead, i)
        found, end = self.behind_key.at(ahead, i, False)
        if found is None:
            return None if end == i else False
        return found == self.tags.value[0] or (self.tags.type is not None and found == self.tags.type[0])

    def _end(self, ahead: str, ended: bool) -> bool | None:
        """The end of the output or of the section, or another call up to the end of its name."""
        i = js.space(ahead, 0)
        if i == len(ahead):
            return True if ended else None
        found, end = self.behind_call.at(ahead, i, False)
        if found is None:
            return None if end == i else False
        if found != self.tags.call[0]:
            return True
        i = js.space(ahead, end)
        match = NAME.match(ahead, i)
        if match is None:
            return None if i == len(ahead) else False
        i = js.space(ahead, match.end())
        found, end = self.behind_name.at(ahead, i, False)
        if found is None:
            return None if end == i else False
        return True
