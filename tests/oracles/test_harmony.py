"""openai-harmony writes, we read. And it reads what our generator writes, valid and damaged, beside us."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.opening import TokenizerFacts
from tests.support.format_broken import SENTINEL, broken
from tests.support.format_checks import Subject, generated
from tests.support.generate import families
from tests.support.generate.message import Limits, Meant, tools_for
from tests.support.oracle_losses import HARMONY, after
from tests.support.oracle_vocabularies import Vocabulary, harmony, harmony_pieces
from tests.support.oracles import Output, check_output, drawn, vendor
from tests.support.parse import Collected

SEEDS = 24
FAMILY = families("harmony")[0]
_SPECIAL = ("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>",
            "<|message|>", "<|call|>")  # fmt: skip


def vocabulary() -> Vocabulary:
    """o200k_harmony, from the library."""
    encoding = harmony()

    def ids(text: str) -> list[int]:
        return list(encoding.encode(text, allowed_special="all"))

    special = {text: ids(text)[0] for text in _SPECIAL}
    ends = (special["<|endoftext|>"], *encoding.stop_tokens_for_assistant_actions())
    facts = TokenizerFacts(special=special, eos=ends)
    return Vocabulary(facts, ids, harmony_pieces)


def written(meant: Meant, vocab: Vocabulary) -> Output:
    """The assistant's turn as the library renders it."""
    lib: Any = vendor("openai_harmony")

    def said(text: str, channel: str) -> Any:
        return lib.Message.from_role_and_content(lib.Role.ASSISTANT, text).with_channel(channel)

    messages: list[Any] = []
    if meant.reasoning is not None:
        messages.append(said(meant.reasoning, "analysis"))
    for part in meant.parts:
        if isinstance(part, str):
            messages.append(said(part, "commentary" if meant.calls else "final"))
            continue
        call = said(json.dumps(part.arguments, ensure_ascii=False), "commentary")
        messages.append(call.with_recipient(f"functions.{part.name}").with_content_type("<|constrain|>json"))
    ask = lib.Message.from_role_and_content(lib.Role.USER, "hello")
    config = lib.RenderConversationConfig(auto_drop_analysis=False)
    encoding = harmony()
    prompt = encoding.render_conversation_for_completion(
        lib.Conversation.from_messages([ask]), lib.Role.ASSISTANT, config
    )
    whole = encoding.render_conversation_for_training(lib.Conversation.from_messages([ask, *messages]), config)
    assert whole[: len(prompt)] == prompt
    ids = whole[len(prompt) :]
    pieces = list(zip(ids, vocab.pieces(ids), strict=True))
    return Output("gpt-oss", vocab.facts, pieces, encoding.decode(prompt), tools_for(meant))


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return vocabulary()


def test_the_ids_of_our_generator_are_the_library_s(vocab: Vocabulary) -> None:
    assert vocab.facts.special == FAMILY.tokenizer.special
    assert set(vocab.facts.eos) == set(FAMILY.tokenizer.eos)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_the_library_writes_comes_back(vocab: Vocabulary, seed: int) -> None:
    limits = Limits()
    meant, _ = drawn("harmony", seed, limits, _SPECIAL, thinks=True)
    if meant.parts or meant.reasoning:
        check_output(written(meant, vocab), after(meant, HARMONY))


# --- the library's parser as a second opinion ------------------------------------------------------------------------

_END_OF_TEXT = FAMILY.tokenizer.special["<|endoftext|>"]
Read = tuple[str | None, str | None, list[tuple[str, str]]]


def theirs(ids: list[int], names: frozenset[str]) -> Read | None:
    """Reasoning, content and calls as the library's StreamableParser has them; None where it raises, or where it takes
    text for a header that ours does not: another role, channel or recipient than those of the format."""
    lib: Any = vendor("openai_harmony")
    if _END_OF_TEXT in ids:
        return None  # the engine's end, which the library takes for text
    parser = lib.StreamableParser(harmony(), lib.Role.ASSISTANT)
    try:
        for number in ids:
            parser.process(number)
        parser.process_eos()
    except lib.HarmonyError:
        return None
    told: dict[str, list[str]] = {"analysis": [], "content": []}
    calls: list[tuple[str, str]] = []
    for found in parser.messages:
        # A content type without a space before it stays part of the library's recipient or channel.
        to, channel = ((text or "").partition("<|constrain|>")[0] for text in (found.recipient, found.channel))
        text = "".join(part.text for part in found.content)
        known = found.author.role == lib.Role.ASSISTANT and channel in ("analysis", "commentary", "final")
        if not known or "<|" in to:
            return None
        name = to.removeprefix("functions.")
        if name and (name != to or name in names):
            calls.append((name, text.strip() or "{}"))
        elif text:
            told["analysis" if channel == "analysis" and not to else "content"].append(text)
    return "\n".join(told["analysis"]) or None, "\n".join(told["content"]) or None, calls


def ours(subject: Subject, vocab: Vocabulary, raw: str) -> tuple[Collected, Read | None]:
    """Our message of an output, and the library's reading of it."""
    tokens = vocab.tokens(raw)
    got = Output("harmony", vocab.facts, tokens, subject.tail, subject.tools).read("incremental", ("one",))
    return got, theirs([number for number, _ in tokens], frozenset(tool.name for tool in subject.tools))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_library_reads_our_generator_as_we_do(vocab: Vocabulary, first: int) -> None:
    for seed in range(first, first + 20):
        subject, _ = generated(FAMILY, seed)
        got, want = ours(subject, vocab, subject.raw)
        assert want == (got.reasoning, got.content, [(call.name, call.arguments) for call in got.calls]), seed


def test_damaged_output_is_read_as_the_library_reads_it_where_it_reads_it(vocab: Vocabulary) -> None:
    """Where the library raises there is nothing to compare; nor where a header itself is damaged. Of a call whose
    arguments break off, the name must agree."""
    compared = 0
    for seed in range(120):
        subject = broken(FAMILY, seed)
        raw = subject.raw.removesuffix(SENTINEL)
        if subject.asks or not subject.tools or not raw.startswith(("<|channel|>", " to=")):
            continue
        got, want = ours(subject, vocab, raw)
        if want is None or "stray_marker" in got.faults:
            continue
        compared += 1
        calls = [call.arguments if call.complete else None for call in got.calls]
        texts = [text if call.complete else None for (_, text), call in zip(want[2], got.calls, strict=True)]
        names = [name for name, _ in want[2]]
        assert (got.reasoning, got.content, [call.name for call in got.calls]) == (*want[:2], names), seed
        assert calls == texts, seed
        assert ("bad_arguments" in got.faults or "unclosed_call" in got.faults) == (None in calls), seed
    assert compared >= 30, compared
