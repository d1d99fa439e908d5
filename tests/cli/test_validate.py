"""``playhead validate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import main
from pipeline.cli.bodies import BadResponse, protocol_in, read_response
from stages.protocols.rules import PROTOCOLS, RULES
from store import open_store, trace
from tests.cli.conftest import Playhead
from tests.support.store import batches, opening, record, words
from tests.support.wire import golden

CHAT = golden("G01")
GOOD, REQUEST = CHAT.body, CHAT.request
LATE = GOOD + b'data: {"object":"chat.completion.chunk"}\n\n'
"""An event behind the end marker: it breaks 24 and 75 (the last event is no ``[DONE]``), and more by what it lacks."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder that the command runs in."""
    (tmp_path / "good.sse").write_bytes(GOOD)
    (tmp_path / "late.sse").write_bytes(LATE)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    return tmp_path


def told(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- a response -----------------------------------------------------------------------------------------------------


def test_a_clean_response(here: Path, playhead: Playhead) -> None:
    result = playhead("validate", "good.sse", "--request", "request.json")
    assert result.exit_code == 0
    *missing, last = result.stdout.splitlines()
    assert last.startswith("1 response, ")
    assert last.endswith(" rules checked: clean")
    assert "not checked  INV-001-002, 004-006, for want of the response's head" in missing
    assert all(line.startswith("not checked  INV-") for line in missing)


def test_without_the_request_some_rules_are_not_checked(here: Path, playhead: Playhead) -> None:
    lines = told(playhead("validate", "good.sse", "--json", "-"))
    with_request = told(playhead("validate", "good.sse", "--request", "request.json", "--json", "-"))
    [known], [more] = lines, with_request
    assert known["unchecked"]["67"] == ["request"]
    assert 67 in more["checked"]
    assert set(known["checked"]) < set(more["checked"])
    numbers = {rule.number for rule in RULES if "chat" in rule.protocols}
    assert {*known["checked"], *map(int, known["unchecked"])} == numbers


def test_what_is_broken_is_shown_with_its_place(here: Path, playhead: Playhead) -> None:
    result = playhead("validate", "late.sse")
    assert result.exit_code == 1
    head, *lines = result.stdout.splitlines()
    assert head.endswith(f"  late.sse  chat  {len(LATE)} bytes")
    rule = next(index for index, line in enumerate(lines) if "INV-024 s_afterterm" in line)
    text = next(rule.text for rule in RULES if rule.number == 24).replace("``", "`")
    assert lines[rule] == f"  error    INV-024 s_afterterm  {text}"
    assert lines[rule + 1].split()[:4] == ["frame", str(len(CHAT.elements)), "byte", str(len(GOOD))]
    assert lines[-1].startswith("1 response, ")
    assert " error" in lines[-1]


def test_json_lines(here: Path, playhead: Playhead) -> None:
    result = playhead("validate", "late.sse", "--json", "-")
    *breaches, stream = told(result)
    assert result.exit_code == 1
    late = next(line for line in breaches if line["rule"] == "INV-024")
    assert list(late) == ["source", "rule", "key", "severity", "frame", "byte", "seen", "want"]
    assert (late["source"], late["key"], late["severity"]) == ("late.sse", "s_afterterm", "error")
    assert (late["frame"], late["byte"]) == (len(CHAT.elements), len(GOOD))
    assert stream["errors"] + stream["warnings"] == sum(stream["counts"].values()) == len(breaches)
    assert (stream["source"], stream["protocol"], stream["bytes"]) == ("late.sse", "chat", len(LATE))
    playhead("validate", "late.sse", "--json", "report.jsonl")
    assert (here / "report.jsonl").read_text() == result.stdout


def test_standard_input(playhead: Playhead) -> None:
    result = CliRunner().invoke(main, ["validate", "-"], input=GOOD)
    assert (result.exit_code, result.stdout.splitlines()[-1].endswith(": clean")) == (0, True)


def test_own_streams_are_held_to_more(here: Path, playhead: Playhead) -> None:
    (here / "crlf.sse").write_bytes(GOOD.replace(b"\n", b"\r\n"))
    assert playhead("validate", "crlf.sse").exit_code == 0
    result = playhead("validate", "crlf.sse", "--fail-on", "warning")
    assert result.exit_code == 1
    assert "  warning  INV-012 s_lf" in result.stdout
    result = playhead("validate", "crlf.sse", "--own")
    assert result.exit_code == 1
    assert "  error    INV-012 s_lf" in result.stdout


def test_many_places_of_a_rule_are_cut(here: Path, playhead: Playhead) -> None:
    later = CHAT.edited(lambda ev: [{**one, "created": 1 + at} for at, one in enumerate(ev[:-1])] + ev[-1:])
    (here / "times.sse").write_bytes(later.body)
    [*breaches, _] = told(playhead("validate", "times.sse", "--json", "-"))
    assert [line["frame"] for line in breaches if line["rule"] == "INV-045"] == [1, 2, 3, 4]
    lines = playhead("validate", "times.sse", "--limit", "2").stdout.splitlines()
    rule = next(index for index, line in enumerate(lines) if "INV-045" in line)
    assert "  created 2; right: " in lines[rule + 1]
    assert lines[rule + 3] == "    and 2 more places"


def test_a_whole_body_to_compare_with(here: Path, playhead: Playhead) -> None:
    message = {"role": "assistant", "content": "Blue sky.", "refusal": None}
    whole: dict[str, Any] = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "demo-1",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
    }  # fmt: skip
    (here / "whole.json").write_text(json.dumps(whole))
    assert playhead("validate", "good.sse", "--whole", "whole.json").exit_code == 0
    message["content"] = "Grey sky."
    (here / "whole.json").write_text(json.dumps(whole))
    result = playhead("validate", "good.sse", "--whole", "whole.json")
    assert result.exit_code == 1
    assert "INV-132 x_fold" in result.stdout


