"""``playhead sessions``, ``export``, ``import``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stages.opening import Ask, Tool, UpstreamFacts
from store import open_store, trace
from store.api import SessionInfo, Trace
from tests.cli.conftest import SAID, Playhead
from tests.support.server import replayed
from tests.support.store import opening


def loaded(path: Path) -> dict[str, Trace]:
    store = open_store(str(path), create=False)
    found = {info.session: store.load(info.session) for info in store.sessions()}
    store.close()
    return found


def test_list_fits_80_columns(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("sessions", "list", "--store", recorded)
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["session", "opened", "state", "in", "out", "ends", "message"]
    assert max(map(len, [head, *lines])) <= 80
    leaves, fails, calls, text = lines  # newest first
    for line, asked in ((leaves, "leaves"), (fails, "fails"), (calls, "calls"), (text, "text")):
        assert line.startswith(ids[asked][:14])
    assert " closed " in text
    assert " eos " in text
    assert text.endswith("…")
    assert "Two tides" in text
    assert "Looking." in calls
    assert " engine " in fails
    assert " aborted " in leaves


def test_list_as_json(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    lines = playhead("sessions", "list", "--store", recorded, "--json").stdout.splitlines()
    infos = [msgspec.json.decode(line, type=SessionInfo) for line in lines]
    assert [info.session for info in infos] == [*reversed(ids.values())]
    calls = infos[2]
    assert calls.message[0]["reasoning"] == "Which port?"
    assert [call["name"] for call in calls.message[1]["tool_calls"]] == ["tide", "moon"]


def test_list_some(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    def listed(*options: str) -> list[str]:
        return playhead("sessions", "list", "--store", recorded, *options).stdout.splitlines()[1:]

    [aborted] = listed("--state", "aborted")
    assert aborted.startswith(ids["leaves"][:14])
    assert len(listed("--limit", "2")) == 2
    nothing = playhead("sessions", "list", "--store", recorded, "--state", "torn")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no sessions\n")


@pytest.fixture
def proxied(playhead: Playhead) -> None:
    """A playhead.db with sessions of other servers, and what other parsers made of them: s0 to s3, the oldest first."""
    store = open_store("playhead.db")
    facts = UpstreamFacts(name="a", url="http://127.0.0.1:1", path="/v1/chat/completions", depth="tokens")
    hosted = msgspec.structs.replace(facts, name="b", depth="verbatim")
    for number, upstream in enumerate((None, facts, facts, hosted)):
        made = opening(f"s{number}", opened=opening().opened + number, upstream=upstream)
        store.writer(made).close("closed")
    store.attach("s1", "shadow:hermes", {}, "changed")
    store.attach("s1", "shadow:a\x1b[31mb/c.py:P", {}, "failed")
    store.attach("s2", "shadow:hermes", {}, "same")
    store.attach("s3", "shadow:hermes", {}, "uncompared")
    store.close()


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("differs != ''", ["s1"]),
        ("depth = 'verbatim'", ["s3"]),
        ("json_extract(shadows, '$.hermes') = 'changed'", ["s1"]),
        ("upstream != '' and relayed", ["s3", "s2", "s1"]),
        ("session = 'nobody'", []),
    ],
)
@pytest.mark.parametrize("command", [("sessions",), ("sessions", "list")], ids=" ".join)
@pytest.mark.usefixtures("proxied")
def test_list_where(playhead: Playhead, command: tuple[str, ...], where: str, names: list[str]) -> None:
    lines = playhead(*command, "--where", where, "--json").stdout.splitlines()
    assert [msgspec.json.decode(line, type=SessionInfo).session for line in lines] == names
    result = playhead(*command, "--where", where, "--limit", 9)
    assert [line.split()[0] for line in result.stdout.splitlines()[1 : 1 + len(names)]] == names
    if not names:
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no sessions\n")


@pytest.mark.usefixtures("proxied")
def test_list_shows_how_deep_and_what_differs(playhead: Playhead) -> None:
    result = playhead("sessions")
    head, *lines = result.stdout.splitlines()
    assert result.stdout == playhead("sessions", "list").stdout
    assert head.split()[:8] == ["session", "opened", "state", "depth", "in", "out", "ends", "differs"]
    assert [line.split()[4:] for line in lines[:4]] == [
        ["verbatim"], ["tokens"], ["tokens", "a", "[31mb/c.py:P", "hermes"], [],
    ]  # fmt: skip
    assert " ".join(" ".join(lines[4:]).split()) == (
        "differs, parsers whose message is another: a [31mb/c.py:P 1, hermes 1; where: playhead replay STORE "
        "--session ID --parser P"
    )
    assert max(map(len, [head, *lines])) <= 80
    [line] = playhead("sessions", "--where", "session='s1'", "--json").stdout.splitlines()
    told = msgspec.json.decode(line)
    assert (told["upstream"], told["depth"], told["relayed"]) == ("a", "tokens", True)
    assert told["shadows"] == {"a\x1b[31mb/c.py:P": "failed", "hermes": "changed"}


@pytest.mark.parametrize("where", ["depth =", "nothing = 1", "1; DROP TABLE sessions", "(SELECT count(*) FROM blobs)"])
def test_list_where_is_no_condition(recorded: Path, playhead: Playhead, where: str) -> None:
    before = recorded.read_bytes()
    result = playhead("sessions", "--where", where, "--store", recorded)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--where" in result.stderr
    assert "columns of a session: session, opened" in " ".join(result.stderr.split())
    assert recorded.read_bytes() == before


def test_sessions_without_a_command(recorded: Path, playhead: Playhead) -> None:
    assert playhead("sessions", "--store", recorded).stdout == playhead("sessions", "list", "--store", recorded).stdout
    for option in ("-h", "--help"):
        told = playhead("sessions", option)
        assert (told.exit_code, "Commands:" in told.stdout) == (0, True)
    assert playhead("sessions", "lits").exit_code == 2
    assert playhead("sessions", "--nonsense").exit_code == 2


def test_search(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    [_, line] = playhead("sessions", "search", "almanac mostly", "--store", recorded).stdout.splitlines()
    assert line.startswith(ids["text"][:14])
    found = playhead("sessions", "search", "port", "--store", recorded, "--json").stdout.splitlines()
    assert [msgspec.json.decode(one, type=SessionInfo).session for one in found] == [ids["calls"]]


def test_search_without_a_hit(recorded: Path, playhead: Playhead) -> None:
    result = playhead("sessions", "search", "almana", "--store", recorded)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no answer contains 'almana' (whole words of final messages are searched)\n"
    result = playhead("sessions", "search", "almana", "--store", recorded, "--json")
    assert (result.exit_code, result.output) == (0, "")


def test_list_counts_faults_and_names_them_below(playhead: Playhead) -> None:
    store = open_store("playhead.db")
    ended: list[tuple[tuple[str, ...], dict[str, int]]] = [
        (("cancelled",), {"unclosed_reasoning": 1, "bad_arguments": 2}),
        (("eos", "length"), {}),
        (("stop",), {"bad_arguments": 10}),
    ]
    infos = [
        SessionInfo(session=f"{index:032x}", opened=index, state="aborted", finish_reasons=ends, faults=faults,
                    prompt_tokens=12345, completion_tokens=12345, message=({"content": "word " * 20},))
        for index, (ends, faults) in enumerate(ended)
    ]  # fmt: skip
    store.save(Trace(opening=opening(info.session), info=info, records={}) for info in infos)
    store.close()
    head, *lines = playhead("sessions", "list").stdout.splitlines()
    assert head.split() == ["session", "opened", "state", "in", "out", "ends", "faults", "message"]
    assert max(map(len, [head, *lines])) <= 80
    assert [line.split()[6:8] for line in lines[:3]] == [["stop", "10"], ["eos,length", "word"], ["cancelled", "3"]]
    assert " ".join(lines[3:]).startswith(
        "faults, what the model wrote wrong: bad_arguments 12, unclosed_reasoning 1; "
    )


def test_show(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("sessions", "show", ids["calls"], "--store", recorded)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(ids["calls"])
    for title in ("input / engine", "served / semantic", "served / chunk", "served / frame", "socket / frame"):
        assert title in map(str.strip, lines)
    assert "parse.hermes@" in result.stdout
    assert "Which port?" in result.stdout


TIDE, MOON = Tool("tide", strict=True), Tool("moon")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (Ask(), None),
        (Ask(tools=(MOON,)), None),
        (Ask(tools=(TIDE,), tool_choice="none"), None),
        (Ask(tools=(MOON,), tool_choice="required", constrained=True), "a call; a grammar held the output to it"),
        (Ask(tools=(MOON,), tool_choice="required"), "a call; no grammar of ours held it to that"),
        (
            Ask(tools=(MOON, TIDE), tool_choice="required", allowed=("tide", "moon")),
            "a call of tide, moon, arguments by the schema (strict) of tide; no grammar of ours held it to that",
        ),
        (Ask(tools=(MOON,), tool_choice="name:moon"), "a call of moon; no grammar of ours held it to that"),
        (
            Ask(tools=(TIDE, MOON), constrained=True),
            "arguments by the schema (strict) of tide; a grammar held the output to it",
        ),
        (Ask(answer={}, constrained=True), "a JSON object as content; a grammar held the output to it"),
        (Ask(answer={"type": "array"}), "content by a JSON schema; no grammar of ours held it to that"),
        (
            Ask(tools=tuple(Tool(f"t{number}", strict=True) for number in range(7))),
            "arguments by the schema (strict) of t0, t1, t2, t3, t4 and 2 more; no grammar of ours held it to that",
        ),
        (Ask(tools=(MOON,), tool_choice="name:m\x1b[2J"), "a call of m\\x1b[2J; no grammar of ours held it to that"),
    ],
)
def test_show_what_the_output_was_held_to(playhead: Playhead, ask: Ask, says: str | None) -> None:
    store = open_store("playhead.db")
    made = msgspec.structs.replace(opening("a" * 32), ask=ask)
    store.save([Trace(opening=made, info=SessionInfo(session="a" * 32, opened=0, state="closed"), records={})])
    store.close()
    result = playhead("sessions", "show", "a" * 32)
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    if says is None:
        assert "asked for" not in shown
    else:
        assert f"asked for: {says} stages:" in shown


def test_show_one_layer_by_the_start_of_its_id(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    # Sessions of one moment share their first digits: 20 of 32 tell them apart.
    result = playhead("sessions", "show", ids["text"][:20], "--store", recorded, "--layer", "semantic")
    assert "served / semantic" in result.stdout
    assert "served / chunk" not in result.stdout


def test_show_as_a_trace_file(recorded: Path, ids: dict[str, str], playhead: Playhead, tmp_path: Path) -> None:
    result = playhead("sessions", "show", ids["text"], "--store", recorded, "--json")
    path = tmp_path / "one.jsonl"
    path.write_bytes(result.stdout_bytes)
    assert trace.read(path) == loaded(recorded)[ids["text"]]


@pytest.mark.parametrize(
    ("session", "says"), [("ffff", "ffff"), ("0", "0"), ("", "session")], ids=["none", "several", "empty"]
)
def test_show_what_is_not_one_session(recorded: Path, playhead: Playhead, session: str, says: str) -> None:
    result = playhead("sessions", "show", session, "--store", recorded)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("Error: ")
    assert says in result.stderr


# --- export, import -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--zst",)])
def test_export_all_and_import_into_a_new_store(
    recorded: Path, ids: dict[str, str], playhead: Playhead, tmp_path: Path, options: tuple[str, ...]
) -> None:
    result = playhead("export", "--all", "--store", recorded, "--to", tmp_path / "out", *options)
    assert result.exit_code == 0
    written = [Path(line) for line in result.stdout.splitlines()]
    suffix = ".jsonl.zst" if options else ".jsonl"
    assert {path.name for path in written} == {f"{session}{suffix}" for session in ids.values()}
    new = tmp_path / "new.db"
    result = playhead("import", tmp_path / "out", "--store", new)
    assert (result.exit_code, result.stdout) == (0, f"{len(SAID)} new sessions in {new}\n")
    assert loaded(new) == loaded(recorded)
    assert [found.verdict for found in replayed(new)] == ["same"] * len(SAID)
    again = playhead("import", *written, "--store", new)
    assert (again.exit_code, again.stdout) == (0, f"0 new sessions in {new}, {len(SAID)} already there\n")


def test_export_one(recorded: Path, ids: dict[str, str], playhead: Playhead, tmp_path: Path) -> None:
    result = playhead("export", ids["text"][:20], "--store", recorded)
    assert result.exit_code == 0
    assert trace.read(tmp_path / result.stdout.strip()) == loaded(recorded)[ids["text"]]
    assert playhead("import", f"{ids['text']}.jsonl").stdout == "1 new session in playhead.db\n"


@pytest.mark.parametrize(
    ("arguments", "says"), [((), "name sessions, or say --all\n"), (("some", "--all"), "not both\n")]
)
def test_export_wants_either_sessions_or_all(
    recorded: Path, playhead: Playhead, arguments: tuple[str, ...], says: str
) -> None:
    result = playhead("export", "--store", recorded, *arguments)
    assert result.exit_code == 2
    assert result.stderr.endswith(says)


def test_export_where_it_cannot_write(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = playhead("export", "--all", "--store", recorded, "--to", tmp_path / "file" / "below")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_import_what_is_no_trace(playhead: Playhead, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"playhead": 1, "opening"\n')
    for path in (tmp_path / "broken.jsonl", tmp_path / "missing.jsonl"):
        result = playhead("import", path, "--store", tmp_path / "new.db")
        assert result.exit_code == 3
        assert path.name in result.stderr


# --- stores that are none -------------------------------------------------------------------------------------------

LOOKING = [("sessions", "list"), ("sessions", "search", "x"), ("sessions", "show", "x"), ("export", "--all")]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_missing_store_is_not_made(playhead: Playhead, tmp_path: Path, command: tuple[str, ...]) -> None:
    result = playhead(*command)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "playhead.db" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [*LOOKING, ("import", "x.jsonl")], ids=" ".join)
def test_a_file_that_is_no_store(playhead: Playhead, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "notes.db"
    path.write_text("no database, but notes; " * 100)
    result = playhead(*command, "--store", path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "notes.db" in result.stderr
    assert path.read_text() == "no database, but notes; " * 100
