"""Vocabulary: tokenizers of all kinds, read without a model, and what it puts beside ids."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.base import Conversation, EngineLoadError
from pipeline.engines.prompt import TAIL, tail_of
from pipeline.engines.weights import locate
from pipeline.vocabulary import Vocabulary
from stages import catalog
from stages.errors import RequestError
from stages.events import (
    FinishInput,
    Input,
    PromptInput,
    Tick,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from tests.support.captures import captures
from tests.support.oracles import packaged
from tests.support.vocabularies import TEMPLATES, VOCABULARIES, tokenizer_folder, vocabulary

NAMES = sorted(path.stem for path in VOCABULARIES.glob("*.json"))
FAMILIES = {
    "qwen3": "hermes", "glm45": "glm", "kimik2": "kimi_k2", "dsv31": "deepseek_v31", "dsv4": "deepseek_v4",
    "gptoss": "harmony", "llama31": "llama3_json", "mistral": "mistral",
}  # fmt: skip
"""By vocabulary, the format that its family writes."""
IM_START, IM_END, TOOL_CALL = 151644, 151645, 151657


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_folder("qwen3", tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def qwen3(folder: Path) -> Vocabulary:
    return Vocabulary.load(str(folder))


def user(text: str) -> Conversation:
    return Conversation(messages=({"role": "user", "content": text},))


# --- loading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_ids_have_the_bytes_of_the_real_vocabulary(name: str, tmp_path: Path) -> None:
    """And the format of the family is detected."""
    kept = vocabulary(name)
    loaded = Vocabulary.load(str(tokenizer_folder(name, tmp_path)))
    assert len(loaded.pieces) == kept.size
    for token in (*kept.pieces, *kept.parts, *kept.special.values(), *kept.added.values()):
        assert loaded.pieces[token] == kept.piece(token)
    facts = loaded.facts
    assert (facts.special, facts.added, facts.eos) == (kept.special, kept.added, kept.eos)
    assert loaded.template == TEMPLATES[name]
    assert catalog.detect(loaded.template, facts, "model") == FAMILIES[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_pieces_of_what_was_captured_are_its_text(name: str, tmp_path: Path) -> None:
    """What the servers made of the same ids: the text of responses that they did not parse."""
    seen = 0
    loaded = Vocabulary.load(str(tokenizer_folder(name, tmp_path)))
    for capture in captures().values():
        if capture.script is None or capture.script.vocabulary != name or capture.engine is None:
            continue
        ids = [token for choice in capture.engine.choices.values() for token in choice.ids]
        [event] = loaded.joined([TokensInput(0, tuple(ids), (), "")])
        assert isinstance(event, TokensInput)
        assert len(event.pieces) == len(ids)
        if capture.parser is None and capture.whole is not None and len(capture.engine.choices) == 1:
            body = json.loads(capture.whole)
            shown = [piece for token, piece in zip(ids, event.pieces, strict=True) if token not in (IM_END, 151643)]
            text = b"".join(shown).decode("utf-8", "replace")
            said = _text_of(body)
            if "stop" not in capture.request and said is not None:
                assert text == said
                seen += 1
    assert loaded.unknown == 0
    assert seen or name != "qwen3"


def _text_of(body: Any) -> str | None:
    choices: list[Any] = body.get("choices", [])
    for choice in choices:
        said: str | None = choice["text"] if "text" in choice else choice["message"]["content"]
        return said
    return None


def test_by_folder_by_file_and_by_another_name(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "tokenizer.json", tmp_path / "mine.json")
    found = [Vocabulary.load(str(path)) for path in (folder, folder / "tokenizer.json", tmp_path / "mine.json")]
    assert len({one.facts.hash for one in found}) == 1
    assert [one.facts.eos for one in found] == [(IM_END, 151643), (IM_END, 151643), ()]
    assert [one.template is None for one in found] == [False, False, True]


def test_a_name_that_is_in_the_local_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as the hub's client lays it out; the network is not asked."""
    home = tmp_path / "models--org--name"
    shutil.copytree(folder, home / "snapshots" / "abc")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    hub: Any = importlib.import_module("huggingface_hub")
    look = hub.try_to_load_from_cache

    def there(name: str, file: str) -> Any:
        return look(name, file, cache_dir=tmp_path)

    monkeypatch.setattr(hub, "try_to_load_from_cache", there)
    assert Vocabulary.load("org/name").facts.added["<tool_call>"] == TOOL_CALL


