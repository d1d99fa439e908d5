"""A recorded response in any protocol says the same: rule 133 between every two of them, and what is said by itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.errors import NotAvailable
from replay.evidence import evidence_of
from replay.played import Played, played
from stages import catalog
from stages.errors import UnknownName
from stages.events import AbortInput, FinishInput, Frame, Head, Input, PromptInput, ToldInput, UsageInput
from stages.events import Content as Told
from stages.message import collect
from stages.opening import Opening, UpstreamFacts
from stages.protocols.rules import PROTOCOLS, Protocol, check
from store import trace as traces
from store.api import Trace
from tests.support.captures import captures
from tests.support.replay import CALLS, SAID, THINKING, opening, record, tokens, whole
from tests.support.upstream_traces import relayed
from tests.support.wire import golden

TRACES = Path(__file__).parents[1] / "traces"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("tide", "moon")
]
REQUEST: dict[str, Any] = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When is high tide?"}],
    "tools": TOOLS, "stream": True,
}  # fmt: skip


def opened(parser: str = "hermes", protocol: str = "chat", **ask: Any) -> Opening:
    made = opening(parser=parser, **ask)
    made = msgspec.structs.replace(made, protocol=protocol, request=json.dumps(REQUEST).encode())
    return msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))


def body_of(frames: Iterable[Frame]) -> bytes:
    return b"".join(frame.data for frame in frames if not isinstance(frame, Head))


def said(trace: Trace, protocol: str, choice: int | None = None) -> bytes:
    return body_of(played(trace, protocol, choice).frames)


def assert_the_same(trace: Trace, bodies: dict[Protocol, bytes]) -> None:
    """Every two of these say the same, and each says what was meant."""
    meant = collect(trace.events("served", "semantic"), named=trace.opening.ask.named)
    known = msgspec.structs.replace(
        evidence_of(trace), http=None, writes=None, sent=None, engine=None, request=None, meant=meant
    )
    for one, two in itertools.permutations(bodies, 2):
        report = check(msgspec.structs.replace(known, protocol=one, body=bodies[one], other=(two, bodies[two])))
        assert 133 in report.checked
        # What was meant, the text of completions has with the markup around it.
        kept = ("INV-133",) if one == "completions" else ("INV-133", "INV-026", "INV-027", "INV-028")
        assert [found for found in report.violations if found.rule in kept] == []


def all_of(trace: Trace) -> dict[Protocol, bytes]:
    return {protocol: said(trace, protocol) for protocol in PROTOCOLS}


# --- the same message -------------------------------------------------------------------------------------------------


def test_the_golden_pair() -> None:
    """G09 and G12 are one message in two protocols; a letter more in one, and they are not."""
    for one, two in (("G09", "G12"), ("G12", "G09")):
        other = golden(two)
        report = golden(one).known(other=(other.protocol, other.body)).report()
        assert 133 in report.checked
        assert report.violations == ()
        spoilt = other.body.replace(b" it up.", b" it up!").replace(b"Looking it up.", b"Looking it up!")
        broken = golden(one).known(other=(other.protocol, spoilt)).report()
        assert {found.rule for found in broken.violations} == {"INV-133"}


@pytest.mark.parametrize("name", ["families.jsonl.zst", "mutants.jsonl.zst", "reasoning-then-two-calls.jsonl"])
def test_the_golden_traces_say_the_same_in_all_protocols(name: str) -> None:
    """Every format, also where the model wrote what is broken."""
    count = 0
    for trace in traces.read_many(TRACES / name):
        count += 1
        bodies = all_of(trace)
        meant = collect(trace.events("served", "semantic"))
        if any(text in (message.content or "") for message in meant for text in trace.opening.tokenizer.special):
            # A special token that a format gives back as text: a completion leaves such tokens out.
            del bodies["completions"]
        assert_the_same(trace, bodies)
    assert count == {"families.jsonl.zst": 162, "mutants.jsonl.zst": 69}.get(name, 1)


part = st.sampled_from(
    [
        "Où ", "潮汐 🌊", "plain", THINKING, CALLS, "\n", '<tool_call>{"name": "tide", "arguments": {"port": "Br',
        "<tool_call>\nnot JSON\n</tool_call>", "</think>", "stop", "<tool_call>",
        '<tool_call>{"name": "moon", "arguments": {}}</tool_call>', '<tool_call>{"name": "none", "arguments": []}',
    ]
)  # fmt: skip
reason = st.sampled_from(["eos", "length", "context", "filter", "stop_token"])


@settings(max_examples=60)
@given(
    st.lists(part, max_size=5), reason, st.integers(1, 5), st.booleans(), st.sampled_from(["hermes", "qwen3", "think"])
)
def test_generated_sessions_say_the_same(texts: list[str], why: Any, size: int, shown: bool, parser: str) -> None:
    inputs = [
        FinishInput(0, why, 311) if isinstance(event, FinishInput) else event
        for event in whole(tokens("".join(texts), size=size))
    ]
    trace = record(opened(parser, include_reasoning=shown, stop=("stop",)), inputs)
    bodies = all_of(trace)
    if not shown:
        # What a model wrote has its reasoning in it.
        del bodies["completions"]
        trace = record(opened(parser, include_reasoning=shown, stop=("stop",)), inputs)
        for one, two in itertools.permutations(bodies, 2):
            evidence = msgspec.structs.replace(evidence_of(trace), protocol=one, body=bodies[one])
            found = check(msgspec.structs.replace(evidence, other=(two, bodies[two]))).violations
            assert [item for item in found if item.rule == "INV-133"] == []
        return
    assert_the_same(trace, bodies)


def test_each_of_our_own_sessions_is_held_against_another_protocol() -> None:
    others: dict[str, str] = {}
    for protocol in PROTOCOLS:
        trace = record(opened("plain" if protocol == "completions" else "hermes", protocol), whole(tokens(SAID)))
        evidence = evidence_of(trace, effort=True)
        assert evidence.other is not None
        assert 133 in check(evidence).checked
        others[protocol] = evidence.other[0]
        beginning = said(trace, evidence.other[0])[:2000]
        changed = msgspec.structs.replace(evidence, other=(evidence.other[0], beginning))
        assert "INV-133" in check(changed).counts
    assert others == {"chat": "responses", "completions": "chat", "responses": "messages", "messages": "chat"}


# --- choices ----------------------------------------------------------------------------------------------------------


def two() -> Trace:
    return record(opened(n=2), whole(tokens("first"), tokens(THINKING + "second", 1)))


def test_a_choice_is_picked_where_there_is_one_only() -> None:
    for choice, text in ((None, "first"), (0, "first"), (1, "second")):
        found = played(two(), "messages", choice)
        assert found.notes[0] == f"choice {choice or 0} of 2: messages has one only"
        deltas = [json.loads(line[6:]) for line in body_of(found.frames).decode().splitlines() if line[:6] == "data: "]
        assert (
            "".join(event["delta"].get("text", "") for event in deltas if event["type"] == "content_block_delta")
            == text
        )
        single = record(opened(), whole(tokens(THINKING + "second" if choice else "first")))
        assert_the_same(single, {name: said(two(), name, choice) for name in ("responses", "messages")})


def test_the_usage_of_a_choice_is_its_own() -> None:
    body = said(two(), "messages", 1)
    [told] = [
        json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith('data: {"type":"message_d')
    ]
    written = len(tokens(THINKING + "second"))
    assert told["usage"]["output_tokens"] == written
    assert 0 < told["usage"]["output_tokens_details"]["thinking_tokens"] < written


def test_all_choices_are_there_where_the_protocol_has_them() -> None:
    bodies: dict[Protocol, bytes] = {name: said(two(), name) for name in ("chat", "completions")}
    assert_the_same(two(), bodies)


@pytest.mark.parametrize(
    ("protocol", "choice", "told"),
    [("messages", 2, "choices 0 to 1"), ("completions", 0, "has them all"), (None, 0, "that has one only")],
)
def test_choices_that_cannot_be_picked(protocol: str | None, choice: int, told: str) -> None:
    with pytest.raises(NotAvailable, match=told):
        played(two(), protocol, choice)


# --- whose response ---------------------------------------------------------------------------------------------------


def test_in_its_own_protocol_it_is_what_was_sent() -> None:
    full = record(opened(), whole(tokens(SAID)))
    assert played(full).frames == played(full, "chat").frames == full.events("served", "frame")
    lean = record(opened(), whole(tokens(SAID)), mode="lean")
    assert played(lean).frames == played(full).frames
    assert len(played(lean).ats) == len(played(lean).frames)


def test_what_is_turned_over() -> None:
    found = played(record(opened(), whole(tokens(SAID))), "messages")
    assert (found.opening.protocol, found.opening.response_id) == ("messages", f"msg_{'a' * 32}")
    assert found.opening.stages["encoder"] == "messages@3"
    asked = json.loads(found.opening.request)
    assert asked["system"] in ("Be brief.", [{"type": "text", "text": "Be brief."}])
    assert [tool["name"] for tool in asked["tools"]] == ["tide", "moon"]
    responses = body_of(played(record(opened(), whole(tokens(SAID))), "responses").frames)
    first = json.loads(responses.decode().split("\n")[1][6:])["response"]
    assert [tool["name"] for tool in first["tools"]] == ["tide", "moon"]
    assert first["instructions"] == "Be brief."


def test_logprobs_stay_asked_for() -> None:
    asked = {**REQUEST, "logprobs": True, "top_logprobs": 2}
    made = msgspec.structs.replace(opened(logprobs=True, top_logprobs=2), request=json.dumps(asked).encode())
    trace = record(made, whole(tokens("plain", logprobs=True)))
    found = played(trace, "responses")
    asked = json.loads(found.opening.request)
    assert (asked["include"], asked["top_logprobs"]) == (["message.output_text.logprobs"], 2)
    evidence = msgspec.structs.replace(
        evidence_of(trace), protocol="responses", body=body_of(found.frames), request=asked, http=None, writes=None,
        sent=None, engine=None, meant=None,
    )  # fmt: skip
    assert check(evidence).violations == ()
    assert b'"logprobs":[{' in body_of(found.frames)


def test_what_was_done_to_a_conversation_is_no_response() -> None:
    made = msgspec.structs.replace(opened(protocol="responses"), response_id="conv_1", conversation="conv_1")
    for protocol in (None, *PROTOCOLS):
        with pytest.raises(NotAvailable, match="no response: something was done to conv_1"):
            played(record(made, []), protocol)
    # One of its responses is.
    made = msgspec.structs.replace(made, response_id="resp_1")
    assert played(record(made, whole(tokens("plain"))), "chat").frames


def test_frames_come_when_their_inputs_came() -> None:
    inputs = whole(tokens(SAID))
    found = played(record(opened(), inputs), "messages")
    assert list(found.ats) == sorted(found.ats)
    assert found.ats[-1] == (len(inputs) - 1) * 1000


def test_a_torn_session_ends_where_it_was_torn() -> None:
    torn = record(opened(), whole(tokens(SAID))[:20], state="torn")
    for protocol in PROTOCOLS:
        found = played(torn, protocol)
        assert found.notes[0] == "the session is torn: what followed is not here"
        assert b"message_stop" not in body_of(found.frames)


def test_a_session_without_streaming_streams_in_another_protocol() -> None:
    trace = record(opened(stream=False), whole(tokens("plain")))
    assert b'"text":"pla"' in said(trace, "messages")
    assert said(trace, "chat").startswith(b'{"id"')


def test_an_error_is_an_error() -> None:
    inputs: list[Input] = [*whole(tokens("plain"))[:2], AbortInput("timeout")]
    trace = record(opened(), inputs, state="aborted")
    for protocol in PROTOCOLS:
        assert b"error" in said(trace, protocol)


def test_what_cannot_be_had() -> None:
    with pytest.raises(UnknownName, match="there are chat, completions, responses, messages"):
        played(record(opened(), whole(tokens("plain"))), "soap")
    told = opened("told")
    told = msgspec.structs.replace(
        told, upstream=UpstreamFacts(name="a", url="http://a", path="/v1/messages", depth="verbatim", relayed=False)
    )
    inputs: list[Input] = [
        PromptInput((), "", 3),
        ToldInput(Told(0, "hi", (0, 2))),
        FinishInput(0, "eos"),
        UsageInput(3, 1),
    ]
    trace = record(told, inputs)
    assert b'"hi"' in said(trace, "messages")
    with pytest.raises(NotAvailable, match="what its model wrote is not known"):
        played(trace, "completions")


def test_of_a_relayed_session_it_is_what_the_upstream_meant() -> None:
    capture = captures()["vllm_plain-plain"]
    trace = relayed(capture)
    assert body_of(played(trace).frames) == capture.data
    text = "".join(event.text for event in trace.events("upstream", "semantic") if isinstance(event, Told))
    assert text
    for protocol in ("responses", "messages"):
        body = said(trace, protocol).decode()
        deltas = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
        pieces = [
            event["delta"] if protocol == "responses" else event["delta"]["text"]
            for event in deltas
            if event["type"] in ("response.output_text.delta", "content_block_delta")
        ]
        assert "".join(pieces) == text


# --- the official clients ---------------------------------------------------------------------------------------------


def served(found: Played) -> httpx2.Client:
    head = found.frames[0]
    assert isinstance(head, Head)

    def answer(head: Head, frames: Sequence[Frame], _request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(head.status, headers=list(head.headers), content=body_of(frames))

    return httpx2.Client(transport=httpx2.MockTransport(partial(answer, head, found.frames)))


def test_the_clients_of_two_other_protocols_read_it() -> None:
    trace = record(opened(), whole(tokens(SAID)))
    asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    one = anthropic.Anthropic(api_key="k", base_url="http://test", http_client=served(played(trace, "messages")))
    with one.messages.stream(**asked) as stream:
        message = stream.get_final_message()
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert calls == [("tide", {"port": "Brest … 潮汐"}), ("moon", {})]
    assert message.stop_reason == "tool_use"
    other = openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=served(played(trace, "responses")))
    with other.responses.stream(model="m", input="hi") as events:
        response = events.get_final_response()
    got = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    assert got == calls
    assert response.output_text == "".join(block.text for block in message.content if block.type == "text")
