"""Finding a model's files, keeping converted ones, the fingerprint."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.engines.base import EngineLoadError
from pipeline.engines.weights import Source, cache_folder, converted, fingerprint, locate
from tests.support.tree import ROOT


def test_the_default_model_ships_with_a_package() -> None:
    source = locate(None)
    assert source == locate("smollm2")
    assert source.name == "SmolLM2-135M-Instruct"
    assert source.gguf is not None
    assert Path(source.place, source.gguf).is_file()


def test_files_folders_and_hub_names(tmp_path: Path) -> None:
    file = tmp_path / "tiny.Q4.gguf"
    file.write_bytes(b"GGUF")
    assert locate(file) == locate(str(file)) == Source("tiny.Q4", str(tmp_path), "tiny.Q4.gguf")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_bytes(b"")
    assert locate(tmp_path) == Source(tmp_path.name, str(tmp_path))
    assert locate("Qwen/Qwen3-0.6B") == Source("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize("missing", ["./none", "~/none-of-ours", "/none/of/ours", "none.gguf", Path("none")])
def test_a_path_to_nothing_is_not_taken_for_a_hub_name(missing: str | Path) -> None:
    with pytest.raises(EngineLoadError, match="there is no model at"):
        locate(missing)


@pytest.mark.parametrize("name", ["smollm", "a/b/c", "org/name with spaces", "name/"])
def test_what_is_no_hub_name_either(name: str) -> None:
    with pytest.raises(EngineLoadError, match=r"no model .*; the built-in one is smollm2"):
        locate(name)


def test_a_folder_that_lacks_something(tmp_path: Path) -> None:
    with pytest.raises(EngineLoadError, match=r"missing config\.json, the tokenizer .*, the weights [^;]*$"):
        locate(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(EngineLoadError, match=r"missing the weights \(\*\.safetensors\)$"):
        locate(tmp_path)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineLoadError, match=r"; name the file in it: .*tiny\.gguf$"):
        locate(tmp_path)


# --- the hub --------------------------------------------------------------------------------------------------------


@contextmanager
def hub(*headers: tuple[str, str], status: int = 404) -> Generator[tuple[str, list[str]]]:
    """A hub that answers everything alike: its address, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def reached(folder: Path, address: str) -> tuple[str, str]:
    """What ``reached`` gives or raises, and what it prints besides, in a process whose hub is at this address."""
    code = (
        "import logging; logging.basicConfig(level=logging.WARNING)\n"
        "from pipeline.engines.weights import EngineLoadError, Source, reached\n"
        "try: print(reached(Source('org/name', 'org/name')).place)\n"
        "except EngineLoadError as error: print(error)"
    )
    env = os.environ | {"HF_HOME": str(folder), "HF_ENDPOINT": address, "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


NOWHERE = "http://127.0.0.1:9"


def test_a_model_of_the_hub_is_looked_at_once(tmp_path: Path) -> None:
    with hub(("etag", '"1"'), ("x-repo-commit", "c" * 40), ("content-length", "2"), status=200) as (address, asked):
        assert reached(tmp_path, address) == ("org/name", "")
    assert asked == ["/org/name/resolve/main/config.json"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("RepoNotFound", "Hugging Face shows no model 'org/name'"),
        ("EntryNotFound", "no transformers model: it has no config.json"),
    ],
)
def test_what_the_hub_does_not_have(tmp_path: Path, code: str, says: str) -> None:
    with hub(("x-error-code", code)) as (address, asked):
        printed, log = reached(tmp_path, address)
    assert says in printed
    assert (printed.count("\n"), log, len(asked)) == (0, "", 1)


def test_no_network(tmp_path: Path) -> None:
    printed, log = reached(tmp_path, NOWHERE)
    assert printed.startswith("Hugging Face cannot be reached for the model 'org/name', and it is not in the local")
    assert (printed.count("\n"), log) == (0, "")


def test_no_network_but_a_cached_copy(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--org--name"
    copy = model / "snapshots" / ("c" * 40)
    copy.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("c" * 40)
    (copy / "config.json").write_text("{}")
    assert reached(tmp_path, NOWHERE) == (str(copy), "")


def test_the_cache_folder_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("PLAYHEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "playhead"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "playhead"


def test_a_file_is_converted_once_and_again_when_it_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"one")
    made: list[Path] = []
    lines: list[str] = []

    def convert(folder: Path) -> None:
        made.append(folder)
        (folder / "model").write_bytes(file.read_bytes())

    first = converted(file, "5.0", convert, lines.append)
    assert (first / "model").read_bytes() == b"one"
    assert converted(file, "5.0", convert, lines.append) == first
    assert len(made) == len(lines) == 1
    assert "m.gguf" in lines[0]
    assert converted(file, "5.1", convert, lines.append) != first
    file.write_bytes(b"two")
    assert converted(file, "5.0", convert, lines.append) != first
    assert len(made) == 3


def test_a_failed_conversion_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"one")

    def fail(folder: Path) -> None:
        (folder / "half").write_bytes(b"")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        converted(file, "5.0", fail, lambda line: None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_process_may_convert_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAYHEAD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"one")

    def convert(folder: Path) -> None:
        (folder / "model").write_bytes(b"mine")

    def slow(folder: Path) -> None:
        converted(file, "5.0", convert, lambda line: None)
        (folder / "model").write_bytes(b"late")

    folder = converted(file, "5.0", slow, lambda line: None)
    assert (folder / "model").read_bytes() == b"mine"
    assert list((tmp_path / "cache").iterdir()) == [folder]


def test_the_fingerprint_depends_on_weights_names_and_versions() -> None:
    def of(data: bytes, name: str = "w float32 (3,)", version: str = "2.0") -> str:
        return fingerprint([(name, memoryview(data))], {"torch": version})

    base = of(b"abc")
    assert base.startswith("fp_")
    assert len(base) == 15
    assert base == of(b"abc")
    assert len({base, of(b"abd"), of(b"abc", name="w bfloat16 (3,)"), of(b"abc", version="2.1")}) == 4


def test_the_fingerprint_of_a_large_parameter_reads_its_ends() -> None:
    large = bytearray(40 << 20)

    def now() -> str:
        return fingerprint([("w", memoryview(large))], {})

    base = now()
    large[-1] = 1
    last = now()
    large[0] = 1
    assert len({base, last, now()}) == 3
