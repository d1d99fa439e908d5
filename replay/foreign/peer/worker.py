"""worker: runs another engine's parsers for a replay.

A peer Python (3.10 or later) that has that engine installed starts it as a script: ``python worker.py ENGINE``. ENGINE
is the module beside this one that is its adapter (``vllm``, ``sglang``, ``template``, ``harmony``), or the path of a
file that is one.

Lines of JSON on standard input and output, one answer for each request, in order. What libraries print goes to standard
error. The worker ends when its standard input does, and also, whatever its engine is at, when its parent is gone.

First line out, before anything is asked: ``{"ready": true, "version": V}``, V being the engine's version, or
``{"missing": why}``, and it ends: the engine is not there, or not one that the adapter knows. ``why`` says what to
install.

A request (line in)::

    {"number": int,          the answer says it again
     "name": str,            which parser: what stands behind "vllm:"
     "facts": {"tokenizer": path | null,     --tokenizer: a real tokenizer for the adapter to load
               "plugin": path | null},       a Python file that registers the parser
     "session": null | {      null: only make the parser
        "prompt_ids": [int], "prompt_tail": str,
        "request": {...},    the body as a chat completion request. "model" and "messages" are always there
        "tools": [...], "tool_choice": str | {...},      those of the body ([] and "auto" where it has none)
        "n": int,            choices
        "steps": [{"choice": int, "ids": [int],
                   "pieces": [str],   the bytes of each id, one character for each byte (Latin-1); [] where unknown
                   "text": str}],     what the step brought, as text: special tokens are in it, half characters are not
        "finish": {"0": {"reason": "eos" | "stop" | "stop_token" | "length" | "context" | "filter",
                         "stop": str | int | null}},     of the choices that ended. Each of them has a step
        "special": {text: id}, "added": {text: id},      of the tokenizer; added are not special
        "eos": [int]}}

Its answer, with its ``"number"``, is one of::

    {"steps": [[delta, ...], ...],       as many as there are steps, or up to the one that raised
     "flush": {"0": [delta, ...]},       what comes at the end of a choice, after its last step
     "one_shot": [{"choice": int, "reasoning": str | null, "content": str | null,
                   "tool_calls": [{"name": str, "arguments": str}]}] | null,
     "one_shot_error": error | null,     the one-shot path raised
     "error": error | null,              the streaming path raised, at step len(steps)
     "ns": int}                          spent in the engine's streaming code (CPU, time.thread_time_ns)
    {"made": true}                       there was no session, and the parser can be had
    {"unsupported": why}                 the parser needs what is not recorded; ``why`` says what to do
    {"absent": why}                      the engine has no such parser; ``why`` names those it has
    {"error": error}                     it raised before the first step

    error = {"type": str, "message": str, "where": "file:line" | ""}
    delta = ["reasoning", text] | ["content", text] | ["call", index, id | null, name] | ["arguments", index, text]

An adapter is a module with::

    def version() -> str                 imports the engine; raises Missing(why), or ImportError
    def make(name: str, facts: dict) -> Adapter      raises Absent(why) or Unsupported(why)
    class Adapter: def session(self, session: dict) -> dict       the answer; may raise Unsupported, or anything

Adapters are loaded as modules of a package that is not ours (``playhead_peer``), so that ``vllm.py`` does not hide the
engine: they import their siblings relatively (``from .worker import Unsupported``).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
import types
from typing import Any, Final, TextIO

PACKAGE: Final = "playhead_peer"
LONGEST: Final = 2000
"""Characters of an exception's message that are told."""
MARK: Final = "PLAYHEAD_PEER"
"""The environment's variable that tells who was started by a worker: all of them have the value that it has."""
_ROUNDS: Final = 20
HERE: Final = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """The engine is not installed, or is of a version that the adapter does not know."""


class Absent(Exception):
    """The engine has no parser of this name."""


class Unsupported(Exception):
    """The parser needs what is not recorded."""


