"""stage: another engine's parser as a stage.

vllm:REASONING+TOOLS        vLLM's, by its own names; also vllm:TOOLS, vllm:+TOOLS (no reasoning), vllm:REASONING+
vllm:FILE.py:NAMES          the same, of a file that registers them (--tool-parser-plugin)
vllm@LABEL:NAMES            under the Python that --peer-python LABEL=PATH names
sglang:NAMES                SGLang's
template, template:NAME     a Hugging Face response template
openai_harmony              OpenAI's harmony library
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from replay.errors import NotAvailable, ParserNotFound, PeerError, Unsupported
from replay.foreign import settings
from replay.foreign.client import Answer, peer
from replay.foreign.events import Played, PlayedState, one_shot
from replay.foreign.shim import Asked, asked
from replay.text import sound
from stages.events import Input, Semantic
from stages.message import Message
from stages.opening import Opening
from stages.stage import Machine

_NAMED: Final = re.compile(r"(vllm|sglang|template|openai_harmony)(?:@([A-Za-z0-9_.-]+))?(?::(.*))?", re.DOTALL)
_ADAPTERS: Final = {"openai_harmony": "harmony"}
"""Engine → the module that is its adapter, where it has another name."""
_NAMELESS: Final = ("template", "openai_harmony")
_PLUGIN: Final = re.compile(r"(.+\.py):([^:]*)", re.DOTALL)


def is_foreign_name(parser: str) -> bool:
    """``parser`` names another engine's."""
    return _NAMED.fullmatch(parser) is not None


def foreign(parser: str) -> ForeignStage:
    """The stage of this name. It starts the worker, to see that engine and parser are there.

    Raises NotAvailable where the engine is not, ParserNotFound where the parser is not.
    """
    match = _NAMED.fullmatch(parser)
    if match is None:
        raise ParserNotFound(f"parser {parser!r} is no other engine's")
    engine, label, name = match[1], match[2] or "", match[3] or ""
    if not name and engine not in _NAMELESS:
        raise ParserNotFound(f"parser {parser!r}: name it as {engine} does: {engine}:REASONING+TOOLS or {engine}:TOOLS")
    plugin = None
    of_file = _PLUGIN.fullmatch(name)
    if of_file is not None:
        plugin, name = os.path.abspath(of_file[1]), of_file[2]
        if not os.path.isfile(plugin):
            raise ParserNotFound(f"parser {parser!r}: there is no file {of_file[1]}")
        if not name:
            raise ParserNotFound(f"parser {parser!r}: name what the file registers: {of_file[1]}:NAME")
    elif os.sep in name and ":" in name:
        raise ParserNotFound(f"parser {parser!r}: a plugin is a Python file: {engine}:FILE.py:NAME")
    chosen = settings.current()
    try:
        python = chosen.python(label)
        return ForeignStage(parser, _ADAPTERS.get(engine, engine), name, python=python, plugin=plugin, settings=chosen)
    except NotAvailable as error:
        raise NotAvailable(f"parser {parser!r}: {error}") from None


class ForeignStage:
    """A parser in a worker. ``parser``: as it was named; ``engine``: the adapter's name, or its file; ``id``: with the
    engine's version."""

    foreign = True

    def __init__(
        self, parser: str, engine: str, name: str, *, python: str, plugin: str | None = None,
        settings: settings.Settings,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._place = python, engine, plugin or ""
        worker = peer(*self._place)
        self._question = {"name": name, "facts": {"tokenizer": settings.tokenizer, "plugin": plugin}}
        version = worker.version(settings)
        self.id = f"{parser}@{version}"
        try:
            made = worker.ask({**self._question, "session": None}, settings)
        except PeerError as error:
            raise NotAvailable(f"it cannot be made: {error}") from error
        self._refuse(parser, made)

    def _refuse(self, parser: str, made: Answer) -> None:
        if made.absent is not None:
            raise ParserNotFound(f"parser {parser!r}: {made.absent}")
        if made.unsupported is not None:
            raise NotAvailable(made.unsupported)
        if made.error is not None:
            where = f" ({made.error.where})" if made.error.where else ""
            raise NotAvailable(f"it cannot be made: {made.error.type}: {made.error.message}{where}")

    def prepared(self, opening: Opening, events: Sequence[Input]) -> Prepared:
        """The stage that has these inputs' answers. Raises PeerError."""
        asking = asked(opening, events)
        # Another process than the one that made the stage has a worker of its own.
        worker = peer(*self._place)
        answer = worker.ask({**self._question, "session": asking.session}, self._settings)
        if answer.unsupported is not None or answer.absent is not None:
            raise Unsupported(answer.unsupported or answer.absent or "")
        if answer.error is not None and not answer.steps:
            raise PeerError(answer.error.message, answer.error.type, answer.error.where)
        return Prepared(self.id, opening, asking, answer)

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        """See Stage. Raises Unsupported: a round trip to the worker for each token is too slow to serve with."""
        _live(self.id)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        """See ``start``."""
        _live(self.id)


def _live(name: str) -> NoReturn:
    raise Unsupported(f"{name} runs on recorded sessions only, in a replay, which asks it for a whole session at once")


class Prepared:
    """A parser that has answered for one session. ``one_shot``: its message of the whole text at once, where the
    session's choices ended; ``one_shot_error``: what that path raised, "" if it did not; ``ns``: spent in its
    streaming code."""

    foreign = True

    def __init__(self, id: str, opening: Opening, asking: Asked, answer: Answer) -> None:
        self.id = id
        self.one_shot: list[Message] | None = one_shot(opening, asking, answer)
        error = answer.one_shot_error
        self.one_shot_error = "" if error is None else sound(f"{error.type}: {error.message}")
        self.ns = answer.ns
        self._asking = asking
        self._answer = answer

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        """See Stage; ``opening`` and the inputs must be those that it was prepared for."""
        return Played(opening, self._asking, self._answer)

    def resume(self, opening: Opening, snapshot: PlayedState) -> Machine[Input, Semantic]:
        """See Stage."""
        return Played(opening, self._asking, self._answer, snapshot)
