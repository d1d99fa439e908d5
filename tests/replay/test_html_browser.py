"""The HTML report in a real browser."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay import run_replay
from replay.corpus import load
from replay.reports import html
from replay.run import Replayer
from store import trace
from tests.support.browser import Browser, Page, browsing
from tests.support.replay import SAID, opening, record, tokens, whole
from tests.support.results import hostile, report_of, result

pytestmark = pytest.mark.browser

CONTRAST = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = rgb => {
    const [r, g, b] = rgb.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 200)];
  }
  return worst;
})()
"""
"""The lowest contrast of any text, and where."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of a real run, with both sides of its examples."""
    folder = tmp_path_factory.mktemp("report")
    for name in "123":
        trace.write(record(opening(name * 32), whole(tokens(SAID + name * 400))), folder / f"{name}.jsonl")
    splits = ("recorded", "one")
    path = folder / "report.html"
    html.write(run_replay([str(folder)], "plain", splits), str(path), load, Replayer("plain", splits=splits))
    return path.as_uri()


def quiet(page: Page, url: str) -> None:
    """Nothing was complained of, and nothing but the file was asked for."""
    assert page.complaints() == []
    assert [each for each in page.requests() if not each.startswith("data:")] == [url]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_is_read_on_any_screen(browser: Browser, page: str, width: int, dark: bool) -> None:
    shown = browser.page(width=width, height=800, dark=dark)
    shown.open(page)
    quiet(shown, page)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    ratio, where = shown.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) is dark


def test_what_is_wide_scrolls_in_its_own_box(browser: Browser, page: str) -> None:
    shown = browser.page(width=360, height=800)
    shown.open(page)
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert shown.evaluate(f"{boxes}.some(box => box.scrollWidth > box.clientWidth)")
    # By keyboard too.
    assert shown.evaluate(f"{boxes}.every(box => box.tabIndex === 0 && box.getAttribute('aria-label'))")


@pytest.mark.parametrize("width", [390, 1280])
def test_both_sides_are_seen_without_scrolling(browser: Browser, page: str, width: int) -> None:
    """On a phone they stand under each other, on a desk beside each other; always within the screen."""
    shown = browser.page(width=width, height=800)
    shown.open(page)
    assert shown.evaluate("document.querySelectorAll('table.diff').length") >= 1
    assert shown.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(box => box.querySelector('.diff'))"
        ".every(box => box.scrollWidth <= box.clientWidth)"
    )
    box = "(box => [box.left, box.top, box.right])(document.querySelector('{}').getBoundingClientRect())"
    left, right = (shown.evaluate(box.format(f".diff tr.apart td:nth-child({at})")) for at in (4, 5))
    assert max(left[2], right[2]) <= width
    if width < 640:
        assert left[0] == right[0] and left[1] < right[1]
        # Each says whose it is: the table's head is not shown.
        named = "getComputedStyle(document.querySelector('.diff tr.apart td:nth-child({})'), '::before').content"
        assert [shown.evaluate(named.format(at)) for at in (3, 4, 5)] == [
            f'"{name}"' for name in ("the model wrote", "recorded", "replayed")
        ]
    else:
        assert left[1] == right[1] and left[2] <= right[0]


def test_hostile_texts_do_not_run(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    html.write(report_of(2, hostile), str(path))
    shown = browser.page(width=360)
    shown.open(path.as_uri())
    quiet(shown, path.as_uri())
    assert "playhead replay" in shown.evaluate("document.title")
    assert shown.evaluate("document.querySelectorAll('script, img').length") == 0
    assert "<script>document.title='run'</script>" in shown.evaluate("document.body.innerText")
    assert shown.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
def test_a_report_of_100000_sessions_opens_at_once(browser: Browser, tmp_path: Path) -> None:
    """2 s is the promise on an idle machine; here only that it is nowhere near a page that grows with its sessions."""
    path = tmp_path / "large.html"
    report = report_of(
        100_000,
        lambda number: result(number, "changed", f"kind {number % 400}") if number % 33 == 0 else result(number),
    )
    html.write(report, str(path))
    assert path.stat().st_size < 2_000_000
    times: list[float] = []
    for _ in range(3):
        shown = browser.page()
        times.append(shown.open(path.as_uri()))
        quiet(shown, path.as_uri())
    assert statistics.median(times) < 10
