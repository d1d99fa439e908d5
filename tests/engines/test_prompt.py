"""Prompts, tokenizer facts and the bytes of tokens, on small real tokenizers of both kinds."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.base import Conversation, EngineLoadError, EngineRequest, Sampling
from pipeline.engines.prompt import (
    TAIL,
    Detokenizer,
    bytes_of_unicode,
    piece_table,
    prepare,
    render,
    tail_of,
    template_text,
    tokenizer_facts,
)
from stages.errors import RequestError
from stages.opening import TokenizerFacts
from tests.support.engines import conversation

# Their types say too little for a strict type checker.
tokenizers: Any = importlib.import_module("tokenizers")
transformers: Any = importlib.import_module("transformers")

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if tools %}{{ tools | length }} tools{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"
)
EMOJI = "✅"


def fast(model: Any, decoder: Any, template: Any = CHATML) -> Any:
    """A fast tokenizer with two special tokens and one added token."""
    backend = tokenizers.Tokenizer(model)
    backend.decoder = decoder
    if decoder is not None and "ByteLevel" in repr(decoder):
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    made.add_tokens(["<think>"])
    made.chat_template = template
    return made


def byte_level(template: Any = CHATML) -> Any:
    """Byte-level BPE: every byte, and one merge that ends inside a character."""
    vocabulary = bytes_of_unicode()
    by_byte = {byte: char for char, byte in vocabulary.items()}
    first, second, _ = EMOJI.encode()
    pair = by_byte[first] + by_byte[second]
    vocabulary[pair] = 256
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[(by_byte[first], by_byte[second])])
    return fast(model, tokenizers.decoders.ByteLevel(), template)


def sentencepiece() -> Any:
    """A SentencePiece-like vocabulary with byte tokens."""
    vocabulary = {"<unk>": 0, "\u2581": 1, "\u2581hi": 2, "h": 3, "i": 4}
    vocabulary |= {f"<0x{byte:02X}>": 5 + byte for byte in range(256)}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    parts = [
        tokenizers.decoders.Replace("\u2581", " "),
        tokenizers.decoders.ByteFallback(),
        tokenizers.decoders.Fuse(),
    ]
    return fast(model, tokenizers.decoders.Sequence(parts))


BYTE_LEVEL = byte_level()
FACTS = tokenizer_facts(BYTE_LEVEL)
TABLE = piece_table(BYTE_LEVEL)


def test_the_byte_table_is_gpt2s() -> None:
    table = bytes_of_unicode()
    assert len(table) == len(set(table.values())) == 256
    # From the published table: letters and signs are themselves, the space is Ġ, the line feed Ċ, 0xAD is U+0143.
    assert [table[char] for char in ("A", "~", "¡", "ÿ")] == [0x41, 0x7E, 0xA1, 0xFF]
    assert [table[char] for char in ("Ā", "Ġ", "Ċ", "\u0143")] == [0x00, 0x20, 0x0A, 0xAD]


def test_pieces_of_a_byte_level_vocabulary() -> None:
    table = piece_table(byte_level())
    assert table[:256] == [bytes([byte]) for byte in range(256)]
    assert table[256] == EMOJI.encode()[:2]
    assert table[257:] == [b"<|im_end|>", b"<|im_start|>", b"<think>"]


@given(st.text())
def test_pieces_of_any_text_are_its_utf8(text: str) -> None:
    ids: list[int] = BYTE_LEVEL(text, add_special_tokens=False)["input_ids"]
    assert b"".join(TABLE[token] for token in ids) == text.encode()


def test_pieces_of_a_sentencepiece_vocabulary() -> None:
    tokenizer = sentencepiece()
    table = piece_table(tokenizer)
    assert table[:5] == [b"<unk>", b" ", b" hi", b"h", b"i"]
    assert [table[5 + byte] for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    ids = [2, *(5 + byte for byte in EMOJI.encode()), 1, 3]
    assert b"".join(table[token] for token in ids).decode() == tokenizer.decode(ids) == f" hi{EMOJI} h"


def test_other_kinds_of_tokenizer_are_refused() -> None:
    model = tokenizers.models.WordPiece(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    with pytest.raises(EngineLoadError, match="WordPiece"):
        piece_table(fast(model, tokenizers.decoders.WordPiece()))
    with pytest.raises(EngineLoadError, match="none"):
        piece_table(fast(model, None))


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(EngineLoadError, match="a fast tokenizer is needed; this one is object"):
        tokenizer_facts(object())


def test_facts() -> None:
    facts = tokenizer_facts(byte_level(), [3])
    assert facts.special == {"<|im_end|>": 257, "<|im_start|>": 258}
    assert facts.added == {"<think>": 259}
    assert facts.eos == (3, 257)
    other = tokenizer_facts(byte_level(CHATML + " "))
    assert other.template != facts.template
    assert tokenizer_facts(byte_level(None)).template is None
    assert tokenizer_facts(sentencepiece()).hash != tokenizer_facts(byte_level()).hash


def test_the_prompt_is_rendered_tokenised_and_has_a_tail() -> None:
    asked = conversation("héllo " * 100, tools=({"type": "function"},), template_kwargs={"enable_thinking": True})
    prompt = render(BYTE_LEVEL, asked, FACTS)
    text = b"".join(TABLE[token] for token in prompt.ids).decode()
    assert text == ("<|im_start|>user\n" + "héllo " * 100 + "<|im_end|>\n1 tools<|im_start|>assistant\n<think>\n")
    assert prompt.ids[0] == 258
    assert prompt.tail == text[-TAIL:]


def test_a_final_message_is_continued() -> None:
    messages = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>" + "long " * 100})
    prompt = render(BYTE_LEVEL, Conversation(messages=messages, continue_final_message=True), FACTS)
    # The tail reaches back to the turn's opener, past the least length.
    assert prompt.tail == "<|im_start|>assistant\n<think>" + "long " * 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("x" * 300, "x" * TAIL),
        ("<|im_start|>" + "y" * 300, "<|im_start|>" + "y" * 300),
        ("<|im_start|>a" + "z" * 300 + "<|im_end|>\n", "<|im_start|>a" + "z" * 300 + "<|im_end|>\n"),
        ("w" * 300 + "<|im_start|>", ("w" * 300 + "<|im_start|>")[-TAIL:]),
    ],
)
def test_the_tail_reaches_back_to_the_last_opener(text: str, expected: str) -> None:
    assert tail_of(text, TokenizerFacts(special={"<|im_start|>": 1, "<|im_end|>": 2}, eos=(2,))) == expected


def test_what_the_template_rejects_is_the_clients_to_mend() -> None:
    picky = byte_level("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        render(picky, conversation(), tokenizer_facts(picky))
    assert (caught.value.param, caught.value.code) == ("messages", "chat_template_error")
    with pytest.raises(RequestError, match="the chat template rejected"):
        render(BYTE_LEVEL, Conversation(messages=({"role": "user", "content": None},)), FACTS)


def test_an_empty_prompt_is_refused() -> None:
    silent = byte_level("{{ '' }}")
    request = EngineRequest(session="s", conversation=conversation(), sampling=Sampling())
    with pytest.raises(RequestError, match="an empty prompt"):
        prepare(silent, request, tokenizer_facts(silent), pieces=[], vocabulary=260, context=50)


def test_no_template_is_said() -> None:
    bare = byte_level(None)
    with pytest.raises(RequestError, match="no chat template"):
        render(bare, conversation(), tokenizer_facts(bare))


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "messages", "padding"])
def test_a_request_cannot_set_the_renderers_own_arguments(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        render(BYTE_LEVEL, conversation(template_kwargs={name: "x"}), FACTS)
    assert caught.value.param == f"chat_template_kwargs.{name}"


def test_named_templates() -> None:
    assert template_text(byte_level({"tool_use": "T", "default": "D"})) == "D"
    assert template_text(byte_level({"tool_use": "T"})) == "T"


def test_prepare_checks_lengths_and_ids() -> None:
    def prepared(**sampling: Any) -> Any:
        request = EngineRequest(session="s", conversation=conversation("hi"), sampling=Sampling(**sampling))
        (made,) = prepare(BYTE_LEVEL, request, FACTS, pieces=[], vocabulary=260, context=50)
        return made

    assert prepared().forced is None
    assert prepared(forced_text="a<think>").forced == (97, 259)
    assert prepared(forced_ids=(1, 2)).forced == (1, 2)
    for param in ("logit_bias", "forced_ids"):
        with pytest.raises(RequestError, match="260 is outside the vocabulary of 260") as caught:
            prepared(**{param: {260: 1.0} if param == "logit_bias" else (260,)})
        assert caught.value.param == param
    request = EngineRequest(session="s", conversation=conversation("hi"), sampling=Sampling())
    with pytest.raises(RequestError) as too_long:
        prepare(BYTE_LEVEL, request, FACTS, pieces=[], vocabulary=260, context=20)
    count = len(prepared().prompt.ids)
    assert too_long.value.message.split()[3] == str(count)
    assert " 20," in too_long.value.message
    assert (too_long.value.param, too_long.value.code) == ("messages", "context_length_exceeded")


def raw(*prompts: Any, n: int = 1, context: int = 50, special: bool = True, **sampling: Any) -> Any:
    """What is made of raw prompts. An id is a byte, 257 to 259 are the markers."""
    request = EngineRequest(
        session="s", conversation=None, sampling=Sampling(**sampling), prompts=prompts, n=n * len(prompts),
        special=special,
    )  # fmt: skip
    return prepare(BYTE_LEVEL, request, FACTS, pieces=piece_table(BYTE_LEVEL), vocabulary=260, context=context)


def test_raw_prompts_are_text_or_ids() -> None:
    text, tokens = raw("hé<think>", (104, 0xC3, 257, 98), n=2)
    assert text.prompt == ((104, 0xC3, 0xA9, 259), "hé<think>", "hé<think>")
    # What is no text is told as far as it can be, special tokens too.
    end = "<|im_end|>" if FACTS.special["<|im_end|>"] == 257 else "<|im_start|>"
    assert tokens.prompt == ((104, 0xC3, 257, 98), f"h\ufffd{end}b", f"h\ufffd{end}b")
    assert (text.choices, tokens.choices) == (range(0, 2), range(2, 4))
    assert raw("a", forced_ids=(1, 2))[0].forced == (1, 2)


def test_a_raw_prompt_that_cannot_be_served_is_named() -> None:
    with pytest.raises(RequestError, match=r"token id 260 is outside the vocabulary of 260") as caught:
        raw("a", (1, 260))
    assert caught.value.param == "prompt[1]"
    with pytest.raises(RequestError, match="token id 260") as caught:
        raw((260,))
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="the prompt has 50 tokens, but this model holds 50") as caught:
        raw("a", "b" * 50)
    assert (caught.value.param, caught.value.code) == ("prompt[1]", "context_length_exceeded")
    # Nothing is written: the prompt may fill the context.
    assert len(raw("b" * 50, max_tokens=0)[0].prompt.ids) == 50
    with pytest.raises(RequestError, match="the prompt has 51 tokens"):
        raw("b" * 51, max_tokens=0)


def test_the_tokenizers_own_special_tokens_come_first_where_they_may() -> None:
    tokenizer = byte_level()
    begin = tokenizer.convert_tokens_to_ids("<|im_start|>")
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", begin)]
    )
    for special, want in ((True, (begin, 97)), (False, (97,))):
        request = EngineRequest(session="s", conversation=None, sampling=Sampling(), prompts=("a",), special=special)
        (made,) = prepare(tokenizer, request, FACTS, pieces=[], vocabulary=260, context=50)
        assert made.prompt.ids == want
        # The text is what was asked.
        assert made.prompt.text == "a"


def test_the_detokenizer_releases_whole_characters_and_no_special_tokens() -> None:
    pieces = [b"a", *(bytes([byte]) for byte in EMOJI.encode()), b"<|im_end|>", b"\xff", b"\xe2"]
    detokenizer = Detokenizer({4})
    released = [
        detokenizer.text((index,), (piece,), last=index == len(pieces) - 1) for index, piece in enumerate(pieces)
    ]
    assert released == ["a", "", "", EMOJI, "", "\ufffd", "\ufffd"]
