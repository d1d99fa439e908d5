"""What ``--parser`` names, and what it says where that cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.corpus import run_replay
from replay.errors import NotAvailable, ParserNotFound, ReplayError
from replay.resolve import resolve
from replay.run import Replayer
from stages import catalog
from stages.events import Input, Semantic, Start
from stages.opening import Opening
from stages.stage import Machine, fold
from store import trace
from tests.support.replay import SAID, opening, record, tokens, whole

STAGE = """
from stages import catalog

class Stage:
    {id}
    def start(self, opening):
        return catalog.parser("hermes").start(opening)
    def resume(self, opening, snapshot):
        return catalog.parser("hermes").resume(opening, snapshot)

made = Stage()

def make():
    return Stage()

def broken():
    raise ValueError("no model")

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(STAGE.format(id='id = "mine@1"'))
    return path


def test_a_name_of_the_catalog() -> None:
    assert resolve("hermes").id == catalog.parser("hermes").id


def test_a_stage_is_its_own() -> None:
    stage = catalog.parser("hermes")
    assert resolve(stage) is stage


class Mine:
    """As little as a stage can be."""

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return catalog.parser("hermes").start(opening)


class Needy(Mine):
    def __init__(self, model: str) -> None:
        self.model = model


def test_a_class_or_function_is_called_for_its_stage() -> None:
    session = record(opening(), whole(tokens(SAID)))
    for given in (Mine, Mine(), lambda: catalog.parser("hermes")):
        parser: Any = given
        assert Replayer(parser).replay(session).verdict == "same"
        assert Replayer(baseline=parser).replay(session).verdict == "same"
    mine: Any = Mine
    assert resolve(mine).id == "Mine"


def test_what_makes_no_stage_is_said_at_once(tmp_path: Path) -> None:
    needy: Any = Needy
    with pytest.raises(ParserNotFound, match="parser 'Needy': calling it without arguments failed: TypeError"):
        Replayer(needy)
    number: Any = 3
    with pytest.raises(ParserNotFound, match="parser 'int' is int, not a stage"):
        Replayer(baseline=number)
    mine: Any = Mine
    trace.write(record(opening(), whole(tokens(SAID))), tmp_path / "a.jsonl")
    report = run_replay([str(tmp_path)], mine)
    assert (report.parser, report.summary.same) == ("Mine", 1)
    with pytest.raises(ParserNotFound, match="'Needy'"):
        run_replay([str(tmp_path)], needy)


def test_auto_is_what_the_session_speaks() -> None:
    assert resolve("auto", opening()).id == catalog.parser("hermes").id
    with pytest.raises(ParserNotFound, match="no session"):
        resolve("auto")


@pytest.mark.parametrize("attribute", ["Stage", "made", "make"])
def test_an_attribute_of_a_file(file: Path, attribute: str) -> None:
    stage = resolve(f"{file}:{attribute}")
    assert stage.id == "mine@1"
    assert isinstance(fold(stage.start(opening()), whole(tokens(SAID)))[0], Start)


def test_a_stage_without_an_id_is_called_what_the_user_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(STAGE.format(id="pass"))
    stage = resolve(f"{path}:Stage")
    assert stage.id == f"{path}:Stage"
    opened = opening()
    assert Replayer(stage).replay(record(opened, whole(tokens(SAID)))).verdict == "same"


def test_a_file_is_loaded_afresh_each_time(file: Path) -> None:
    """Even when it changes within the second that file times are kept in."""
    before = resolve(f"{file}:Stage")
    file.write_text(STAGE.format(id='id = "mine@2"'))
    after = resolve(f"{file}:Stage")
    assert (before.id, after.id) == ("mine@1", "mine@2")
    assert not list(file.parent.glob("__pycache__"))


def test_an_attribute_of_a_module_in_the_working_directory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = file.parent / "some_parsers"
    package.mkdir()
    file.rename(package / "mine.py")
    monkeypatch.chdir(file.parent)
    path = list(sys.path)
    try:
        assert resolve("some_parsers.mine:Stage").id == "mine@1"
        assert sys.path == path
    finally:
        for name in [name for name in sys.modules if name.startswith("some_parsers")]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "attribute", "says"),
    [
        ("x = 1", "Gone", "has no Gone"),
        (STAGE.format(id="pass"), "Gone", "it has: Stage, made"),
        (STAGE.format(id="pass"), "number", "not a stage"),
        (STAGE.format(id="pass"), "broken", "ValueError: no model"),
        ("def broken(:", "Stage", "SyntaxError"),
        ("import no_such_module", "Stage", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("\n\nraise SystemExit(4)", "Stage", "mine.py:3"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, attribute: str, says: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ParserNotFound) as error:
        resolve(f"{path}:{attribute}")
    assert says in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("parser", "says"),
    [
        ("hermess", "hermes"),
        ("no/such/file.py:Stage", "there is no file no/such/file.py"),
        ("no.such.module:Stage", "ModuleNotFoundError"),
        ("examples/modified_parser.py", "examples/modified_parser.py:Attr"),
        (":Stage", "file.py:Attr"),
        ("stages.catalog:", "file.py:Attr"),
    ],
)
def test_what_is_not_there(parser: str, says: str) -> None:
    with pytest.raises(ParserNotFound) as error:
        resolve(parser)
    assert says in str(error.value)
    assert str(error.value).count(repr(parser)) == 1


@pytest.mark.parametrize("parser", ["vllm:qwen3+hermes", "sglang:qwen3", "vllm@0.33:hermes", "template"])
def test_another_engines_parser_does_not_serve(parser: str) -> None:
    with pytest.raises(NotAvailable) as error:
        resolve(parser, live=True)
    assert str(error.value) == f"parser {parser!r} is another engine's: it runs on recorded sessions only, not live"


def test_a_replayer_for_no_parser_is_wrong_use() -> None:
    with pytest.raises(ReplayError):
        Replayer("hermess")


def test_a_session_whose_recorded_parser_is_gone_is_not_compared() -> None:
    trace = record(opening(), whole(tokens(SAID)))
    trace.opening = msgspec.structs.replace(trace.opening, parser="gone.py:Stage")
    result = Replayer().replay(trace)
    assert (result.verdict, result.error, result.layers) == ("uncompared", None, {})
    assert result.unreplayed == (
        "recorded with gone.py:Stage, which is not found from here; give --parser (there is no file gone.py)"
    )
    assert Replayer("hermes").replay(trace).verdict == "same"


def test_a_layer_that_is_none_is_refused() -> None:
    layer: Any = "foo"
    with pytest.raises(ReplayError, match="there is no layer 'foo' to compare down to: use message, semantic, chunk"):
        Replayer(layer=layer)
