"""Response templates: what ``transformers serve`` sends, from the same tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replay import Replayer
from replay.derive import run
from replay.errors import NotAvailable, ParserNotFound
from replay.foreign import configure
from replay.foreign.stage import ForeignStage
from replay.resolve import resolve
from stages.events import CallArguments, CallStart, Content, FinishInput, Input, PromptInput, Reasoning, TokensInput
from stages.message import Message, collect
from tests.foreign.sessions import inputs, opening, step
from tests.support import tiny_model
from tests.support.captures import captures
from tests.support.upstream_traces import relayed

CHATML = "<|im_start|>user\nEBB<|im_end|>\n<|im_start|>assistant\n"
BRACKETS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "ask:",
    "fields": {
        "tool_calls": {
            "open": "[[", "close": "]]", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>", "content": "text"},
    },
}  # fmt: skip
"""A response template of no model."""


def template(name: str = "template") -> ForeignStage:
    """The stage of this name."""
    stage: Any = resolve(name)
    assert isinstance(stage, ForeignStage)
    return stage


def played(name: str, session: Sequence[Input]) -> tuple[list[Any], Any]:
    """The semantic events, and what failed."""
    track, failed = run(template(name), "semantic", opening(), session, range(99))
    return track.events, failed


def words(*texts: str, tail: str = CHATML) -> list[Input]:
    """A session of one token a step that ends by itself."""
    made = inputs(*(step(text) for text in texts))
    return [PromptInput((1,), tail, 1), *made[1:]]


# --- beside transformers ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny_model.write(folder)
    return folder


class Served:
    """What the server of transformers makes of a text's tokens."""

    def __init__(self, folder: Path, cue: str) -> None:
        serving: Any = import_module("transformers.cli.serving.utils")
        loaded: Any = import_module("transformers").AutoTokenizer
        tokenizer = loaded.from_pretrained(folder)
        known = SimpleNamespace(config=SimpleNamespace(model_type="qwen3"))
        self.ids = [
            token for piece in tiny_model.TEXTS[cue] for token in self._ids(tokenizer._tokenizer, piece)
        ]  # fmt: skip
        prompt = tokenizer.encode(CHATML)
        parser = serving.build_response_parser(tokenizer, known, prompt)
        loop, queue = asyncio.new_event_loop(), asyncio.Queue[Any]()
        streamer = serving.DirectStreamer(tokenizer._tokenizer, loop, queue, response_parser=parser)
        torch: Any = import_module("torch")
        streamer.put(torch.tensor(prompt))
        for token in self.ids:
            streamer.put(torch.tensor([token]))
        streamer.end()
        loop.run_until_complete(asyncio.sleep(0, None))
        loop.close()
        self.sent: list[tuple[str, ...]] = []
        while (item := queue.get_nowait()) is not None:
            if isinstance(item, serving.ToolCall):
                self.sent.append(("call", item.name, item.arguments))
            else:
                self.sent.append(("reasoning" if isinstance(item, serving.ReasoningText) else "content", str(item)))
        content, reasoning, calls = serving.parse_assistant_message(tokenizer, known, self.ids, prompt)
        self.whole = (reasoning or None, content or None, [(call.name, call.arguments) for call in calls or ()])

    @staticmethod
    def _ids(tokenizer: Any, piece: str | bytes) -> list[int]:
        known = tokenizer.token_to_id(piece) if isinstance(piece, str) else None
        if known is not None:
            return [known]
        letters: dict[int, str] = import_module("transformers.convert_slow_tokenizer").bytes_to_unicode()
        data = piece if isinstance(piece, bytes) else piece.encode()
        return [tokenizer.token_to_id("".join(letters[byte] for byte in data))]


@pytest.mark.parametrize("cue", ["EBB", "FLOW", "CALL"])
def test_a_stream_is_the_server_s_delta_by_delta_and_so_is_the_whole(model: Path, cue: str) -> None:
    configure(tokenizer=str(model))
    served = Served(model, cue)
    pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in tiny_model.TEXTS[cue]]
    session: list[Input] = [PromptInput((1,), CHATML, 1)]
    session += [
        TokensInput(0, (token,), (piece,), "") for token, piece in zip(served.ids, pieces, strict=True)
    ]  # fmt: skip
    session.append(FinishInput(0, "eos", served.ids[-1]))
    events, failure = played("template", session)
    assert failure is None
    assert told(events) == served.sent
    (whole,) = template().prepared(opening(), session).one_shot or []
    assert (whole.reasoning, whole.content, calls(whole)) == served.whole


