"""The same over torch: a real model behind the official SDK, forced to write what a case needs, and once free."""

from __future__ import annotations

import threading

import openai
import pytest

from stages.events import TokensInput
from tests.support.answers import CASES, WAYS, Way, ask
from tests.support.server import Running, blocks

pytestmark = pytest.mark.model

# Every case one way, and what matters most two ways: a token of this model takes its time.
FORCED = [
    *((name, WAYS[index % 3]) for index, name in enumerate(CASES)),
    ("reasoning", "plain"),
    ("one call", "helper"),
]


@pytest.mark.parametrize(("name", "way"), FORCED)
def test_the_model_writes_what_it_must(real: Running, name: str, way: Way) -> None:
    with real.client() as client:
        answer = ask(real, client, CASES[name], way)
    assert answer.choices == CASES[name].choices
    trace = real.recorded(answer.id)
    written = [event for event in trace.events("input", "engine") if isinstance(event, TokensInput)]
    assert sum(len(event.ids) for event in written) == answer.usage[1]
    if "stop" not in name:
        assert b"".join(piece for event in written if event.choice == 0 for piece in event.pieces) == (
            CASES[name].written.encode() + b"<|im_end|>"
        )


def test_free_and_greedy_it_says_the_same_every_way(real: Running) -> None:
    fields = {"temperature": 0, "max_completion_tokens": 12}
    with real.client() as client:
        whole = real.create(client, **fields)
        chunks = list(real.create(client, **fields, stream=True, logprobs=True, top_logprobs=3))
    text = whole.choices[0].message.content
    assert text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert {chunk.system_fingerprint for chunk in chunks} == {whole.system_fingerprint}
    assert whole.system_fingerprint.startswith("fp_")
    entries = [entry for chunk in chunks if (told := chunk.choices[0].logprobs) for entry in told.content]
    assert len(entries) == 12
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == text
    # Greedy takes the likeliest.
    assert all(entry.top_logprobs[0].token == entry.token for entry in entries)


def said(real: Running, client: openai.OpenAI, seed: int) -> str:
    answer = real.create(client, max_completion_tokens=10, temperature=1.0, seed=seed)
    return str(answer.choices[0].message.content)


def test_a_seed_gives_the_same_text_alone_and_beside_others(real: Running) -> None:
    with real.client() as client:
        alone = said(real, client, 7)
        other = threading.Thread(target=said, args=(real, client, 8))
        other.start()
        beside = said(real, client, 7)
        other.join()
        assert alone == beside
        assert said(real, client, 9) != alone


def test_several_streams_make_progress_together(real: Running) -> None:
    """The second stream begins and ends while the first one runs."""
    with real.stream(temperature=0, ignore_eos=True, max_tokens=400) as long:
        long.until(b'"content":"', 3)
        with real.stream(temperature=0, max_tokens=3) as short:
            assert blocks(short.rest())[-1] == "data: [DONE]"
        assert b"[DONE]" not in long.read
        long.until(b'"content":"', long.read.count(b'"content":"') + 2)
    assert real.recorded(long.id).info.state == "aborted"


def test_a_prompt_that_is_too_long(real: Running) -> None:
    with real.client() as client, pytest.raises(openai.BadRequestError) as caught:
        real.create(client, messages=[{"role": "user", "content": "tide " * 9000}], stream=True)
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
