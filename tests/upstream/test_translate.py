"""A client of one protocol in front of a server of another: Playhead before Playhead, asked by the official SDKs. What
the client gets is what it gets without anything between."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Literal, TypeAlias

import pytest

from stages.events import ToldInput
from tests.support import answers
from tests.support.answers import CALLS, TOOLS, Way
from tests.support.proxies import proxied
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
        text = {"input": asked.written} if protocol == "responses" else {
            "messages": [{"role": "user", "content": asked.written}]
        }
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
