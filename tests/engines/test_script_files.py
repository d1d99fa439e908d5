"""Script files of the scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.engines.base import FAILED, EngineLoadError
from pipeline.engines.scripted import ScriptedEngine
from pipeline.engines.scripts import read_scripts
from stages.events import FinishInput
from tests.support.engines import ask, collect, ids, written

pytestmark = pytest.mark.anyio


async def test_scripts_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    steps = ["Hi", {"hex": ["e29c", "85"]}, {"hex": ["21"], "ids": [999]}, ["finish", 0, "length"]]
    file.write_text(json.dumps({"scripts": [{"steps": steps}, {"steps": ["a", {"fail": "boom"}]}]}))
    async with ScriptedEngine.from_config(file) as engine:
        first, second = await collect(engine, ask()), await collect(engine, ask())
    assert written(first) == "Hi✅!".encode()
    assert ids(first)[-1] == 999
    assert first[-2] == FinishInput(0, "length")
    assert second[-1] == FAILED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is no script"),
        ('["a"]', "is no script"),
        ('{"scripts": []}', "has no scripts"),
        ('{"scripts": [{"steps": ["a", 5]}]}', "script 1, step 2"),
        ('{"scripts": [{"steps": [{"hex": ["zz"]}]}]}', "script 1, step 1"),
        ('{"scripts": [{"steps": [{"hex": ["00"], "ids": [1, 2]}]}]}', "2 ids for 1 pieces"),
        ('{"scripts": [{"steps": [{"text": "Hi"}]}]}', 'step 1: expected a "text", {"hex": ["f09f"]}, '),
        ('{"scripts": [{"steps": [["nonsense"]]}]}', "script 1, step 1"),
        ('{"scripts": [{"steps": [], "speed": 1}]}', "speed"),
    ],
)
def test_a_bad_script_file_says_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(EngineLoadError, match=r"script\.json") as caught:
        read_scripts(file)
    assert complaint in str(caught.value)


def test_a_missing_script_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineLoadError, match="No such file"):
        read_scripts(tmp_path / "none.json")
