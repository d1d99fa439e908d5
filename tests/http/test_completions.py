"""POST /v1/completions over a socket: the official SDK, streaming and not, and what is on the wire."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import openai
import pytest

from stages.events import Content, Echo, PromptInput
from tests.support.server import Running, objects, serve

SAID = "Two a day, says the almanac."
STEPS = ["Two ", "a ", "day, ", "says ", "the ", "almanac."]
RAW = "<think>tides</think><tool_call>{}</tool_call>"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Says SAID, or what a request forces; chats are read as hermes, completions are not."""
    with serve(tmp_path_factory.mktemp("raw"), "--allow-forced", "--parser", "hermes", script=STEPS) as running:
        yield running


@pytest.fixture
def client(raw: Running) -> Generator[openai.OpenAI]:
    """The SDK."""
    with raw.client() as made:
        yield made


class Told:
    """A choice, however it came."""

    def __init__(self) -> None:
        self.text = ""
        self.finish: str | None = None
        self.stop: str | int | None = None
        self.logprobs: dict[str, list[Any]] | None = None
        self.ids: list[int] = []
        self.prompt_ids: list[int] | None = None

    def take(self, choice: Any) -> None:
        """A part of it, or all."""
        assert self.finish is None
        self.text += choice.text
        self.finish = choice.finish_reason
        self.stop = getattr(choice, "stop_reason", None)
        self.ids += getattr(choice, "token_ids", None) or []
        prompt_ids = getattr(choice, "prompt_token_ids", None)
        if prompt_ids is not None:
            assert self.prompt_ids is None
            self.prompt_ids = prompt_ids
        if choice.logprobs is not None:
            self.logprobs = self.logprobs or {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
            for name, values in self.logprobs.items():
                values += getattr(choice.logprobs, name)


def whole(running: Running, client: openai.OpenAI, **fields: Any) -> tuple[dict[int, Told], tuple[int, int]]:
    """The answer as one body: its choices, and its token counts."""
    create: Any = client.completions.create
    answer = create(**{"model": running.model, **fields})
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert [choice.index for choice in answer.choices] == [*range(len(answer.choices))]
    return told(answer.choices), (answer.usage.prompt_tokens, answer.usage.completion_tokens)


def streamed(running: Running, client: openai.OpenAI, **fields: Any) -> tuple[dict[int, Told], tuple[int, int]]:
    """The same, of a stream."""
    create: Any = client.completions.create
    options = {"include_usage": True}
    *chunks, last = create(**{"model": running.model, "stream": True, "stream_options": options, **fields})
    assert {chunk.object for chunk in (*chunks, last)} == {"text_completion"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in (*chunks, last)}) == 1
    assert (last.choices, {chunk.usage for chunk in chunks}) == ([], {None})
    choices = told([choice for chunk in chunks for choice in chunk.choices])
    return choices, (last.usage.prompt_tokens, last.usage.completion_tokens)


def told(choices: list[Any]) -> dict[int, Told]:
    """Choices by their index."""
    found: dict[int, Told] = {}
    for choice in choices:
        found.setdefault(choice.index, Told()).take(choice)
    return found


def both(running: Running, client: openai.OpenAI, **fields: Any) -> tuple[dict[int, Told], tuple[int, int]]:
    """The same either way, which is returned."""
    one, other = whole(running, client, **fields), streamed(running, client, **fields)
    assert {index: vars(choice) for index, choice in one[0].items()} == {
        index: vars(choice) for index, choice in other[0].items()
    }
    assert one[1] == other[1]
    return one


def test_a_text(raw: Running, client: openai.OpenAI) -> None:
    # The toy tokenizer has four characters a token, the script a token a step, and an end token.
    choices, usage = both(raw, client, prompt="Tides: ")
    assert vars(choices[0]) == {
        "text": SAID, "finish": "stop", "stop": None, "logprobs": None, "ids": [], "prompt_ids": None,
    }  # fmt: skip
    assert usage == (2, 7)


def test_markup_is_text(raw: Running, client: openai.OpenAI) -> None:
    fields = {"prompt": "x", "max_tokens": 100, "extra_body": {"forced_text": RAW}}
    assert both(raw, client, **fields)[0][0].text == RAW
    # The same in a chat is parsed.
    assert RAW not in raw.post(forced_text=RAW).text


