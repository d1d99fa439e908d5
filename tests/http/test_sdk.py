"""The official SDK against a real server on a real socket: sync and async, every way to ask."""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
import pytest

from stages.protocols.openai_chat import unknown_fields
from tests.support.answers import CASES, TOOLS, WAYS, Way, ask, ask_async
from tests.support.server import Running

# "Two a day." is three words of the scripted engine's vocabulary, and an end token.
PIECES = [b"Two ", b"a da", b"y.", b"<|im_end|>"]
FORCED = {"forced_text": "Two a day."}

# The client's loop, not the server's: on trio the SDK leaves its own generators open, which is a warning there.
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same_answer(server: Running, name: str, way: Way) -> None:
    with server.client() as client:
        answer = ask(server, client, CASES[name], way)
    assert answer.choices == CASES[name].choices
    assert sum(answer.usage[:2]) == answer.usage[2]


@pytest.mark.anyio
@on_asyncio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
async def test_every_way_of_the_async_sdk_too(server: Running, name: str, way: Way) -> None:
    async with server.async_client() as client:
        answer = await ask_async(server, client, CASES[name], way)
    assert answer.choices == CASES[name].choices


@pytest.mark.parametrize("way", WAYS)
def test_the_length_ends_it(server: Running, way: Way) -> None:
    case = CASES["text"]._replace(request={"max_tokens": 3})
    with server.client() as client:
        [choice] = (answer := ask(server, client, case, way)).choices
    # The stop string of another case is not held back here: "Two |a da|y, s".
    assert choice == ("Two a day, s", "length", None, ())
    assert answer.usage[1] == 3


def test_characters_cut_over_tokens_arrive_whole(server: Running) -> None:
    with server.client() as client:
        stream = server.create(client, stream=True)
        texts = [chunk.choices[0].delta.content for chunk in stream]
    assert texts == ["", "Où ", "🌊 ", "潮", ".", None]


def test_a_stop_string_is_never_seen_in_part(server: Running) -> None:
    """``Two |a da|y, s|ays |the |alma|nac.``: the stop string begins in the fourth word and ends in the sixth."""
    forced = {"forced_text": CASES["text"].written}
    with server.client() as client:
        stream = server.create(client, stream=True, stop="ys the al", extra_body=forced)
        chunks = [chunk.choices[0] for chunk in stream]
    assert [choice.delta.content for choice in chunks] == ["", "Two ", "a da", "y, s", "a", None]
    assert (chunks[-1].finish_reason, chunks[-1].model_extra["stop_reason"]) == ("stop", "ys the al")


def test_usage(server: Running) -> None:
    with server.client() as client:

        def chunks(**options: bool) -> list[Any]:
            asked: dict[str, Any] = {"stream_options": options} if options else {}
            return list(server.create(client, stream=True, extra_body=FORCED, **asked))

        *before, last = chunks(include_usage=True)
        assert all(chunk.usage is None for chunk in before)
        assert last.choices == []
        assert last.usage.completion_tokens == last.usage.total_tokens - last.usage.prompt_tokens == 4
        assert last.usage.completion_tokens_details.reasoning_tokens == 0
        running = chunks(include_usage=True, continuous_usage_stats=True)
        assert [chunk.usage.completion_tokens for chunk in running] == [0, 1, 2, 3, 4, 4]
        assert all(chunk.usage is None and chunk.choices for chunk in chunks())


def test_reasoning_tokens_are_counted(server: Running) -> None:
    with server.client() as client:
        answer = server.create(client, extra_body={"forced_text": "<think>Tide</think>Two"})
    # The opener and one word; with the closer the step ends outside.
    assert answer.usage.completion_tokens == 5
    assert answer.usage.completion_tokens_details.reasoning_tokens == 2


def test_logprobs_one_entry_a_token(server: Running) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "extra_body": FORCED}
    with server.client() as client:
        whole = server.create(client, **fields).choices[0].logprobs.content
        streamed: list[Any] = []
        for chunk in server.create(client, **fields, stream=True):
            if chunk.choices[0].logprobs is not None:
                streamed += chunk.choices[0].logprobs.content
        with server.helper(client, **fields) as stream:
            [done] = [event.content for event in stream if event.type == "logprobs.content.done"]
    assert whole == streamed == done
    assert [bytes(entry.bytes) for entry in whole] == PIECES
    assert [entry.token for entry in whole] == [piece.decode() for piece in PIECES]
    for entry in whole:
        first, second = entry.top_logprobs
        assert 0 >= entry.logprob == first.logprob > second.logprob


