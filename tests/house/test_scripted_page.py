"""docs/scripted.md: its script and its request are served, and are answered what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from pipeline.engines.toy import ADDED, SPECIAL
from tests.support.answers import TOOLS, Choice, of_completion
from tests.support.server import Running, serve
from tests.support.tree import ROOT

PAGE = (ROOT / "docs/scripted.md").read_text()
SCRIPT, REQUEST = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def choices(running: Running, **fields: Any) -> list[Choice]:
    """What a request is answered."""
    with running.client() as client:
        return of_completion(running.create(client, **fields)).choices


def test_the_script_says_what_the_page_says(tmp_path: Path) -> None:
    script = tmp_path / "page.json"
    script.write_text(SCRIPT)
    with serve(tmp_path, "--script", str(script), "--parser", "hermes", traceback=True) as running:
        call = ("tide", {"port": "Brest"})
        assert choices(running, tools=TOOLS) == [Choice("Looking.", "tool_calls", "They mean Brest.", (call,))]
        assert choices(running) == [Choice("Two a day 🌊.", "stop")]
        assert choices(running) == [Choice("Two a", "length")]
        with pytest.raises(openai.InternalServerError) as caught:
            choices(running)
        assert "out of memory" not in str(caught.value)
        # Round and round, one for each choice.
        assert [choice.finish for choice in choices(running, tools=TOOLS, n=3)] == ["tool_calls", "stop", "length"]
        assert "out of memory" in running.log.read_text()


def test_the_markers_are_all_in_the_table() -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith('| `"text"`')]
    assert set(re.findall(r"`(<[^`]*>)`", row.replace("\\|", "|"))) == {*SPECIAL, *ADDED}


def test_a_forced_answer(tmp_path: Path) -> None:
    fields = json.loads(REQUEST)
    said = fields["forced_text"]
    with serve(tmp_path, "--allow-forced") as running:
        asked: list[tuple[dict[str, Any], str]] = [
            ({}, said),
            ({"forced_ids": [65]}, said),
            ({"forced_text": None, "forced_ids": [72, 105]}, "Hi"),
        ]
        for more, expected in asked:
            answered = running.http.post("/v1/chat/completions", json={**fields, **more}).json()
            assert [choice["message"]["content"] for choice in answered["choices"]] == [expected]
            assert answered["choices"][0]["finish_reason"] == "stop"
        assert running.post(forced_text="One two three", max_tokens=1).json()["choices"][0]["finish_reason"] == "length"
        assert running.post(forced_ids="x").status_code == 400


def test_without_the_option_nothing_is_forced(tmp_path: Path) -> None:
    with serve(tmp_path) as running:
        [choice] = running.post(**json.loads(REQUEST)).json()["choices"]
    assert choice["message"]["content"] != json.loads(REQUEST)["forced_text"]
