"""``playhead replay`` that ends in unusual ways: readers that leave, files that cannot be written, impatient users."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from replay import from_json, run_replay
from store import open_store
from tests.cli.conftest import Playhead
from tests.cli.test_replay_interrupted import alive, replaying, wait_for, workers_of
from tests.replay.mass.corpora import FINE, MODIFIED, WAITS, ids, sessions, store_of
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("parser", "code"), [(FINE, 0), (f"{ROOT}/{MODIFIED}", 1)])
@pytest.mark.parametrize("form", [[], ["--json", "-"]])
def test_a_reader_that_has_had_enough(tmp_path: Path, parser: str, code: int, form: list[str]) -> None:
    """The exit code is that of the run, and the other reports are whole."""
    source = store_of(tmp_path / "a.db", ids(40))
    more = ["--html", "out.html", "--junit", "out.xml"]
    with replaying(tmp_path, source, "--parser", parser, "--jobs", "2", *form, *more) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, "")
    assert (tmp_path / "out.html").read_text().rstrip().endswith("</html>")
    assert (tmp_path / "out.xml").read_text().rstrip().endswith("</testsuites>")
    assert not workers_of(process.pid)


def test_files_that_cannot_be_written_are_told_before_the_work(
    tmp_path: Path, playhead: Playhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store_of(tmp_path / "a.db", ids(3))
    held = Path(source).read_bytes()
    (tmp_path / "there.json").write_text("{}")
    (tmp_path / "loose").symlink_to("nowhere")

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("pipeline.cli.replay.run_replay", begun)
    for arguments, says in (
        (["--json", "no/out.json"], "cannot write no/out.json: No such file or directory"),
        (["--html", "no/out.html"], "cannot write no/out.html: No such file or directory"),
        (["--junit", "a.db/out.xml"], "cannot write a.db/out.xml: Not a directory"),
        (["--json", "out", "--html", "./out"], "--json and --html both name ./out"),
        (["--json", "a.db"], "--json a.db would overwrite what is read"),
        (["--resume", "kept", "--junit", str(tmp_path / "kept")], "would overwrite what is read"),
    ):
        result = playhead("replay", "a.db", *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert says in " ".join(result.stderr.split())
    result = playhead("replay", ".", "--html", "new.jsonl", "--json", "loose", "--junit", "there.json")
    assert "--html new.jsonl would overwrite what is read" in " ".join(result.stderr.split())
    # Looking has changed nothing.
    assert Path(source).read_bytes() == held
    assert (tmp_path / "there.json").read_text() == "{}"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.db", "loose", "there.json"]


def test_what_is_given_twice_is_told(tmp_path: Path, playhead: Playhead) -> None:
    store_of(tmp_path / "a.db", ids(3))
    result = playhead("replay", ".", "a.db", "--json", "-")
    assert result.exit_code == 0
    assert result.stderr == "Given more than once, counted once: a.db\n"
    report = from_json(result.stdout_bytes)
    assert (report.summary.sessions, report.counted_once) == (3, ("a.db",))


@pytest.mark.parametrize("signals", [[signal.SIGINT] * 5, [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]])
def test_who_asks_more_than_once(tmp_path: Path, signals: list[signal.Signals]) -> None:
    """To the command only, as a service manager does; all at once, and again while it ends."""
    source = store_of(tmp_path / "a.db", [*ids(4, "f"), *ids(30)])
    results = tmp_path / "results.jsonl"
    arguments = [source, "--parser", WAITS, "--jobs", "2", "--resume", str(results)]
    with replaying(tmp_path, *arguments) as process:
        wait_for(tmp_path, "results.jsonl", 16)
        workers = workers_of(process.pid)
        for each in signals:
            process.send_signal(each)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert workers and not any(map(alive, workers))
    (tmp_path / "gate").touch()
    assert run_replay([source], FINE).summary.same == 34
    with replaying(tmp_path, *arguments, "--json", "out.json") as process:
        process.communicate(timeout=120)
    assert from_json((tmp_path / "out.json").read_bytes()).summary.same == 34


def test_ctrl_c_while_the_report_is_written(tmp_path: Path) -> None:
    """Nobody reads it, so that it waits: what was done is kept."""
    source = store_of(tmp_path / "a.db", ids(600))
    with replaying(tmp_path, source, "--parser", f"{ROOT}/{MODIFIED}", "--layer", "message", "--json", "-") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "{"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Interrupted while the report was written. What was done is kept." in err
    [kept] = tmp_path.glob("playhead-replay-2*.jsonl")
    assert err.split()[-1] == kept.name
    assert kept.read_bytes().count(b"\n") == 601


def test_ctrl_c_while_it_is_imported(tmp_path: Path) -> None:
    """Which takes long enough to be seen."""
    command = [sys.executable, "-X", "importtime", "-m", "pipeline.cli", "replay", "gone.db"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.split("|")[-1].strip().startswith("stages."):  # it is in the midst of ours
            break
    process.send_signal(signal.SIGINT)
    err = "".join(line for line in process.stderr if not line.startswith("import time:"))
    process.stderr.close()
    assert (process.wait(60), err) == (130, "")


def test_a_run_that_is_killed_leaves_no_worker_that_is_deaf(tmp_path: Path) -> None:
    """One whose parser is in a regular expression, which lets no thread run, and heeds no signal."""
    source = store_of(tmp_path / "a.db", [*(f"fe{number:030x}" for number in range(2)), *ids(30)])
    results = tmp_path / "results.jsonl"
    with replaying(tmp_path, source, "--parser", WAITS, "--jobs", "2", "--resume", str(results)) as process:
        wait_for(tmp_path, "results.jsonl", 16)
        workers = workers_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        until = time.monotonic() + 30
        while any(map(alive, workers)) and time.monotonic() < until:
            time.sleep(0.02)
        assert workers and not any(map(alive, workers))


def test_a_worker_that_is_stopped(tmp_path: Path) -> None:
    """It is late, as one that hangs; its sessions are replayed by another."""
    source = store_of(tmp_path / "a.db", [*ids(4, "f"), *ids(60)])
    results = tmp_path / "results.jsonl"
    options = ["--parser", WAITS, "--jobs", "2", "--time-limit", "3", "--resume", str(results), "--json", "out.json"]
    with replaying(tmp_path, source, *options) as process:
        wait_for(tmp_path, "results.jsonl", 10)
        stopped = workers_of(process.pid)[0]
        os.kill(stopped, signal.SIGSTOP)
        (tmp_path / "gate").touch()
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert not alive(stopped)
    assert from_json((tmp_path / "out.json").read_bytes()).digest == run_replay([source], FINE).digest


def test_a_store_that_is_recorded_into(tmp_path: Path) -> None:
    """What was there when the run began is replayed, whatever comes meanwhile; who records is not kept waiting."""
    source = store_of(tmp_path / "a.db", ids(300))
    store = open_store(source)
    over = threading.Event()
    recorded: list[str] = []

    def record() -> None:
        names = iter(ids(100_000, "9"))
        while not over.is_set():
            name = next(names)
            store.save(sessions([name]))
            recorded.append(name)

    recorder = threading.Thread(target=record)
    recorder.start()
    try:
        with replaying(tmp_path, source, "--parser", FINE, "--jobs", "2", "--json", "out.json") as process:
            _, err = process.communicate(timeout=120)
    finally:
        over.set()
        recorder.join()
        store.close()
    assert (process.returncode, err) == (0, "")
    assert len(recorded) > 10
    report = from_json((tmp_path / "out.json").read_bytes())
    found = [each.session for each in report.sessions]
    assert len(set(found)) == len(found) == report.summary.same
    assert {*ids(300)} <= {*found} <= {*ids(300), *recorded}


SCRIPT = """
import sys
from replay import run_replay
report = run_replay([sys.argv[1]], sys.argv[2], jobs=2)
print(report.summary.same, report.jobs)
"""


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    """Workers do not run it again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", store_of(tmp_path / "a.db", ids(3)), FINE]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 2\n", "")


def test_workers_that_cannot_be_started(tmp_path: Path) -> None:
    """A path for temporary files that is too long for a socket."""
    source = store_of(tmp_path / "a.db", ids(3))
    long = tmp_path / ("n" * 120)
    long.mkdir()
    command = [sys.executable, "-m", "pipeline.cli", "replay", source, "--parser", FINE, "--jobs"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(long)}
    two, one = (
        subprocess.run([*command, jobs], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        for jobs in ("2", "1")
    )
    assert two.returncode == 2
    assert re.search(
        "a worker process cannot be started: .*too long.* --jobs 1 runs without any", two.stderr, re.DOTALL
    )
    assert one.returncode == 0
    assert list(long.iterdir()) == []
