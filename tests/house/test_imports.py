"""Who may import what: the contracts of pyproject.toml hold, and a planted violation of each turns it red."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import pipeline
import replay
import stages
import store
from tests.support.tree import PACKAGES, ROOT

ASYNC_AND_WEB = ("asyncio", "anyio", "trio", "starlette", "uvicorn", "httpx", "httpx2", "h11", "aiohttp", "openai")
IMPURE = (
    *ASYNC_AND_WEB, "time", "datetime", "random", "secrets", "uuid", "os", "pathlib", "threading", "multiprocessing",
    "concurrent", "subprocess", "socket", "torch", "transformers", "sqlite3", "sqlite_utils",
)  # fmt: skip


class Plant(NamedTuple):
    """A violation: ``imports`` added to ``module``, which breaks ``contract``."""

    contract: str
    module: str
    imports: tuple[str, ...]


PLANTS = [
    Plant("layers", "stages.errors", ("store", "replay", "pipeline")),
    Plant("layers", "store.api", ("replay", "pipeline")),
    Plant("layers", "replay.planted", ("pipeline",)),
    Plant("pure-stages", "stages.errors", IMPURE),
    Plant("pure-stages", "stages.parse.formats.planted", ("time", "asyncio")),
    Plant("sync-below", "stages.errors", ASYNC_AND_WEB),
    Plant("sync-below", "store.api", ASYNC_AND_WEB),
    Plant("sync-below", "replay.planted", ASYNC_AND_WEB),
    Plant("formats", "stages.parse.formats.planted", ("stages.parse.formats.other",)),
    Plant("torch", "pipeline.engines.base", ("torch", "transformers", "tokenizers")),
    Plant("torch", "replay.planted", ("torch",)),
    Plant("torch", "store.api", ("torch",)),
    Plant("grammars", "pipeline.engines.hf.work", ("llguidance",)),
    Plant("grammars", "stages.constraint", ("llguidance",)),
    Plant("upstreams", "pipeline.http.app", ("aiohttp", "tenacity")),
    Plant("upstreams", "replay.planted", ("aiohttp", "tenacity")),
    Plant("sqlite", "pipeline.engines.base", ("sqlite3", "sqlite_utils")),
    Plant("sqlite", "replay.planted", ("sqlite3", "sqlite_utils")),
]


def lint(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a tree."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache", *options],
        cwd=tree, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the four packages and their contracts."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "stages/parse/formats/other.py").touch()
    return tmp_path


def test_the_contracts_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.contract}-{plant.module}")
def test_a_planted_violation_turns_its_contract_red(tree: Path, plant: Plant) -> None:
    path = tree / (plant.module.replace(".", "/") + ".py")
    # Inside a function: a late import is an import.
    lines = "".join(f"    import {name}\n" for name in plant.imports)
    with path.open("a") as file:
        file.write(f"\n\ndef planted() -> None:\n{lines}")
    done = lint(tree, "--contract", plant.contract)
    assert done.returncode == 1, done.stdout + done.stderr
    for name in plant.imports:
        assert f"{plant.module} -> {name} " in done.stdout, done.stdout


def test_the_planted_contracts_are_all_there_are_and_stages_has_no_exemption() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == {plant.contract for plant in PLANTS}
    exempt = {contract["id"]: contract["ignore_imports"] for contract in contracts if "ignore_imports" in contract}
    assert exempt.keys() == {"torch", "grammars", "upstreams"}
    assert exempt["grammars"] == ["pipeline.engines.constrained -> llguidance"]
    assert all(line.startswith("pipeline.engines.hf.* -> ") for line in exempt["torch"])
    assert all(line.startswith("pipeline.upstream.* -> ") for line in exempt["upstreams"])


def test_the_four_packages_are_ours() -> None:
    for package in (pipeline, replay, stages, store):
        assert Path(str(package.__file__)).parent == ROOT / package.__name__


@pytest.mark.parametrize("package", ["stages", "store", "replay"])
def test_importing_all_of_a_lower_package_loads_no_torch_and_no_web(package: str) -> None:
    program = (
        "import importlib, pkgutil, sys\n"
        f"import {package} as top\n"
        "for found in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
        "print(*sorted(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    assert package in loaded
    assert loaded & {"torch", "transformers", *ASYNC_AND_WEB} == set()
