"""``python -m tests.support.letters serve …``: the parrot, writing byte by byte: ``tokenizer`` knows its ids, for
whoever stands in front of it and asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.cli import main, serve
from pipeline.config import Config
from pipeline.engines.base import Engine
from pipeline.engines.prompt import bytes_of_unicode
from pipeline.engines.toy import ToyTokenizer
from tests.support.parrot import Parrot


class Letters(Parrot):
    """The engine."""

    def tokens_of(self, text: str) -> list[Any]:
        """See Parrot."""
        markers = set(self.toy.markers.values())
        tokens = self.toy.encode(text, 0)
        return [
            ([token], [piece]) if token in markers else ([byte], [bytes([byte])])
            for token, piece in tokens
            for byte in ([0] if token in markers else piece)
        ]


def tokenizer(to: Path) -> Path:
    """A folder with the tokenizer of what it writes."""
    toy, chars = ToyTokenizer(), {byte: char for char, byte in bytes_of_unicode().items()}
    vocab = {chars[byte]: byte for byte in range(256)} | toy.markers
    added = [
        {"id": token, "content": text, "special": text in toy.special, "normalized": False, "single_word": False,
         "lstrip": False, "rstrip": False}
        for text, token in toy.markers.items()
    ]  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    made: dict[str, Any] = {
        "version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
    (to / "tokenizer.json").write_text(json.dumps(made))
    (to / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"})
    )
    return to


def make_engine(config: Config) -> Engine:
    """In place of the command's own."""
    return Letters(pace=config.pace)


if __name__ == "__main__":
    serve.make_engine = make_engine
    main()
