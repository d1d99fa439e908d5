"""resolve: what ``--parser`` names → a stage.

    hermes                  a name of the catalog
    deepseek_r1+hermes      a pair: the reasoning of the first, the calls of the second
    auto                    what the catalog detects from a session's model and vocabulary
    path/to/file.py:Attr    an attribute of a file, which is loaded afresh each time
    package.module:Attr     an attribute of an importable module; the working directory is searched last
    vllm:qwen3+hermes       another engine's, in a process of its own: see ``replay.foreign.stage``

``Attr`` is a stage, or a class or function without arguments that makes one; so is what a program hands over.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from replay.errors import NotAvailable, ParserNotFound
from replay.foreign.stage import foreign, is_foreign_name
from replay.place import place
from replay.text import complaint
from stages import catalog
from stages.errors import UnknownName
from stages.events import Input, Semantic
from stages.opening import Opening
from stages.stage import Machine, Stage

Parser: TypeAlias = Stage[Input, Semantic]

_loads = itertools.count()
LOADED = "playhead_parser_"
"""How the names of modules begin that are loaded from a file."""


def resolve(parser: Parser | str, opening: Opening | None = None, *, live: bool = False) -> Parser:
    """The stage that ``parser`` names; a stage is its own, a class or function is called for one.

    ``opening``: needed for ``auto`` only; ``live``: it must serve, which another engine's cannot.
    Raises ParserNotFound, NotAvailable.
    """
    if not isinstance(parser, str):
        return _stage(_called(parser), parser)
    if is_foreign_name(parser):
        if live:
            raise NotAvailable(f"parser {parser!r} is another engine's: it runs on recorded sessions only, not live")
        return foreign(parser)
    if parser == "auto":
        return _detected(opening)
    if ":" in parser:
        return _loaded(parser)
    if parser.endswith(".py"):
        raise ParserNotFound(f"parser {parser!r}: name the attribute of the file that is the stage: {parser}:Attr")
    try:
        return catalog.parser(parser)
    except UnknownName as error:
        raise ParserNotFound(str(error)) from None


def _detected(opening: Opening | None) -> Parser:
    if opening is None:
        raise ParserNotFound("parser 'auto': there is no session to detect a format for; name one of the catalog")
    return catalog.parser(catalog.detect(None, opening.tokenizer, opening.model))


def _loaded(parser: str) -> Parser:
    return _stage(parser, attribute(parser, "parser"))


def attribute(name: str, what: str) -> Any:
    """What ``file.py:Attr`` or ``package.module:Attr`` names. ``what``: what it is to be, for messages. Raises
    ParserNotFound."""
    where, _, wanted = name.rpartition(":")
    if not where or not wanted:
        raise ParserNotFound(f"{what} {name!r}: write it as file.py:Attr or package.module:Attr")
    try:
        module = _file(name, what, Path(where)) if where.endswith(".py") else _module(where)
    except ParserNotFound:
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ParserNotFound(f"{what} {name!r}: {where} does not load: {_place(error)}") from error
    value: Any = getattr(module, wanted, None)
    if value is None:
        known = ", ".join(key for key in sorted(vars(module)) if _offers(vars(module)[key], module.__name__))
        raise ParserNotFound(
            f"{what} {name!r}: {where} has no {wanted}; it has: {known or 'nothing that is a stage'}"
            if what == "parser"
            else f"{what} {name!r}: {where} has no {wanted}"
        )
    return value


class _Fresh(SourceFileLoader):
    """Compiles the source each time: cached bytecode is told apart by whole seconds only."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _file(wanted: str, what: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ParserNotFound(f"{what} {wanted!r}: there is no file {path}")
    name = f"{LOADED}{next(_loads)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    if spec is None or spec.loader is None:
        raise ParserNotFound(f"{what} {wanted!r}: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:  # undone whatever was raised, and raised on
        del sys.modules[name]
        raise
    return module


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _place(error: BaseException) -> str:
    """The error, and the line of the user's code that it comes from."""
    line = place(error, short=False)
    return f"{type(error).__name__}: {complaint(error)}" + (f" (at {line})" if line else "")


def _offers(value: Any, module: str) -> bool:
    """It looks like a stage that this module defines."""
    own: Any = value if inspect.isclass(value) else value.__class__
    return bool(own.__module__ == module and callable(getattr(value, "start", None)))


def _called(parser: Any) -> str:
    """What an object is called that has no name of its own."""
    own: Any = parser if hasattr(parser, "__qualname__") else parser.__class__
    return str(own.__qualname__)


def _stage(parser: str, made: Any) -> Parser:
    value: Any = made
    if inspect.isclass(value) or (callable(value) and not hasattr(value, "start")):
        try:
            value = value()
        except (Exception, SystemExit) as error:  # see above
            raise ParserNotFound(f"parser {parser!r}: calling it without arguments failed: {_place(error)}") from error
    if not callable(getattr(value, "start", None)):
        raise ParserNotFound(
            f"parser {parser!r} is {type(value).__name__}, not a stage: it needs start(opening), which gives a machine "
            "with step(event, out); see stages/stage.py"
        )
    name: Any = getattr(value, "id", None)
    if isinstance(name, str) and name and callable(getattr(value, "resume", None)):
        stage: Any = value
        found: Parser = stage
        return found
    return _Named(value, name if isinstance(name, str) and name else parser)


class _Named:
    """A user's stage with an id, which it may lack."""

    def __init__(self, stage: Any, name: str) -> None:
        self._stage = stage
        self.id = name

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        """See Stage."""
        machine: Machine[Input, Semantic] = self._stage.start(opening)
        return machine

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        """See Stage."""
        machine: Machine[Input, Semantic] = self._stage.resume(opening, snapshot)
        return machine
