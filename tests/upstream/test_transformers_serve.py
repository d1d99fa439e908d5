"""In front of ``transformers serve``, a real server: its bytes to the client, and what is recorded of them."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any, NamedTuple

import openai
import pytest

from stages.events import CallArguments, CallEnd, CallStart, Content, Failure, Head, Reasoning
from store.api import Trace
from tests.support import tiny_model
from tests.support.proxies import Got, bytes_of, ended, latest, post, proxied
from tests.support.server import PATIENCE, Running
from tests.support.transformers_serve import Upstream, transformers_serve

pytestmark = [pytest.mark.model, pytest.mark.slow]

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "tide", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}},
    }
]
_TIME = re.compile(rb'"created(_at)?":[0-9.]+')


class Asking(NamedTuple):
    """A request. ``fails``: the answer is an error, or ends with one."""

    path: str
    body: dict[str, Any]
    status: int = 200
    fails: bool = False


def said(cue: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": cue}]


ASKED = {
    "chat stream": Asking(CHAT, {"messages": said("EBB"), "stream": True}),
    "chat whole": Asking(CHAT, {"messages": said("EBB")}),
    "reasoning stream": Asking(CHAT, {"messages": said("FLOW"), "stream": True}),
    "reasoning whole": Asking(CHAT, {"messages": said("FLOW")}),
    "call stream": Asking(CHAT, {"messages": said("CALL"), "stream": True, "tools": TOOLS}),
    "call whole": Asking(CHAT, {"messages": said("CALL"), "tools": TOOLS}),
    "call cut": Asking(CHAT, {"messages": said("CALL"), "stream": True, "tools": TOOLS, "max_tokens": 9}),
    "length": Asking(CHAT, {"messages": said("TICK"), "stream": True, "max_tokens": 50}),
    "completion stream": Asking(COMPLETIONS, {"prompt": "EBB", "stream": True}),
    "completion whole": Asking(COMPLETIONS, {"prompt": "EBB"}),
    "response stream": Asking(RESPONSES, {"input": "EBB", "stream": True}),
    "response whole": Asking(RESPONSES, {"input": "EBB", "stream": False}),
    # It streams where it is not told not to.
    "response": Asking(RESPONSES, {"input": "EBB"}),
    "response call": Asking(RESPONSES, {"input": "CALL", "stream": True}),
    "unknown field": Asking(CHAT, {"messages": said("EBB"), "stream": True, "return_token_ids": True}, 422, True),
    "unknown model": Asking(CHAT, {"model": "nobody", "messages": said("EBB"), "stream": True}, 400, True),
    # A JSON string that is none, and a raw line break within: two of its faults in one event.
    "broken call": Asking(CHAT, {"messages": said("BREAK"), "stream": True, "tools": TOOLS}, 200, True),
}  # fmt: skip


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Generator[Upstream]:
    with transformers_serve(tmp_path_factory.mktemp("transformers")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """As it comes: it tries for the most, and learns that there is nothing to be had."""
    with proxied(tmp_path_factory.mktemp("proxy"), upstream.address) as running:
        yield running


def ask(upstream: Upstream, address: str, asking: Asking) -> Got:
    """The server takes its response's id from the request, and generates the same each time."""
    body = {"model": upstream.model, **asking.body}
    return post(address, asking.path, json.dumps(body).encode(), {"x-request-id": "request-1"})


def timeless(body: bytes) -> bytes:
    """Without the time of day, all that differs between two answers to one request."""
    return _TIME.sub(rb'"created\1":0', body)


@pytest.mark.parametrize("name", ASKED)
def test_what_a_client_gets_is_what_the_server_sends(upstream: Upstream, proxy: Running, name: str) -> None:
    asking = ASKED[name]
    before = ended(proxy)
    direct, relayed = (ask(upstream, address, asking) for address in (upstream.address, proxy.address))
    assert direct.status == relayed.status == asking.status
    assert timeless(relayed.body) == timeless(direct.body)
    assert relayed.whole
    for header in ("content-type", "x-request-id"):
        assert relayed.header(header) == direct.header(header)
    trace = latest(proxy, before + 1)
    assert bytes_of(trace, "upstream") == bytes_of(trace, "served") == relayed.body
    head = trace.events("upstream", "frame")[0]
    assert isinstance(head, Head)
    assert head.status == asking.status
    assert trace.info.state == "closed"
    assert any(isinstance(event, Failure) for event in trace.events("upstream", "semantic")) == asking.fails
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.depth, facts.taken_out) == ("text" if asking.path == COMPLETIONS else "verbatim", "")


