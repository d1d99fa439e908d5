"""What --parser and --peer-python take for another engine's parser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from replay.errors import NotAvailable, ParserNotFound, ReplayError
from replay.foreign import configure, current, is_foreign_name
from replay.foreign.settings import PYTHON
from replay.resolve import resolve


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without any engine."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("vllm:qwen3+hermes", True), ("vllm:hermes", True), ("vllm@A:hermes", True), ("vllm@pr-123.a:+x", True),
        ("sglang:qwen25", True), ("template", True), ("template:qwen3", True), ("openai_harmony", True),
        ("openai_harmony@A", True), ("vllm", True), ("harmony", False), ("hermes", False), ("vllm.py:Parser", False),
        ("my.vllm:Parser", False), ("openai", False),
    ],
)  # fmt: skip
def test_whose_a_name_is(name: str, foreign: bool) -> None:
    assert is_foreign_name(name) == foreign


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vllm", "parser 'vllm': name it as vllm does: vllm:REASONING+TOOLS or vllm:TOOLS"),
        ("vllm:/tmp:x", "parser 'vllm:/tmp:x': a plugin is a Python file: vllm:FILE.py:NAME"),
        ("sglang:", "parser 'sglang:': name it as sglang does"),
        ("vllm:nothing.py:mine", "parser 'vllm:nothing.py:mine': there is no file nothing.py"),
        (f"vllm:{__file__}:", "name what the file registers: "),
    ],
)
def test_names_that_say_too_little(name: str, why: str) -> None:
    with pytest.raises(ParserNotFound) as raised:
        resolve(name)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("vllm:hermes", "pip install vllm"), ("sglang:qwen25", "pip install sglang"),
        ("template:qwen3", "pip install transformers"), ("openai_harmony", "pip install openai-harmony"),
    ],
)  # fmt: skip
def test_an_engine_that_is_not_installed(bare: str, name: str, what: str) -> None:
    configure([bare])
    with pytest.raises(NotAvailable) as raised:
        resolve(name)
    assert str(raised.value).startswith(f"parser {name!r}: ")
    assert what in str(raised.value)
    assert str(raised.value).endswith(
        "; --peer-python PATH, or the environment's PLAYHEAD_PEER_PYTHON, names the Python to use"
    )


def test_a_label_names_a_python(bare: str) -> None:
    configure([f"A={bare}"])
    with pytest.raises(NotAvailable, match=r"parser 'vllm@A:hermes': vllm under .*/python: .*no vLLM"):
        resolve("vllm@A:hermes")
    with pytest.raises(NotAvailable, match=r"no peer Python 'B': give --peer-python B=PATH \(there is A\)"):
        resolve("vllm@B:hermes")


def test_which_python(monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    assert current().python("") == sys.executable
    monkeypatch.setenv(PYTHON, "/env/python")
    assert current().python("") == "/env/python"
    configure([f"A={sys.executable}", bare])
    assert (current().python(""), current().python("A")) == (bare, sys.executable)


@pytest.mark.parametrize(
    ("given", "why"),
    [("nowhere/python", "there is no file"), ("A=.", "is a folder; give its Python, such as bin/python")],
)
def test_no_python(given: str, why: str) -> None:
    with pytest.raises(ReplayError, match=why):
        configure([given])


def test_no_tokenizer() -> None:
    with pytest.raises(ReplayError, match=r"--tokenizer .*nowhere: there is no such file or folder"):
        configure(tokenizer="nowhere")
