"""``playhead replay --html --junit``: the files, and what stands in them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.cli.conftest import SAID, Playhead
from tests.support.tree import ROOT

MODIFIED = f"{ROOT / 'examples' / 'modified_parser.py'}:Parser"


def test_the_reports_of_a_changed_parser(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    result = playhead("replay", recorded, "--parser", MODIFIED, "--html", "out.html", "--junit", "out.xml")
    assert result.exit_code == 1
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "Worst kind:" in page and "the model wrote" in page
    assert f"--parser {MODIFIED}" in page
    root = ElementTree.fromstring((tmp_path / "out.xml").read_bytes())
    assert root.get("tests") == str(len(SAID))
    assert int(root.get("failures", "0")) >= 2
    assert "the model wrote" in result.stdout
    for option in ("--html", "--junit"):
        assert playhead("replay", recorded, option, "no/such/folder").exit_code == 2


def test_what_counts_as_a_failure_is_what_the_exit_code_says(
    recorded: Path, playhead: Playhead, tmp_path: Path
) -> None:
    assert playhead("replay", recorded, "--parser", MODIFIED, "--fail-on", "failed", "--junit", "x.xml").exit_code == 0
    assert ElementTree.fromstring((tmp_path / "x.xml").read_bytes()).get("failures") == "0"


def test_against_an_earlier_report_the_steps_are_of_the_record(
    recorded: Path, playhead: Playhead, tmp_path: Path
) -> None:
    assert playhead("replay", recorded, "--json", "then.json").exit_code == 0
    arguments = ("--baseline", "then.json", "--parser", MODIFIED, "--html", "out.html")
    assert playhead("replay", recorded, *arguments).exit_code == 1
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "then.json" in page and "Both sides, step by step" in page
    assert '<th scope="col">recorded</th>' in page