def test_what_it_meant(upstream: Upstream, proxy: Running) -> None:
    """Its own parse, out of its frames: what the weights spell."""

    def recorded(name: str) -> Trace:
        before = ended(proxy)
        ask(upstream, proxy.address, ASKED[name])
        return latest(proxy, before + 1)

    for name in ("chat stream", "chat whole", "completion stream", "completion whole", "response stream"):
        assert text_of(recorded(name), Content).encode() == tiny_model.text("EBB")
    for name in ("reasoning stream", "reasoning whole"):
        trace = recorded(name)
        assert [text_of(trace, kind).strip() for kind in (Reasoning, Content)] == ["Which port?", "Brest!"]
    for name in ("call stream", "call whole", "response call"):
        trace = recorded(name)
        calls = [event for event in trace.events("upstream", "semantic") if isinstance(event, CallStart)]
        assert [event.name for event in calls] == ["tide"]
        arguments = [event for event in trace.events("upstream", "semantic") if isinstance(event, CallArguments)]
        assert json.loads("".join(event.text for event in arguments)) == {"port": "Brést"}


def text_of(trace: Trace, kind: type[Content | Reasoning]) -> str:
    return "".join(event.text for event in trace.events("upstream", "semantic") if isinstance(event, kind))


def test_a_call_that_it_cuts_is_lost_and_that_shows(upstream: Upstream, proxy: Running) -> None:
    """It counts nine tokens, and sends what three of them say."""
    before = ended(proxy)
    got = ask(upstream, proxy.address, ASKED["call cut"])
    assert b'"completion_tokens":9' in got.body
    trace = latest(proxy, before + 1)
    assert text_of(trace, Content) == "Let me look."


def test_a_page_of_text_becomes_the_protocols_error(upstream: Upstream, proxy: Running) -> None:
    """A call that it cannot read: ``Internal Server Error``, as text. A client reads JSON."""
    asking = Asking(CHAT, {"messages": said("BREAK")})
    before = ended(proxy)
    direct, relayed = (ask(upstream, address, asking) for address in (upstream.address, proxy.address))
    assert (direct.status, direct.body) == (500, b"Internal Server Error")
    assert relayed.status == 500
    assert isinstance(json.loads(relayed.body)["error"]["message"], str)
    assert bytes_of(latest(proxy, before + 1), "upstream") == direct.body


def test_other_paths_pass(upstream: Upstream, proxy: Running) -> None:
    before = ended(proxy)
    for method, path, body in (
        ("GET", "/v1/models", b""), ("OPTIONS", "/v1/models", b""), ("POST", "/v1/nothing", b"{}"),
        ("GET", CHAT, b""), ("POST", "/load_model", b"{}"), ("GET", "/openapi.json", b""),
    ):  # fmt: skip
        direct, relayed = (post(address, path, body, method=method) for address in (upstream.address, proxy.address))
        assert (relayed.status, relayed.body) == (direct.status, direct.body), path
    assert ended(proxy) == before


def test_the_official_sdk(upstream: Upstream, proxy: Running) -> None:
    with openai.OpenAI(base_url=f"{proxy.address}/v1", api_key="sk-none", max_retries=0, timeout=PATIENCE) as client:
        messages: Any = said("FLOW")
        whole = client.chat.completions.create(model=upstream.model, messages=messages)
        assert whole.choices[0].message.content == "Brest!"
        with client.chat.completions.stream(model=upstream.model, messages=messages) as stream:
            assert stream.get_final_completion().choices[0].message.content == "\n\nBrest!"


def test_a_client_that_leaves_ends_the_generation(upstream: Upstream, proxy: Running) -> None:
    """The server generates one text after the other: a second is answered when the endless one has ended."""
    before = ended(proxy)
    body = {"model": upstream.model, "messages": said("TICK"), "stream": True, "max_tokens": 1_000_000}
    with proxy.http.stream("POST", CHAT, json=body) as response:
        reads = response.iter_raw()
        while b"tock" not in next(reads):
            pass
    assert ask(upstream, upstream.address, ASKED["chat whole"]).status == 200
    trace = latest(proxy, before + 1)
    assert trace.info.state == "aborted"
    assert b"tock" in bytes_of(trace, "upstream")


def test_with_a_parser_of_ours(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is asked for text, in which markers stand, and ours tells what its own loses or fails at."""
    options = ("--parser", "hermes", "--tokenizer", upstream.model)
    with proxied(tmp_path_factory.mktemp("parsed"), upstream.address, *options) as running:
        events = {name: parsed(upstream, running, ASKED[name]) for name in ("call stream", "call cut", "broken call")}
    for name in ("call stream", "call cut"):
        assert "".join(event.text for event in events[name] if isinstance(event, Content)).strip() == "Let me look."
        assert [event.name for event in events[name] if isinstance(event, CallStart)] == ["tide"]
    whole = [event for event in events["call stream"] if isinstance(event, CallEnd)]
    cut = [event for event in events["call cut"] if isinstance(event, CallEnd)]
    assert [event.complete for event in whole + cut] == [True, False]
    written = "".join(event.text for event in events["broken call"] if isinstance(event, Content))
    assert written.encode() == tiny_model.text("BREAK")


def parsed(upstream: Upstream, running: Running, asking: Asking) -> list[Any]:
    """What our parser made of the answer to this."""
    before = ended(running)
    got = ask(upstream, running.address, asking)
    assert (got.status, got.body[-14:]) == (200, b"data: [DONE]\n\n")
    trace = latest(running, before + 1)
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.path, facts.depth, facts.relayed) == (COMPLETIONS, "text", False)
    return trace.events("served", "semantic")