def described(error: BaseException) -> dict[str, str]:
    """An exception, as the protocol has it; ``where`` is the innermost line that is not an adapter's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.dirname(frame.filename) != HERE]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    try:
        message = str(error)
    except Exception as raised:  # an exception of another engine's need not be able to say what it is
        message = f"(its message cannot be told: {type(raised).__name__})"
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}…"
    return {"type": type(error).__name__, "message": message, "where": where}


def answer(adapter: Any, made: dict[str, Any], request: dict[str, Any]) -> Any:
    """The answer to one request. ``made``: the parsers made so far, by name and facts. Raises nothing of a parser's."""
    try:
        key = json.dumps([request["name"], request["facts"]], sort_keys=True)
        if key not in made:
            made[key] = adapter.make(request["name"], request["facts"])
        if request["session"] is None:
            return {"made": True}
        return made[key].session(request["session"])
    except Unsupported as error:
        return {"unsupported": str(error)}
    except Absent as error:
        return {"absent": str(error)}
    except (Exception, SystemExit) as error:  # whatever another engine's code does
        return {"error": described(error)}


def load(engine: str) -> Any:
    """The adapter: a module beside this one, or a file."""
    # This folder must not hide the engines: its vllm.py is not vllm.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [HERE]
    sys.modules[PACKAGE] = package
    sys.modules[f"{PACKAGE}.worker"] = sys.modules[__name__]
    if not engine.endswith(".py"):
        return importlib.import_module(f"{PACKAGE}.{engine}")
    name = f"{PACKAGE}.adapter"
    spec = importlib.util.spec_from_file_location(name, engine)
    if spec is None or spec.loader is None:
        raise Missing(f"{engine} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def opened(engine: str) -> tuple[Any, dict[str, Any]]:
    """The adapter, and the first line out."""
    try:
        adapter = load(engine)
        return adapter, {"ready": True, "version": str(adapter.version())}
    except Missing as error:
        return None, {"missing": str(error)}
    except (Exception, SystemExit) as error:  # an import runs whatever the package has
        return None, {"missing": f"{type(error).__name__}: {error}"}


def serve(engine: str, lines: TextIO, out: TextIO) -> None:
    """Answer each line until there is none."""

    def say(told: dict[str, Any]) -> None:
        # ASCII, so that no surrogate or line separator of a parser's breaks a line.
        out.write(json.dumps(told, ensure_ascii=True, separators=(",", ":")) + "\n")
        out.flush()

    mine = os.getpid()
    adapter, first = opened(engine)
    say(first)
    made: dict[str, Any] = {}
    while adapter is not None and (line := lines.readline()):
        request = json.loads(line)
        told = answer(adapter, made, request)
        if os.getpid() != mine:
            os._exit(0)  # a parser forked and came back twice: one answer is enough
        say({**told, "number": request["number"]})


def end_all(group: int, mark: str) -> None:
    """Kill the processes of a group, and all with this mark, where the system tells: who left the group. The caller,
    where it is one of them, is the last."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS if mark else 0):  # while one is looked for it may start another
        found = [number for number in _numbers() if number != os.getpid() and wanted in _environment(number)]
        for number in found:
            _kill(os.kill, number)
        if not found:
            break
    _kill(os.killpg, group)


def _kill(how: Any, number: int) -> None:
    try:
        how(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself


def _numbers() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []  # a system that does not tell


def _environment(number: int) -> list[bytes]:
    """That of a process at its start; nothing of one that has ended, or is another user's."""
    try:
        with open(f"/proc/{number}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _outlive_nobody() -> None:
    """Leave a process behind that ends this one, and all that it started, when its standard input has no writer.

    A thread could not: a search with a regular expression that takes for ever does not let it run.
    """
    group = os.getpid()
    if os.getpgrp() != group or os.fork():
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)  # they end with the worker, who is not to be waited for here
    watched = select.poll()
    watched.register(0, 0)  # told of its end only
    while not watched.poll():
        pass
    end_all(group, os.environ.get(MARK, ""))


def main() -> None:
    """Keep standard output for the protocol, and serve."""
    _outlive_nobody()
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    lines = os.fdopen(os.dup(0), "r", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    serve(sys.argv[1], lines, out)


if __name__ == "__main__":
    main()
