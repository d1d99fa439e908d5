"""curl, as somebody without an SDK uses it: what it prints is the protocol, and with -N it prints it as it comes."""

from __future__ import annotations

import json
import subprocess

from tests.support.server import MESSAGES, PATIENCE, Running, blocks, objects

BODY = json.dumps({"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}})
CURL = ("curl", "-sS", "-N", "--max-time", str(int(PATIENCE)), "-H", "content-type: application/json", "-d", BODY)


def _url(server: Running) -> str:
    return f"{server.address}/v1/chat/completions"


def test_the_stream(server: Running) -> None:
    done = subprocess.run([*CURL, "-i", _url(server)], capture_output=True, check=True)
    head, _, wire = done.stdout.partition(b"\r\n\r\n")
    status, *lines = head.decode().lower().split("\r\n")
    assert status == "http/1.1 200 ok"
    assert {"content-type: text/event-stream; charset=utf-8", "transfer-encoding: chunked"} <= set(lines)
    assert blocks(wire)[-1] == "data: [DONE]"
    *chunks, last = objects(wire)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Où 🌊 潮."
    assert last["usage"]["completion_tokens"] == 7


def test_it_is_printed_as_it_comes(still: Running) -> None:
    """The first token takes an hour; what comes before it is there at once, and curl ends when it is told to."""
    with subprocess.Popen([*CURL, _url(still)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert process.poll() is None
        process.kill()
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_an_error_has_its_status_and_says_what_is_wrong(server: Running) -> None:
    wrong = [part.replace('"stream": true', '"stream": 7') for part in CURL]
    done = subprocess.run([*wrong, "-w", "\n%{http_code}", _url(server)], capture_output=True, check=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    assert status == "400"
    assert json.loads(body)["error"]["param"] == "stream"
