"""A real browser without a window, over the DevTools protocol: a page, what it loads, what it complains of."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge")
_EXEC = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser reads from 3 and writes to 4, whatever the numbers are here."""
_PATIENCE = 60.0
"""Seconds until a silent browser is given up."""


def binary() -> str:
    """The browser; where none is installed, the test is skipped."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(_NAMES)} is on the PATH")
    return found


class Browser:
    """A running browser. ``home``: an empty folder for all that it writes."""

    def __init__(self, home: Path) -> None:
        theirs, self._out = os.pipe()
        self._in, to_us = os.pipe()
        command = [
            sys.executable, "-c", _EXEC, str(theirs), str(to_us), binary(), "--headless", "--no-sandbox",
            "--remote-debugging-pipe", f"--user-data-dir={home / 'profile'}", "--no-first-run", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            "--disable-extensions", "--hide-scrollbars", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(theirs, to_us),
            env={**os.environ, "HOME": str(home)}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(to_us)
        self._held = bytearray()
        self._last = 0
        self._events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End it, and the processes that it started."""
        os.close(self._out)
        os.close(self._in)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A page of this size; ``dark``: the reader prefers dark."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, width, height, dark)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        self._last += 1
        asked: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session is not None:
            asked["sessionId"] = session
        data = memoryview(json.dumps(asked).encode() + b"\0")
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            said = self._read()
            if said.get("id") == self._last:
                if "error" in said:
                    raise AssertionError(f"{method}: {said['error']}")
                answer: dict[str, Any] = said["result"]
                return answer
            self._events.append(said)

    def wait(self, method: str, session: str) -> None:
        """Read until this has happened."""
        while not any(each.get("method") == method and each.get("sessionId") == session for each in self._events):
            self._events.append(self._read())

    def events(self, session: str) -> list[dict[str, Any]]:
        """What has happened on a page."""
        return [each for each in self._events if each.get("sessionId") == session]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE)
            piece = os.read(self._in, 1 << 16) if ready else b""
            if not piece:
                raise AssertionError("the browser said nothing" if not ready else "the browser is gone")
            self._held += piece
        line, _, rest = bytes(self._held).partition(b"\0")
        self._held = bytearray(rest)
        said: dict[str, Any] = json.loads(line)
        return said


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str, width: int, height: int, dark: bool) -> None:
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the page."""
        return self._browser.call(method, self._session, **params)

    def open(self, url: str) -> float:
        """Go there; how many seconds until all is loaded and painted once."""
        began = time.monotonic()
        self.call("Page.navigate", url=url)
        self._browser.wait("Page.loadEventFired", self._session)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        return time.monotonic() - began

    def evaluate(self, script: str) -> Any:
        """What a script, or the promise it makes, gives."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise AssertionError(f"{script}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console and the browser's log say, and uncaught errors."""
        told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [
            json.dumps(each["params"]) for each in self._browser.events(self._session) if each.get("method") in told
        ]

    def requests(self) -> list[str]:
        """What it asked for, itself and ``data:`` too."""
        return [
            each["params"]["request"]["url"]
            for each in self._browser.events(self._session)
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A picture, as PNG; ``whole``: of all of the page, not only what fits."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing(home: Path) -> Generator[Browser]:
    """A browser while it is needed."""
    browser = Browser(home)
    try:
        yield browser
    finally:
        browser.close()