def test_quick_leaves_out_what_takes_long(here: Path, playhead: Playhead) -> None:
    [stream] = told(playhead("validate", "good.sse", "--quick", "--json", "-"))
    assert stream["unchecked"]["23"] == stream["unchecked"]["137"] == ["effort"]
    [stream] = told(playhead("validate", "good.sse", "--json", "-"))
    assert {23, 137} <= set(stream["checked"])


# --- which protocol -------------------------------------------------------------------------------------------------

PROTOCOL_OF = {"G02": "chat", "G07": "completions", "G09": "responses", "G11": "responses", "G12": "messages"}


@pytest.mark.parametrize("name", PROTOCOL_OF)
def test_the_body_tells_the_protocol(name: str) -> None:
    assert protocol_in(golden(name).body) == PROTOCOL_OF[name]


@pytest.mark.parametrize(
    ("body", "protocol"),
    [
        (b'{"object":"chat.completion","choices":[]}', "chat"), (b'{"choices":[{"text":""}]}', "completions"),
        (b' {"object":"response","output":[]}', "responses"), (b'{"type":"message","content":[]}', "messages"),
        (b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n', "messages"),
        (b'event: error\ndata: {"type":"error","message":"x","code":null}\n\n', "responses"),
        (b'data: {"choices":[{"delta":{}}]}\n\n', "chat"), (b": hello\n\ndata: [DONE]\n\n", None),
        (b'data: {"error":{"message":"x"}}\n\n', None), (b"", None), (b"{" * 100_000, None), (b"data: 1\n\n", None),
        (b'data: {"choices":[1]}\n\ndata: {"type":7,"object":[]}\n\n', None),
    ],
)  # fmt: skip
def test_what_else_tells_it(body: bytes, protocol: str | None) -> None:
    assert protocol_in(body) == protocol


def test_a_request_may_tell_it() -> None:
    assert protocol_in(b"", {"input": "x"}) == "responses"
    assert protocol_in(b"", {"prompt": "x"}) == "completions"
    assert protocol_in(b"", {"messages": []}) is None


def test_nothing_tells_it(here: Path, playhead: Playhead) -> None:
    (here / "error.sse").write_bytes(b'data: {"error":{"message":"x","type":"y"}}\n\ndata: [DONE]\n\n')
    result = playhead("validate", "error.sse")
    assert result.exit_code == 3
    assert "give --protocol (chat, completions, responses, messages)" in result.stdout
    for protocol in PROTOCOLS:
        assert playhead("validate", "error.sse", "--protocol", protocol).exit_code in (0, 1)
    assert playhead("validate", "error.sse", "--protocol", "chat").exit_code == 0


# --- HTTP -----------------------------------------------------------------------------------------------------------

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
    b"X-Request-Id: r1\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunked(body: bytes, size: int = 100) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])


@pytest.mark.parametrize("framed", [chunked(GOOD), chunked(GOOD, 7), GOOD])
def test_a_response_behind_its_head(framed: bytes) -> None:
    """``curl -i`` has joined the chunks that the head announces."""
    response = read_response(HEAD + framed)
    assert response.body == GOOD
    assert not response.cut
    assert response.http is not None
    assert (response.http.status, response.http.version) == (200, "1.1")
    assert ("content-type", "text/event-stream") in response.http.headers


def test_heads_before_the_last(here: Path, playhead: Playhead) -> None:
    before = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n"
    assert read_response(before + HEAD + chunked(GOOD)) == read_response(HEAD + GOOD)
    two = read_response(b"HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n" + GOOD)
    assert two.http is not None
    assert (two.http.version, two.http.headers) == ("2", (("content-type", "text/event-stream"),))
    (here / "ok.http").write_bytes(before + HEAD + chunked(GOOD))
    [stream] = told(playhead("validate", "ok.http", "--own", "--json", "-"))
    assert {1, 2, 4, 5, 6} <= set(stream["checked"])
    assert stream["counts"] == {}


def test_a_recording_that_ends_early_is_marked_so(here: Path, playhead: Playhead) -> None:
    framed = chunked(GOOD, 50)
    response = read_response(HEAD + framed[:210])
    assert response.cut
    assert GOOD.startswith(response.body)
    assert len(response.body) > 150
    (here / "cut.http").write_bytes(HEAD + framed[:-5])
    [stream] = told(playhead("validate", "cut.http", "--json", "-"))
    assert 43 in stream["checked"]
    (here / "part.http").write_bytes(HEAD + framed[:210])
    [*_, stream] = told(playhead("validate", "part.http", "--protocol", "chat", "--json", "-"))
    assert "INV-043" not in stream["counts"]
    assert read_response(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").cut


def test_an_error_body(here: Path, playhead: Playhead) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nx-request-id: r\r\n\r\n"
    (here / "error.http").write_bytes(head + b'{"error":{"message":"no","type":"x","param":null,"code":null}}')
    [stream] = told(playhead("validate", "error.http", "--protocol", "chat", "--own", "--json", "-"))
    assert stream["counts"] == {}
    assert stream["unchecked"]["75"] == ["stream"]
    (here / "error.http").write_bytes(head + b'{"detail":"no"}')
    for options in ((), ("--protocol", "chat")):
        result = playhead("validate", "error.http", *options)
        assert result.exit_code == 1
        assert "INV-002 h_errjson" in result.stdout
    (here / "error.http").write_bytes(b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\n\r\n<h1>502</h1>")
    assert "INV-002 h_errjson" in playhead("validate", "error.http").stdout


def test_a_whole_answer_is_no_stream(here: Path, playhead: Playhead) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: r\r\n\r\n"
    (here / "answer.http").write_bytes(head + b'{"object":"chat.completion","choices":[]}')
    [stream] = told(playhead("validate", "answer.http", "--json", "-"))
    assert stream["counts"] == {}
    assert stream["unchecked"]["13"] == ["stream"]


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: y\r\n", b"HTTP/2 200\r\nx\r\n\r\n"]
)
def test_a_head_that_is_none(here: Path, playhead: Playhead, data: bytes) -> None:
    with pytest.raises(BadResponse):
        read_response(data)
    (here / "bad.http").write_bytes(data)
    result = playhead("validate", "bad.http")
    assert result.exit_code == 3
    assert "unreadable: bad.http: " in result.stdout


# --- stores ---------------------------------------------------------------------------------------------------------


def test_a_store(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("validate", recorded, "--fail-on", "warning")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("4 responses, ")
    assert result.stdout.splitlines()[-1].endswith(": all clean")
    lines = told(playhead("validate", recorded, "--json", "-"))
    assert {line["session"] for line in lines} == set(ids.values())
    calls = next(line for line in lines if line["session"] == ids["calls"])
    assert {26, 28, 41, 132, 134, 136} <= set(calls["checked"])


def test_one_session(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    [line] = told(playhead("validate", recorded, "--session", ids["fails"], "--json", "-"))
    assert line["session"] == ids["fails"]
    result = playhead("validate", recorded, "--session", "zz")
    assert (result.exit_code, "no session zz in it" in result.stdout) == (3, True)


def spoiled_store(path: str, *names: str) -> None:
    """Sessions whose request is not what they answer: each breaks INV-007 at least."""
    store = open_store(path)
    for name in names:
        record(store.writer(opening(name, request=b'{"stream":false}')), batches(words(5))).close("closed")
    store.close()


def test_what_is_saved_is_seen_in_the_list(playhead: Playhead) -> None:
    spoiled_store("playhead.db", "s1", "s2")
    assert playhead("sessions", "list").stdout.split("\n")[0].split()[-2:] == ["ends", "message"]
    result = playhead("validate", "playhead.db", "--session", "s1", "--save")
    assert result.exit_code == 1
    assert "INV-007 h_accept" in result.stdout
    head, second, first, below, *_ = playhead("sessions", "list").stdout.splitlines()
    assert head.split()[-2:] == ["rules", "message"]
    store = open_store("playhead.db", create=False)
    info = store.info("s1")
    assert (info.validated, store.info("s2").validated) == (True, False)
    store.close()
    assert info.rules["INV-007"] == 1
    assert 0 < info.rule_errors <= sum(info.rules.values())
    assert str(sum(info.rules.values())) in first.split()
    assert second.split()[:1] == ["s2"]
    assert below.startswith("rules, what was sent wrong: INV-")
    shown = playhead("sessions", "show", "s1").stdout
    assert "INV-007 1, " in shown or "INV-007 1 (" in shown
    assert "rules:" not in playhead("sessions", "show", "s2").stdout


def test_clean_is_saved_too(recorded: Path, ids: dict[str, str], playhead: Playhead, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(recorded.read_bytes())
    assert playhead("validate", copy, "--save", "--quick").exit_code == 0
    store = open_store(str(copy), create=False)
    assert [(info.validated, info.rules, info.rule_errors) for info in store.sessions()] == [(True, {}, 0)] * len(ids)
    store.close()
    assert "rules: none broken" in playhead("sessions", "show", ids["text"], "--store", copy).stdout


def test_a_session_that_is_still_recorded(playhead: Playhead) -> None:
    store = open_store("playhead.db")
    record(store.writer(opening("s1")), batches(words(5))[:4])
    store.flush()
    result = playhead("validate", "playhead.db")
    assert (result.exit_code, result.stdout) == (0, "0 responses; 1 session still being recorded\n")
    store.close()


def test_a_folder(here: Path, recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    store = open_store(str(recorded), create=False)
    (here / "text.jsonl").write_bytes(trace.dumps(store.load(ids["text"])))
    store.close()
    (here / "notes.txt").write_text("nothing")
    result = playhead("validate", here)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("3 responses, ")
    (here / "empty").mkdir()
    result = playhead("validate", here / "empty")
    assert (result.exit_code, "no session and no response in it" in result.stdout) == (3, True)


def test_a_session_whose_stages_are_gone(playhead: Playhead) -> None:
    store = open_store("playhead.db")
    record(store.writer(opening("s1", parser="gone.py:Parser"), "lean"), batches(words(5))).close("closed")
    store.close()
    result = playhead("validate", "playhead.db")
    assert result.exit_code == 3
    assert "session s1: " in result.stdout


# --- use ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a source"),
        (("playhead.db", "--request", "request.json"), "--request is for a response"),
        (("playhead.db", "--own"), "--own is for a response"),
        (("good.sse", "--save"), "--save is for stores"),
        (("good.sse", "--session", "a"), "--session is for stores"),
        (("good.sse", "late.sse", "--request", "request.json"), "belongs to one response"),
        (("text.jsonl", "--save"), "--save is for stores"),
        (("good.sse", "--request", "late.sse"), "no JSON object"),
        (("good.sse", "--json", "no/such/folder"), "cannot write"),
    ],
)
def test_wrong_use(here: Path, playhead: Playhead, arguments: tuple[str, ...], said: str) -> None:
    result = playhead("validate", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_that_is_not_there(playhead: Playhead) -> None:
    for name in ("none.sse", "none.db", "none.jsonl"):
        result = playhead("validate", name)
        assert result.exit_code == 3
        assert f"unreadable: {name}: " in result.stdout


def test_the_rules_are_listed(playhead: Playhead) -> None:
    lines = playhead("validate", "--rules").stdout.splitlines()
    listed = [line.split()[:3] for line in lines if line.startswith("INV-")]
    assert listed == [[rule.name, rule.key, rule.severity] for rule in RULES]
    assert [rule.number for rule in RULES] == list(range(1, 138))
