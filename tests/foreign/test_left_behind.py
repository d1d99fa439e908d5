"""What a session leaves behind: processes, and what it does to the one that it ran in; and what cannot be had."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replay.derive import StageFailure
from replay.errors import NotAvailable
from replay.foreign import ForeignStage, Settings, close
from replay.foreign.process import Process
from tests.foreign.sessions import ADAPTER, PARENT, engine, gone, ran, said, stage
from tests.support.server import eventually


def _state(number: int) -> str:
    """Of a process, as the system tells it; "": it is gone."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_nothing_that_it_started_outlives_it() -> None:
    numbers: list[int] = json.loads(said(ran(stage("family"))[0]))
    assert len(numbers) == 4
    assert not any(map(gone, numbers))
    close()
    eventually(lambda: all(map(gone, numbers)) or None)


def test_nothing_that_it_started_outlives_a_replay_that_is_killed() -> None:
    text = PARENT.replace("process", "family")
    with subprocess.Popen(
        [sys.executable, "-c", text.format(end="os.kill(os.getpid(), 9)")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        out, _ = parent.communicate("\n", 60)
    numbers: list[int] = json.loads(out)
    eventually(lambda: all(map(gone, numbers)) or None)


# --- what a session leaves behind ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("later", ["ends", "stops", "hangs"])
def test_a_session_that_spoils_the_process_costs_the_next_one_nothing(tmp_path: Path, later: str) -> None:
    parser = stage("leaves_later", time_limit=0.5)
    close()
    number = int(said(ran(parser, {"later": later, "when": str(tmp_path / "now")})[0]))
    (tmp_path / "now").touch()
    if later != "hangs":
        eventually(lambda: _state(number) in ("T" if later == "stops" else "Z", "") or None)
    track, failed = ran(parser)
    assert failed is None
    assert int(said(track)) != number


def test_a_session_that_closes_all_its_files() -> None:
    assert _failure(stage("leaves_later"), {"later": "closes"}).type == "Crashed"
    track, failed = ran(stage("echo"))
    assert (failed, said(track)) == (None, "Hello you<|im_end|>")


def test_an_answer_that_nobody_asked_for_is_nobodys() -> None:
    close()
    assert ran(stage("echo"))[1] is None
    _, failed = ran(stage("twice"))
    assert failed is not None
    assert (failed.type, failed.message[:18]) == ("Crashed", "it answered questi")
    track, failed = ran(stage("echo"))
    assert (failed, said(track)) == (None, "Hello you<|im_end|>")


@pytest.mark.usefixtures("patient")
def test_a_process_that_is_stopped_is_ended() -> None:
    parser = stage("process", time_limit=0.5)
    close()
    number = int(said(ran(parser)[0]))
    os.kill(number, signal.SIGSTOP)
    track, failed = ran(parser)
    assert failed is None
    assert int(said(track)) != number
    eventually(lambda: gone(number) or None)


# --- what cannot be had is not tried for ever ------------------------------------------------------------------------


def _engine_that(folder: Path, where: str, does: str) -> str:
    """The adapter, with a file beside it that counts how often it got ``where`` it ``does`` something else."""
    text = Path(ADAPTER).read_text().replace(
        where, f"open({str(folder / 'count')!r}, 'a').write('x'); {does}\n    {where}"
    )  # fmt: skip
    return engine(folder, text)


def _count(folder: Path) -> int:
    path = folder / "count"
    return len(path.read_text()) if path.exists() else 0


def test_a_plugin_that_hangs_is_told_once_within_its_limit(tmp_path: Path) -> None:
    path = _engine_that(tmp_path, "return Adapter(name", "time.sleep(600)")
    settings = Settings(make_limit=0.5, time_limit=0.5)
    for _ in range(3):
        with pytest.raises(
            NotAvailable, match=r"it cannot be made: p\.py and its parser were not loaded within 0\.5 s"
        ):
            ForeignStage("test:echo", path, "echo", python=sys.executable, plugin="p.py", settings=settings)
    # A process may be ended before it has come so far.
    assert _count(tmp_path) <= 1


def test_the_limit_for_a_session_is_also_one_for_its_parser_to_be_made(tmp_path: Path) -> None:
    path = _engine_that(tmp_path, "return Adapter(name", "time.sleep(0.5)")
    settings = Settings(make_limit=0.1, time_limit=30.0)
    track, failed = ran(ForeignStage("test:echo", path, "echo", python=sys.executable, settings=settings))
    assert (failed, said(track)) == (None, "Hello you<|im_end|>")


@pytest.mark.parametrize(
    ("again", "limit", "message", "starts"),
    [
        ("time.sleep(600)", 0.2, "not ready within 0.2 s", 2),
        ("os._exit(3)", 180.0, "the process ended with exit code 3", 4),
    ],
)
def test_what_does_not_start_again_is_given_up(
    tmp_path: Path, again: str, limit: float, message: str, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = f"os.path.getsize({str(tmp_path / 'count')!r}) > 1 and {again}"
    path = _engine_that(tmp_path, 'return "1.5"', first)
    settings = Settings(start_limit=limit)
    _begins_at_the_count(tmp_path, monkeypatch)
    parser = ForeignStage("test:dies", path, "dies_when_told", python=sys.executable, settings=settings)
    assert _failure(parser, {"die": True}).type == "Crashed"
    for _ in range(6):
        failed = _failure(parser)
        assert failed.type == "NotAvailable"
        assert failed.message.endswith(message)
    assert _count(tmp_path) == starts
    close()
    assert _failure(parser).type == "NotAvailable"
    assert _count(tmp_path) == starts + 1


def _begins_at_the_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit for a start begins when the process has been counted; for the first one it is long. How long a Python
    takes to come so far depends on what else the machine does."""
    exchange, started = Process.exchange, 0

    def counted(self: Process, line: bytes, limit: float, late: str) -> bytes:
        nonlocal started
        if not line:
            started += 1
            eventually(lambda: _count(folder) >= started or None)
        return exchange(self, line, limit if started > 1 else 180.0, late)

    monkeypatch.setattr(Process, "exchange", counted)


def _failure(parser: ForeignStage, request: dict[str, object] | None = None) -> StageFailure:
    _, failed = ran(parser, request)
    assert failed is not None
    return failed
