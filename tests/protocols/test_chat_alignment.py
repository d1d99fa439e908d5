"""What each token's bytes became, per kind: over the parsers, and shown by ``playhead sessions show --tokens``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.cli import main
from pipeline.cli.tokens import show_tokens
from pipeline.engines.scripted import ScriptedEngine
from stages.alignment import Aligned, Part, align, align_session
from stages.events import (
    CallArguments,
    CallStart,
    Content,
    Dropped,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    TokenLogprob,
    Tokens,
    TokensInput,
    UsageInput,
)
from store import open_store
from tests.support.asgi import Exchange, chat, serving
from tests.support.chat import answer_of
from tests.support.parse import PROMPT, QWEN, grouped, opening, semantic, vocabulary


def test_a_token_may_end_one_kind_and_begin_the_next() -> None:
    events = [
        Reasoning(0, "hm", (0, 2)), Marker(0, "</think>", (2, 10)), Content(0, "é", (10, 12)),
        Content(0, "!", (12, 13)),
    ]  # fmt: skip
    assert align([(1, 5), (2, 6), (3, 2)], events) == [
        Aligned(1, (0, 5), (Part("reasoning", (0, 2)), Part("marker", (2, 5)))),
        Aligned(2, (5, 11), (Part("marker", (5, 10)), Part("content", (10, 11)))),
        Aligned(3, (11, 13), (Part("content", (11, 13)),)),
    ]


def test_calls_are_told_apart_and_a_name_may_come_last() -> None:
    events = [
        CallStart(0, 0, "a", "f", (2, 3)), CallArguments(0, 0, "{}", (0, 2)), CallStart(0, 1, "b", "g", (3, 4)),
        CallArguments(0, 1, "{}", (4, 4)), Fault(0, FaultCode.UNKNOWN_TOOL, (3, 4)),
    ]  # fmt: skip
    assert align([(1, 2), (2, 2)], events) == [
        Aligned(1, (0, 2), (Part("arguments", (0, 2), 0),)),
        Aligned(2, (2, 4), (Part("name", (2, 3), 0), Part("name", (3, 4), 1))),
    ]


def test_a_fault_owns_bytes_only_with_its_text() -> None:
    events = [
        Fault(0, FaultCode.INVALID_UTF8, (0, 1)),
        Content(0, "�", (0, 1)),
        Fault(0, FaultCode.UNCLOSED_CALL, (1, 3), "{a"),
    ]
    assert align([(1, 3)], events) == [Aligned(1, (0, 3), (Part("content", (0, 1)), Part("fault", (1, 3))))]


def test_what_nobody_owns_and_tokens_without_bytes() -> None:
    assert align([(1, 2), (2, 0), (3, 2)], [Content(0, "a", (0, 1)), Dropped(0, "b", (3, 4))]) == [
        Aligned(1, (0, 2), (Part("content", (0, 1)),)),
        Aligned(2, (2, 2), ()),
        Aligned(3, (2, 4), (Part("dropped", (3, 4)),)),
    ]
    assert align([(1, 1), (2, 0), (3, 1)], [Content(0, "ab", (0, 2))])[1] == Aligned(2, (1, 1), ())
    assert align([], [Content(0, "a", (0, 1))]) == []


def test_a_choice_whose_bytes_are_not_told_is_left_out() -> None:
    inputs: list[Input] = [
        PromptInput((), PROMPT, 1), TokensInput(0, (), (), "text only"), TokensInput(1, (5,), (b"a",), "a"),
        TokensInput(2, (5,), (), "a"),
    ]  # fmt: skip
    assert [*align_session(inputs, [Content(1, "a", (0, 1))])] == [1]


PARTS = st.sampled_from([
    "<think>\nhm é\n</think>\n\n", "Hi 😀. ", "STOP", "S", "</tool_call>", "<|im_end|>", "\n",
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest é"}}\n</tool_call>', '<tool_call>{"name": ',
])  # fmt: skip
KINDS: dict[str, type[Content | Reasoning | Dropped | Marker]] = {
    "content": Content, "reasoning": Reasoning, "dropped": Dropped, "marker": Marker,
}  # fmt: skip


@given(st.lists(PARTS, max_size=6).map("".join), st.integers(1, 5), st.integers(1, 4), st.booleans(), st.booleans())
def test_the_bytes_of_a_kind_are_its_text(text: str, width: int, group: int, stop: bool, hidden: bool) -> None:
    """Joined over the tokens, the bytes that became a kind are the UTF-8 of that kind's text."""
    pieces = vocabulary(text, QWEN, width)
    steps = grouped(pieces, [group] * len(pieces), 0)
    count = sum(len(step.ids) for step in steps)
    inputs: list[Input] = [PromptInput((1,), PROMPT, 1), *steps, FinishInput(0, "eos"), UsageInput(1, count)]
    events = semantic(opening(stop=("STOP",) if stop else (), include_reasoning=not hidden), inputs)
    written = b"".join(piece for step in steps for piece in step.pieces)
    aligned = align_session(inputs, events).get(0, [])
    assert b"".join(written[slice(*token.src)] for token in aligned) == written
    assert [token.id for token in aligned] == [number for step in steps for number in step.ids]
    for token in aligned:
        # Nothing is between the parts of a token: every byte became something.
        assert sum(part.src[1] - part.src[0] for part in token.parts) == token.src[1] - token.src[0]
    for kind, owner in KINDS.items():
        said = "".join(event.text for event in events if isinstance(event, owner))
        joined = b"".join(written[slice(*part.src)] for token in aligned for part in token.parts if part.kind == kind)
        assert joined == said.encode()
    called = "".join(event.text for event in events if isinstance(event, CallArguments) and event.src[0] < event.src[1])
    joined = b"".join(
        written[slice(*part.src)] for token in aligned for part in token.parts if part.kind == "arguments"
    )
    assert joined == called.encode()
    assert sum(isinstance(event, Finish) for event in events) == 1


