"""Upstreams that break while they are translated: whatever comes, the client gets an error and an end in its own
protocol, and the record says what happened."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stages import catalog
from stages.events import (
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    ToldInput,
    UsageInput,
)
from stages.opening import Ask, Opening, Tool
from stages.stage import fold
from tests.support.captures import PATHS
from tests.support.proxies import Got, post, proxied
from tests.support.server import Running, replayed
from tests.support.upstreams import STREAM, Answer, Peer, breaks_off, chunk, chunked, hangs_up, plain, stalls
from tests.support.upstreams import upstream as serving
from tests.support.validated import assert_clean
from tests.upstream.test_translate import PAIRS, SPOKEN, Spoken

IMPATIENT = "-impatient"
"""At the end of an upstream's name: it has little time. The others have as much as a busy machine may want."""
SILENT = ("silent", "a head and no more", "stalls")
"""Faults that only time tells."""
TOOLS = (Tool("tide", "", {"type": "object"}),)
NO = (0, 0)
MEANT: list[Input] = [
    PromptInput((), "", 7), ToldInput(Reasoning(0, "Où ? 潮", NO)), ToldInput(Content(0, "Two à", NO)),
    ToldInput(Content(0, " day 🌊.", NO)), ToldInput(CallStart(0, 0, "call_1", "tide", NO)),
    ToldInput(CallArguments(0, 0, '{"port":', NO)), ToldInput(CallArguments(0, 0, ' "Brest 潮"}', NO)),
    ToldInput(CallEnd(0, 0, True)), FinishInput(0, "eos"), UsageInput(7, 9),
]  # fmt: skip


@cache
def blocks(spoken: Spoken) -> tuple[bytes, ...]:
    """A stream of a server that speaks this."""
    opening = Opening(
        session="s", key="k", response_id=f"{catalog.PROTOCOLS[spoken].prefix}s", created=1760000000, opened=0,
        model="m", protocol=spoken, ask=Ask(stream=True, include_usage=True, tools=TOOLS), parser="told",
    )  # fmt: skip
    layers = catalog.layers(opening)
    semantic = fold(layers.semantic.start(opening), MEANT)
    frames = fold(layers.framer.start(opening), fold(layers.encoder.start(opening), semantic))
    return tuple(frame.data for frame in frames if isinstance(frame, Block))


class Broken(NamedTuple):
    """A proxy, and what its upstream, whatever it is asked in, answers next."""

    running: Running
    answers: list[Answer]

    def ask(self, protocol: Spoken, spoken: Spoken, answer: Answer, *, stream: bool = True, more: str = "") -> Got:
        """``more``: of the model's name."""
        self.answers[:] = [answer]
        said = {"input": "x"} if protocol == "responses" else {"messages": [{"role": "user", "content": "x"}]}
        cap = {"max_tokens": 99} if protocol == "messages" else {}
        body = {"model": f"{spoken}{more}", "stream": stream, **said, **cap}
        return post(self.running.address, PATHS[protocol], json.dumps(body).encode())


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broken]:
    folder: Path = tmp_path_factory.mktemp("broken")
    answers: list[Answer] = []
    with serving(lambda peer: answers[0](peer)) as server:
        limits = "token_timeout = 0.3\nfirst_token_timeout = 0.3\n"
        (folder / "upstreams.toml").write_text("".join(
            f'[[upstream]]\nname = "{spoken}{more}"\nurl = "{server.url}"\nmodels = ["{spoken}{more}"]\n'
            f'protocols = ["{spoken}"]\nretries = 0\n{limits if more else ""}'
            for spoken in SPOKEN for more in ("", IMPATIENT)
        ))  # fmt: skip
        with proxied(folder, str(folder / "upstreams.toml")) as running:
            yield Broken(running, answers)
        assert "Traceback" not in running.log.read_text()
    assert_clean(running.store, {"INV-036"})
    assert {result.session: result.verdict for result in replayed(running.store) if result.verdict != "same"} == {}


def error_of(protocol: Spoken, got: Got) -> dict[str, Any]:
    """The error that the client got, in its own protocol, with which all ends."""
    assert got.whole
    if got.status != 200:
        assert got.header("content-type") == "application/json"
        body = json.loads(got.body)
        assert (body.get("type") == "error") == (protocol == "messages")
        found: dict[str, Any] = body["error"]
        assert found["message"]
        return found
    assert (got.header("content-type") or "").startswith("text/event-stream")
    parts = got.body.decode().split("\n\n")
    assert parts.pop() == ""
    if protocol == "chat":
        assert parts.pop() == "data: [DONE]"
        last = json.loads(parts[-1].removeprefix("data: "))
        return dict(last["error"])
    name, _, data = parts[-1].partition("\n")
    last = json.loads(data.removeprefix("data: "))
    assert name == f"event: {last['type']}"
    assert last["type"] == ("error" if protocol == "messages" else "response.failed")
    return dict(last["error"] if protocol == "messages" else last["response"]["error"])


