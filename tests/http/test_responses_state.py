"""Stored responses over a socket, with the official SDK: retrieved, followed, cancelled, deleted; in the background;
after the server died."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.support.server import PATIENCE, Running, eventually, serve

WORDS = ["Two ", "a ", "day. "]
LONG = WORDS * 2_000
"""At PACE, longer than any test waits for its end."""
PACE = "0.02"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Quotes what was said last."""
    with serve(tmp_path_factory.mktemp("quick")) as running:
        yield running


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Talks for minutes."""
    with serve(tmp_path_factory.mktemp("slow"), "--pace", PACE, script=LONG) as running:
        yield running


def get(running: Running, response: str, **query: Any) -> httpx2.Response:
    """GET /v1/responses/{id}."""
    return running.http.get(f"/v1/responses/{response}", params=query)


def post(running: Running, **fields: Any) -> httpx2.Response:
    """POST /v1/responses."""
    return running.http.post("/v1/responses", json=fields)


def refusal(answer: httpx2.Response) -> tuple[int, Any, Any]:
    """(status, code, param) of an error in the protocol's object."""
    error = answer.json()["error"]
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["code"], error["param"]


def begun(running: Running) -> str:
    """The id of a response that runs in the background, and has said something."""
    with running.client() as client:
        made = client.responses.create(model=running.model, input="Tides?", background=True)
        assert made.status == "queued"

        def said() -> bool | None:
            found = client.responses.retrieve(made.id)
            return True if found.output_text else None

        assert eventually(said)
    return made.id


def cancelled(running: Running, response: str) -> None:
    """It is cancelled, as a test's last act."""
    with running.client() as client:
        assert client.responses.cancel(response).status == "cancelled"


# --- retrieve ---------------------------------------------------------------------------------------------------------


def test_what_is_retrieved_is_what_was_answered(quick: Running) -> None:
    made = post(quick, input="Hi", metadata={"a": "b"}, instructions="Be kind.", temperature=0.5)
    found = get(quick, made.json()["id"])
    assert found.status_code == 200
    assert found.json() == made.json()
    assert found.json()["status"] == "completed"
    with quick.client() as client:
        assert client.responses.retrieve(made.json()["id"]).output_text == "This is the scripted engine. You said: Hi"


def test_of_a_stream_it_is_the_response_of_the_terminal_event(quick: Running) -> None:
    wire = post(quick, input="Hi", stream=True).content
    [*_, last] = objects_of(wire)
    assert last["type"] == "response.completed"
    assert get(quick, last["response"]["id"]).json() == last["response"]


def test_a_lean_recording_tells_the_same(tmp_path: Path) -> None:
    with serve(tmp_path, "--record", "lean") as running:
        for stream in (False, True):
            wire = post(running, input="Hi", stream=stream).content
            response = objects_of(wire)[-1]["response"] if stream else json.loads(wire)
            assert get(running, response["id"]).json() == response


def objects_of(wire: bytes) -> list[Any]:
    """The events of a stream."""
    return [json.loads(line[6:]) for line in wire.decode().split("\n") if line.startswith("data: ")]


def test_what_is_not_there(quick: Running) -> None:
    hidden = post(quick, input="Hi", store=False).json()
    assert hidden["store"] is False
    chat = quick.post().json()["id"]
    names = [
        "resp_" + "0" * 32, "resp_", "nothing", hidden["id"], chat, "resp_" + chat.removeprefix("chatcmpl-"),
        hidden["id"][:-1], "resp_%25", "resp_" + "x" * 3000,
    ]  # fmt: skip
    for name in names:
        assert refusal(get(quick, name)) == (404, "not_found", None)
        assert refusal(quick.http.delete(f"/v1/responses/{name}")) == (404, "not_found", None)
        assert refusal(quick.http.post(f"/v1/responses/{name}/cancel")) == (404, "not_found", None)
        assert refusal(quick.http.get(f"/v1/responses/{name}/input_items")) == (404, "not_found", None)
    # The operator has what was not to be stored.
    assert quick.recorded(hidden["id"]).info.state == "closed"


