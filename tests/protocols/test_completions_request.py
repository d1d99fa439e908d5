"""Requests of the completions protocol: what is taken, what is refused, and what the stages are asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import RequestError
from stages.opening import Ask
from stages.protocols.openai_completions import ask_of, decode_request, prompts_of, unknown_fields


def body(**fields: Any) -> bytes:
    """A request's body."""
    return json.dumps({"prompt": "x", **fields}).encode()


@pytest.mark.parametrize(
    ("prompt", "want"),
    [
        ("Hi", ("Hi",)),
        (["Hi", "Ho"], ("Hi", "Ho")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, want: tuple[Any, ...]) -> None:
    request = decode_request(body(prompt=prompt, n=2))
    assert prompts_of(request) == want
    assert (ask_of(request).n, ask_of(request).prompts) == (2 * len(want), len(want))


def test_defaults() -> None:
    request = decode_request(body())
    assert (request.max_tokens, request.add_special_tokens, request.logprobs, request.n) == (16, True, None, 1)
    assert ask_of(request) == Ask()
    # Null is the same as absent.
    assert decode_request(body(max_tokens=None, logprobs=None, echo=None, suffix=None, best_of=None)) == request
    # Clients send these for nothing.
    assert prompts_of(decode_request(body(suffix="", best_of=1))) == ("x",)


def test_what_the_stages_are_asked() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    request = decode_request(
        body(
            stream=True, stream_options=options, echo=True, logprobs=3, stop=["a", "b"], return_token_ids=True,
            skip_special_tokens=False, include_stop_str_in_output=True, ignore_eos=True, stop_token_ids=[7],
            end_token_logprob=False, include_metrics=True, top_k=-1,
        )
    )  # fmt: skip
    assert request.top_k == 0
    assert ask_of(request) == Ask(
        stream=True, include_usage=True, continuous_usage=True, echo=True, logprobs=True, top_logprobs=3,
        stop=("a", "b"), return_token_ids=True, keep_special=True, include_stop=True, ignore_eos=True, stop_ids=(7,),
        end_token=False, metrics=True,
    )  # fmt: skip


@pytest.mark.parametrize(("given", "want"), [(None, (False, 0)), (0, (True, 0)), (5, (True, 5)), (20, (True, 20))])
def test_no_alternatives_is_not_off(given: int | None, want: tuple[bool, int]) -> None:
    ask = ask_of(decode_request(body(logprobs=given)))
    assert (ask.logprobs, ask.top_logprobs) == want


SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {}),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, {}),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
    ],
)
def test_response_formats(wanted: dict[str, Any], answer: Any) -> None:
    assert ask_of(decode_request(body(response_format=wanted))).answer == answer


def test_fields_that_mean_nothing() -> None:
    assert unknown_fields(body(messages=[], tools=[], user="u", priority=1)) == ("messages", "tools", "priority")


def test_128_choices_are_the_most() -> None:
    assert ask_of(decode_request(body(prompt=["x"] * 64, n=2))).n == 128
    with pytest.raises(RequestError, match="65 prompts with 2 choices each are more than 128") as caught:
        decode_request(body(prompt=["x"] * 65, n=2))
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError):
        decode_request(body(prompt=[[1]] * 129))
    # A long prompt of ids is one prompt.
    assert ask_of(decode_request(body(prompt=[1] * 5000))).n == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"best_of": 2, "stream": True}, "best_of: choices cannot be ranked in a stream; ask for 2 choices with n"),
    ({"best_of": 2}, "best_of: this server does not rank choices"),
    ({"best_of": 1, "n": 2}, "best_of: expected at least n, which is 2"),
    ({"max_tokens": 0}, "max_tokens: expected at least 1; 0 needs echo"),
    ({"suffix": "s"}, "suffix: text cannot be inserted"),
    ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens: prompts are not cut here"),
    ({"prompt_logprobs": 1}, "prompt_logprobs: this field is not supported; ask for logprobs with echo"),
    ({"prompt": None}, "prompt: this field is required"),
    ({"prompt": {}}, "prompt: "),
    ({"prompt": ["a", 1]}, "prompt[1]: a prompt list has texts, or token ids, or lists of token ids"),
    ({"prompt": [True]}, "prompt[0]: expected "),
    ({"prompt": [[]]}, "prompt[0]: expected text or token ids, not an empty prompt"),
]


@pytest.mark.parametrize(("fields", "said"), REFUSED)
def test_refusals_say_what_to_do(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_request(body(**fields))
    assert caught.value.message.startswith(said)
    assert said.startswith(caught.value.param or "?")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 1 << 65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["prompt", "n", "best_of", "logprobs", "max_tokens", "stop", "echo"]), JSON))
def test_any_fields_are_taken_or_refused(fields: dict[str, Any]) -> None:
    try:
        request = decode_request(json.dumps(fields).encode())
    except RequestError as error:
        assert error.status == 400
        return
    ask = ask_of(request)
    assert 1 <= ask.n <= 128
    assert ask.n == request.n * len(prompts_of(request))
    assert all(prompts_of(request))
