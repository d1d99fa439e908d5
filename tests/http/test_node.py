"""The JavaScript clients against a real server on a real socket: npm's openai, and Vercel's ai with the provider for
servers that speak OpenAI's protocol. Each as a new user would use it, streaming and not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.answers import CASES, Choice
from tests.support.node import WAYS, asked
from tests.support.server import Running

Answers = dict[tuple[str, str], Any]

LENGTH = CASES["text"]._replace(request={"max_tokens": 3}, choices=[Choice("Two a day, s", "length")])
ASKED = {**{name: case for name, case in CASES.items() if name != "n"}, "length": LENGTH}
BAD: dict[str, tuple[dict[str, Any], int, str | None]] = {
    "a field": ({"temperature": 3}, 400, None),
    "a model": ({"model": "gpt-9"}, 404, "model_not_found"),
}


def _question(server: Running, way: str, **more: Any) -> dict[str, Any]:
    return {"client": way, "url": f"{server.address}/v1", "model": server.model, "key": "k", "request": {}, **more}


@pytest.fixture(scope="module")
def answers(server: Running) -> Answers:
    """Every case in every way: one process asks them all."""
    places = [(name, way) for name in ASKED for way in WAYS]
    questions = [
        _question(server, way, request=ASKED[name].request, forced={"forced_text": ASKED[name].written})
        for name, way in places
    ]
    return dict(zip(places, asked(questions), strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ASKED)
def test_the_message_that_the_engine_meant(answers: Answers, name: str, way: str) -> None:
    answer = answers[name, way]
    assert answer["error"] is None
    seen = [
        Choice(
            one["content"] or None, one["finish"], one["reasoning"] or None,
            tuple((call, json.loads(arguments)) for call, arguments in one["calls"]),
        )
        for one in answer["choices"]
    ]  # fmt: skip
    assert seen == ASKED[name].choices
    prompt, completion, total = answer["usage"]
    assert prompt > 0 < completion
    assert total == prompt + completion


@pytest.mark.parametrize("way", [way for way in WAYS if "whole" not in way])
def test_text_arrives_in_pieces(answers: Answers, way: str) -> None:
    assert answers["text", way]["parts"] == ["Two ", "a da", "y, s", "ays ", "the ", "alma", "nac."]


def test_several_choices(server: Running) -> None:
    """The one of the two SDKs that can ask for them."""
    case = CASES["n"]
    ways = [way for way in WAYS if way.startswith("openai")]
    forced = {"forced_text": case.written}
    for answer in asked([_question(server, way, request=case.request, forced=forced) for way in ways]):
        assert answer["error"] is None
        assert [(one["content"], one["finish"]) for one in answer["choices"]] == [("Two a day.", "stop")] * 2


@pytest.mark.parametrize("name", BAD)
def test_an_error_before_the_stream(server: Running, name: str) -> None:
    fields, status, code = BAD[name]
    model = fields.get("model", server.model)
    request = {key: value for key, value in fields.items() if key != "model"}
    for answer in asked([{**_question(server, way, request=request), "model": model} for way in WAYS]):
        error = answer["error"]
        assert (error["status"], error["code"]) == (status, code)
        assert "temperature" in error["message"] or "gpt-9" in error["message"]


def test_an_error_inside_the_stream(failing: Running) -> None:
    ways = [way for way in WAYS if "whole" not in way]
    for answer in asked([_question(failing, way) for way in ways]):
        assert answer["parts"] == ["Two ", "a "]
        assert "The engine lost its memory." in answer["error"]["message"]


def test_an_error_in_place_of_a_body(failing: Running) -> None:
    for answer in asked([_question(failing, way) for way in WAYS if "whole" in way]):
        assert (answer["error"]["status"], answer["error"]["code"]) == (500, "engine_error")
