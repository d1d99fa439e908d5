"""What the model wrote, from servers' own endpoints, as their sources define what they send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.events import (
    End,
    ErrorInput,
    FinishInput,
    PromptInput,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.stage import fold
from stages.upstream.inputs import INPUTS
from tests.support.inputs import opening, read, told, whole

# --- generate ---------------------------------------------------------------------------------------------------------

STOP = {"type": "stop", "matched": 99}


def made(text: Any, ids: Any, count: int, finish: Any = None, **more: Any) -> dict[str, Any]:
    """An event of SGLang's."""
    meta = {"id": "r", "prompt_tokens": 4, "completion_tokens": count, "cached_tokens": 2, "finish_reason": finish}
    index = {"index": more.pop("index")} if "index" in more else {}
    found = {"text": text, "output_ids": ids, "meta_info": {**meta, **more}}
    return {name: value for name, value in found.items() if value is not None} | index


ENDED = [
    PromptInput((), "", 4, 2),
    TokensInput(0, (7,), (), "a"),
    TokensInput(0, (7, 8), (), "ab"),
    TokensInput(0, (99,), (), ""),
    FinishInput(0, "eos", 99),
    UsageInput(4, 4, 2),
]


def test_cumulative_events() -> None:
    """The second repeats the first, also where the same token comes twice."""
    values = [made("a", [7], 1), made("aab", [7, 7, 8], 3), made("aab", [7, 7, 8, 99], 4, STOP)]
    assert told("generate", *values) == ENDED


def test_incremental_events() -> None:
    """The second begins with the same token as the first, but is what is new."""
    values = [made("a", [7], 1), made("ab", [7, 8], 3), made("", [99], 4, STOP)]
    assert told("generate", *values) == ENDED


def test_one_token_again_and_again() -> None:
    """7, 7, 7: cumulative and incremental, which only the count tells apart."""
    more = [made("aa", [7, 7], 2), made("aaa", [7, 7, 7], 3, {"type": "length", "length": 3})]
    new = [made("a", [7], 2), made("a", [7], 3, {"type": "length", "length": 3})]
    wanted = [
        PromptInput((), "", 4, 2), *[TokensInput(0, (7,), (), "a")] * 3, FinishInput(0, "length"), UsageInput(4, 3, 2),
    ]  # fmt: skip
    assert told("generate", made("a", [7], 1), *more) == wanted
    assert told("generate", made("a", [7], 1), *new) == wanted


def test_a_whole_answer_in_one_event() -> None:
    value = made("ab", [7, 8, 99], 3, STOP)
    wanted = [
        PromptInput((), "", 4, 2), TokensInput(0, (7, 8, 99), (), "ab"), FinishInput(0, "eos", 99), UsageInput(4, 3, 2),
    ]  # fmt: skip
    assert told("generate", value) == wanted

    assert read("generate", whole(json.dumps(value).encode())) == wanted


def test_an_end_that_repeats_all() -> None:
    """Nothing new, but the reason."""
    assert told("generate", made("ab", [7, 8], 2), made("ab", [7, 8], 2, STOP))[1:] == [
        TokensInput(0, (7, 8), (), "ab"), FinishInput(0, "eos", 99), UsageInput(4, 2, 2),
    ]  # fmt: skip


def test_choices_of_generate() -> None:
    values = [
        made("a", [7], 1, index=1), made("x", [7], 1, index=0), made("ab", [7, 8], 2, STOP, index=1),
        made("xy", [7, 9], 2, STOP, index=0),
    ]  # fmt: skip
    assert told("generate", *values) == [
        PromptInput((), "", 4, 2), TokensInput(1, (7,), (), "a"), TokensInput(0, (7,), (), "x"),
        TokensInput(1, (8,), (), "b"), FinishInput(1, "eos", 99), TokensInput(0, (9,), (), "y"),
        FinishInput(0, "eos", 99), UsageInput(4, 4, 2),
    ]  # fmt: skip


def test_text_behind_its_ids() -> None:
    """Ids go on while the text waits for the rest of a character; the text alone is no step."""
    values = [made("a", [7], 1), made("a", [7, 8], 2), made("aé", [7, 8], 2, STOP)]
    assert told("generate", *values)[1:4] == [
        TokensInput(0, (7,), (), "a"), TokensInput(0, (8,), (), ""), FinishInput(0, "eos", 99)
    ]  # fmt: skip


def test_text_without_ids() -> None:
    """Older servers."""
    values = [made("a", None, 1), made("ab", None, 2), made("ab", None, 3, STOP)]
    assert told("generate", *values)[1:] == [
        TokensInput(0, (), (), "a"), TokensInput(0, (), (), "b"), FinishInput(0, "eos", 99), UsageInput(4, 3, 2),
    ]  # fmt: skip


