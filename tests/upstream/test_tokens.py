"""vLLM's captures through a real proxy that asks for token ids: what the client gets, and all that is recorded."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from replay import derive
from stages.events import PromptInput, TokensInput
from stages.message import Message, collect
from store.api import Trace
from tests.support.captures import PATHS, Capture, Wrote, captures, normalised, twin, without_ids
from tests.support.playback import Playback, playback
from tests.support.proxies import bytes_of, post, proxied, session_of
from tests.support.server import Running
from tests.support.vocabularies import VOCABULARIES, tokenizer_folder

NAMES = sorted(
    name
    for name, capture in captures().items()
    if capture.server.startswith("vLLM")
    and capture.protocol == "chat"
    and capture.request.get("return_token_ids")
    and capture.script is not None
    and capture.marked is None
)
"""Captures with ids, as the proxy gets them for a client that did not ask."""
LESS = {
    # A stop string takes the ids behind its match away.
    "vllm_plain-stop_string_multitoken",
    # Reasoning is hidden, and so are all ids.
    "vllm_qwen3_hermes-reasoning_hidden",
}


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback(NAMES[0]) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """An upstream for each vocabulary; its name is the model's."""
    folder = tmp_path_factory.mktemp("tokens")
    tables = [
        f'[[upstream]]\nname = "{name}"\nurl = "{upstream.address}"\nmodels = ["{name}"]\n'
        f'tokenizer = "{tokenizer_folder(name, folder / name)}"\n'
        for name in sorted(path.stem for path in VOCABULARIES.glob("*.json"))
    ]
    (folder / "upstreams.toml").write_text("\n".join(tables))
    with proxied(folder, str(folder / "upstreams.toml")) as running:
        for path in VOCABULARIES.glob("*.json"):
            # Whether it tells ids is asked with the first request.
            upstream.play("vllm_plain-plain")
            warm = post(running.address, PATHS["chat"], b'{"model": "%b", "stream": true}' % path.stem.encode())
            session_of(running, warm)
        yield running


def asked(running: Running, capture: Capture) -> tuple[bytes, Trace]:
    """What a client gets that did not ask for ids, and the session."""
    assert capture.script is not None
    request = {key: value for key, value in capture.request.items() if key != "return_token_ids"}
    body = json.dumps({**request, "model": capture.script.vocabulary}).encode()
    got = post(running.address, PATHS["chat"], body)
    assert got.status == 200
    return got.body, session_of(running, got)


def plain(capture: Capture) -> bytes:
    """What the server sends to who does not ask for ids."""
    other = twin(capture.name)
    if other is None or capture.name == "vllm_mistral-tool_parallel":
        # Mistral's parser has an empty chunk of its own; nothing tells it from those that carry ids.
        return b"".join(without_ids(capture))
    return other.data


def said(message: Message) -> Wrote:
    return Wrote(
        message.reasoning or None,
        message.content or None,
        tuple((call.name, call.arguments) for call in message.tool_calls),
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_client_gets_what_it_would_have_got(upstream: Playback, proxy: Running, name: str) -> None:
    capture = captures()[name]
    upstream.play(name)
    body, trace = asked(proxy, capture)
    assert normalised(body) == normalised(plain(capture))
    facts = trace.opening.upstream
    assert facts is not None
    if capture.request.get("include_reasoning") is False:
        assert (facts.depth, facts.taken_out) == ("verbatim", "")
        return
    assert (facts.depth, facts.taken_out, facts.relayed) == ("tokens", "null", True)
    assert upstream.asked[-1].json["return_token_ids"] is True
    assert bytes_of(trace, "upstream") == capture.data
    assert bytes_of(trace, "served") == body
    _recorded(capture, trace)


def _recorded(capture: Capture, trace: Trace) -> None:
    """The prompt, and step by step the ids, with their bytes and the frame that each step came from."""
    assert capture.engine is not None
    records = trace.records["input", "engine"]
    first = records[0].event
    assert isinstance(first, PromptInput)
    assert first.ids == capture.engine.prompt_ids
    assert first.tail
    frames = trace.events("upstream", "frame")
    for choice in capture.engine.choices:
        steps = [
            record for record in records if isinstance(record.event, TokensInput) and record.event.choice == choice
        ]
        told, wrote = [record.event.ids for record in steps], capture.steps_of(choice)
        if "_si5" in capture.name:
            # Several steps of the engine are one of the server.
            assert sum(told, ()) == sum(wrote, ())
        elif capture.name not in LESS:
            assert told == wrote
        for record in steps:
            assert len(record.event.pieces) == len(record.event.ids)
            sent = json.loads(frames[record.cause].data.removeprefix(b"data: "))
            [ids] = [one["token_ids"] for one in sent["choices"] if one["index"] == choice]
            assert tuple(ids) == record.event.ids


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LESS])
def test_our_parse_is_what_the_model_wrote(upstream: Playback, proxy: Running, name: str) -> None:
    """Run through the format that the server was told to parse, the recorded tokens give what the model wrote."""
    capture = captures()[name]
    assert capture.script is not None
    upstream.play(name)
    _, trace = asked(proxy, capture)
    derived = derive(trace.opening, trace.events("input", "engine"), capture.parser or "plain")
    found = [said(message) for message in collect(derived.semantic.events, named=trace.opening.ask.named)]
    for wrote, ours in zip(capture.script.wrote, found, strict=True):
        if wrote is not None:
            assert (_text(ours.reasoning), _text(ours.content)) == (_text(wrote.reasoning), _text(wrote.content))
            # The client wants one call at a time, or has said nothing of it.
            most = 1 if capture.request.get("parallel_tool_calls") is False else None
            for (name_, arguments), (wanted_name, wanted) in zip(ours.calls, wrote.calls[:most], strict=True):
                assert name_ == wanted_name
                assert _same(arguments, wanted)


def _text(text: str | None) -> str:
    return (text or "").strip()


def _same(ours: str, wrote: str) -> bool:
    """Of arguments that are no JSON an honest beginning is what is told."""
    try:
        value = json.loads(wrote)
    except ValueError:
        return wrote.startswith(ours) and len(ours) > 0
    return bool(json.loads(ours) == value)
