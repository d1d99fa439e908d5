"""The docs: links resolve, generated pages are fresh, every command is explained."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

from pipeline.cli import main as playhead
from tests.support.tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LONGEST_DECISION = 60


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as forges make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _links(page: Path) -> list[tuple[str, str]]:
    """(file, anchor) of each relative link."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [link for link in LINK.findall(prose) if "://" not in link]
    return [(link.partition("#")[0], link.partition("#")[2]) for link in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    for name, anchor in _links(page):
        target = page.parent / name if name else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {name}"
        assert not anchor or anchor in _headings(target), f"{page.relative_to(ROOT)}: {name}#{anchor}"


def test_every_page_can_be_found_from_the_index() -> None:
    listed = {(ROOT / "docs" / name).resolve() for name, _ in _links(ROOT / "docs/index.md")}
    assert {page for page in PAGES if page.parts[-2] in ("docs", "adr") and page.name != "index.md"} == listed


def test_decisions_are_short_and_have_their_four_parts() -> None:
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [page.name[:4] for page in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for page in decisions:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:4]}: ")
        assert len(text.splitlines()) <= LONGEST_DECISION, page.name
        parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Rejected", "Consequence"], page.name


@pytest.mark.parametrize("name", ["events.md", "commands.md"])
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == _generator().pages()[name], "run: make docs"


def _commands(command: click.Command, path: tuple[str, ...] = ("playhead",)) -> list[tuple[str, click.Command]]:
    below = sorted(command.commands.items()) if isinstance(command, click.Group) else []
    return [(" ".join(path), command), *(found for name, one in below for found in _commands(one, (*path, name)))]


@pytest.mark.parametrize(("words", "command"), _commands(playhead), ids=lambda value: str(value))
def test_every_command_and_every_option_has_help(words: str, command: click.Command) -> None:
    assert command.help, words
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{words} {parameter.opts[0]}"