def test_logprobs_of_generate() -> None:
    """As cumulative as the ids; alternatives sorted; bytes are joined by whoever has the tokenizer."""
    said = [[-0.5, 7, "a"], [-1.5, 8, None]]
    top = [[[-2.0, 3, None], [-0.5, 7, None]], None]
    values = [
        made("a", [7], 1, output_token_logprobs=said[:1], output_top_logprobs=top[:1]),
        made("ab", [7, 8], 2, STOP, output_token_logprobs=said, output_top_logprobs=top),
    ]
    first = TokenLogprob(7, b"", -0.5, (TopLogprob(7, b"", -0.5), TopLogprob(3, b"", -2.0)))
    steps = [item for item in told("generate", *values) if isinstance(item, TokensInput)]
    assert [step.logprobs for step in steps] == [(first,), (TokenLogprob(8, b"", -1.5),)]
    new = [values[0], made("b", [8], 2, STOP, output_token_logprobs=said[1:], output_top_logprobs=top[1:])]
    assert [item for item in told("generate", *new) if isinstance(item, TokensInput)] == steps
    without = [{name: item for name, item in value.items() if name != "output_ids"} for value in values]
    assert [item for item in told("generate", *without) if isinstance(item, TokensInput)] == steps


def test_logprobs_that_are_too_few() -> None:
    step = told("generate", made("ab", [7, 8], 2, STOP, output_token_logprobs=[[-0.5, 7, None]]))[1]
    assert step == TokensInput(0, (7, 8), (), "ab")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ({"type": "stop", "matched": 99}, FinishInput(0, "eos", 99)),
        ({"type": "stop", "matched": 5}, FinishInput(0, "stop_token", 5)),
        ({"type": "stop", "matched": 6}, FinishInput(0, "eos", 6)),
        ({"type": "stop", "matched": "END"}, FinishInput(0, "stop", "END")),
        ({"type": "stop", "matched": None}, FinishInput(0, "eos")),
        ({"type": "stop"}, FinishInput(0, "eos")),
        ({"type": "length", "length": 9}, FinishInput(0, "length")),
        ("length", FinishInput(0, "length")),
    ],
)
def test_finish_of_generate(reason: Any, finish: FinishInput) -> None:
    """An id is of a stop token if the request names it, and it is no end token."""
    of = opening(eos=(6, 99), stop_ids=(5, 6))
    assert told("generate", made("a", [7], 1, reason), of=of)[-2:] == [finish, UsageInput(4, 1, 2)]


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ({"type": "abort", "message": "gone", "status_code": None}, ErrorInput("engine", "gone", "abort")),
        ({"type": "abort", "message": "busy", "status_code": 503}, ErrorInput("overloaded", "busy", "abort")),
        ({"type": "abort", "message": "long", "status_code": 400}, ErrorInput("bad_request", "long", "abort")),
        ({"type": "abort"}, ErrorInput("engine", "The upstream aborted the request.", "abort")),
    ],
)
def test_abort_of_generate(reason: Any, error: ErrorInput) -> None:
    assert told("generate", made("a", [7], 1), made("a", [7], 1, reason))[-1] == error


def test_error_of_generate() -> None:
    assert told("generate", made("a", [7], 1), {"error": {"message": "too long"}})[-1] == ErrorInput(
        "engine", "too long"
    )


# --- completion -------------------------------------------------------------------------------------------------------


def token(content: str, ids: Any, count: int, **more: Any) -> dict[str, Any]:
    """An event of llama.cpp's."""
    found = {"index": 0, "content": content, "tokens": ids, "stop": False, "tokens_predicted": count}
    return {**found, "tokens_evaluated": 4, **more}


def final(count: int, stop_type: str, **more: Any) -> dict[str, Any]:
    return token("", [], count, stop=True, stop_type=stop_type, truncated=False, stopping_word="", **more)


def test_completion() -> None:
    values = [
        token("Hi", [7], 1), token("<x>", [8], 2), token("", [99], 3),
        final(3, "eos", tokens_cached=7, timings={"cache_n": 3, "prompt_n": 1}),
    ]  # fmt: skip
    # llama.cpp's native stream has no [DONE].
    assert told("completion", *values, last=End()) == [
        PromptInput((), "", 4), TokensInput(0, (7,), (), "Hi"), TokensInput(0, (8,), (), "<x>"),
        TokensInput(0, (99,), (), ""), FinishInput(0, "eos"), UsageInput(4, 3, 3),
    ]  # fmt: skip


