"""How an upstream is asked: every byte of a relayed request, every field of a parsed one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.base import Sampling
from pipeline.engines.prompt import Prompt
from pipeline.http.plans import Plan, plan
from pipeline.upstream.asking import ask, inject, lost

FIRST = b'"return_token_ids":true'
PROMPT = Prompt((1, 2, 3), "tail", "<|im_start|>hi")
MESSAGES = [{"role": "user", "content": "hi"}]

# --- inject -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"{}", b"{" + FIRST + b"}"),
        (b"{ \n}", b"{" + FIRST + b" \n}"),
        (b' \r\n{"a":1}\n', b" \r\n{" + FIRST + b',"a":1}\n'),
        (b'{"a":"}"}', b"{" + FIRST + b',"a":"}"}'),
        (b'{"a": {"return_token_ids": false}}', b"{" + FIRST + b',"a": {"return_token_ids": false}}'),
        (b'{"a": 1.50, "a": "\\u00e9\xc3\xa9"}', b"{" + FIRST + b',"a": 1.50, "a": "\\u00e9\xc3\xa9"}'),
        (b'{"a": NaN}', b"{" + FIRST + b',"a": NaN}'),
        (b'\xef\xbb\xbf{"a":1}', b"\xef\xbb\xbf{" + FIRST + b',"a":1}'),
    ],
)  # fmt: skip
def test_inject(before: bytes, after: bytes) -> None:
    assert inject(before) == after
    assert json.loads(after.removeprefix(b"\xef\xbb\xbf"))["return_token_ids"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no", b"[]", b"[{}]", b'"{}"', b"{", b'{"a":}', b"null", '{"a":1}'.encode("utf-16"),
        b'{"return_token_ids":true}', b'{"return_token_ids":false}', b'{"a":1,"return_token_ids":null}',
        b'{"return\\u005ftoken_ids":true}', b"[" * 10_000,
    ],
)  # fmt: skip
def test_nothing_to_inject(body: bytes) -> None:
    """The client says it itself, or nobody can."""
    assert inject(body) is None


@given(
    value=st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)),
    indent=st.sampled_from([None, 0, 1]), plain=st.booleans(),
)  # fmt: skip
def test_inject_any(value: dict[str, Any], indent: int | None, plain: bool) -> None:
    """Without what was put in, the body is as it was."""
    value.pop("return_token_ids", None)
    body = json.dumps(value, indent=indent, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    made = inject(body)
    assert made is not None
    comma = b"," if value else b""
    assert made.replace(FIRST + comma, b"", 1) == body
    assert json.loads(made.decode("utf-8", "surrogatepass")) == {"return_token_ids": True, **value}


# --- ask --------------------------------------------------------------------------------------------------------------


def asked(way: str, *, prompt: Prompt | None = PROMPT, **fields: Any) -> dict[str, Any]:
    """What is sent for a client's request with these fields. ``strict``, ``context``, ``ids``: of ``ask``."""
    how = {name: fields.pop(name) for name in ("strict", "context", "ids") if name in fields}
    body = json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()
    path, made = ask(way, body=body, plan=plan("chat", body, "m"), prompt=prompt, model="theirs", **how)
    assert path == {
        "chat": "/v1/chat/completions", "generate": "/generate", "completion": "/completion",
        "completions": "/v1/completions",
    }[way]  # fmt: skip
    sent: dict[str, Any] = json.loads(made)
    return sent


def test_chat() -> None:
    """The client's request, whatever it has, but nothing is hidden."""
    made = asked("chat", include_reasoning=False, temperature=0.5, logprobs=True, top_logprobs=2, whatever={"a": [1]})
    assert made == {
        "model": "theirs", "messages": MESSAGES, "temperature": 0.5, "logprobs": True, "top_logprobs": 2,
        "whatever": {"a": [1]}, "stream": True, "return_token_ids": True, "include_reasoning": True,
    }  # fmt: skip
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert asked("chat", stream=True, stream_options=options, return_token_ids=False) == {
        "model": "theirs", "messages": MESSAGES, "stream": True, "stream_options": options, "return_token_ids": True,
        "include_reasoning": True,
    }  # fmt: skip