def test_the_models_end_tokens_come_first(tmp_path: Path) -> None:
    where = tokenizer_folder("qwen3", tmp_path)
    (where / "generation_config.json").write_text('{"eos_token_id": 151643}')
    assert Vocabulary.load(str(where)).facts.eos == (151643, IM_END)
    for text in ("{}", "[", '{"eos_token_id": "x"}'):
        (where / "generation_config.json").write_text(text)
        assert Vocabulary.load(str(where)).facts.eos == (IM_END,)


def test_a_tekken_file(tmp_path: Path) -> None:
    """What Mistral's own releases have for a tokenizer.json: 1000 special tokens, then each byte, then words."""
    source = packaged("mistral-common", "mistral_common/data/tekken_240911.json")
    table = json.loads(source.read_bytes())
    # Its 130 000 words would take seconds.
    table["vocab"] = table["vocab"][:1000]
    table["config"]["default_vocab_size"] = 2000
    (tmp_path / "tekken.json").write_text(json.dumps(table))
    loaded = Vocabulary.load(str(tmp_path))
    assert loaded.pieces[1000:1256] == [bytes([value]) for value in range(256)]
    assert loaded.facts.special["[TOOL_CALLS]"] == 9


def test_the_built_in_model_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read out of its GGUF file."""
    loaded = Vocabulary.load("smollm2")
    assert loaded.facts.eos == (2,)
    assert loaded.prompt(user("hi")).tail.endswith("<|im_start|>assistant\n")
    source = locate(None)
    monkeypatch.chdir(source.place)
    assert Vocabulary.load(str(source.gguf)).facts == loaded.facts


def test_no_torch_and_nothing_before_it_is_needed(folder: Path) -> None:
    code = (
        "import sys\nfrom pipeline.vocabulary import Vocabulary\nfrom pipeline.engines.base import Conversation\n"
        "assert 'transformers' not in sys.modules\n"
        f"loaded = Vocabulary.load({str(folder)!r})\n"
        "assert loaded.prompt(Conversation(messages=({'role': 'user', 'content': 'hi'},))).ids\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nothing", "there is no tokenizer 'nothing': give a folder"),
        ("./org/name", "there is no tokenizer './org/name': give a folder"),
        ("missing/tokenizer.json", "there is no tokenizer 'missing/tokenizer.json': give a folder"),
        ("empty", "there is no tokenizer in the folder empty: tokenizer.json"),
        ("broken", "the tokenizer broken cannot be used: it does not load"),
        ("words", "a byte-level or SentencePiece tokenizer is needed"),
        ("notes.json", "the tokenizer notes.json cannot be used: it does not load"),
    ],
)
def test_what_cannot_be_loaded(where: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "broken", "words"):
        Path(name).mkdir()
    Path("broken", "tokenizer.json").write_text("{")
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    words: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": model}
    Path("words", "tokenizer.json").write_text(json.dumps(words))
    Path("notes.json").write_text('["no tokenizer"]')
    with pytest.raises(EngineLoadError) as caught:
        Vocabulary.load(where)
    assert says in str(caught.value)


def test_a_name_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub: Any = importlib.import_module("huggingface_hub")

    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("no network here")

    def absent(*_: Any) -> None:
        return None

    monkeypatch.setattr(hub, "try_to_load_from_cache", absent)
    monkeypatch.setattr(hub, "get_hf_file_metadata", unreachable)
    with pytest.raises(EngineLoadError, match=r"cannot be reached .* not in the local cache: no network here"):
        Vocabulary.load("org/name")


# --- joining --------------------------------------------------------------------------------------------------------


def test_steps_get_the_bytes_of_their_ids(qwen3: Vocabulary) -> None:
    events: list[Input] = [
        PromptInput((), "", 3),
        TokensInput(0, (151667,), (), "<think>"),
        TokensInput(1, (198, 785, TOOL_CALL), (), ""),
        TokensInput(0, (), (), "text of no ids"),
        Tick(),
        FinishInput(0, "eos", IM_END),
        UsageInput(3, 4),
    ]
    before = [*events]
    events[1] = TokensInput(0, (151667,), (b"<think>",), "<think>")
    events[2] = TokensInput(1, (198, 785, TOOL_CALL), (b"\n", b"The", b"<tool_call>"), "")
    assert qwen3.joined(before) == events
    assert qwen3.joined(events) == events


def test_what_has_bytes_keeps_them(qwen3: Vocabulary) -> None:
    event = TokensInput(0, (785,), (b"another",), "", (TokenLogprob(785, b"own", -1.0),))
    assert qwen3.joined([event, PromptInput((785,), "told", 1)]) == [event, PromptInput((785,), "told", 1)]


def test_entries_of_logprobs(qwen3: Vocabulary) -> None:
    entry = TokenLogprob(785, b"", -0.5, (TopLogprob(785, b"", -0.5), TopLogprob(198, b"n", -2.0)))
    [event] = qwen3.joined([TokensInput(0, (785,), (), "", (entry,))])
    want = TokenLogprob(785, b"The", -0.5, (TopLogprob(785, b"The", -0.5), TopLogprob(198, b"n", -2.0)))
    assert event == TokensInput(0, (785,), (b"The",), "", (want,))


@pytest.mark.parametrize("token", [-2, 151669, 1 << 40])
def test_ids_outside_the_vocabulary_are_counted(folder: Path, token: int) -> None:
    """Their step has no bytes: those of the others alone would be another text."""
    loaded = Vocabulary.load(str(folder))
    alone, among = TokensInput(0, (token,), (), ""), TokensInput(0, (785, token), (), "")
    logprob = TokensInput(0, (785,), (b"The",), "", (TokenLogprob(token, b"", -1.0),))
    assert loaded.joined([alone, among, logprob]) == [alone, among, logprob]
    assert loaded.unknown == 3


# --- the end of the prompt ------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([IM_START, IM_END, TOOL_CALL, 198, 785, 0, 151643, *range(128, 160)]), max_size=400))
def test_the_tail_is_that_of_the_whole_text(qwen3: Vocabulary, ids: list[int]) -> None:
    text = b"".join(qwen3.pieces[token] for token in ids).decode("utf-8", "ignore")
    [event] = qwen3.joined([PromptInput(tuple(ids), "", len(ids))])
    assert isinstance(event, PromptInput)
    assert event.tail == tail_of(text, qwen3.facts)


def test_a_long_prompt_is_read_from_its_end(qwen3: Vocabulary) -> None:
    ids = (*[785] * 300_000, IM_START, *[198] * 500)
    [event] = qwen3.joined([PromptInput(ids, "", len(ids))])
    assert isinstance(event, PromptInput)
    assert event.tail == "<|im_start|>" + "\n" * 500
    [event] = qwen3.joined([PromptInput(ids[:300_000], "", 300_000)])
    assert isinstance(event, PromptInput)
    assert event.tail == ("The" * 300_000)[-TAIL:]


def test_the_tail_of_a_prompt_that_was_rendered(qwen3: Vocabulary) -> None:
    for text in ("hi", "日本語 ✅ " * 300, ""):
        prompt = qwen3.prompt(user(text))
        [event] = qwen3.joined([PromptInput(prompt.ids, "", len(prompt.ids))])
        assert event == PromptInput(prompt.ids, prompt.tail, len(prompt.ids))


# --- rendering ------------------------------------------------------------------------------------------------------


def test_without_a_template_a_request_is_refused(tmp_path: Path) -> None:
    loaded = Vocabulary.load(str(tokenizer_folder("qwen3", tmp_path, template="")))
    assert loaded.template is None
    with pytest.raises(RequestError, match="no chat template"):
        loaded.prompt(user("hi"))


def test_a_request_that_the_template_rejects(tmp_path: Path) -> None:
    loaded = Vocabulary.load(str(tokenizer_folder("qwen3", tmp_path, template="{{ raise_exception('not so') }}")))
    with pytest.raises(RequestError, match="not so"):
        loaded.prompt(user("hi"))
