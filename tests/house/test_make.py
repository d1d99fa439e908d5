"""The Makefile and .ci/run say what the README says they do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.make import MAKE, environment
from tests.support.tree import ROOT

NEEDED = ["install", "run", "test", "check", "bench", "docs", "clean"]


def make(*arguments: str, cwd: Path = ROOT) -> str:
    """What make prints."""
    done = subprocess.run(
        [*MAKE, *arguments], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_make_test_runs_every_test() -> None:
    # What make would do: install first, then pytest, on all cores, with no selection.
    recipe = make("-n", "test", "VENV=somewhere").strip().splitlines()
    shared = ["--numprocesses", "auto", "--dist", "loadfile"]
    assert recipe[-1].split() == ["somewhere/bin/python", "-m", "pytest", *shared]
    assert any("pip install" in line for line in recipe[:-1])
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert not any(option.startswith(("-m", "-k", "--ignore", "--deselect")) for option in options["addopts"])


def test_ci_runs_make_test_and_make_check_and_nothing_else() -> None:
    script = (ROOT / ".ci/run").read_text()
    subprocess.run(["bash", "-n", str(ROOT / ".ci/run")], check=True)
    lines = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "make test", "make check"]


def test_make_run_installs_and_then_serves_the_real_model() -> None:
    recipe = make("-n", "run", "VENV=somewhere", "ARGS=--port 1234").strip().splitlines()
    assert any("pip install" in line for line in recipe[:-1])
    assert recipe[-1] == "somewhere/bin/playhead serve --engine hf --store playhead.db --port 1234"


def test_an_installed_environment_is_not_installed_again(tmp_path: Path) -> None:
    (tmp_path / ".playhead-installed").touch()
    assert "pip install" not in make("-n", "install", f"VENV={tmp_path}")


def test_it_is_the_same_under_make(monkeypatch: pytest.MonkeyPatch) -> None:
    # What make test ARGS=… hands down to these tests.
    for name, value in {"MAKELEVEL": "1", "MAKEFLAGS": "n -- ARGS=-q", "MFLAGS": "-n", "ARGS": "-q"}.items():
        monkeypatch.setenv(name, value)
    test_make_test_runs_every_test()


def test_an_install_that_fails_says_what_it_needs(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho pip said something >&2\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run(
        [*MAKE, "install", f"VENV={tmp_path}", f"PYTHON={sys.executable}"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("pip said something\nInstalling packages needs the network.")
    assert "this takes 1-2 minutes" in done.stdout
    assert not (tmp_path / ".playhead-installed").exists()


@pytest.mark.parametrize("target", NEEDED)
def test_make_help_names_the_target(target: str) -> None:
    assert re.search(rf"^{target}\s+\S", make("help"), re.MULTILINE)


def test_every_direct_dependency_is_pinned_exactly() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pins)
    pinned = {normal(line.partition("==")[0]) for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {normal(found[0]) for line in direct if (found := re.match(r"[A-Za-z0-9._-]+", line))}
    assert names <= pinned
