"""plan: what a replay of many sessions is to do, as plain data: every worker process makes its Replayer of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import msgspec

from replay import foreign
from replay.errors import ReplayError
from replay.mass.load import Key, Wanted
from replay.resolve import Parser, attribute
from replay.run import RECORDED, Replayer
from replay.verdict import Depth
from store.api import SHADOW

_ENGINE = re.compile(r"(vllm|sglang)(@[A-Za-z0-9_.-]+)?:")
_ROOT = Path(__file__).parents[2]
_CODE = ("stages", "store", "replay")
"""The packages whose code decides results."""


class Given(msgspec.Struct, frozen=True):
    """Parsers and functions, by name or themselves."""

    parser: Parser | str | None
    baseline: Parser | str | None
    compare: Any
    ignore: tuple[Any, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``parser``, ``baseline``: names, as the command line takes them; ``compare``, ``ignore``: ``file.py:function``;
    ``against``: an earlier report; ``sources``; ``sessions``: ids, or prefixes of ids; ``histogram``: what the split of
    this name draws from; ``peer_python``, ``tokenizer``: for parsers of other engines; ``time_limit``: seconds a
    session; the rest as ``Replayer`` has it."""

    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    parser: str | None = None
    splits: tuple[str, ...] = (RECORDED,)
    layer: Depth = "frame"
    track: str | None = None
    baseline: str | None = None
    against: str | None = None
    cut: bool = False
    compare: str | None = None
    ignore: tuple[str, ...] = ()
    peer_python: tuple[str, ...] = ()
    tokenizer: str | None = None
    time_limit: float = 60.0
    histogram: tuple[tuple[int, int], ...] = ()

    def replayer(self, given: Given | None = None) -> Replayer:
        """What replays the sessions. ``given``: what has no name, with what has one. Raises ReplayError."""
        foreign.configure(self.peer_python, self.tokenizer, self.time_limit)
        if given is None:
            given = Given(self.parser, self.baseline, self.compare, self.ignore)
        return Replayer(
            given.parser, splits=self.splits, layer=self.layer, track=self.track, baseline=given.baseline, cut=self.cut,
            compare=function(given.compare, "comparer"),
            ignore=tuple(function(rule, "ignore rule") for rule in given.ignore), histogram=self.histogram,
        )  # fmt: skip

    @property
    def layers(self) -> Wanted:
        """What is needed of a session that our stages made."""
        depth = "message" if self.compare is not None or self.ignore else self.layer
        if depth == "frame":
            return None
        wanted: set[Key] = {("input", "engine"), ("served", "semantic"), (self.track or "served", "semantic")}
        if depth == "chunk":
            wanted.add(("served", "chunk"))
        return wanted

    @property
    def is_foreign(self) -> bool:
        """A parser of another engine takes part."""
        return bool(self._engines())

    @property
    def is_ours(self) -> bool:
        """Nothing of a user's or another engine's takes part, so far as is known: what runs ends, and quickly."""
        shadow = None if self.track is None else self.track.removeprefix("shadow:")
        names = (self.parser, self.baseline, self.compare, shadow, *self.ignore)
        return not any(name is not None and (":" in name or foreign.is_foreign_name(name)) for name in names)

    def fingerprint(self, version: str) -> dict[str, Any]:
        """All that decides a result, by what it is called. Raises ReplayError for another engine that
        is not there."""
        files = {name: hash_of(name) for name in self._files()}
        foreign.configure(self.peer_python, self.tokenizer, self.time_limit)
        # Whose id has the engine's version.
        engines = {name: foreign.foreign(name).id for name in self._engines()}
        # As it comes back from a file.
        told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        del told["histogram"]
        return {"playhead": version, "code": _code(), **told, "files": files, "engines": engines}

    def _engines(self) -> list[str]:
        """The parsers of other engines that take part."""
        # Without a parser, a shadow's track is replayed through the shadow.
        parser = (self.track or "").removeprefix(SHADOW) if self.parser is None else self.parser
        return [name for name in (parser, self.baseline) if name and foreign.is_foreign_name(name)]

    def _files(self) -> Iterator[str]:
        named = (self.parser, self.baseline, self.compare, *self.ignore)
        yield from (name for name in named if name is not None and ":" in name)
        yield from (each for each in (self.against, self.tokenizer) if each is not None)


def function(given: Any, what: str) -> Any:
    """The function that ``file.py:name`` or ``package.module:name`` names; a function is its own. Raises
    ReplayError."""
    if not isinstance(given, str):
        return given
    found = attribute(given, what)
    if not callable(found):
        raise ReplayError(f"{what} {given!r} is {type(found).__name__}, not a function")
    return found


@cache
def _code() -> str:
    """Hash of our code. Once a process: what is loaded stays as it was."""
    return _digest(path for package in _CODE for path in sorted((_ROOT / package).rglob("*.py")))


def hash_of(name: str) -> str:
    """Hash of a file by its path, or of that in ``file.py:Attr`` or ``package.module:Attr``; "" for what is no file."""
    name = _ENGINE.sub("", name)
    path = Path(name)
    if not path.is_file():
        name = name.rpartition(":")[0] or name
        path = Path(name)
    if not path.is_file() and not name.endswith(".py"):
        path = _module(name)
    return _digest([path]) if path.is_file() else ""


def _module(name: str) -> Path:
    """The file of a module, which is not imported."""
    search: list[str] | None = None
    found = None
    for part in name.split("."):
        found = PathFinder.find_spec(part, search)
        if found is None:
            return Path()
        search = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
    return Path() if found is None or found.origin is None else Path(found.origin)


def _digest(paths: Iterable[Path]) -> str:
    hashed = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        hashed.update(f"{path.name} {len(data)}\n".encode("utf-8", "surrogatepass"))
        hashed.update(data)
    return hashed.hexdigest()[:32]