def test_what_is_asked_wrongly(quick: Running) -> None:
    name = post(quick, input="Hi").json()["id"]
    for query, param in (
        ({"stream": "perhaps"}, "stream"), ({"stream": "true"}, "stream"), ({"starting_after": "3"}, "starting_after"),
        ({"stream": "true", "starting_after": "-1"}, "starting_after"), ({"include": "everything"}, "include"),
        ({"stream": "true", "starting_after": "x"}, "starting_after"), ({"include[]": "everything"}, "include"),
    ):  # fmt: skip
        assert refusal(get(quick, name, **query))[::2] == (400, param)
    assert get(quick, name, include="message.output_text.logprobs", stream="false").status_code == 200


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_is_taken_up_behind_every_event(quick: Running) -> None:
    wire = post(quick, input="Hi", stream=True).content
    events = objects_of(wire)
    name = events[0]["response"]["id"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert get(quick, name, stream="true").content == wire
    blocks = wire.split(b"\n\n")
    for after in range(len(events) - 1):
        assert get(quick, name, stream="true", starting_after=after).content == b"\n\n".join(blocks[after + 1 :])
    last = len(events) - 1
    assert get(quick, name, stream="true", starting_after=last).content == b""
    zeros = get(quick, name, stream="true", starting_after=f"{last:030}")
    assert (zeros.status_code, zeros.content) == (200, b"")
    beyond = get(quick, name, stream="true", starting_after=last + 1)
    assert refusal(beyond) == (409, "position_beyond_tail", "starting_after")
    assert refusal(get(quick, name, stream="true", starting_after="9" * 30))[:2] == (409, "position_beyond_tail")


def test_the_helper_takes_up_a_stream(quick: Running) -> None:
    with quick.client() as client:
        with client.responses.stream(model=quick.model, input="Hi", background=True) as stream:
            first = next(iter(stream))
        assert first.type == "response.created"
        with client.responses.stream(response_id=first.response.id, starting_after=4) as again:
            numbers = [event.sequence_number for event in again]
            whole = again.get_final_response()
    assert numbers == list(range(5, 16))
    assert whole.output_text == "This is the scripted engine. You said: Hi"


def test_a_running_stream_is_followed_by_several(slow: Running) -> None:
    name = _streaming(slow)
    with (
        slow.http.stream("GET", f"/v1/responses/{name}?stream=true") as one,
        slow.http.stream("GET", f"/v1/responses/{name}?stream=true&starting_after=5") as other,
    ):
        bytes_of_one, bytes_of_other = one.iter_raw(), other.iter_raw()
        first = _until(bytes_of_one, b'"sequence_number":9,')
        second = _until(bytes_of_other, b'"sequence_number":9,')
        cancelled(slow, name)
        first += b"".join(bytes_of_one)
        second += b"".join(bytes_of_other)
    events = objects_of(first)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert second == first[first.index(b"event: response.output_text.delta", first.index(b'"sequence_number":5,')) :]
    assert events[-1]["type"] == "response.failed"
    found = get(slow, name).json()
    assert found["status"] == "cancelled"
    assert found["error"] is None
    # The terminal event has what was done; what is kept is all that was said.
    assert events[-1]["response"]["output"] == []
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert [item["content"][0]["text"] for item in found["output"]] == [said]


def _streaming(running: Running) -> str:
    """The id of a response whose stream was begun in the background, and left."""
    body = {"input": "Tides?", "stream": True, "background": True}
    with running.http.stream("POST", "/v1/responses", json=body) as response:
        seen = _until(response.iter_raw(), b'"sequence_number":6,')
    return str(objects_of(seen)[0]["response"]["id"])


def _until(pieces: Iterator[bytes], seen: bytes) -> bytes:
    read = b""
    while seen not in read:
        read += next(pieces)
    return read


# --- in the background ------------------------------------------------------------------------------------------------


def test_a_background_response_is_polled_to_its_end(quick: Running) -> None:
    with quick.client() as client:
        made = client.responses.create(model=quick.model, input="Hi", background=True)
        assert (made.status, made.output, made.background) == ("queued", [], True)

        def ended() -> Any:
            found = client.responses.retrieve(made.id)
            assert found.status in ("queued", "in_progress", "completed")
            return found if found.status == "completed" else None

        found = eventually(ended)
        assert found.output_text == "This is the scripted engine. You said: Hi"
        assert found.created_at == made.created_at
        # It has ended: there is nothing to cancel.
        assert client.responses.cancel(made.id) == found


def test_a_background_stream_goes_on_without_its_client(quick: Running) -> None:
    with (
        quick.client() as client,
        client.responses.create(model=quick.model, input="Hi", background=True, stream=True) as stream,
    ):
        first = next(iter(stream))
    assert first.type == "response.created"
    assert quick.recorded(first.response.id).info.state == "closed"
    assert get(quick, first.response.id).json()["status"] == "completed"


def test_a_running_response_is_shown_and_cancelled(slow: Running) -> None:
    name = begun(slow)
    found = get(slow, name).json()
    assert (found["status"], found["usage"], found["error"]) == ("in_progress", None, None)
    [item] = found["output"]
    assert item["status"] == "in_progress"
    assert "".join(LONG).startswith(item["content"][0]["text"])
    assert refusal(slow.http.delete(f"/v1/responses/{name}")) == (409, "response_in_progress", None)
    assert refusal(post(slow, input="And?", previous_response_id=name)) == (
        400, "previous_response_not_found", "previous_response_id",
    )  # fmt: skip
    with slow.client() as client:
        ended = client.responses.cancel(name)
        assert (ended.status, ended.error) == ("cancelled", None)
        assert ended.output_text.startswith(item["content"][0]["text"])
        assert client.responses.cancel(name) == ended == client.responses.retrieve(name)
        client.responses.delete(name)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(name)


def test_only_what_runs_in_the_background_is_cancelled(quick: Running) -> None:
    name = post(quick, input="Hi").json()["id"]
    assert refusal(quick.http.post(f"/v1/responses/{name}/cancel")) == (400, None, None)


def test_a_client_that_leaves_cancels_its_response(slow: Running) -> None:
    with slow.http.stream("POST", "/v1/responses", json={"input": "Tides?", "stream": True}) as response:
        name = objects_of(_until(response.iter_raw(), b'"sequence_number":6,'))[0]["response"]["id"]
    assert slow.recorded(name).info.state == "aborted"
    found = get(slow, name).json()
    assert (found["status"], found["error"]) == ("cancelled", None)
    assert [item["status"] for item in found["output"]] == ["incomplete"]


REFUSED = ["error", "bad_request", "The input is too long.", "context_length_exceeded", "input"]


def test_a_refusal_in_the_background_is_a_failed_response(tmp_path: Path) -> None:
    with serve(tmp_path, script=[REFUSED]) as running:
        assert post(running, input="Hi").status_code == 400
        name = post(running, input="Hi", background=True).json()["id"]

        def failed() -> Any:
            found = get(running, name).json()
            return found if found["status"] == "failed" else None

        assert eventually(failed)["error"] == {
            "code": "invalid_prompt", "message": "The input is too long.", "param": "input",
        }  # fmt: skip


@pytest.mark.parametrize("options", [("--record", "off"), ("--sample", "0.5")])
def test_the_background_needs_the_record(tmp_path: Path, options: tuple[str, str]) -> None:
    with serve(tmp_path, *options) as running:
        assert refusal(post(running, input="Hi", background=True)) == (400, None, "background")
        assert refusal(running.http.post("/v1/conversations", json={})) == (400, None, "conversations")
        assert refusal(post(running, input="Hi", conversation="conv_1")) == (400, None, "conversation")
        assert refusal(post(running, input="Hi", previous_response_id="resp_1"))[:2] == (
            400, "previous_response_not_found",
        )  # fmt: skip
        assert refusal(get(running, "resp_" + "0" * 32))[:2] == (404, "not_found")
        assert post(running, input="Hi").json()["status"] == "completed"


def test_the_background_needs_to_be_stored(quick: Running) -> None:
    assert refusal(post(quick, input="Hi", background=True, store=False)) == (400, None, "background")


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone(quick: Running) -> None:
    name = post(quick, input="A secret.").json()["id"]
    gone = quick.http.delete(f"/v1/responses/{name}")
    assert gone.json() == {"id": name, "object": "response.deleted", "deleted": True}
    assert refusal(get(quick, name)) == (404, "not_found", None)
    assert refusal(quick.http.delete(f"/v1/responses/{name}")) == (404, "not_found", None)
    assert refusal(post(quick, input="And?", previous_response_id=name))[:2] == (400, "previous_response_not_found")
    assert name.removeprefix("resp_") not in [info.session for info in quick.sessions()]


# --- input items ------------------------------------------------------------------------------------------------------


def test_the_items_of_an_input(quick: Running) -> None:
    given = [
        {"role": "user", "content": "When is high tide?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Where?"}]},
        {"type": "function_call", "call_id": "call_1", "name": "port", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Brest"},
        {"type": "message", "id": "msg_mine", "role": "developer", "content": "Be brief."},
    ]
    name = post(quick, input=given).json()["id"]
    session = name.removeprefix("resp_")
    path = f"/v1/responses/{name}/input_items"
    whole = quick.http.get(path, params={"order": "asc"}).json()
    text = {"type": "input_text", "text": "When is high tide?"}
    assert whole["data"][0] == {
        "id": f"msg_{session}i0", "type": "message", "role": "user", "content": [text], "status": "completed",
    }  # fmt: skip
    names = [f"msg_{session}i0", f"msg_{session}i1", f"fc_{session}i2", f"fco_{session}i3", "msg_mine"]
    assert [item["id"] for item in whole["data"]] == names
    assert (whole["object"], whole["first_id"], whole["last_id"], whole["has_more"]) == (
        "list", names[0], names[-1], False,
    )  # fmt: skip
    with quick.client() as client:
        pages = client.responses.input_items.list(name, limit=2)
        assert [item.id for item in pages] == names[::-1]
        asked = client.responses.input_items.list(name, limit=2, order="asc", after=names[1])
        assert ([item.id for item in asked.data], asked.has_more) == (names[2:4], True)
    for query, status, param in (
        ({"limit": "0"}, 400, "limit"), ({"limit": "101"}, 400, "limit"), ({"limit": "x"}, 400, "limit"),
        ({"order": "up"}, 400, "order"), ({"after": "msg_x"}, 404, "after"), ({"limit": "9" * 40}, 400, "limit"),
        ({"limit": "000000001" + "9" * 5000}, 400, "limit"),
        ({"include": "all"}, 400, "include"),
    ):  # fmt: skip
        assert refusal(quick.http.get(path, params=query))[::2] == (status, param)


