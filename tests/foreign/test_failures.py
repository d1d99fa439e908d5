"""Whatever a worker does, the session's stage fails with what happened, and the next session gets its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replay.errors import Crashed, NotAvailable, ParserNotFound, PeerError, Timeout, Unsupported
from replay.foreign import ForeignStage, Settings, close
from replay.foreign.client import Peer
from replay.foreign.process import Process
from stages.message import Message, ToolCall
from tests.foreign.sessions import ADAPTER, PARENT, SESSION, engine, gone, opening, ran, said, stage
from tests.support.server import eventually


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("exits", "Crashed", "the process ended with exit code 7; its last words: the last words"),
        ("killed", "Crashed", "the process was killed by signal 9"),
        ("garbage", "Crashed", "it answered what is no answer: Expected `array`, got `str` - at `$.steps`"),
        ("raises", "KeyError", "'tool_calls'"),
        ("quits", "SystemExit", "no licence"),
        ("unsupported", "Unsupported", "it encodes text: give --tokenizer PATH"),
        ("leaves", "Crashed", "the process ended with exit code 9"),
        ("speechless", "_Speechless", "(its message cannot be told: ValueError)"),
        ("surrogates", r"E\ud800", r"\ud800"),
        ("short", "Crashed", "the worker's answer ends before the session does"),
    ],
)
def test_each_way_to_fail(name: str, kind: str, message: str) -> None:
    track, failed = ran(stage(name))
    assert failed is not None
    assert (failed.type, failed.message, failed.layer, failed.stage) == (kind, message, "semantic", f"test:{name}@1.5")
    assert said(track) == ""
    again, failed = ran(stage("echo"))
    assert failed is None
    assert said(again) == "Hello you<|im_end|>"


def test_what_it_cannot_write_ends_it() -> None:
    _, failed = ran(stage("unwritable"))
    assert failed is not None
    assert failed.type == "Crashed"
    assert failed.message.endswith("Object of type object is not JSON serializable")


def test_the_place_is_the_parsers() -> None:
    _, failed = ran(stage("raises"))
    assert failed is not None
    assert failed.where.startswith(ADAPTER + ":")


def test_a_step_that_raised() -> None:
    track, failed = ran(stage("raises_at_one"))
    assert failed is not None
    assert (failed.type, failed.message, failed.where) == ("IndexError", "out of range", "hermes.py:12")
    assert (failed.seq, failed.step) == (2, 2)  # the prompt is 0, the first step 1
    assert said(track) == "a"


def test_half_a_character() -> None:
    track, failed = ran(stage("half"))
    assert failed is None
    assert said(track) == "\ufffd"
    ready = stage("half_at_once").prepared(opening(), SESSION)
    calls = (ToolCall("call-0-0", "\ufffd", "\ufffd", False),)
    assert ready.one_shot == [Message(0, "\ufffd", "\ufffd", None, calls, "stop")]


def test_the_time_limit() -> None:
    _, failed = ran(stage("slow", time_limit=0.5))
    assert failed is not None
    assert (failed.type, failed.message) == ("Timeout", "no answer within 0.5 s")
    track, failed = ran(stage("echo"))
    assert failed is None
    assert said(track) == "Hello you<|im_end|>"


def test_an_answer_that_is_there_is_not_late() -> None:
    """However late it is looked for: the machine may have had no time for who asks."""
    process = Process(sys.executable, ADAPTER)

    def first() -> bytes | None:
        try:
            return process.exchange(b"", 0.0, "late")
        except Timeout:
            return None

    assert json.loads(eventually(first))["ready"]
    process.kill()


def test_an_answer_that_came_too_late_is_nobodys() -> None:
    _, failed = ran(stage("slow_once", time_limit=0.5), {"hang": True})
    assert failed is not None
    track, failed = ran(stage("slow_once"))
    assert failed is None
    assert said(track) == "Hello you<|im_end|>"


@pytest.mark.parametrize("name", ["prints", "floods", "forks"])
def test_what_libraries_print_is_no_answer(name: str) -> None:
    track, failed = ran(stage(name))
    assert failed is None
    assert said(track) == "Hello you<|im_end|>"


def test_one_process_for_all_sessions() -> None:
    parser = stage("process")
    first, second = said(ran(parser)[0]), said(ran(parser)[0])
    assert first == second
    close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    assert said(ran(parser)[0]) != first


def test_a_process_that_was_killed_between_two_sessions() -> None:
    parser = stage("process")
    number = int(said(ran(parser)[0]))
    os.kill(number, signal.SIGKILL)
    eventually(lambda: gone(number) or None)
    track, failed = ran(parser)
    assert failed is None
    assert int(said(track)) != number


def test_a_plugin_has_a_process_of_its_own() -> None:
    settings = Settings()
    plugged = ForeignStage("test:process", ADAPTER, "process", python=sys.executable, plugin="p.py", settings=settings)
    assert said(ran(plugged)[0]) != said(ran(stage("process"))[0])


# --- what is not there ------------------------------------------------------------------------------------------------


def test_no_such_parser() -> None:
    with pytest.raises(ParserNotFound, match=r"parser 'test:hermez': no parser 'hermez'; there is echo"):
        stage("hermez")


def test_no_such_python(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match=r"peer Python .*/nothing does not start: No such file or directory"):
        Peer(str(tmp_path / "nothing"), ADAPTER).version(Settings())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def version():\n    import an_engine_that_is_not_there", "ModuleNotFoundError: No module named 'an_engine"),
        ("import os\nos._exit(3)", r"the process ended with exit code 3"),
        ("raise OSError('no libcuda')", "OSError: no libcuda"),
    ],
)
def test_an_engine_that_does_not_load(tmp_path: Path, text: str, why: str) -> None:
    worker = Peer(sys.executable, engine(tmp_path, text))
    with pytest.raises(NotAvailable, match=why):
        worker.version(Settings())
    worker.close()


def test_an_engine_that_takes_for_ever_to_load(tmp_path: Path) -> None:
    worker = Peer(sys.executable, engine(tmp_path, "import time\ntime.sleep(600)"))
    with pytest.raises(NotAvailable, match=r"engine under .*: not ready within 0\.5 s"):
        worker.version(Settings(start_limit=0.5))


def test_a_python_that_is_none() -> None:
    with pytest.raises(NotAvailable, match=r"it is no worker; --peer-python PATH, or .* names the Python to use"):
        Peer("/bin/echo", ADAPTER).version(Settings())


def test_it_only_runs_on_recorded_sessions() -> None:
    with pytest.raises(Unsupported, match="runs on recorded sessions only"):
        stage("echo").start(opening())


def test_kinds_of_failures_are_errors_of_one_class() -> None:
    assert all(issubclass(kind, PeerError) for kind in (Timeout, Crashed, Unsupported))


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        "",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "run(stage('slow'), 'semantic', opening(), session, range(4))",
        "run(stage('searches'), 'semantic', opening(), session, range(4))",
    ],
)
def test_no_worker_outlives_its_parent(end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(end=end)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        assert not gone(number)
        parent.stdin.write("\n")
        parent.stdin.flush()
        if "run" in end:
            with pytest.raises(subprocess.TimeoutExpired):
                parent.wait(1)
            parent.kill()
        parent.wait(60)
    eventually(lambda: gone(number) or None)


FORKS = """
import os
from replay.foreign import close
from tests.foreign.sessions import ran, said, stage
parser = stage("process")
print(said(ran(parser)[0]), flush=True)
if os.fork() == 0:
    print(said(ran(parser)[0]), flush=True)
    close()
    os._exit(0)
os.wait()
print(said(ran(parser)[0]), flush=True)
"""


def test_a_forked_process_has_workers_of_its_own() -> None:
    # In a process without threads, which those that run tests have.
    done = subprocess.run([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True, check=True)
    mine, theirs, again = map(int, done.stdout.split())
    assert theirs != mine == again


def test_to_be_made_again_takes_none_of_a_sessions_time(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, limits = Process.exchange, list[float]()

    def noted(self: Process, line: bytes, limit: float, late: str) -> bytes:
        limits.append(limit)
        return exchange(self, line, limit, late)

    settings = Settings(time_limit=50.0, start_limit=70.0, make_limit=60.0)
    parser = ForeignStage("test", ADAPTER, "dies_when_told", python=sys.executable, settings=settings)
    _, failed = ran(parser, {"die": True})
    assert failed is not None
    assert failed.type == "Crashed"
    monkeypatch.setattr(Process, "exchange", noted)
    track, failed = ran(parser)
    assert failed is None
    assert said(track) == "Hello you<|im_end|>"
    assert limits == [70.0, 60.0, 50.0]


def test_settings_have_limits() -> None:
    assert (Settings().time_limit, Settings().start_limit, Settings().make_limit) == (60.0, 180.0, 60.0)