def test_generate() -> None:
    assert asked("generate") == {
        "input_ids": [1, 2, 3],
        "sampling_params": {
            "max_new_tokens": None, "n": 1, "skip_special_tokens": False, "spaces_between_special_tokens": False,
        },
        "stream": True,
    }  # fmt: skip
    made = asked("generate", n=2, max_tokens=9, stop=["END"], logprobs=True, top_logprobs=3, top_k=-1, seed=4)
    assert made == {
        "input_ids": [1, 2, 3],
        "sampling_params": {
            "max_new_tokens": 9, "n": 2, "skip_special_tokens": False, "spaces_between_special_tokens": False,
            "stop": ["END"], "no_stop_trim": True, "top_k": -1, "sampling_seed": 4,
        },
        "stream": True, "return_logprob": True, "top_logprobs_num": 3, "return_text_in_logprobs": False,
    }  # fmt: skip


def test_completion() -> None:
    assert asked("completion", stop="END") == {
        "prompt": [1, 2, 3], "n_predict": -1, "stream": True, "return_tokens": True, "cache_prompt": True,
    }  # fmt: skip
    made = asked(
        "completion", n=2, max_tokens=9, logprobs=True, repetition_penalty=1.1, logit_bias={"7": -1.0}, top_k=0, seed=-1
    )
    assert made == {
        "prompt": [1, 2, 3], "n_predict": 9, "stream": True, "return_tokens": True, "cache_prompt": True, "n": 2,
        "n_probs": 1, "repeat_penalty": 1.1, "repeat_last_n": -1, "logit_bias": [[7, -1.0]], "top_k": 0,
        "seed": 0xFFFFFFFE,
    }  # fmt: skip
    assert asked("completion", logprobs=True, top_logprobs=5)["n_probs"] == 5


OPEN = {"skip_special_tokens": False, "spaces_between_special_tokens": False, "add_special_tokens": False}
USAGE = {"include_usage": True}


def test_completions() -> None:
    assert asked("completions") == {
        "model": "theirs", "prompt": [1, 2, 3], "stream": True, "stream_options": USAGE, "max_tokens": None, **OPEN,
    }  # fmt: skip
    made = asked("completions", n=2, max_tokens=9, stop=["END"], logprobs=True, min_p=0.1, stop_token_ids=[5], ids=True)
    assert made == {
        "model": "theirs", "prompt": [1, 2, 3], "stream": True, "stream_options": USAGE, "max_tokens": 9, "n": 2,
        "stop": ["END"], "include_stop_str_in_output": True, "no_stop_trim": True, "logprobs": 0, "min_p": 0.1,
        "stop_token_ids": [5], "return_token_ids": True, **OPEN,
    }  # fmt: skip
    assert asked("completions", context=100)["max_tokens"] == 97


def test_completions_of_strict_servers() -> None:
    """No field that OpenAI's protocol does not have; a text, because not all read ids."""
    made = asked("completions", strict=True, min_p=0.1, top_k=5, stop=["END"], temperature=0.5, ids=True)
    assert made == {
        "model": "theirs", "prompt": "<|im_start|>hi", "stream": True, "stream_options": USAGE, "stop": ["END"],
        "temperature": 0.5,
    }  # fmt: skip
    assert asked("completions", strict=True, context=100)["max_tokens"] == 97


@pytest.mark.parametrize("way", ["chat", "generate", "completions"])
def test_stop_strings_of_some_kinds_are_ours(way: str) -> None:
    """An upstream would find them anywhere."""
    made = json.dumps(asked(way, stop=["END"], stop_scopes=["content"]))
    assert "END" not in made
    assert "END" in json.dumps(asked(way, stop=["END"]))
    assert "END" in json.dumps(asked(way, stop=["END"], stop_scopes=["content", "reasoning", "tools"]))


