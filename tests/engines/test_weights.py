"""Finding a model's files, keeping converted ones, the fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.engines.base import EngineLoadError
from pipeline.engines.weights import Source, cache_folder, converted, fingerprint, locate


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
    assert locate(tmp_path) == Source(tmp_path.name, str(tmp_path))
    assert locate("Qwen/Qwen3-0.6B") == Source("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize("missing", ["./none", "~/none-of-ours", "/none/of/ours", "none.gguf", Path("none")])
def test_a_path_to_nothing_is_not_taken_for_a_hub_name(missing: str | Path) -> None:
    with pytest.raises(EngineLoadError, match="there is no model at"):
        locate(missing)


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
