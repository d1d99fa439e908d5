"""What a request goes on from: the response before it, a conversation, stored items. Asserted on the prompts that the
engine got."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.support.server import Running, serve

CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'
TOOLS: list[Any] = [
    {"type": "function", "name": "tide", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}}
]
SAID = "This is the scripted engine. You said: "


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Quotes what was said last, or says what it is forced to say."""
    with serve(tmp_path_factory.mktemp("quick"), "--allow-forced", "--parser", "hermes") as running:
        yield running


def prompt(running: Running, response: str) -> list[tuple[str, str]]:
    """The turns of the prompt that the engine got, (role, text), without the one that is the model's to write."""
    first = running.recorded(response).events("input", "engine")[0]
    *turns, last = first.tail.split("<|im_start|>")[1:]
    assert last == "assistant\n"
    return [(turn.partition("\n")[0], turn.partition("\n")[2].removesuffix("<|im_end|>\n")) for turn in turns]


def post(running: Running, **fields: Any) -> httpx2.Response:
    """POST /v1/responses."""
    return running.http.post("/v1/responses", json=fields)


def refusal(answer: httpx2.Response) -> tuple[int, Any, Any]:
    """(status, code, param)."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


# --- the response before ----------------------------------------------------------------------------------------------


def test_a_chain_of_three(quick: Running) -> None:
    with quick.client() as client:
        one = client.responses.create(model=quick.model, input="One", instructions="Be brief.")
        two = client.responses.create(model=quick.model, input="Two", previous_response_id=one.id)
        with client.responses.stream(
            model=quick.model, input="Three", previous_response_id=two.id, instructions="Be kind."
        ) as stream:
            three = stream.get_final_response()
    assert two.previous_response_id == one.id
    assert prompt(quick, one.id) == [("system", "Be brief."), ("user", "One")]
    said = [("user", "One"), ("assistant", f"{SAID}One"), ("user", "Two")]
    # The instructions are of one request.
    assert prompt(quick, two.id) == said
    more = [("assistant", f"{SAID}Two"), ("user", "Three")]
    assert prompt(quick, three.id) == [("system", "Be kind."), *said, *more]


def test_a_call_and_its_result(quick: Running) -> None:
    with quick.client() as client:
        one = client.responses.create(
            model=quick.model, input="Tide at Brest?", tools=TOOLS, extra_body={"forced_text": f"Looking. {CALL}"}
        )
        [text, call] = one.output
        assert (text.type, call.type) == ("message", "function_call")
        result: Any = {"type": "function_call_output", "call_id": getattr(call, "call_id", ""), "output": "12:04"}
        two = client.responses.create(
            model=quick.model, input=[result], previous_response_id=one.id, extra_body={"forced_text": "At 12:04."}
        )
    assert two.output_text == "At 12:04."
    assert prompt(quick, two.id) == [("user", "Tide at Brest?"), ("assistant", "Looking. "), ("tool", "12:04")]


def test_what_cannot_be_gone_on_from(quick: Running, tmp_path: Path) -> None:
    hidden = post(quick, input="Hi", store=False).json()["id"]
    chat = "resp_" + quick.post().json()["id"].removeprefix("chatcmpl-")
    for name in ("resp_" + "0" * 32, "nothing", hidden, chat, "resp_' OR 1=1"):
        for extra in ({}, {"stream": True}, {"background": True}):
            assert refusal(post(quick, input="And?", previous_response_id=name, **extra)) == (
                400, "previous_response_not_found", "previous_response_id",
            )  # fmt: skip
    assert refusal(post(quick, input="And?", previous_response_id=7))[::2] == (400, "previous_response_id")
    script = ["Two ", ["error", "engine", "The engine lost its memory.", None, None]]
    with serve(tmp_path, script=script) as failing:
        wire = post(failing, input="Hi", stream=True).text
        name = "resp_" + wire.partition("resp_")[2][:32]
        assert failing.http.get(f"/v1/responses/{name}").json()["status"] == "failed"
        assert refusal(post(failing, input="And?", previous_response_id=name))[:2] == (
            400, "previous_response_not_found",
        )  # fmt: skip


def test_an_input_may_be_left_out_of_what_goes_on(quick: Running) -> None:
    name = post(quick, input="Hi").json()["id"]
    again = post(quick, previous_response_id=name).json()
    assert prompt(quick, again["id"]) == [("user", "Hi"), ("assistant", f"{SAID}Hi")]


# --- stored items -----------------------------------------------------------------------------------------------------


def test_a_reference_stands_for_its_item(quick: Running) -> None:
    one = post(quick, input=[{"role": "user", "content": "One"}, {"role": "user", "content": "More"}]).json()
    items = quick.http.get(f"/v1/responses/{one['id']}/input_items", params={"order": "asc"}).json()["data"]
    given = [
        {"type": "item_reference", "id": items[1]["id"]},
        {"id": one["output"][0]["id"]},
        {"role": "user", "content": "?"},
    ]
    two = post(quick, input=given).json()
    said = [("user", "More"), ("assistant", one["output"][0]["content"][0]["text"])]
    assert prompt(quick, two["id"]) == [*said, ("user", "?")]
    # What the input stood for is what its items are, and what a later request goes on from.
    listed = quick.http.get(f"/v1/responses/{two['id']}/input_items", params={"order": "asc"}).json()["data"]
    assert [item["id"] for item in listed[:2]] == [items[1]["id"], one["output"][0]["id"]]
    three = post(quick, input="!", previous_response_id=two["id"]).json()
    assert prompt(quick, three["id"])[:2] == said
    quick.http.delete(f"/v1/responses/{one['id']}")
    assert refusal(post(quick, input=given))[::2] == (400, "input[0].id")


def test_a_reference_to_nothing(quick: Running) -> None:
    hidden = post(quick, input="Hi", store=False).json()["output"][0]["id"]
    for name in ("msg_" + "0" * 32 + "i0", "msg_1", hidden):
        answer = post(quick, input=[{"role": "user", "content": "?"}, {"type": "item_reference", "id": name}])
        assert refusal(answer)[::2] == (400, "input[1].id")


# --- counting ---------------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_prompt_are_counted(quick: Running) -> None:
    with quick.client() as client:
        one = client.responses.create(model=quick.model, input="One")
        fields: Any = {"model": quick.model, "input": "Two", "previous_response_id": one.id, "instructions": "Brief."}
        counted = client.responses.input_tokens.count(**fields)
    two = post(quick, **fields).json()
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == two["usage"]["input_tokens"]
    path = "/v1/responses/input_tokens"
    assert refusal(quick.http.post(path, json={"input": 7}))[::2] == (400, "input")
    assert refusal(quick.http.post(path, json={"input": "x", "previous_response_id": "resp_1"}))[:2] == (
        400, "previous_response_not_found",
    )  # fmt: skip


# --- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation(quick: Running) -> None:
    with quick.client() as client:
        given: list[Any] = [{"role": "system", "content": "Be brief."}]
        made = client.conversations.create(items=given, metadata={"topic": "tides"})
        assert made.object == "conversation"
        assert client.conversations.retrieve(made.id) == made
        one = client.responses.create(model=quick.model, input="One", conversation=made.id)
        assert one.conversation is not None
        assert one.conversation.id == made.id
        more: list[Any] = [{"role": "user", "content": "A word."}, {"role": "assistant", "content": "Yes."}]
        added = client.conversations.items.create(made.id, items=more)
        assert [item.type for item in added.data] == ["message", "message"]
        with client.responses.stream(model=quick.model, input="Two", conversation={"id": made.id}) as stream:
            two = stream.get_final_response()
        said = [
            ("system", "Be brief."), ("user", "One"), ("assistant", f"{SAID}One"), ("user", "A word."),
            ("assistant", "Yes."), ("user", "Two"),
        ]  # fmt: skip
        assert prompt(quick, two.id) == said
        items = list(client.conversations.items.list(made.id, limit=2, order="asc"))
        assert [_role(item) for item in items] == [role for role, _ in said] + ["assistant"]
        assert [item.id for item in client.conversations.items.list(made.id)] == [item.id for item in items[::-1]]
        assert client.conversations.items.retrieve(str(items[3].id), conversation_id=made.id) == items[3]
        left = client.conversations.items.delete(str(items[1].id), conversation_id=made.id)
        assert left == made
        three = client.responses.create(model=quick.model, input="Three", conversation=made.id)
        assert prompt(quick, three.id) == [said[0], *said[2:], ("assistant", f"{SAID}Two"), ("user", "Three")]
        changed = client.conversations.update(made.id, metadata={"topic": "moons"})
        assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"topic": "moons"})
        assert client.conversations.retrieve(made.id) == changed


def _role(item: Any) -> str:
    return str(item.role)


def test_a_conversation_that_is_gone(quick: Running) -> None:
    with quick.client() as client:
        made = client.conversations.create()
        one = client.responses.create(model=quick.model, input="One", conversation=made.id)
        gone = client.conversations.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=quick.model, input="Two", conversation=made.id)
        # What was said in it can still be gone on from.
        two = client.responses.create(model=quick.model, input="Two", previous_response_id=one.id)
    assert prompt(quick, two.id) == [("user", "One"), ("assistant", f"{SAID}One"), ("user", "Two")]


def test_to_go_on_from_the_middle_of_a_conversation(quick: Running) -> None:
    items = [{"role": "developer", "content": "Be brief."}]
    name = quick.http.post("/v1/conversations", json={"items": items}).json()["id"]
    one = post(quick, input="One", conversation=name).json()
    assert post(quick, input="Two", conversation=name).status_code == 200
    other = post(quick, input="Other", previous_response_id=one["id"]).json()
    assert prompt(quick, other["id"]) == [
        ("system", "Be brief."), ("user", "One"), ("assistant", f"{SAID}One"), ("user", "Other"),
    ]  # fmt: skip
    # It was not said in the conversation.
    assert len(quick.http.get(f"/v1/conversations/{name}/items").json()["data"]) == 5


def test_what_is_asked_wrongly_of_conversations(quick: Running) -> None:
    name = quick.http.post("/v1/conversations", json={}).json()["id"]
    assert quick.http.get(f"/v1/conversations/{name}/items").json() == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False,
    }  # fmt: skip
    unknown = (
        "conv_" + "0" * 32, "conv_1", "x' OR 1=1 --", f"x' OR 1=1 --{name}", f"{name}%0A", name[:-1], f"resp_{name[5:]}"
    )  # fmt: skip
    for other in unknown:
        assert refusal(post(quick, input="Hi", conversation=other)) == (404, "not_found", "conversation")
        for method, path in (
            ("GET", f"/v1/conversations/{other}"), ("DELETE", f"/v1/conversations/{other}"),
            ("GET", f"/v1/conversations/{other}/items"),
        ):  # fmt: skip
            assert refusal(quick.http.request(method, path))[:2] == (404, "not_found")
    one = post(quick, input="One").json()["id"]
    assert refusal(post(quick, input="Hi", conversation=name, previous_response_id=one))[0] == 400
    assert refusal(post(quick, input="Hi", conversation=name, store=False)) == (400, None, "conversation")
    assert refusal(quick.http.get(f"/v1/conversations/{name}/items/msg_1")) == (404, "not_found", None)
    assert refusal(quick.http.delete(f"/v1/conversations/{name}/items/msg_1")) == (404, "not_found", None)
    user: Any = {"role": "user", "content": "?"}
    for body, param in (
        ({"items": [user] * 21}, "items"), ({"items": [{"role": "nobody", "content": "?"}]}, "items[0].role"),
        ({"items": [user, {"type": "item_reference", "id": "msg_1"}]}, "items[1].id"),
        ({"metadata": {"a": 1}}, "metadata[...]"), ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata[...]"), ({"items": "?"}, "items"),
    ):  # fmt: skip
        status, _, told = refusal(quick.http.post("/v1/conversations", json=body))
        assert (status, str(told).split("[...]")[0]) == (400, param.split("[...]")[0]), body
    assert refusal(quick.http.post(f"/v1/conversations/{name}/items", json={"items": []}))[::2] == (400, "items")
    assert refusal(quick.http.post("/v1/conversations", content=b"{"))[0] == 400
    # The session of a conversation is no response.
    assert refusal(quick.http.get(f"/v1/responses/resp_{name[5:]}"))[:2] == (404, "not_found")


def test_one_at_a_time(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", "3600") as still:
        name = still.http.post("/v1/conversations", json={}).json()["id"]
        running = post(still, input="One", conversation=name, background=True).json()["id"]
        locked = (409, "conversation_locked", "conversation")
        assert refusal(post(still, input="Two", conversation=name)) == locked
        item = {"role": "user", "content": "?"}
        assert refusal(still.http.post(f"/v1/conversations/{name}/items", json={"items": [item]})) == locked
        assert refusal(still.http.post(f"/v1/conversations/{name}", json={"metadata": {}})) == locked
        assert refusal(still.http.delete(f"/v1/conversations/{name}")) == locked
        assert still.http.get(f"/v1/conversations/{name}/items").json()["data"] == []
        assert still.http.post(f"/v1/responses/{running}/cancel").json()["status"] == "cancelled"
        # What was cancelled brought nothing.
        assert still.http.get(f"/v1/conversations/{name}/items").json()["data"] == []
        assert still.http.delete(f"/v1/conversations/{name}").status_code == 200


@pytest.mark.parametrize("mode", ["full", "lean"])
def test_conversations_outlive_the_server(tmp_path: Path, mode: str) -> None:
    with serve(tmp_path, "--record", mode) as running:
        items = [{"role": "developer", "content": "Be brief."}]
        made = running.http.post("/v1/conversations", json={"items": items, "metadata": {"a": "b"}}).json()
        one = post(running, input="One", conversation=made["id"]).json()
        listed = running.http.get(f"/v1/conversations/{made['id']}/items").json()
    with serve(tmp_path, "--record", mode) as again:
        assert again.http.get(f"/v1/conversations/{made['id']}").json() == made
        assert again.http.get(f"/v1/conversations/{made['id']}/items").json() == listed
        assert again.http.get(f"/v1/responses/{one['id']}").json() == one
        two = post(again, input="Two", conversation=made["id"]).json()
        assert prompt(again, two["id"]) == [
            ("system", "Be brief."), ("user", "One"), ("assistant", f"{SAID}One"), ("user", "Two"),
        ]  # fmt: skip
