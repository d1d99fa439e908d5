"""tokenizer: what a replay has in the place of a server's tokenizer and detokenizer.

A recording has the special and the added tokens, and the bytes of the ids that the model wrote. That is enough for
parsers that look markers up and read ids back. For one that encodes text, or asks what class the tokenizer is of,
nothing is made up: it raises Unsupported, which says to give a real one (``--tokenizer PATH``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from .worker import Unsupported

NEEDED = "give --tokenizer PATH (a folder with tokenizer.json, or a tekken.json)"


def pieces(session: dict[str, Any]) -> dict[int, bytes]:
    """The bytes of the ids that a session's model wrote."""
    found: dict[int, bytes] = {}
    for step in session["steps"]:
        for number, piece in zip(step["ids"], step["pieces"], strict=False):
            found[number] = piece.encode("latin-1")
    return found


class Shim:
    """A tokenizer as Hugging Face's are, as far as a recording goes.

    ``wanted``: why it could not answer, once it could not: parsers may swallow what is raised.
    """

    def __init__(self, special: dict[str, int], added: dict[str, int], eos: Sequence[int], known: dict[int, bytes]):
        self.wanted = ""
        self._marked = {**special, **added}
        self._bytes = {**known, **{number: text.encode() for text, number in self._marked.items()}}
        self._special = frozenset(special.values())
        self._added = dict(added)
        spelled = {data.decode("utf-8", "backslashreplace"): number for number, data in known.items()}
        self._vocabulary = {**spelled, **self._marked}
        self._tokens = {number: text for text, number in self._vocabulary.items()}
        self.all_special_tokens = list(special)
        self.all_special_ids = list(special.values())
        self.eos_token_id = eos[0] if eos else None
        self.eos_token = self._tokens.get(eos[0]) if eos else None
        self.is_fast = True

    @classmethod
    def of(cls, session: dict[str, Any]) -> Shim:
        """The tokenizer of a session, as the protocol has it."""
        return cls(session["special"], session["added"], session["eos"], pieces(session))

    def __getattribute__(self, name: str) -> Any:
        """isinstance() asks for the class where the type does not answer it."""
        if name == "__class__":
            self._want("asks for the tokenizer's class")
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """What a recording has nothing for. A name that no tokenizer has is not there."""
        if name in _REAL:
            self._want(f"asks for the tokenizer's {name}")
        raise AttributeError(f"a recorded tokenizer has no {name}")

    def _want(self, what: str) -> NoReturn:
        self.wanted = self.wanted or f"the parser {what}, which is not recorded: {NEEDED}"
        raise Unsupported(self.wanted)

    @property
    def vocab(self) -> dict[str, int]:
        """Text → id: special and added tokens, and what the model wrote."""
        return self._vocabulary

    def get_vocab(self) -> dict[str, int]:
        """See vocab."""
        return dict(self._vocabulary)

    def get_added_vocab(self) -> dict[str, int]:
        """Special and added tokens."""
        return dict(self._marked)

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        """None for a token that is not known."""
        if isinstance(tokens, str):
            return self._vocabulary.get(tokens)
        return [self._vocabulary.get(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> Any:
        """Tokens as text (not spelled byte by byte)."""
        if isinstance(ids, int):
            return self._token(ids)
        return [self._token(number) for number in ids if not (skip_special_tokens and number in self._special)]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """Tokens are text."""
        return "".join(tokens)

    def decode(self, token_ids: int | Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of ids that were recorded; bytes that are no text become U+FFFD."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        wrote = [self._piece(int(number)) for number in ids if not (skip_special_tokens and number in self._special)]
        return b"".join(wrote).decode("utf-8", "replace")

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """The id of a special or added token; nothing else can be encoded."""
        if text in self._marked:
            return [self._marked[text]]
        if not text:
            return []
        self._want("encodes text")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """It encodes."""
        self._want("encodes text")

    def __len__(self) -> int:
        """Of the vocabulary that is known; never 0, for who asks whether there is a tokenizer."""
        return max(self._bytes, default=0) + 1

    def _piece(self, number: int) -> bytes:
        found = self._bytes.get(number)
        if found is None:
            self._want(f"reads id {number}, whose text")
        return found

    def _token(self, number: int) -> str:
        self._piece(number)
        return self._tokens[number]


_REAL = frozenset({
    "apply_chat_template", "chat_template", "name_or_path", "init_kwargs", "tokenizer", "_tokenizer",
    "backend_tokenizer", "added_tokens_decoder", "added_tokens_encoder", "special_tokens_map", "vocab_size",
    "max_token_id", "encode_plus", "batch_encode_plus", "tokenize", "save_pretrained", "from_pretrained",
})  # fmt: skip
"""What tokenizers have and a recording has not."""


class Detokenizer:
    """A choice's text step by step, as an engine's detokenizer gives it to the parser.

    Special tokens are left out where ``skip_special``. While the text ends within a character it is held back: only
    whole characters come. ``stop``: strings that end the output. As long as one may begin at the text's end, so many
    characters are held back; ``stopped`` is the one that ended the output (the finish says it), and the text ends
    before it, or after it where ``include_stop``.
    """

    def __init__(self, special: Iterable[int], *, skip_special: bool, stop: Sequence[str], include_stop: bool) -> None:
        self._skipped = frozenset(special) if skip_special else frozenset[int]()
        self._stop = tuple(text for text in stop if text)
        self._include = include_stop
        self._hold = 0 if include_stop or not self._stop else max(map(len, self._stop)) - 1
        self._bytes = b""
        self.text = ""
        self._given = 0

    def step(
        self, ids: Sequence[int], wrote: Sequence[bytes], text: str, *, finished: bool = False, stopped: str = ""
    ) -> str:
        """What is released by a step. ``wrote``: the bytes of each id. Without them ``text`` is taken as it is."""
        before = len(self.text)
        if len(wrote) == len(ids) and ids:
            for number, data in zip(ids, wrote, strict=True):
                if number not in self._skipped:
                    self._take(data)
        else:
            self.text += text
        if stopped:
            at = self.text.find(stopped, max(0, before - len(stopped) + 1))
            if at >= 0:
                self.text = self.text[: at + len(stopped)] if self._include else self.text[:at]
        end = len(self.text) if finished else len(self.text) - self._hold
        if end <= self._given:
            return ""
        given, self._given = self.text[self._given : end], end
        return given

    def _take(self, data: bytes) -> None:
        held = self._bytes + data
        text = held.decode("utf-8", "replace")
        if text.endswith("\ufffd"):
            # Within a character, or no text at all: it waits for what follows, as in Hugging Face's DecodeStream.
            self._bytes = held
            return
        self._bytes = b""
        self.text += text


def real(path: str) -> Any:
    """A tokenizer from a file or folder, loaded by the peer's own libraries. Raises Unsupported."""
    try:
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if path.endswith("tekken.json") or (folder == path and _has(path, "tekken.json", "tokenizer.json")):
            return _mistral(folder)
        transformers = import_module("transformers")
        if os.path.isfile(path):
            return transformers.PreTrainedTokenizerFast(tokenizer_file=path)
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Unsupported:
        raise
    except Exception as error:  # whatever the library makes of the file
        raise Unsupported(f"--tokenizer {path} does not load: {type(error).__name__}: {error}") from error


def _has(folder: str, name: str, other: str) -> bool:
    """A folder has a file, and not the other one."""
    return os.path.isfile(os.path.join(folder, name)) and not os.path.isfile(os.path.join(folder, other))


def _mistral(folder: str) -> Any:
    # vLLM's parsers ask for its own class.
    return import_module("vllm.tokenizers.mistral").MistralTokenizer.from_pretrained(folder)
