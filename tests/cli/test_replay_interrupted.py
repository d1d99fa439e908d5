"""``playhead replay`` that is interrupted: a partial report, and the way to go on. A real process, a real signal."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replay import run_replay
from tests.cli.conftest import Playhead
from tests.replay.mass.corpora import FINE, WAITS, ids, store_of
from tests.replay.mass.parsers import GATE
from tests.support.tree import ROOT

FREE, HELD = 30, 4
"""Sessions that replay at once, and those that wait until the gate is there."""


@contextmanager
def replaying(folder: Path, *arguments: str, tidy: bool = False) -> Generator[subprocess.Popen[str]]:
    """The command in a process group of its own, with Python's path to the tree, and a folder of temporary files.
    ``tidy``: of these nothing is left."""
    env = {**os.environ, GATE: str(folder / "gate"), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pipeline.cli", "replay", *arguments]
    # Its name is short, as a socket's must be, wherever the tests keep theirs. Who is killed leaves things there.
    with tempfile.TemporaryDirectory(prefix="ph-", ignore_cleanup_errors=True) as temporary:
        process = subprocess.Popen(
            command, cwd=folder, env={**env, "TMPDIR": temporary}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, preexec_fn=_hangs_up,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if tidy:
            assert os.listdir(temporary) == []


def _hangs_up() -> None:
    """Whoever runs the tests may have said that a closed terminal is nothing to them."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def wait_for(folder: Path, pattern: str, lines: int) -> None:
    """Until a file of results has so many lines."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if any(path.read_bytes().count(b"\n") >= lines for path in folder.glob(pattern)):
            return
        time.sleep(0.02)
    raise AssertionError("the results do not come")


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store. The sessions that wait are the last, since a store gives its newest first, then by its rows."""
    return store_of(tmp_path / "a.db", [*ids(HELD, "f"), *ids(FREE)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "sent"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM), ("2", signal.SIGHUP)]
)
def test_ctrl_c_keeps_what_was_done(tmp_path: Path, source: str, jobs: str, sent: signal.Signals) -> None:
    results = tmp_path / "results.jsonl"
    arguments = [source, "--parser", WAITS, "--jobs", jobs, "--resume", str(results)]
    with replaying(tmp_path, *arguments) as process:
        # One of the held may be in a batch with free ones, whose results are then told with it.
        wait_for(tmp_path, "results.jsonl", 1 + FREE // 2)
        os.killpg(process.pid, sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Run digest" in out
    told = err.strip().splitlines()
    assert told[-2] == "Interrupted. What was done is kept. To go on:"
    assert shlex.split(told[-1])[:2] == ["playhead", "replay"]
    assert shlex.split(told[-1])[2:] == arguments
    assert "Traceback" not in err
    kept = results.read_bytes().count(b"\n") - 1
    assert FREE // 2 <= kept <= FREE

    (tmp_path / "gate").touch()
    with replaying(tmp_path, *arguments, "--json", "out.json") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"Run digest {run_replay([source], FINE).digest[:16]}" in " ".join(out.split())


@pytest.mark.slow
def test_without_a_file_the_results_are_kept_in_one(tmp_path: Path, source: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with replaying(folder, source, "--parser", WAITS, "--jobs", "2", tidy=True) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and not any(path.stat().st_size > 5000 for path in folder.glob("*.jsonl")):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    [kept] = folder.glob("playhead-replay-2*.jsonl")
    assert list(folder.iterdir()) == [kept]
    command = shlex.split(err.strip().splitlines()[-1])
    assert command[-2:] == ["--resume", kept.name]
    (folder / "gate").touch()
    with replaying(folder, *command[2:]) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"{FREE + HELD} sessions" in out


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_worker(tmp_path: Path, source: str) -> None:
    """Its workers end, even those whose parser does not; what was done is there."""
    results = tmp_path / "results.jsonl"
    arguments = [source, "--parser", WAITS, "--jobs", "2", "--resume", str(results)]
    with replaying(tmp_path, *arguments) as process:
        wait_for(tmp_path, "results.jsonl", 1 + FREE // 2)
        workers = workers_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        until = time.monotonic() + 60
        while any(map(alive, workers)) and time.monotonic() < until:
            time.sleep(0.02)
        assert workers and not any(map(alive, workers))
    (tmp_path / "gate").touch()
    with replaying(tmp_path, *arguments) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"{FREE + HELD} sessions" in out


def workers_of(session: int) -> list[int]:
    """Processes of a session (in the sense of setsid) that lead a group of their own: the workers."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and int(fields[2]) == int(stat.parent.name) != session:
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_options_that_are_wrong(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(recorded.read_bytes())
    for arguments, says in (
        (["--jobs", "0"], "--jobs"),
        (["--time-limit", "0"], "--time-limit"),
        (["--time-limit", "nan"], "finite"),
        (["--time-limit", "inf"], "finite"),
        (["--session", ""], "a session without a name"),
        (["--limit", "-1"], "--limit"),
        (["--baseline", "gone.json"], "gone.json"),
        (["--compare", "gone.py:f"], "there is no file gone.py"),
        (["--ignore", f"{FINE.rpartition(':')[0]}:GATE"], "not a function"),
        (["--peer-python", "/gone"], "there is no file /gone"),
        (["--resume", str(recorded)], "would overwrite what is read"),
        (["--resume", str(other)], "holds no results of a replay"),
    ):
        result = playhead("replay", recorded, *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert says in " ".join(result.stderr.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [[], ["--json", "-"]])
def test_an_output_that_is_full_is_no_changed_session(recorded: Path, arguments: list[str], tmp_path: Path) -> None:
    """Exit code 1 would say that a session has changed. The results are not lost with it, nor the other reports."""
    command = [sys.executable, "-m", "pipeline.cli", "replay", str(recorded), *arguments]
    command += ["--html", "report.html"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "cannot write standard output: No space left on device" in " ".join(done.stderr.split())
    [kept] = tmp_path.glob("playhead-replay-*.jsonl")
    assert f"--resume {kept.name}" in done.stderr
    assert (tmp_path / "report.html").stat().st_size > 1000