def test_what_the_client_left_out_is_left_to_the_upstream() -> None:
    """And what it said is sent, also where that is our default."""
    for way, where in (("generate", "sampling_params"), ("completion", None), ("completions", None)):
        made = asked(way)
        assert "temperature" not in (made[where] if where else made)
        made = asked(way, temperature=1.0, top_p=None)
        sent = made[where] if where else made
        assert sent["temperature"] == 1.0
        assert "top_p" not in sent


# --- every field of Sampling ------------------------------------------------------------------------------------------

SAMPLING: dict[str, Any] = {
    "max_tokens": 9, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7,
    "presence_penalty": 0.25, "frequency_penalty": -0.5, "repetition_penalty": 1.25, "logit_bias": {5: 2.0},
    "stop_token_ids": (8, 9), "ignore_eos": True, "forced_ids": (1,), "forced_text": "x",
}  # fmt: skip
GENERATE = {
    "max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "temperature": "temperature", "top_p": "top_p",
    "top_k": "top_k", "min_p": "min_p", "seed": "sampling_seed", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty", "repetition_penalty": "repetition_penalty", "logit_bias": "logit_bias",
    "stop_token_ids": "stop_token_ids", "ignore_eos": "ignore_eos",
}  # fmt: skip
COMPLETION = {
    "max_tokens": "n_predict", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty", "logit_bias": "logit_bias", "ignore_eos": "ignore_eos",
}  # fmt: skip
OFFICIAL = ("max_tokens", "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias")
NAMES: dict[tuple[str, bool], dict[str, str]] = {
    ("generate", False): GENERATE,
    ("completion", False): COMPLETION,
    ("completions", False): {name: name for name in GENERATE},
    ("completions", True): {name: name for name in OFFICIAL},
}
"""What SGLang, llama.cpp and vLLM call them, by their sources; what OpenAI's protocol has."""


def on_the_wire(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_all_fields_are_here() -> None:
    assert tuple(SAMPLING) == Sampling.__struct_fields__


@pytest.mark.parametrize(("way", "strict"), sorted(NAMES))
@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_a_field_is_sent_or_lost(way: str, strict: bool, name: str) -> None:
    sampling = Sampling(**{name: SAMPLING[name]})
    body = json.dumps({"messages": MESSAGES}).encode()
    understood = plan("chat", body, "m")
    planned = Plan(understood.ask, understood.conversation, sampling)
    _, made = ask(way, body=body, plan=planned, prompt=PROMPT, model="m", strict=strict)
    sent = json.loads(made)
    sent = sent.get("sampling_params", sent)
    wire = NAMES[way, strict].get(name)
    if wire is None:
        assert lost(way, sampling, strict=strict) == (name,)
        assert name not in sent
    else:
        assert lost(way, sampling, strict=strict) == ()
        value = on_the_wire(SAMPLING[name])
        assert sent[wire] == ([[5, 2.0]] if (way, name) == ("completion", "logit_bias") else value)


@pytest.mark.parametrize(("way", "strict"), [*sorted(NAMES), ("chat", False)])
def test_lost(way: str, strict: bool) -> None:
    """What was not set is not lost; the chat way has the client's own request."""
    assert lost(way, Sampling(), strict=strict) == ()
    names = NAMES.get((way, strict), SAMPLING)
    assert lost(way, Sampling(**SAMPLING), strict=strict) == tuple(name for name in SAMPLING if name not in names)


def test_sampling_reaches_the_upstream_from_the_client() -> None:
    fields: dict[str, Any] = {name: value for name, value in SAMPLING.items() if not name.startswith("forced")}
    fields["logit_bias"] = {"5": 2.0}
    sent = asked("generate", **fields)["sampling_params"]
    assert {wire: sent[wire] for wire in GENERATE.values()} == {
        wire: on_the_wire(SAMPLING[name]) for name, wire in GENERATE.items()
    }