def test_token_ids(server: Running) -> None:
    fields: dict[str, Any] = {"extra_body": {**FORCED, "return_token_ids": True}, "stop": "a day"}
    with server.client() as client:
        whole = server.create(client, **fields)
        chunks = list(server.create(client, **fields, stream=True))
    prompt = chunks[0].model_extra["prompt_token_ids"]
    assert whole.model_extra["prompt_token_ids"] == prompt
    assert whole.usage.prompt_tokens == len(prompt)
    ids = [some for chunk in chunks if (some := chunk.choices[0].model_extra.get("token_ids"))]
    # The text of the second step is withheld by the stop string; its ids are not.
    assert [len(some) for some in ids] == [1, 1, 1]
    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content] == ["Two "]
    assert whole.choices[0].model_extra["token_ids"] == [token for some in ids for token in some]


class Tide(pydantic.BaseModel):
    """A strict tool."""

    port: str
    days: list[int]


@pytest.mark.parametrize("n", [1, 3])
def test_strict_tools_are_parsed_by_the_helper(server: Running, n: int) -> None:
    called = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "days": [1]}}\n</tool_call>'
    tools = [openai.pydantic_function_tool(Tide, name="tide")]
    with (
        server.client() as client,
        server.helper(client, tools=tools, n=n, extra_body={"forced_text": called}) as stream,
    ):
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.parsed_arguments for event in done] == [Tide(port="Brest", days=[1])] * n
    assert [choice.finish_reason for choice in final.choices] == ["tool_calls"] * n


def test_call_ids_are_unique(server: Running) -> None:
    forced = {"forced_text": CASES["parallel calls"].written}
    with server.client() as client:
        chunks = list(server.create(client, tools=TOOLS, stream=True, n=2, extra_body=forced))
    ids = [entry.id for chunk in chunks for entry in chunk.choices[0].delta.tool_calls or () if entry.id]
    assert len(ids) == len(set(ids)) == 4
    assert all(name.startswith("call_") for name in ids)


def test_what_is_not_known_is_accepted_and_recorded(server: Running) -> None:
    known = {"user": "u1", "metadata": {"run": "7"}}
    extra = {"top_a": 0.5, "my_field": {"deep": [1, None]}}
    with server.client() as client:
        answer = server.create(client, **known, extra_body={**extra, "forced_text": "Two."})
    assert answer.choices[0].message.content == "Two."
    body = server.recorded(answer.id).opening.request
    assert json.loads(body).items() >= {**known, **extra}.items()
    assert set(extra) < set(unknown_fields(body))


# --- errors ---------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({"temperature": 3}, "temperature"),
    "wrong type": ({"max_tokens": "many"}, "max_tokens"),
    "inside a message": ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    "a role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "no messages": ({"messages": []}, "messages"),
    "a combination": ({"top_logprobs": 2}, "top_logprobs"),
    "a tool's name": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    "a choice of no tool": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "sun"}}},
        "tool_choice.function.name",
    ),
    "five stops": ({"stop": list("abcde")}, "stop"),
    "an unsupported field": ({"audio": {"voice": "x"}}, "audio"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_field_is_named(server: Running, name: str, stream: bool) -> None:
    fields, param = BAD[name]
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        server.create(client, stream=stream, **fields)
    error = caught.value
    assert (error.status_code, error.param, error.type) == (400, param, "invalid_request_error")
    assert param in error.message
    assert error.response.headers["content-type"] == "application/json"
    assert error.response.headers["x-should-retry"] == "false"


def test_another_model(server: Running) -> None:
    with server.client() as client, pytest.raises(openai.NotFoundError) as caught:
        server.create(client, model="gpt-9")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "gpt-9" in caught.value.message
    assert server.model in caught.value.message


def test_a_large_body_and_the_connection_after_it(server: Running) -> None:
    big: Any = [{"role": "user", "content": "x" * 3_000_000}]
    with server.client() as client:
        with pytest.raises(openai.APIStatusError) as caught:
            server.create(client, messages=big)
        assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
        assert client.models.list().data[0].id == server.model


def test_an_error_in_the_stream(failing: Running) -> None:
    texts: list[str] = []
    with failing.client() as client, pytest.raises(openai.APIError) as caught:
        texts.extend(chunk.choices[0].delta.content for chunk in failing.create(client, stream=True))
    assert texts == ["", "Two ", "a "]
    assert not isinstance(caught.value, openai.APIStatusError)
    assert caught.value.message == "The engine lost its memory."
    assert (caught.value.type, caught.value.code) == ("server_error", "engine_error")


def test_an_error_without_streaming(failing: Running) -> None:
    with failing.client() as client, pytest.raises(openai.InternalServerError) as caught:
        failing.create(client)
    assert (caught.value.status_code, caught.value.code) == (500, "engine_error")


@pytest.mark.anyio
@on_asyncio
async def test_an_error_in_the_async_stream(failing: Running) -> None:
    async with failing.async_client() as client:
        stream = await failing.create(client, stream=True)
        with pytest.raises(openai.APIError, match="lost its memory"):
            async for _chunk in stream:
                pass
