"""The docs: links resolve, generated pages are fresh, every command is explained."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from docs import generate
from pipeline.cli import main as playhead
from tests.support.tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LONGEST_DECISION = 60


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
    index, formats = ROOT / "docs/index.md", ROOT / "docs/formats/index.md"
    listed = {(page.parent / name).resolve() for page in (index, formats) for name, _ in _links(page)}
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs") and page != index} <= listed
    assert formats in {(ROOT / "docs" / name).resolve() for name, _ in _links(index)}


def test_decisions_are_short_and_have_their_four_parts() -> None:
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [page.name[:4] for page in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for page in decisions:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:4]}: ")
        assert len(text.splitlines()) <= LONGEST_DECISION, page.name
        parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Rejected", "Consequence"], page.name


def test_generated_pages_are_fresh() -> None:
    made = generate.pages()
    there = {name for name in made if (ROOT / "docs" / name).read_text() == made[name]}
    assert sorted(made.keys() - there) == [], "run: make docs"
    assert {f"formats/{page.name}" for page in (ROOT / "docs/formats").iterdir()} <= made.keys()


def test_no_page_has_a_tag_that_is_not_shown() -> None:
    """Outside code, ``<think>`` is HTML to whoever renders the page."""
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$|^    .*?$|<!--.*?-->", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose, flags=re.DOTALL)
        assert re.findall(r"<[/a-zA-Z|｜][^\n]{0,20}", prose) == [], page.name


MOST_ROWS = 45


def test_a_state_table_is_not_longer_than_a_reader_can_hold() -> None:
    head = "| state | reads |"
    for page in sorted((ROOT / "docs/formats").iterdir()):
        tables = page.read_text().split(head)[1:]
        rows = [len("".join(re.findall(r"\A(?:.*\|\n)*", table)).splitlines()) - 2 for table in tables]
        assert all(0 < size <= MOST_ROWS for size in rows), f"{page.name}: {rows}"
        assert len(tables) == (page.name != "index.md"), page.name


def _commands(command: click.Command, path: tuple[str, ...] = ("playhead",)) -> list[tuple[str, click.Command]]:
    found = [(" ".join(path), command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            below = command.get_command(context, name)
            assert below is not None
            found += _commands(below, (*path, name))
    return found


@pytest.mark.parametrize(("words", "command"), _commands(playhead), ids=lambda value: str(value))
def test_every_command_and_every_option_has_help(words: str, command: click.Command) -> None:
    assert command.help, words
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{words} {parameter.opts[0]}"
