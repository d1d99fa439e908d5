"""A client of one protocol in front of a server of another: Playhead before Playhead, asked by the official SDKs. What
the client gets is what it gets without anything between."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from replay import Replayer
from stages.events import Head, Tokens, ToldInput
from tests.support import answers
from tests.support.answers import TOOLS, Way
from tests.support.captures import PATHS
from tests.support.proxies import post, proxied
from tests.support.sdks import CASES, Asked, Said, ask
from tests.support.server import Running, replayed, serve
from tests.support.validated import assert_clean

Spoken: TypeAlias = Literal["chat", "responses", "messages"]
SPOKEN: tuple[Spoken, ...] = ("chat", "responses", "messages")


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """Speaks all protocols, and writes what it is told."""
    folder = tmp_path_factory.mktemp("inner")
    with serve(folder, "--parser", "hermes", module="tests.support.parrot", allow={"INV-038"}) as running:
        yield running


@pytest.fixture(scope="module")
def outer(inner: Running, tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, Running]]:
    """A proxy for each protocol that the server behind it may speak."""
    with contextlib.ExitStack() as stack:
        made: dict[str, Running] = {}
        for spoken in SPOKEN:
            folder = tmp_path_factory.mktemp(spoken)
            running = stack.enter_context(proxied(folder, inner.address, "--upstream-protocol", spoken))
            running.model = inner.model
            made[spoken] = running
        yield made
    for running in made.values():
        assert_clean(running.store, {"INV-038"})
        assert {result.session: result.verdict for result in replayed(running.store) if result.verdict != "same"} == {}


def said(server: Running, protocol: Spoken, way: Way, asked: Asked) -> Said:
    """What a client of this protocol gets, asked in one way."""
    if protocol != "chat":
        more: dict[str, Any] = {"extra_body": {"stop": [asked.stop]}} if asked.stop and protocol == "responses" else {}
        text = (
            {"input": asked.written}
            if protocol == "responses"
            else {"messages": [{"role": "user", "content": asked.written}]}
        )
        return ask(server, protocol, way, asked, **{"extra_body": {}, **more, **text})
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": asked.written}]}
    fields |= {"tools": TOOLS, "parallel_tool_calls": not asked.single} if asked.tools else {}
    fields |= {"stop": [asked.stop]} if asked.stop else {}
    fields |= {"max_tokens": asked.cap} if asked.cap else {}
    case = answers.Case("", fields, [])
    with server.client() as client:
        fields = answers.parameters(case, way)
        del fields["extra_body"]
        if way == "whole":
            got = answers.of_completion(server.create(client, **fields))
        elif way == "plain":
            got = answers.of_chunks(server.create(client, **fields))
        else:
            with server.helper(client, **fields) as stream:
                for _ in stream:
                    pass
                got = answers.of_completion(stream.current_completion_snapshot)
    [choice] = got.choices
    return Said(choice.content, choice.reasoning, choice.calls, choice.finish, (), got.usage[:2])


PAIRS = [(client, spoken) for client in SPOKEN for spoken in SPOKEN if client != spoken]


@pytest.mark.parametrize("way", ["plain", "helper", "whole"])
@pytest.mark.parametrize(("protocol", "spoken"), PAIRS, ids=lambda each: str(each))
@pytest.mark.parametrize("name", CASES)
def test_the_same_as_without_anything_between(
    inner: Running, outer: dict[str, Running], name: str, protocol: Spoken, spoken: Spoken, way: Way
) -> None:
    asked = CASES[name][0]
    here, there = said(outer[spoken], protocol, way, asked), said(inner, protocol, way, asked)
    assert here._replace(parts=(), usage=(0, 0)) == there._replace(parts=(), usage=(0, 0))


def question(protocol: Spoken, text: str, **more: Any) -> bytes:
    """A request of this protocol."""
    said = {"input": text} if protocol == "responses" else {"messages": [{"role": "user", "content": text}]}
    cap = {"max_tokens": 99} if protocol == "messages" else {}
    return json.dumps({"model": "scripted", **said, **cap, **more}).encode()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("protocol", "spoken"), PAIRS, ids=lambda each: str(each))
def test_an_error_before_the_first_byte_is_the_clients_own(
    inner: Running, outer: dict[str, Running], protocol: Spoken, spoken: Spoken, stream: bool
) -> None:
    body = question(protocol, "error: full", stream=stream)
    got, direct = (post(server.address, PATHS[protocol], body) for server in (outer[spoken], inner))
    assert (got.status, got.header("content-type")) == (direct.status, "application/json")
    told, wanted = (json.loads(each.body)["error"] for each in (got, direct))
    assert (told["message"], told["type"]) == (wanted["message"], wanted["type"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("protocol", "spoken"), PAIRS, ids=lambda each: str(each))
def test_an_error_inside_the_stream_too(
    inner: Running, outer: dict[str, Running], protocol: Spoken, spoken: Spoken, stream: bool
) -> None:
    body = question(protocol, "Two a day|error", stream=stream)
    got, direct = (post(server.address, PATHS[protocol], body) for server in (outer[spoken], inner))
    assert got.status == direct.status == (200 if stream else 500)
    for each in (got, direct):
        assert b"The engine lost its memory." in each.body
        assert (b"Two " in each.body) == stream
    kinds = [[line for line in each.body.splitlines() if line.startswith(b"event:")][-1:] for each in (got, direct)]
    assert kinds[0] == kinds[1]


def test_everything_is_recorded_and_can_be_looked_at(inner: Running, outer: dict[str, Running]) -> None:
    got = post(outer["chat"].address, PATHS["messages"], question("messages", "<think>Moon.</think>Two.", top_k=3))
    trace = outer["chat"].recorded(json.loads(got.body)["id"])
    upstream = trace.opening.upstream
    assert upstream is not None
    assert (upstream.protocol, upstream.path, upstream.depth, upstream.relayed) == (
        "chat", "/v1/chat/completions", "verbatim", False,
    )  # fmt: skip
    assert upstream.lost == ()
    assert trace.opening.parser == "told"
    told = [event.event for event in trace.events("input", "engine") if isinstance(event, ToldInput)]
    assert [type(event).__name__ for event in told if not isinstance(event, Tokens)][:1] == ["Reasoning"]
    assert {track for track, _ in trace.records} >= {"input", "served", "upstream"}
    # Another parser has nothing to read, and says so.
    [result] = Replayer("hermes").replay_many([trace])
    assert result.verdict == "uncompared"
    assert result.uncompared.startswith("recorded verbatim: what the model wrote is not known (the upstream was asked")
    [result] = Replayer(baseline="plain").replay_many([trace])
    assert result.verdict == "uncompared"
    [result] = Replayer(track="upstream").replay_many([trace])
    assert result.verdict == "same"


@pytest.mark.parametrize(
    ("protocol", "spoken", "fields", "param"),
    [
        ("chat", "responses", {"n": 2}, "n"),
        ("chat", "messages", {"n": 2}, "n"),
        ("chat", "messages", {"logprobs": True}, "logprobs"),
        ("chat", "messages", {"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_would_change_the_answer_is_refused(
    outer: dict[str, Running], protocol: Spoken, spoken: Spoken, fields: dict[str, Any], param: str
) -> None:
    got = post(outer[spoken].address, PATHS[protocol], question(protocol, "x", **fields))
    error = json.loads(got.body)["error"]
    assert (got.status, error["param"]) == (400, param)
    assert f"speaks {spoken}" in error["message"]


def test_a_bare_prompt_is_no_conversation(inner: Running, outer: dict[str, Running], tmp_path: Path) -> None:
    got = post(outer["chat"].address, PATHS["completions"], b'{"prompt": "x"}')
    assert got.status == 400
    assert "no bare prompt: ask /v1/chat/completions" in json.loads(got.body)["error"]["message"]
    with proxied(tmp_path, inner.address, "--upstream-protocol", "completions") as running:
        for protocol in SPOKEN:
            got = post(running.address, PATHS[protocol], question(protocol, "x"))
            assert got.status == 400
            assert "no conversation: ask /v1/completions" in json.loads(got.body)["error"]["message"]
        assert json.loads(post(running.address, PATHS["completions"], b'{"prompt": "x"}').body)["choices"]


def test_a_response_is_gone_on_from_though_the_upstream_knows_of_none(outer: dict[str, Running]) -> None:
    with outer["chat"].client() as client:
        first = client.responses.create(model="scripted", input="Two a day.")
        again = client.responses.retrieve(first.id)
        assert again.output_text == first.output_text == "Two a day."
        second = client.responses.create(model="scripted", input="Which?", previous_response_id=first.id)
        assert second.output_text == "Which?"
        later = client.responses.create(model="scripted", input="Later.", background=True)
    trace = outer["chat"].recorded(later.id)
    assert trace.info.message[0]["content"] == "Later."
    head = next(event for event in outer["chat"].recorded(second.id).events("upstream", "frame"))
    assert isinstance(head, Head)


def test_tokens_are_counted_where_there_is_a_tokenizer(outer: dict[str, Running], inner: Running) -> None:
    path = f"{PATHS['messages']}/count_tokens"
    got = post(outer["chat"].address, path, question("messages", "Two a day."))
    assert got.status == 404
    assert "no tokenizer is set" in json.loads(got.body)["error"]["message"]
    passed, direct = (
        post(server.address, path, question("messages", "Two a day.")) for server in (outer["messages"], inner)
    )
    assert json.loads(passed.body) == json.loads(direct.body)


LOGPROBS: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}
"""How each protocol asks for them."""


def logprobs(server: Running, protocol: str, way: Way) -> list[tuple[Any, ...]]:
    """The entries that a client gets: token, logprob, and the alternatives."""
    text = "<think>\nThe moon pulls.\n</think>\n\nOù ? Two a day 🌊."
    with server.client() as client:
        if protocol == "chat":
            asked = {"messages": [{"role": "user", "content": text}], **LOGPROBS[protocol]}
            if way == "whole":
                found = server.create(client, **asked).choices[0].logprobs.content
            else:
                chunks = [choice for chunk in server.create(client, stream=True, **asked) for choice in chunk.choices]
                found = [entry for choice in chunks if choice.logprobs for entry in choice.logprobs.content]
        else:
            create: Any = client.responses.create
            got = create(model=server.model, input=text, stream=way != "whole", **LOGPROBS[protocol])
            if way == "whole":
                found = got.output[-1].content[0].logprobs
            else:
                found = [
                    entry for event in got if event.type == "response.output_text.delta" for entry in event.logprobs
                ]
    return [(entry.token, entry.logprob, [(top.token, top.logprob) for top in entry.top_logprobs]) for entry in found]


@pytest.mark.parametrize("way", ["plain", "whole"])
@pytest.mark.parametrize(("protocol", "spoken"), [("chat", "responses"), ("responses", "chat")])
def test_logprobs_are_those_of_the_server(
    inner: Running, outer: dict[str, Running], protocol: str, spoken: str, way: Way
) -> None:
    """Those of the content: responses have no place for others. In the first of its tokens are blanks that the parser
    drops."""
    assert logprobs(outer[spoken], protocol, way) == logprobs(inner, "responses", way)
