"""``playhead parse``: one text, a batch of cases, the list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Playhead
from tests.support.terminal import in_terminal, without_escapes
from tests.support.tree import ROOT

SAID = (
    "<think>\nThey mean Brest.\n</think>\n\nOne moment.\n"
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>\n'
)
CUT = SAID + '<tool_call>\n{"name": "moon", "arguments": {"at": "no'
SHOWN = """<think>↵
They mean Brest.↵
</think>↵
↵
One moment.↵
<tool_call>↵
{"name": "tide", "arguments": {"port": "Brest"}}↵
</tool_call>↵
<tool_call>↵
{"name": "moon", "arguments": {"at": "no
"""
"""CUT; the line ends that no client gets are visible."""
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}, "moon"]
MODIFIED = f"{ROOT / 'examples' / 'modified_parser.py'}:Parser"
RAISING = """
class Machine:
    def step(self, event, out):
        raise ValueError("no such\\nstate")
    def snapshot(self):
        return None

class Parser:
    id = "mine@1"
    def start(self, opening):
        return Machine()
    resume = None

class Late(Parser):
    id = "late@1"
    def start(self, opening):
        machine = Machine()
        steps = iter((None, None))
        machine.step = lambda event, out: None if next(steps, 1) is None else {}["lost"]
        return machine

class Splitter:
    "Its message depends on the split."
    id = "splitter@1"
    def start(self, opening):
        return Steps(opening)
    resume = None

class Steps(Machine):
    def __init__(self, opening):
        from stages import catalog
        self.inner = catalog.parser("plain").start(opening)
    def step(self, event, out):
        import msgspec
        from stages.events import TokensInput
        if isinstance(event, TokensInput):
            event = msgspec.structs.replace(event, text=event.text + ".")
        self.inner.step(event, out)
"""


@pytest.fixture
def files(tmp_path: Path, playhead: Playhead) -> Path:
    """A folder with what the tests read; ``playhead`` has made it the working directory."""
    (tmp_path / "said.txt").write_text(SAID)
    (tmp_path / "cut.txt").write_text(CUT)
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "mine.py").write_text(RAISING)
    (tmp_path / "tail.txt").write_text("<|im_start|>assistant\n<think>\n")
    return tmp_path


def process(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A process of its own."""
    command = [sys.executable, "-m", "pipeline.cli", "parse", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, check=False, timeout=120)


def message(text: str) -> dict[str, Any]:
    """The one line of JSON, without the calls' ids."""
    [line] = text.splitlines()
    found: dict[str, Any] = json.loads(line)
    for call in found["tool_calls"]:
        assert call.pop("id").startswith("call_")
    return found


# --- one text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", ["tools.json", "any"])
def test_the_message_as_json(files: Path, playhead: Playhead, tools: str) -> None:
    result = playhead("parse", "--parser", "hermes", "--tools", tools, "said.txt")
    assert (result.exit_code, result.stderr) == (0, "")
    assert message(result.stdout) == {
        "reasoning": "They mean Brest.",
        "content": "One moment.",
        "tool_calls": [{"name": "tide", "arguments": '{"port": "Brest"}'}],
        "finish_reason": "tool_calls",
        "faults": [],
    }


def test_a_request_is_a_tools_file_too(files: Path, playhead: Playhead) -> None:
    (files / "request.json").write_text(json.dumps({"model": "m", "tools": TOOLS}))
    result = playhead("parse", "--parser", "hermes", "--tools", "request.json", "said.txt")
    assert [call["name"] for call in message(result.stdout)["tool_calls"]] == ["tide"]


def test_without_tools_nothing_is_a_call_and_it_says_so(files: Path, playhead: Playhead) -> None:
    result = playhead("parse", "--parser", "hermes", "said.txt")
    assert result.exit_code == 0
    found = message(result.stdout)
    assert found["tool_calls"] == []
    assert found["content"].startswith("One moment.\n<tool_call>")
    assert "--tools any" in result.stderr
    (files / "plain.txt").write_text("No call.")
    assert playhead("parse", "--parser", "hermes", "plain.txt").stderr == ""


def test_call_policies_and_finish_reasons(files: Path, playhead: Playhead) -> None:
    asked = ("parse", "--parser", "hermes", "--tools", "tools.json", "--finish", "length", "cut.txt")
    found = message(playhead(*asked).stdout)
    assert [call["name"] for call in found["tool_calls"]] == ["tide", "moon"]
    assert found["tool_calls"][1]["arguments"] == '{"at": "no'
    assert (found["finish_reason"], found["faults"]) == ("length", ["unclosed_call"])
    found = message(playhead(*asked, "--calls", "whole").stdout)
    assert [call["name"] for call in found["tool_calls"]] == ["tide"]
    assert found["faults"] == ["unclosed_call"]


@pytest.mark.parametrize("tail", ["<|im_start|>assistant\n<think>\n", "@tail.txt"])
def test_a_prompt_that_opened_reasoning(files: Path, playhead: Playhead, tail: str) -> None:
    (files / "open.txt").write_text("Two a day.\n</think>\n\nTwo.")
    found = message(playhead("parse", "--parser", "hermes", "--prompt-tail", tail, "open.txt").stdout)
    assert (found["reasoning"], found["content"]) == ("Two a day.", "Two.")


def test_splits_that_agree_and_splits_that_do_not(files: Path, playhead: Playhead) -> None:
    splits = "one,token,marker,char,rand:1:5"
    result = playhead("parse", "--parser", "hermes", "--tools", "any", "--splits", splits, "cut.txt")
    found = message(result.stdout)
    assert (result.exit_code, found["agree"], found["difference"]) == (0, True, None)
    assert found["splits"] == splits.split(",")
    result = playhead("parse", "--parser", "mine.py:Splitter", "--splits", "one,char", "tail.txt")
    found = message(result.stdout)
    assert (result.exit_code, found["agree"]) == (1, False)
    assert found["difference"].startswith("one and char differ: content: '<|im_start|>")
    # On a terminal, in words.
    result = playhead("parse", "--parser", "mine.py:Splitter", "--splits", "one,char", "--pretty", "tail.txt")
    assert result.exit_code == 1
    assert "one and char differ: content: " in result.stdout


def test_standard_input_and_bytes_that_are_no_text() -> None:
    done = process("--parser", "hermes", "-", stdin=b"\xff\x00<think>\nhm\n</think>\n\nok \xf0\x9f")
    assert (done.returncode, done.stderr) == (0, b"")
    found = message(done.stdout.decode())
    assert found["content"] == "\ufffd\0<think>\nhm\n</think>\n\nok \ufffd"
    assert found["faults"] == ["invalid_utf8", "invalid_utf8"]
    done = process("--parser", "hermes", "-")
    assert message(done.stdout.decode()) == {
        "reasoning": None, "content": None, "tool_calls": [], "finish_reason": "stop", "faults": [],
    }  # fmt: skip


def test_a_closed_pipe_and_closed_standard_streams() -> None:
    shell = f"{sys.executable} -m pipeline.cli parse --batch - | head -n 1"
    case: dict[str, Any] = {"id": "a", "parser": "plain", "raw_output": "x" * 9000, "expected": {}}
    lines = (json.dumps(case) + "\n").encode() * 200
    done = subprocess.run(shell, shell=True, cwd=ROOT, input=lines, capture_output=True, check=False, timeout=120)
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    for closed, code in (("- <&-", 3), ("README.md >&-", 0), ("README.md --pretty >&-", 0)):
        shell = f"{sys.executable} -m pipeline.cli parse --parser plain {closed}"
        done = subprocess.run(shell, shell=True, cwd=ROOT, capture_output=True, check=False, timeout=120)
        assert done.returncode == code, closed
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "give a FILE"),
        (["said.txt"], 2, "--list shows all parsers"),
        (["--parser", "hermez", "said.txt"], 2, "no parser 'hermez'; did you mean hermes?"),
        (["--parser", "mine.py:None", "said.txt"], 2, "mine.py has no None"),
        (["--parser", "hermes", "--splits", "words", "said.txt"], 2, "there is no split 'words'"),
        (["--parser", "hermes", "--finish", "soon", "said.txt"], 2, "length"),
        (["--parser", "hermes", "--trace", "--splits", "one,token", "said.txt"], 2, "one split"),
        (["--list", "said.txt"], 2, "give one of them"),
        (["--batch", "said.txt", "--tools", "any"], 2, "--tools has no effect with --batch"),
        (["--batch", "said.txt", "--trace"], 2, "JSON lines"),
        (["--parser", "hermes", "missing.txt"], 3, "missing.txt: cannot be read: No such file"),
        (["--parser", "hermes", "."], 3, ".: cannot be read"),
        (["--parser", "hermes", "--tools", "missing.json", "said.txt"], 3, "missing.json: cannot be read"),
        (["--parser", "hermes", "--tools", "said.txt", "said.txt"], 3, "said.txt: not JSON"),
        (["--parser", "hermes", "--tools", "bad.json", "said.txt"], 3, "bad.json: tools[0]: "),
        (["--parser", "hermes", "--tools", "none.json", "said.txt"], 3, "none.json: expected a list of tools"),
        (["--parser", "hermes", "--prompt-tail", "@missing.txt", "said.txt"], 3, "missing.txt: cannot be read"),
        (["--parser", "hermes", "--prompt-tail", "@bytes.bin", "said.txt"], 3, "bytes.bin: byte 1 is not UTF-8"),
        (["--parser", "hermes", "large.txt"], 3, "large.txt: over 4 MiB"),
        (["--batch", "missing.jsonl"], 3, "missing.jsonl: cannot be read"),
        (["--parser", "mine.py:Parser", "said.txt"], 1, "parser mine@1 raised ValueError: no such"),
    ],
)
def test_what_cannot_be_done(files: Path, playhead: Playhead, arguments: list[str], code: int, says: str) -> None:
    (files / "bad.json").write_text('[{"type": "function", "function": {"nam": "tide"}}]')
    (files / "none.json").write_text('{"model": "m"}')
    (files / "bytes.bin").write_bytes(b"a\xff")
    (files / "large.txt").write_bytes(b"a" * ((4 << 20) + 1))
    result = playhead("parse", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in " ".join(result.stderr.split())


# --- on a terminal ----------------------------------------------------------------------------------------------------


def test_a_terminal_shows_the_text_by_kind(files: Path) -> None:
    code, shown = in_terminal(
        "parse", "--parser", "hermes", "--tools", "any", "--splits", "one,token", files / "cut.txt"
    )
    assert code == 0
    assert "\x1b[35mThey mean Brest.\x1b[0m" in shown
    assert "\x1b[2m<think>↵\x1b[0m" in shown
    assert "\x1b[1;36mtide\x1b[0m" in shown
    assert '\x1b[36m{"port": "Brest"}\x1b[0m' in shown
    lines = without_escapes(shown).splitlines()
    wrote = SHOWN.splitlines()
    assert lines[: len(wrote)] == wrote
    assert "reasoning  content  call name  arguments  marker" in lines
    assert 'call 0  tide  {"port": "Brest"}' in lines
    assert 'call 1  moon  not complete  {"at": "no' in lines
    size = len(CUT.encode())
    assert f"fault unclosed_call  at byte {size}  output ended inside the call" in lines
    assert lines[-2:] == ["finish_reason stop", "2 splits agree: one, token"]


def test_without_colours_the_kinds_have_names(files: Path, playhead: Playhead) -> None:
    _, shown = in_terminal(
        "parse", "--parser", "hermes", "--tools", "any", files / "said.txt", columns=40, NO_COLOR="1"
    )
    lines = [line.rstrip() for line in without_escapes(shown).splitlines()]
    assert "\x1b[3" not in shown
    assert lines[:3] == ["marker     <think>↵", "reasoning  They mean Brest.", "marker     ↵"]
    assert 'arguments  {"port": "Brest"}' in lines
    assert max(map(len, lines)) <= 40
    # The same on a pipe, on request.
    piped = playhead("parse", "--parser", "hermes", "--tools", "any", "--pretty", "said.txt").stdout.splitlines()
    assert piped == lines


def test_what_a_model_writes_does_not_move_the_cursor(files: Path) -> None:
    (files / "odd.txt").write_bytes("a\x1b[2Jb\u202ec\rd\te 潮 [red]f[/red]".encode() + b"\xff")
    _, shown = in_terminal("parse", "--parser", "plain", files / "odd.txt")
    assert shown.startswith("a\\x1b[2Jb\\u202ec\\rd     e 潮 [red]f[/red]\ufffd\r\n")
    assert "fault invalid_utf8  bytes " in without_escapes(shown)


def test_the_steps(files: Path, playhead: Playhead) -> None:
    (files / "short.txt").write_text("<think>\nTwo a day.\n</think>\n\nok")
    result = playhead("parse", "--parser", "hermes", "--trace", "short.txt")
    assert result.exit_code == 0
    head, *rows = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [head[0], *head[1].split()] == ["step", "token", "state", "held", "events"]
    assert [number for number, _ in rows] == [str(number) for number in range(len(rows))]
    shown = {row.split("  ", 1)[0]: row.split("  ", 1)[1].split() for _, row in rows}
    assert shown["'<think>'"] == ["reasoning_lead", "0", "marker", "'<think>'"]
    # The newline may belong to the closer, and is held.
    assert shown["'ay.\\n'"] == ["reasoning", "1", "reasoning", "'ay.'"]
    assert shown["finish eos"] == ["ended", "0", "finish", "eos"]


def test_the_steps_of_a_parser_that_does_not_tell_its_state(files: Path, playhead: Playhead) -> None:
    rows = playhead("parse", "--parser", MODIFIED, "--trace", "said.txt").stdout.splitlines()[1:]
    assert {row.split()[-2] for row in rows if row.split()[-1] == "0"} == {"-"}


def test_the_steps_up_to_one_that_raises(files: Path, playhead: Playhead) -> None:
    result = playhead("parse", "--parser", "mine.py:Late", "--trace", "said.txt")
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["step", "0", "1"]
    assert "Error: parser late@1 raised KeyError: 'lost' (mine.py:" in result.stderr


def test_the_steps_fit_a_narrow_terminal(files: Path) -> None:
    _, shown = in_terminal("parse", "--parser", "hermes", "--tools", "any", "--trace", files / "cut.txt", columns=50)
    lines = without_escapes(shown).splitlines()
    assert max(map(len, lines)) <= 50
    assert any(line.endswith("…") for line in lines)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_the_list(playhead: Playhead) -> None:
    result = playhead("parse", "--list")
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert "qwen3" in entries["hermes"]["aliases"]
    assert entries["hermes"]["models"] and entries["hermes"]["grammar"]
    code, shown = in_terminal("parse", "--list", columns=72)
    assert code == 0
    lines = without_escapes(shown).splitlines()
    assert lines[0].split() == ["name", "aliases", "models", "grammar"]
    assert max(map(len, lines)) <= 72
    assert any(line.startswith("hermes ") for line in lines)
    assert "hermes" in playhead("parse", "--list", "--pretty").stdout


def test_a_batch(files: Path, playhead: Playhead) -> None:
    cases: list[dict[str, Any]] = [
        {"id": "call", "parser": "hermes", "request": {"tools": TOOLS}, "raw_output": SAID, "expected": {}},
        {"id": "ids", "parser": "hermes", "tokens": [[1, "Two"], [2, "."]], "expected": {}},
        {"id": "raises", "parser": "mine.py:Parser", "raw_output": "x", "expected": {}},
    ]
    (files / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    result = playhead("parse", "--batch", "cases.jsonl", "--splits", "one,char")
    assert result.exit_code == 1
    lines: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["id"], line["splits"]) for line in lines] == [
        ("call", "one"), ("call", "char"), ("ids", "one"), ("raises", "one"), ("raises", "char"),
    ]  # fmt: skip
    assert list(lines[0]) == ["id", "splits", "reasoning", "content", "tool_calls", "finish_reason", "faults"]
    assert list(lines[0]["tool_calls"][0]) == ["id", "name", "arguments"]
    assert lines[0]["tool_calls"] == lines[1]["tool_calls"]
    assert lines[2]["content"] == "Two."
    assert "parser mine@1 raised ValueError" in lines[3]["error"]
    assert "cases.jsonl:2: ids: left out: split 'char' cuts tokens" in result.stderr
    # Another parser for all of them.
    result = playhead("parse", "--batch", "cases.jsonl", "--parser", "plain")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout.splitlines()[0])["content"] == SAID


def test_a_batch_with_lines_that_cannot_be_read(files: Path, playhead: Playhead) -> None:
    good = json.dumps({"id": "good", "parser": "plain", "raw_output": "x", "expected": {}})
    strange = json.dumps({"id": "strange", "parser": "plane", "raw_output": "x", "expected": {}})
    (files / "cases.jsonl").write_text(f"{{oops}}\n{strange}\n\n{good}\n")
    result = playhead("parse", "--batch", "cases.jsonl")
    assert result.exit_code == 3
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["good"]
    assert "Error: cases.jsonl:1: not JSON: " in result.stderr
    assert "Error: cases.jsonl:2: no parser 'plane'; did you mean plain?" in result.stderr