def test_special_tokens_are_dropped_unless_kept(raw: Running, client: openai.OpenAI) -> None:
    forced = {"forced_text": "a<|im_start|>b"}
    assert both(raw, client, prompt="x", extra_body=forced)[0][0].text == "ab"
    kept = {**forced, "skip_special_tokens": False}
    assert both(raw, client, prompt="x", extra_body=kept)[0][0].text == "a<|im_start|>b"


@pytest.mark.parametrize(("size", "want"), [(1, "Two "), (3, "Two a day, "), (6, SAID)])
def test_a_cap(raw: Running, client: openai.OpenAI, size: int, want: str) -> None:
    choices, usage = both(raw, client, prompt="x", max_tokens=size)
    assert (choices[0].text, choices[0].finish, usage) == (want, "length", (1, size))


def test_sixteen_tokens_are_the_cap_where_none_is_named(raw: Running, client: openai.OpenAI) -> None:
    choices, usage = both(raw, client, prompt="x", extra_body={"forced_ids": [65] * 30})
    assert (choices[0].text, choices[0].finish, usage) == ("A" * 16, "length", (1, 16))


def test_stop_strings(raw: Running, client: openai.OpenAI) -> None:
    choices, usage = both(raw, client, prompt="x", stop=["nothing", "y, sa"])
    assert (choices[0].text, choices[0].finish, choices[0].stop) == ("Two a da", "stop", "y, sa")
    assert usage == (1, 4)
    choices, _ = both(raw, client, prompt="x", stop="y, sa", extra_body={"include_stop_str_in_output": True})
    assert choices[0].text == "Two a day, sa"


def test_several_prompts_with_several_choices(raw: Running, client: openai.OpenAI) -> None:
    prompts = ["One: ", "Two: ", "Three: "]
    choices, usage = both(raw, client, prompt=prompts, n=2, echo=True)
    assert {index: choice.text for index, choice in choices.items()} == {
        index: f"{prompts[index // 2]}{SAID}" for index in range(6)
    }
    # "One: " has two tokens, each choice seven.
    assert usage == (2 + 2 + 2, 6 * 7)


def test_echo_with_logprobs(raw: Running, client: openai.OpenAI) -> None:
    choices, _ = both(raw, client, prompt="Tides: ", echo=True, logprobs=2, max_tokens=2)
    found = choices[0].logprobs
    assert choices[0].text == "Tides: Two a "
    assert found is not None
    assert found["tokens"] == ["Tide", "s: ", "Two ", "a "]
    assert found["text_offset"] == [0, 4, 7, 11]
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    for token, number, top in zip(
        found["tokens"][1:], found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True
    ):
        assert top[token] == number
        assert len(top) == 2
        assert max(top.values()) == number


def test_no_alternatives_is_the_chosen_token_alone(raw: Running, client: openai.OpenAI) -> None:
    choices, _ = both(raw, client, prompt="x", logprobs=0, max_tokens=1)
    found = choices[0].logprobs
    assert found is not None
    assert found["top_logprobs"] == [{"Two ": found["token_logprobs"][0]}]


def test_a_prompt_alone(raw: Running, client: openai.OpenAI) -> None:
    choices, usage = both(raw, client, prompt=["Tides: ", "x"], echo=True, max_tokens=0)
    assert [(choice.text, choice.finish) for choice in choices.values()] == [("Tides: ", "length"), ("x", "length")]
    assert usage == (3, 0)


def test_token_ids(raw: Running, client: openai.OpenAI) -> None:
    prompts = [[72, 105], [33]]
    choices, usage = both(raw, client, prompt=prompts, n=2, echo=True, extra_body={"return_token_ids": True})
    assert [choice.prompt_ids for choice in choices.values()] == [[72, 105], [72, 105], [33], [33]]
    assert [choice.text for choice in choices.values()] == [f"Hi{SAID}"] * 2 + [f"!{SAID}"] * 2
    assert all(len(choice.ids) == 7 for choice in choices.values())
    assert usage == (3, 28)


def test_text_that_is_held_has_its_logprobs_at_once(raw: Running) -> None:
    """While a stop string may yet be complete, offsets run ahead of the text."""
    body = {"prompt": "x", "stream": True, "logprobs": 0, "stop": "a day, no"}
    chunks = objects(raw.http.post("/v1/completions", json=body).content)
    choices: list[Any] = [choice for chunk in chunks for choice in chunk["choices"]]
    seen = [(choice["text"], choice["logprobs"] and choice["logprobs"]["text_offset"]) for choice in choices]
    assert seen[:5] == [("", [0]), ("Two ", None), ("", [4]), ("", [6]), ("", [11])]
    assert "".join(choice["text"] for choice in choices) == SAID


