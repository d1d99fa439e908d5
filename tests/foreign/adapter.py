"""A worker's adapter without an engine: its parsers are the ways in which one can behave. Run by test_client.py and
test_stage.py in the worker's own process."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

_worker: Any = importlib.import_module("playhead_peer.worker")


def version() -> str:
    """See worker."""
    return "1.5"


def make(name: str, facts: dict[str, Any]) -> Adapter:
    """See worker."""
    if not hasattr(Adapter, name):
        raise _worker.Absent(f"no parser {name!r}; there is echo")
    return Adapter(name, facts)


def _spoil(how: str, when: str) -> None:
    """End the process, or stop it, once the file is there."""
    while not os.path.exists(when):
        time.sleep(0.01)
    if how == "ends":
        os._exit(5)
    os.kill(os.getpid(), signal.SIGSTOP)


class _Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError


class Adapter:
    """One way to behave."""

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = name
        self.facts = facts
        self.spoilt = False

    def session(self, session: dict[str, Any]) -> Any:
        """See worker."""
        return getattr(self, self.name)(session)

    def echo(self, session: dict[str, Any]) -> Any:
        """Each step's text is content; at once, the whole of it."""
        steps = [[["content", step["text"]]] if step["text"] else [] for step in session["steps"]]
        whole: list[dict[str, Any]] = [
            {
                "choice": int(choice), "reasoning": None, "tool_calls": [],
                "content": "".join(step["text"] for step in session["steps"] if step["choice"] == int(choice)),
            }
            for choice in session["finish"]
        ]  # fmt: skip
        return {"steps": steps, "flush": {}, "one_shot": whole, "ns": 7}

    def scripted(self, session: dict[str, Any]) -> Any:
        """The request says what to answer."""
        return session["request"]["answer"]

    def asked(self, session: dict[str, Any]) -> Any:
        """What it was asked, as the first step's content."""
        said = json.dumps([session, self.facts])
        return {"steps": [[["content", said]], *([] for _ in session["steps"][1:])]}

    def slow(self, session: dict[str, Any]) -> Any:
        """It never answers."""
        while True:
            time.sleep(60)

    def slow_once(self, session: dict[str, Any]) -> Any:
        """It answers only where the request does not say hang."""
        return self.slow(session) if session["request"].get("hang") else self.echo(session)

    def exits(self, session: dict[str, Any]) -> Any:
        """The process ends."""
        sys.stderr.write("the last words\n")
        sys.stderr.flush()
        os._exit(7)

    def killed(self, session: dict[str, Any]) -> Any:
        """The process is killed."""
        os.kill(os.getpid(), signal.SIGKILL)

    def raises(self, session: dict[str, Any]) -> Any:
        """Its own exception."""
        raise KeyError("tool_calls")

    def raises_at_one(self, session: dict[str, Any]) -> Any:
        """The second step raises."""
        error = {"type": "IndexError", "message": "out of range", "where": "hermes.py:12"}
        return {"steps": [[["content", "a"]]], "error": error}

    def quits(self, session: dict[str, Any]) -> Any:
        """A library that ends the program."""
        sys.exit("no licence")

    def prints(self, session: dict[str, Any]) -> Any:
        """Libraries print to standard output, also from C."""
        sys.stdout.write("hello\n")
        sys.stdout.flush()
        os.write(1, b"from below\n")
        return self.echo(session)

    def floods(self, session: dict[str, Any]) -> Any:
        """More on standard error than any pipe holds."""
        for _ in range(300):
            sys.stderr.write("w" * 9999 + "\n")
        return self.echo(session)

    def garbage(self, session: dict[str, Any]) -> Any:
        """No answer."""
        return {"steps": "many"}

    def unwritable(self, session: dict[str, Any]) -> Any:
        """What is no JSON."""
        return {"steps": [[["content", object()]]]}

    def half(self, session: dict[str, Any]) -> Any:
        """A half of a character, as JSON parsers make of a cut escape."""
        return {"steps": [[["content", "\ud83d"]], [], []]}

    def unsupported(self, session: dict[str, Any]) -> Any:
        """It needs more."""
        raise _worker.Unsupported("it encodes text: give --tokenizer PATH")

    def short(self, session: dict[str, Any]) -> Any:
        """Fewer steps than it got."""
        return {"steps": []}

    def forks(self, session: dict[str, Any]) -> Any:
        """It comes back twice."""
        os.fork()
        return self.echo(session)

    def leaves_later(self, session: dict[str, Any]) -> Any:
        """It answers with its process id, and spoils the process for the next session: at once, or when the file is
        there that the request names."""
        later = session["request"].get("later")
        if later == "closes":
            os.closerange(0, 64)  # its answer cannot be written, either
        elif later in ("ends", "stops"):
            threading.Thread(target=_spoil, args=(later, session["request"]["when"]), daemon=True).start()
        elif self.spoilt:
            self.slow(session)
        self.spoilt = later == "hangs"
        return self.process(session)

    def twice(self, session: dict[str, Any]) -> Any:
        """It writes an answer of its own wherever it can."""
        stale = json.dumps({"steps": [[["content", "stale"]], [], []], "number": 1}).encode() + b"\n"
        for number in range(3, 64):
            try:
                os.write(number, stale)
            except OSError:
                pass
        return self.echo(session)

    def family(self, session: dict[str, Any]) -> Any:
        """It leaves processes behind: of its own group, of another, and one that nobody waits for."""
        numbers: list[int] = []
        for apart in (False, True):
            sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
            numbers.append(subprocess.Popen(sleeps, start_new_session=apart).pid)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if (number := os.fork()) == 0:
                time.sleep(600)
            os.write(writing, str(number).encode())
            os._exit(0)
        numbers.append(int(os.read(reading, 99)))
        os.wait()
        return {"steps": [[["content", json.dumps([os.getpid(), *numbers])]], *([] for _ in session["steps"][1:])]}

    def leaves(self, session: dict[str, Any]) -> Any:
        """The process ends; a child has its output still."""
        if os.fork() == 0:
            time.sleep(60)
        os._exit(9)

    def searches(self, session: dict[str, Any]) -> Any:
        """A search that takes for ever lets no other thread run."""
        re.match("(a+)+$", "a" * 60 + "b")

    def speechless(self, session: dict[str, Any]) -> Any:
        """An exception that cannot say what it is."""
        raise _Speechless

    def surrogates(self, session: dict[str, Any]) -> Any:
        """Halves of characters in what is told of an error."""
        return {"error": {"type": "E\ud800", "message": "\ud800", "where": "\ud800"}}

    def half_at_once(self, session: dict[str, Any]) -> Any:
        """Halves of characters in the one-shot message."""
        half = "\ud83d"
        whole = {"choice": 0, "reasoning": half, "content": half, "tool_calls": [{"name": half, "arguments": half}]}
        return {"steps": [[["content", half]], [], []], "one_shot": [whole]}

    def dies_when_told(self, session: dict[str, Any]) -> Any:
        """The process ends only where the request says die."""
        return self.exits(session) if session["request"].get("die") else self.echo(session)

    def process(self, session: dict[str, Any]) -> Any:
        """Its process id."""
        return {"steps": [[["content", str(os.getpid())]], *([] for _ in session["steps"][1:])]}