@given(st.lists(PARTS, max_size=6).map("".join), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_logprobs_on_the_wire_are_aligned_too(text: str, width: int, group: int, stop: bool) -> None:
    """Rule 4 of logprobs, whatever was withheld: of the entries, the bytes that became content are the content."""
    pieces = vocabulary(text, QWEN, width)
    steps = [
        msgspec.structs.replace(
            step,
            logprobs=tuple(TokenLogprob(*pair, -0.5) for pair in zip(step.ids, step.pieces, strict=True)),
        )
        for step in grouped(pieces, [group] * len(pieces), 0)
    ]
    count = sum(len(step.ids) for step in steps)
    inputs: list[Input] = [PromptInput((1,), PROMPT, 1), *steps, FinishInput(0, "eos"), UsageInput(1, count)]
    asked = opening(stop=("STOP",) if stop else (), logprobs=True)
    events = semantic(asked, inputs)
    [choice] = answer_of(asked.ask, events)["choices"]
    entries: list[Any] = choice["logprobs"]["content"] if choice["logprobs"] else []
    at = next((place for place, event in enumerate(events) if isinstance(event, Finish)), len(events))
    assert len(entries) == sum(len(event.ids) for event in events[:at] if isinstance(event, Tokens))
    written = bytes(byte for entry in entries for byte in entry["bytes"])
    aligned = align(((0, len(entry["bytes"])) for entry in entries), events)
    parts = [part for token in aligned for part in token.parts]
    content = b"".join(written[slice(*part.src)] for part in parts if part.kind == "content")
    assert content == (choice["message"]["content"] or "").encode()


async def _record(path: Path) -> None:
    store = open_store(str(path))
    says = ScriptedEngine(lambda request: [["<think>", "hm", "</think>", "ok"]] * request.n)
    async with serving(store, says, parser="hermes") as server:
        await Exchange(chat(messages=[{"role": "user", "content": "q"}])).run(server)
    await anyio.to_thread.run_sync(store.close)


def test_show_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "sessions.db"
    anyio.run(_record, path)
    store = open_store(str(path), create=False)
    [info] = store.sessions()
    found = store.load(info.session)
    store.close()
    result = CliRunner().invoke(main, ["sessions", "show", info.session, "--store", str(path), "--tokens"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "token id bytes became" in lines
    assert any(line.endswith("'<think>' marker") for line in lines)
    assert any(line.endswith("'hm' reasoning") for line in lines)
    assert any(line.endswith("'ok' content") for line in lines)
    # A lean recording has the engine layer only.
    found.records = {key: records for key, records in found.records.items() if key != ("served", "semantic")}
    console = Console(width=200)
    with console.capture() as said:
        show_tokens(console, found)
    assert "without its semantic layer" in said.get()