def test_running_usage(raw: Running) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": ["Tides: ", "x"], "stream": True, "stream_options": options, "max_tokens": 2}
    chunks = objects(raw.http.post("/v1/completions", json=body).content)
    counts = {
        index: [
            tuple(chunk["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
            for chunk in chunks
            if chunk["choices"] and chunk["choices"][0]["index"] == index
        ]
        for index in (0, 1)
    }
    assert counts == {0: [(2, 1, 3), (2, 2, 4), (2, 2, 4)], 1: [(1, 1, 2), (1, 2, 3), (1, 2, 3)]}
    assert [chunks[-1]["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")] == [3, 4, 7]


def test_what_is_recorded(raw: Running) -> None:
    answer = raw.http.post("/v1/completions", json={"prompt": ["One: ", RAW], "echo": True, "logprobs": 1})
    trace = raw.recorded(answer.json()["id"])
    opening = trace.opening
    assert (opening.protocol, opening.parser, opening.stages["encoder"]) == ("completions", "plain", "completions@1")
    assert (opening.ask.n, opening.ask.prompts) == (2, 2)
    inputs = trace.events("input", "engine")
    assert [type(event) for event in inputs[:2]] == [PromptInput, PromptInput]
    echoes = [event for event in inputs if isinstance(event, Echo)]
    assert [(event.prompt, event.text) for event in echoes] == [(0, "One: "), (1, RAW)]
    meant = trace.events("served", "semantic")
    assert [event for event in meant if isinstance(event, Echo)] == echoes
    assert "".join(event.text for event in meant if isinstance(event, Content) and event.choice == 1) == SAID


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["x", ""]}, "prompt[1]"),
        ({"prompt": ["x", [1]]}, "prompt[1]"),
        ({"prompt": [1, "x"]}, "prompt[1]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": ["x"] * 65, "n": 2}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [1 << 40]}, "prompt"),
        ({"prompt": [[5], [1 << 40]]}, "prompt[1]"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "prompt_embeds": "y"}, "prompt_embeds"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "min_tokens": 17}, "min_tokens"),
        ({"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "best_of": 1, "n": 2}, "best_of"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "stop": ["a", ""]}, "stop[1]"),
        ({"prompt": "x", "stream_options": {}}, "stream_options"),
        ({"prompt": "x", "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_what_is_refused(raw: Running, fields: dict[str, Any], param: str) -> None:
    answer = raw.http.post("/v1/completions", json=fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_best_of_that_says_nothing_is_taken(raw: Running, client: openai.OpenAI) -> None:
    assert len(both(raw, client, prompt="x", n=2, best_of=2)[0]) == 2


def test_another_model(raw: Running, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="other", prompt="x")
    assert caught.value.code == "model_not_found"


def test_an_engine_that_fails_in_the_stream(failing: Running) -> None:
    with failing.client() as client:
        create: Any = client.completions.create
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="lost its memory"):
            for chunk in create(model=failing.model, prompt=["x", "y"], stream=True):
                texts += [choice.text for choice in chunk.choices]
        assert texts == ["Two ", "Two ", "a ", "a "]
        with pytest.raises(openai.InternalServerError, match="lost its memory"):
            create(model=failing.model, prompt="x")


@pytest.mark.model
def test_a_real_model(real: Running) -> None:
    """Greedy: what it writes behind a prompt, it tells again with the same logprobs where that is echoed."""
    with real.client() as client:
        fields = {"temperature": 0, "logprobs": 3, "echo": True}
        choices, usage = both(real, client, prompt=["The tide is", "Two and two"], max_tokens=5, **fields)
        first = choices[0]
        assert first.text.startswith("The tide is")
        assert first.logprobs is not None
        assert "".join(first.logprobs["tokens"]) == first.text
        assert usage[1] == 10
        echoed, counts = whole(real, client, prompt=first.text, max_tokens=0, **fields)
        assert counts[1] == 0
        again = echoed[0].logprobs
        assert again is not None
        assert again["tokens"] == first.logprobs["tokens"]
        assert again["token_logprobs"][1:] == pytest.approx(first.logprobs["token_logprobs"][1:], abs=1e-3)