def cut_in_character(spoken: Spoken) -> bytes:
    """The beginning of a stream, up to the middle of a character."""
    body = b"".join(blocks(spoken))
    return body[: body.index("à".encode()) + 1]


def some(spoken: Spoken) -> bytes:
    """The beginning of a stream, behind its first text."""
    whole = blocks(spoken)
    place = next(number for number, block in enumerate(whole) if b"Two" in block)
    return b"".join(whole[: place + 1])


ERRORS: dict[Spoken, bytes] = {
    "chat": b'data: {"error": {"message": "It broke.", "type": "server_error", "code": 500}}\n\ndata: [DONE]\n\n',
    "responses": b'event: error\ndata: {"type": "error", "sequence_number": 9, "code": "server_error", '
    b'"message": "It broke.", "param": null}\n\n',
    "messages": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "It broke."}}\n\n',
}


def at_once(peer: Peer) -> None:
    """It leaves as soon as it was asked."""
    peer.asked()


def faults(spoken: Spoken) -> dict[str, Answer]:
    whole = b"".join(blocks(spoken))
    begun = some(spoken)
    return {
        "gone": at_once,
        "reset": hangs_up,
        "silent": stalls(),
        "a head and no more": stalls(STREAM),
        "a head, and gone": breaks_off(STREAM),
        "no http": breaks_off(b"\x00\xff\x00 hello\r\n\r\n"),
        "stalls": stalls(STREAM + chunk(begun)),
        "dies": breaks_off(STREAM + chunk(begun)),
        "dies by reset": breaks_off(STREAM + chunk(begun), reset=True),
        "dies in a character": breaks_off(STREAM + chunk(cut_in_character(spoken))),
        "ends in a character": breaks_off(STREAM + chunked(cut_in_character(spoken))),
        "ends early": breaks_off(STREAM + chunked(begun)),
        "an empty stream": breaks_off(STREAM + chunked()),
        "garbage": breaks_off(STREAM + chunked(b"\xff\xfe\x00\r\n\n{]", b"data: {\n\n", b"data: [1]\n\n: x\n\n")),
        "garbage behind a beginning": breaks_off(STREAM + chunked(begun, b"data: {]\n\n", b"\xff\xff\n\n")),
        "an error in its protocol": breaks_off(STREAM + chunked(begun, ERRORS[spoken])),
        "nothing but an error": breaks_off(STREAM + chunked(ERRORS[spoken])),
        "html": breaks_off(plain(b"<html>Bad gateway</html>", 200, kind="text/html")),
        "html and 502": breaks_off(plain(b"<html>Bad gateway</html>", 502, kind="text/html")),
        "an empty object": breaks_off(plain(b"{}")),
        "an array": breaks_off(plain(b"[1, 2]")),
        "no content": breaks_off(plain(b"", 200)),
        "a status": breaks_off(plain(b'{"error": {"message": "Slow down.", "type": "x"}}', 429, ("retry-after", "7"))),
        "a redirect": breaks_off(plain(b"", 307, ("location", "http://127.0.0.1:1/"))),
        "compressed": breaks_off(
            STREAM.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + chunked(b"\x1f\x8b\x08\x00")
        ),
        "a stream under another name": breaks_off(
            STREAM.replace(b"text/event-stream", b"application/json") + chunk(whole[:-20])
        ),
    }


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("protocol", "spoken"), PAIRS, ids=lambda each: str(each))
@pytest.mark.parametrize("fault", faults("chat"))
def test_the_client_gets_an_error_of_its_own(
    broken: Broken, fault: str, protocol: Spoken, spoken: Spoken, stream: bool
) -> None:
    more = IMPATIENT if fault in SILENT else ""
    got = broken.ask(protocol, spoken, faults(spoken)[fault], stream=stream, more=more)
    error = error_of(protocol, got)
    assert stream or got.status != 200
    if fault in ("an error in its protocol", "nothing but an error"):
        assert error["message"] == "It broke."
    if fault == "a status":
        assert (got.status, got.header("retry-after"), error["message"]) == (429, "7", "Slow down.")


@pytest.mark.parametrize(("protocol", "spoken"), PAIRS, ids=lambda each: str(each))
def test_whole_it_is_the_message(broken: Broken, protocol: Spoken, spoken: Spoken) -> None:
    """What the others are broken pieces of; cut into single bytes."""
    body = b"".join(blocks(spoken))
    pieces = (body[at : at + 1] for at in range(len(body)))
    got = broken.ask(protocol, spoken, breaks_off(STREAM + chunked(*pieces)))
    assert got.status == 200
    for text in ("Où ? 潮", " day 🌊.", "call_1"):
        assert text in got.body.decode()