def told(events: list[Any]) -> list[tuple[str, ...]]:
    """The events as the server queues them; a call is whole."""
    found: list[tuple[str, ...]] = []
    for event in events:
        match event:
            case Reasoning(text=text):
                found.append(("reasoning", text))
            case Content(text=text):
                found.append(("content", text))
            case CallStart(name=name):
                found.append(("call", name, ""))
            case CallArguments(text=text):
                _, name, before = found[-1]
                found[-1] = ("call", name, before + text)
            case _:
                pass
    return found


def calls(message: Message) -> list[tuple[str, str]]:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in message.tool_calls]


# --- what a real server sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tool_single", "tool_missing_close"])
def test_a_capture_of_the_server_replays_to_what_it_sent(name: str) -> None:
    trace = relayed(captures()[f"transformers_qwen3stub-{name}"])
    result = Replayer("template:qwen3", layer="message").replay(trace)
    assert (result.splits["recorded"], result.differences) == ("same", ())


def test_what_broke_the_server_s_stream_breaks_ours() -> None:
    """The server sends an error, and its text: a call that is no JSON."""
    trace = relayed(captures()["transformers_qwen3stub-tool_malformed_json"])
    result = Replayer("template:qwen3", layer="message").replay(trace)
    assert result.verdict == "failed"
    assert result.error is not None
    assert result.error.type == "ValueError"
    assert "could not parse region as JSON" in result.error.message


# --- where the template comes from -----------------------------------------------------------------------------------


def test_the_folder_of_the_model_has_the_template(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": BRACKETS}))
    (tmp_path / "tokenizer.json").write_text("{}")
    said = words("Hi ", '[[{"name": "f", ', '"arguments": {"a": 1}}]', "]", " there", "<|im_end|>", tail="ask:")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        configure(tokenizer=str(path))
        events, failure = played("template", said)
        assert failure is None
        (message,) = collect(events)
        assert (message.content, calls(message)) == ("Hi  there", [("f", '{"a": 1}')])


def test_the_tokenizer_s_own_template_comes_before_that_of_its_model_type(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": BRACKETS}))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    configure(tokenizer=str(tmp_path))
    events, failure = played("template", words("<think>", "x", "<|im_end|>", tail="ask:"))
    assert failure is None
    assert collect(events)[0].content == "<think>x"


def test_a_prompt_that_opened_reasoning_is_read() -> None:
    events, failure = played("template:qwen3", words("Hm.", "</think>", "Yes", "<|im_end|>", tail=CHATML + "<think>"))
    assert failure is None
    (message,) = collect(events)
    assert (message.reasoning, message.content) == ("Hm.", "Yes")


def test_without_a_template_it_is_said_at_the_start_what_to_give() -> None:
    why = r"parser 'template': which response template\? Give --tokenizer PATH.* or .* template:MODEL_TYPE"
    with pytest.raises(NotAvailable, match=why):
        template()


def test_a_template_that_transformers_refuses_ends_the_run_at_the_start(tmp_path: Path) -> None:
    refused = {"fields": {"content": {"content": "nonsense"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": refused}))
    configure(tokenizer=str(tmp_path))
    with pytest.raises(NotAvailable, match="transformers refuses the response template"):
        template()


def test_a_model_type_without_a_template_is_no_parser() -> None:
    with pytest.raises(ParserNotFound, match=r"no response template for 'llama'; it has .*qwen3"):
        template("template:llama")


@pytest.mark.parametrize(
    ("config", "told"), [("{", "tokenizer_config.json: "), ("{}", "has no response_template"), ("[]", "has no")]
)
def test_a_folder_without_a_template(tmp_path: Path, config: str, told: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(config)
    configure(tokenizer=str(tmp_path))
    with pytest.raises(NotAvailable, match=told):
        template()
