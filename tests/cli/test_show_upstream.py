"""``playhead sessions show`` of a session that another server generated; and of long ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from replay.derive import derive
from store import open_store
from store.api import Record, Trace
from tests.cli.conftest import Playhead
from tests.support.captures import captures
from tests.support.replay import opening, record, tokens, whole
from tests.support.upstream_traces import relayed, with_records

LOST = "vllm_dsv31-tool_multitoken"


def saved(path: Path, *traces: Trace) -> Path:
    store = open_store(str(path))
    store.save(traces)
    store.close()
    return path


def shadowed(trace: Trace, name: str) -> Trace:
    made = derive(trace.opening, trace.events("input", "engine"), name).semantic
    rows = [Record(seq, step, 0, event) for seq, (event, step) in enumerate(zip(made.events, made.steps, strict=True))]
    return with_records(trace, f"shadow:{name}", "semantic", rows)


@pytest.fixture
def show(playhead: Playhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playhead:
    """``playhead sessions show`` of a shadowed session whose upstream lost something."""
    monkeypatch.setenv("COLUMNS", "200")
    trace = relayed(captures()[LOST], taken_out="null", why="it is the test's")
    path = saved(tmp_path / "upstream.db", shadowed(trace, "deepseek_v31"))

    def run(*options: object) -> object:
        return playhead("sessions", "show", "vllm-dsv31", "--store", path, *options)

    return run  # type: ignore[return-value]  # what playhead gives


def test_what_is_known_of_the_upstream(show: Playhead) -> None:
    lines = show().stdout.splitlines()
    assert (
        "upstream: peer  http://127.0.0.1:8000/v1/chat/completions  relayed: the client got its own response" in lines
    )
    assert "depth: tokens: the model's tokens are known (it is the test's)" in lines
    assert "token ids were asked for, and taken out of what the client got: null stands in their place" in lines


def test_a_shadow_and_its_first_difference(show: Playhead) -> None:
    lines = show().stdout.splitlines()
    at = lines.index("shadow:deepseek_v31: changed")
    assert lines[at + 1] == (
        '  call arguments: upstream\'s frame 6: arguments of call 0 end after …\'Paris", "unit": "celsius\';'
        " parser deepseek_v31: '\"}'"
    )


def test_its_frames_beside_what_was_made_of_them(show: Playhead) -> None:
    lines = [line.rstrip() for line in show().stdout.splitlines()]
    [head] = [line for line in lines if line.startswith("frame ")]
    assert head.split("  ")[-1].strip() == "shadow:deepseek_v31"
    [row] = [line for line in lines if line.split()[:1] == ["6"]]
    # The model wrote the end of the arguments; the upstream made nothing of it, our parser did.
    wrote, shadow = head.index("the model wrote"), head.index("shadow:")
    theirs = head.index("the upstream made of it")
    assert row[wrote:theirs].startswith("""'"}<｜tool▁call▁end｜>""")
    assert row[theirs - 12 : shadow - 12].strip() == ""
    assert row.endswith("""arguments '"}'  marker '<｜tool▁call▁end｜>'""")


def test_one_layer_of_it(show: Playhead) -> None:
    lines = show("--layer", "frame").stdout.splitlines()
    titles = [line.strip() for line in lines if " / " in line]
    assert sorted(titles) == ["served / frame", "upstream / frame"]


def test_its_tokens(show: Playhead) -> None:
    lines = [line.rstrip() for line in show("--tokens").stdout.splitlines()]
    [head] = [line for line in lines if line.startswith("token  ")]
    assert head.split() == [
        "token",
        "id",
        "bytes",
        "shadow:deepseek_v31",
        "frame",
        *"what the upstream made of the step".split(),
    ]
    # The fourth token of frame 5's step has no frame beside it: the step's first one has.
    [first] = [line for line in lines if line.split()[:2] == ["15", "582"]]
    assert first.split()[-5:] != []
    rows = {line.split()[0]: line for line in lines if line[:5].strip().isdecimal()}
    assert len(rows) == 34
    assert rows["0"].endswith("2")
    assert "arguments of call 0" in rows["18"]


def test_tokens_without_bytes_are_beside_what_the_upstream_made(playhead: Playhead, tmp_path: Path) -> None:
    path = saved(tmp_path / "ids.db", relayed(captures()[LOST], pieces=False))
    result = playhead("sessions", "show", "vllm", "--store", path, "--tokens")
    assert result.exit_code == 0
    assert "call 0 get_weather" in result.stdout
    assert "128806" in result.stdout


def test_verbatim(playhead: Playhead, tmp_path: Path) -> None:
    path = saved(tmp_path / "verbatim.db", relayed(captures()[LOST], depth="verbatim"))
    out = playhead("sessions", "show", "vllm", "--store", path).stdout
    assert "depth: verbatim: only what the upstream made of the model's text is known" in out
    assert "the model wrote" not in out.partition("upstream's frames")[2]
    assert "call 0 get_weather" in out


def test_any_capture_can_be_shown(playhead: Playhead, tmp_path: Path) -> None:
    names = sorted(captures())[::6]
    path = saved(tmp_path / "all.db", *(relayed(captures()[name]) for name in names))
    for name in names:
        for options in ((), ("--tokens",)):
            assert playhead("sessions", "show", name.replace("_", "-"), "--store", path, *options).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--tokens",)])
def test_a_long_session_is_shown_line_by_line(playhead: Playhead, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A line for each token, or for each event, and none is folded: to lay out so many rows would take minutes."""
    trace = record(opening(parser="plain"), whole(tokens("word " * 2000, size=1)))
    path = saved(tmp_path / "long.db", trace)
    result = playhead("sessions", "show", "a", "--store", path, *options)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    if options:
        assert sum(line.endswith("content") for line in lines) == 10_000
    else:
        assert sum(line.split()[2:3] == ["TokensInput"] for line in lines) == 10_000


def test_nothing_in_a_long_session_moves_the_cursor(playhead: Playhead, tmp_path: Path) -> None:
    trace = record(opening(parser="plain"), whole(tokens("\x1b[2J\n" * 400, size=5)))
    path = saved(tmp_path / "escapes.db", trace)
    out = playhead("sessions", "show", "a", "--store", path).stdout
    assert "\x1b" not in out
    assert msgspec.json.encode(out)
