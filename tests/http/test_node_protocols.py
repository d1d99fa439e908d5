"""The JavaScript SDKs of OpenAI and Anthropic against a real server on a real socket, in completions, responses and
messages: each as a new user would use it, streaming and not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.node import PROTOCOL_WAYS, asked
from tests.support.sdks import ALMANAC, CASES, Asked, Protocol, expected, fields_of
from tests.support.server import Running

Answers = dict[tuple[str, str], Any]

HELPED = [way for way in PROTOCOL_WAYS if "whole" not in way]


def protocol_of(way: str) -> Protocol:
    """Of a way to ask."""
    name = way.split()[0]
    return "messages" if name == "messages" else "responses" if name == "responses" else "completions"


def question(server: Running, way: str, case: Asked, **more: Any) -> dict[str, Any]:
    """What ask.mjs is told."""
    fields = fields_of(protocol_of(way), case)
    body = {**fields, **fields.pop("extra_body"), **more}
    return {"client": way, "url": server.address, "model": server.model, "key": "k", "request": body}


@pytest.fixture(scope="module")
def answers(server: Running) -> Answers:
    """Every case in every way: one process asks them all."""
    places = [(name, way) for name in CASES for way in PROTOCOL_WAYS]
    return dict(zip(places, asked([question(server, way, CASES[name][0]) for name, way in places]), strict=True))


@pytest.mark.parametrize("way", PROTOCOL_WAYS)
@pytest.mark.parametrize("name", CASES)
def test_the_message_that_the_engine_meant(answers: Answers, name: str, way: str) -> None:
    answer = answers[name, way]
    assert answer["error"] is None
    [one] = answer["choices"]
    calls = tuple((call, json.loads(arguments)) for call, arguments in one["calls"])
    seen = (one["content"] or None, one["reasoning"] or None, calls, one["finish"])
    assert seen == expected(protocol_of(way), CASES[name][1])
    assert min(answer["usage"]) > 0


@pytest.mark.parametrize("way", HELPED)
def test_text_arrives_in_pieces(answers: Answers, way: str) -> None:
    assert answers["text", way]["parts"] == ["Two ", "a da", "y, s", "ays ", "the ", "alma", "nac."]


def test_every_way_counts_alike(answers: Answers) -> None:
    for name in ("text", "length"):
        for protocol in ("completions", "responses", "messages"):
            told = {tuple(answers[name, way]["usage"]) for way in PROTOCOL_WAYS if way.startswith(protocol)}
            assert len(told) == 1
    assert answers["length", "messages helper"]["usage"][1] == 3


def test_tokens_are_counted_as_they_are_billed(server: Running, answers: Answers) -> None:
    [counted] = asked([question(server, "messages count", CASES["parallel calls"][0])])
    assert counted["usage"][0] == answers["parallel calls", "messages whole"]["usage"][0]


def test_an_error_before_the_stream(server: Running) -> None:
    questions = [question(server, way, Asked(ALMANAC), temperature=3) for way in PROTOCOL_WAYS]
    others = [{**question(server, way, Asked(ALMANAC)), "model": "gpt-9"} for way in PROTOCOL_WAYS]
    for answer in asked(questions):
        assert answer["error"]["status"] == 400
        assert "temperature" in answer["error"]["message"]
    for answer in asked(others):
        assert answer["error"]["status"] == 404
        assert "gpt-9" in answer["error"]["message"]


def test_an_error_inside_the_stream(failing: Running) -> None:
    for answer in asked([question(failing, way, Asked(ALMANAC)) for way in HELPED]):
        assert answer["parts"] == ["Two ", "a "]
        assert "The engine lost its memory." in answer["error"]["message"]


def test_an_error_in_place_of_a_body(failing: Running) -> None:
    for answer in asked([question(failing, way, Asked(ALMANAC)) for way in PROTOCOL_WAYS if "whole" in way]):
        assert answer["error"]["status"] == 500
        assert "The engine lost its memory." in answer["error"]["message"]