def test_ids_that_got_lost() -> None:
    """Two tokens make one character: no event for the first, and the second has its text but only its own id."""
    values = [token("😀", [141334], 1), token(" 😂", [224], 3), token("!", [0], 4), final(4, "eos")]
    assert told("completion", *values)[1:] == [
        TokensInput(0, (141334,), (), "😀"), TokensInput(0, (), (), " 😂"), TokensInput(0, (0,), (), "!"),
        FinishInput(0, "eos"), UsageInput(4, 4),
    ]  # fmt: skip


def test_ids_that_got_lost_ahead_of_their_count() -> None:
    """Speculative decoding: three tokens are counted with the first event of a step. What may have lost ids is text."""
    values = [
        token("a", [1], 3), token("b", [2], 3), token("é", [3], 3), token("é", [5], 6), token("c", [6], 6),
        final(6, "limit"),
    ]  # fmt: skip
    steps = [(item.ids, item.text) for item in told("completion", *values) if isinstance(item, TokensInput)]
    assert steps == [((1,), "a"), ((2,), "b"), ((), "é"), ((), "é"), ((6,), "c")]


@pytest.mark.parametrize(
    ("last", "finish"),
    [
        (final(1, "eos"), FinishInput(0, "eos")),
        (final(1, "limit"), FinishInput(0, "length")),
        ({**final(1, "limit"), "truncated": True}, FinishInput(0, "context")),
        ({**final(1, "word"), "stopping_word": "END"}, FinishInput(0, "stop", "END")),
        (final(1, "none"), FinishInput(0, "eos")),
    ],
)
def test_finish_of_completion(last: Any, finish: FinishInput) -> None:
    assert told("completion", token("a", [7], 1), last)[2:] == [finish, UsageInput(4, 1)]


def test_a_last_event_that_repeats_all() -> None:
    made = told("completion", token("ab", [7], 1), {**final(1, "eos"), "content": "ab", "tokens": [7]})
    assert made[1:3] == [TokensInput(0, (7,), (), "ab"), FinishInput(0, "eos")]


def test_whole_completion() -> None:

    body = json.dumps({**final(3, "eos"), "content": "é!", "tokens": [7, 8, 99]}).encode()
    assert read("completion", whole(body)) == [
        PromptInput((), "", 4), TokensInput(0, (7, 8, 99), (), "é!"), FinishInput(0, "eos"), UsageInput(4, 3),
    ]  # fmt: skip


def test_progress_is_no_step() -> None:
    value = token("", [], 0, prompt_progress={"total": 4, "cache": 0, "processed": 2})
    assert told("completion", value, token("a", [7], 1), final(1, "eos"))[:2] == [
        PromptInput((), "", 4), TokensInput(0, (7,), (), "a"),
    ]  # fmt: skip


def test_logprobs_of_completion() -> None:
    """llama.cpp tells alternatives only with the sampled one, so that one is asked for where the request wants none."""
    top = [
        {"id": 7, "token": "a", "bytes": [97], "logprob": -0.5},
        {"id": 3, "token": "b", "bytes": [98], "logprob": -3},
    ]
    entry = {"id": 7, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": top}
    value = token("a", [7], 1, completion_probabilities=[entry])
    alternatives = (TopLogprob(7, b"a", -0.5), TopLogprob(3, b"b", -3.0))
    for most in (0, 1, 2):
        step = told("completion", value, of=opening(logprobs=True, top_logprobs=most))[1]
        assert step == TokensInput(0, (7,), (), "a", (TokenLogprob(7, b"a", -0.5, alternatives[:most]),))


def test_choices_of_completion() -> None:
    values = [
        token("a", [7], 1), token("x", [7], 1, index=1), token("é", [8], 2), final(2, "eos"),
        final(1, "eos", index=1),
    ]  # fmt: skip
    made = told("completion", *values)
    assert [item for item in made if isinstance(item, TokensInput)] == [
        TokensInput(0, (7,), (), "a"), TokensInput(1, (7,), (), "x"), TokensInput(0, (8,), (), "é"),
    ]  # fmt: skip
    assert made[-1] == UsageInput(4, 3)


def test_error_of_completion() -> None:
    error = {"error": {"code": 500, "message": "no slot", "type": "server_error"}}
    assert told("completion", token("a", [7], 1), error)[-1] == ErrorInput("engine", "no slot", "500")
    assert read(
        "completion", whole(b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', 503)
    ) == [ErrorInput("overloaded", "Loading model", "503")]


def test_every_way_has_a_stage() -> None:
    assert {way: stage.id for way, stage in INPUTS.items()} == {
        "chat": "inputs.chat@1", "generate": "inputs.generate@1", "completion": "inputs.completion@1",
        "completions": "inputs.completions@1", "told": "inputs.told@1",
    }  # fmt: skip
    assert all(fold(stage.start(opening()), []) == [] for stage in INPUTS.values())