# --- another life -----------------------------------------------------------------------------------------------------


def test_what_is_stored_outlives_the_server(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", PACE, script=LONG) as running:
        whole = post(running, input="When is high tide?", max_output_tokens=3).json()
        assert whole["status"] == "incomplete"
        running_id = _streaming(running)
        polled = begun(running)
        running.process.kill()
        assert running.process.wait(PATIENCE) == -signal.SIGKILL
    with serve(tmp_path) as again:
        assert get(again, whole["id"]).json() == whole
        for name in (running_id, polled):
            found = get(again, name).json()
            assert found["status"] == "failed"
            assert found["error"]["code"] == "server_error"
            assert "stopped" in found["error"]["message"]
            assert refusal(post(again, input="And?", previous_response_id=name))[:2] == (
                400, "previous_response_not_found",
            )  # fmt: skip
            assert again.http.post(f"/v1/responses/{name}/cancel").json() == found
        events = objects_of(get(again, running_id, stream="true").content)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.failed"
        answer = post(again, input="And low tide?", previous_response_id=whole["id"]).json()
        assert answer["status"] == "completed"
        [prompt] = again.recorded(answer["id"]).events("input", "engine")[:1]
        said = "<|im_start|>user\nWhen is high tide?<|im_end|>\n<|im_start|>assistant\nTwo a day. <|im_end|>\n"
        assert prompt.tail.startswith(f"{said}<|im_start|>user\nAnd low tide?<|im_end|>\n")
        assert again.http.delete(f"/v1/responses/{running_id}").status_code == 200
