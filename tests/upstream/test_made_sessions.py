"""Sessions whose response our stages make of another server's, translated or parsed: they are picked up, gone on from,
played in any protocol, replayed and carried elsewhere as those of our own engine; and no key is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from replay import Replayer
from replay.played import played
from stages.events import End
from stages.message import collect
from stages.stage import fold
from stages.upstream.decode import DECODERS
from store import trace as files
from tests.support import letters
from tests.support.captures import PATHS, captures
from tests.support.playback import playback
from tests.support.proxies import Got, bytes_of, post, proxied
from tests.support.server import Running, replayed, serve
from tests.support.validated import assert_clean
from tests.support.vocabularies import tokenizer_folder
from tests.upstream.test_translate import SPOKEN, Spoken, question

KEY = "sk-client-0123456789"
SAID = "<think>\nThe moon 潮.\n</think>\n\nTwo à day."
HOW = ("translated", "parsed")


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Running]]:
    """One asks for what is meant, one for tokens."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("inner")
        inner = stack.enter_context(serve(folder, "--parser", "hermes", module="tests.support.letters"))
        made: dict[str, Running] = {}
        for how in HOW:
            folder = tmp_path_factory.mktemp(how)
            parsed = ("--parser", "hermes", "--tokenizer", str(letters.tokenizer(folder / "tokenizer")))
            options = parsed if how == "parsed" else ("--upstream-protocol", "chat")
            made[how] = stack.enter_context(proxied(folder, inner.address, *options))
            made[how].model = inner.model
        yield made
    for running in made.values():
        assert_clean(running.store)
        assert {result.session: result.verdict for result in replayed(running.store) if result.verdict != "same"} == {}


def ask(running: Running, protocol: Spoken, **fields: Any) -> Got:
    got = post(running.address, PATHS[protocol], question(protocol, SAID, **fields), {"authorization": f"Bearer {KEY}"})
    assert got.status == 200
    return got


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("protocol", ["responses", "messages"])
def test_a_session(outer: dict[str, Running], how: str, protocol: Spoken, tmp_path: Path) -> None:
    running = outer[how]
    whole = json.loads(ask(running, protocol).body)
    trace = running.recorded(whole["id"])
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.depth, facts.relayed, facts.protocol, facts.lost, trace.opening.parser) == (
        "tokens" if how == "parsed" else "verbatim", False, "chat", (), "hermes" if how == "parsed" else "told",
    )  # fmt: skip
    for other in SPOKEN:
        shown = played(trace, other)
        [message] = collect(fold(DECODERS[other].start(shown.opening), [*shown.frames, End()]))
        assert ((message.reasoning or "").strip(), message.content) == ("The moon 潮.", "Two à day.")
    [result] = Replayer(trace.opening.parser).replay_many([trace])
    assert result.verdict == "same"
    path = tmp_path / files.file_name(trace.info.session)
    files.write(trace, path)
    again = files.read(path)
    assert (again.opening, again.records) == (trace.opening, trace.records)
    assert KEY.encode() not in path.read_bytes()
    assert KEY not in running.log.read_text()


@pytest.mark.parametrize(
    ("how", "protocol"), [(how, one) for how in HOW for one in SPOKEN if how == "parsed" or one != "chat"]
)
def test_a_stream_is_picked_up(outer: dict[str, Running], how: str, protocol: Spoken) -> None:
    running = outer[how]
    got = ask(running, protocol, stream=True)
    [name, *_] = re.findall(r'"id":"((?:chatcmpl-|resp_|msg_)\w+)"', got.body.decode())
    trace = running.recorded(name)
    assert bytes_of(trace, "served") == got.body
    path = f"/v1/streams/{trace.info.session}"
    assert post(running.address, path, b"", method="GET").body == got.body
    blocks = got.body.split(b"\n\n")
    rest = post(running.address, f"{path}?after=2", b"", method="GET").body
    assert got.body.endswith(rest)
    assert 0 < len(rest) < len(got.body)
    assert rest.split(b"\n\n")[-2] == blocks[-2]


@pytest.mark.parametrize("how", HOW)
def test_the_state_of_responses(outer: dict[str, Running], how: str) -> None:
    with outer[how].client() as client:
        first = client.responses.create(model="scripted", input=SAID, background=True, stream=True)
        events = list(first)
        assert events[-1].type == "response.completed"
        name = events[-1].response.id
        later = list(client.responses.retrieve(name, stream=True, starting_after=events[3].sequence_number))
        assert [event.sequence_number for event in later] == [event.sequence_number for event in events[4:]]
        second = client.responses.create(model="scripted", input="Which?", previous_response_id=name)
        assert second.output_text == "Which?"
        client.responses.delete(name)
    frames = outer[how].recorded(second.id).events("upstream", "frame")
    assert frames


def test_keys_go_up_as_the_upstream_reads_them(tmp_path: Path) -> None:
    """To vLLM, which reads ``authorization`` only, its questions before the first request too."""
    capture = captures()["vllm_qwen3_hermes-tool_multitoken"]
    assert capture.script is not None
    where = tokenizer_folder(capture.script.vocabulary, tmp_path / "tokenizer")
    with (
        playback(capture) as server,
        proxied(tmp_path, server.address, "--parser", "qwen3+hermes", "--tokenizer", str(where)) as running,
    ):
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "b"}
        got = post(running.address, PATHS["messages"], question("messages", "x"), headers)
        assert got.status == 200
        trace = running.recorded(json.loads(got.body)["id"])
        assert trace.opening.headers["anthropic-version"] == "2023-06-01"
    for asked in server.asked:
        assert asked.header("authorization") == f"Bearer {KEY}"
        assert [asked.header(name) for name in ("x-api-key", "anthropic-version", "anthropic-beta")] == [None] * 3
    assert server.asked[-1].json["return_token_ids"] is True
    assert KEY.encode() not in running.store.read_bytes()
    assert KEY not in running.log.read_text()
