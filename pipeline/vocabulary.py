"""A tokenizer without its model: the bytes of token ids that another server told, and prompts made of conversations.

A server that tells token ids does not tell their bytes, which is what parsers read. transformers reads tokenizers of
all kinds and renders chat templates; of it only what knows no torch is imported, and only when a tokenizer is loaded.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from pipeline.engines.base import Conversation, EngineLoadError
from pipeline.engines.prompt import (
    TAIL,
    ChatTokenizer,
    Prompt,
    piece_table,
    render,
    tail_of,
    template_text,
    tokenizer_facts,
)
from pipeline.engines.weights import BUNDLED, HUB_NAME, Source, locate, reached
from stages.events import Input, PromptInput, TokenLogprob, TokensInput, TopLogprob
from stages.opening import TokenizerFacts
from stages.upstream.entries import UNKNOWN

_FILES = ("tokenizer.json", "tokenizer_config.json", "tekken.json", "tokenizer.model", "tiktoken.model", "vocab.json")
"""What a folder with a tokenizer has at least one of."""
_WANTED = ("*token*", "tekken.json", "*.model", "vocab*", "merges*", "chat_template*", "generation_config.json")
"""Patterns of what is fetched from the hub."""
_TAIL_BYTES = 4 * (TAIL + 1)
"""No character has more than 4 bytes; one at the beginning may be cut."""


class _Place(NamedTuple):
    """``folder``: where the files are; ``file``: the one to read, where it is not called as transformers expects."""

    folder: Path
    file: str | None = None


class Vocabulary:
    """A loaded tokenizer. Everything but ``prompt`` belongs to one thread."""

    def __init__(self, tokenizer: ChatTokenizer, eos: Iterable[int] = ()) -> None:
        """``tokenizer``: a fast one of transformers; ``eos``: the model's end tokens, beside the tokenizer's own."""
        self.facts: TokenizerFacts = tokenizer_facts(tokenizer, eos)
        self.template: str | None = template_text(tokenizer)
        """The chat template's text, None where there is none; then ``prompt`` refuses every conversation."""
        self.pieces: list[bytes] = piece_table(tokenizer)
        """The bytes of each id; an id below the last that no token has is empty."""
        self.unknown = 0
        """Token ids met so far that are outside the vocabulary: it is another model's, or lacks its padding."""
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._openers = {token for token in self.facts.special.values() if token not in self.facts.eos}

    @classmethod
    def load(cls, where: str) -> Self:
        """Read a tokenizer: a folder (a model's will do), a ``tokenizer.json``, a GGUF file (which needs the packages
        of ``playhead[hf]``), ``smollm2``, or a Hugging Face name, which the local cache is asked for first.

        Blocks for a second or two. Raises EngineLoadError, which says what to do.
        """
        place = _place(where)
        try:
            return cls(_read(place), _ends(place.folder))
        except EngineLoadError as error:
            raise EngineLoadError(f"the tokenizer {where} cannot be used: {error}") from error

    def joined(self, events: Sequence[Input]) -> list[Input]:
        """The same events, and where they lack them, the bytes of ids and the end of the prompt.

        What an event has stays. A step, or an entry among its logprobs, with an id outside the vocabulary stays as it
        is; such ids are counted in ``unknown``.
        """
        return [
            self._step(event) if isinstance(event, TokensInput)
            else self._prompt(event) if isinstance(event, PromptInput)
            else event
            for event in events
        ]  # fmt: skip

    def prompt(self, conversation: Conversation) -> Prompt:
        """Render and tokenise, from any thread. Raises RequestError where the template rejects the conversation, or
        there is none."""
        # The tokenizer keeps settings between calls.
        with self._lock:
            return render(self._tokenizer, conversation, self.facts)

    def _step(self, event: TokensInput) -> Input:
        ids, pieces, logprobs = event.ids, event.pieces, event.logprobs
        if not pieces:
            table, size = self.pieces, len(self.pieces)
            if len(ids) == 1 and 0 <= ids[0] < size:  # nearly all
                pieces = (table[ids[0]],)
            elif ids:
                pieces = tuple([table[token] for token in ids if 0 <= token < size])
                if len(pieces) < len(ids):
                    self.unknown += sum(token != UNKNOWN and not 0 <= token < size for token in ids)
                    pieces = ()
        if logprobs:
            logprobs = tuple([self._logprob(entry) for entry in logprobs])
        return TokensInput(event.choice, ids, pieces, event.text, logprobs)

    def _piece(self, token: int) -> bytes:
        if 0 <= token < len(self.pieces):
            return self.pieces[token]
        self.unknown += token != UNKNOWN
        return b""

    def _logprob(self, entry: TokenLogprob) -> TokenLogprob:
        piece = entry.piece or self._piece(entry.id)
        top = tuple([TopLogprob(one.id, one.piece or self._piece(one.id), one.logprob) for one in entry.top])
        return TokenLogprob(entry.id, piece, entry.logprob, top)

    def _prompt(self, event: PromptInput) -> Input:
        if event.tail or not event.ids:
            return event
        return PromptInput(event.ids, self._tail(event.ids), event.count, event.cached)

    def _tail(self, ids: Sequence[int]) -> str:
        """As ``tail_of`` of the whole prompt's text, of which only the end is put together."""
        parts: list[bytes] = []
        size, opened = 0, not self._openers
        for token in reversed(ids):
            parts.append(self._piece(token))
            size += len(parts[-1])
            opened = opened or token in self._openers
            if opened and size >= _TAIL_BYTES:
                break
        return tail_of(b"".join(reversed(parts)).decode("utf-8", "ignore"), self.facts)


# --- reading --------------------------------------------------------------------------------------------------------


def _place(where: str) -> _Place:
    """Raises EngineLoadError."""
    if where == BUNDLED:
        source = locate(None)
        return _Place(Path(source.place), source.gguf)
    path = Path(where).expanduser()
    if path.is_dir():
        if any((path / name).is_file() for name in _FILES):
            return _Place(path)
        raise EngineLoadError(
            f"there is no tokenizer in the folder {where}: tokenizer.json (or tekken.json, tokenizer.model) is needed"
        )
    if path.is_file():
        return _Place(path.parent, None if path.name == "tokenizer.json" else path.name)
    if not HUB_NAME.fullmatch(where) or where.startswith((".", "~")) or path.suffix in (".json", ".gguf"):
        raise EngineLoadError(
            f"there is no tokenizer {where!r}: give a folder, a tokenizer.json, a .gguf file, {BUNDLED} (built in) or "
            "a Hugging Face name (org/name)"
        )
    return _Place(_fetched(where))


def _fetched(name: str) -> Path:
    """The local copy of what the hub has, made if there is none yet. Raises EngineLoadError."""
    try:
        # What the hub's client does not tell a type checker.
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise _lacking(error) from error
    for file in _FILES:
        cached: Any = hub.try_to_load_from_cache(name, file)
        if isinstance(cached, str):
            return Path(cached).parent
    reached(Source(name, name))
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(_WANTED)))
    except Exception as error:
        # Which HTTP library stands below, and so what it raises, depends on the version of the hub's client.
        raise EngineLoadError(f"the tokenizer {name} cannot be fetched from Hugging Face: {error}") from error


def _read(place: _Place) -> ChatTokenizer:
    """Raises EngineLoadError."""
    try:
        # The part of transformers that imports no torch, unless a GGUF file is read; it tells a type checker little.
        backend: Any = importlib.import_module("transformers.tokenization_utils_tokenizers").TokenizersBackend
    except ImportError as error:
        raise _lacking(error) from error
    folder, file = str(place.folder), place.file
    try:
        if file is None:
            return backend.from_pretrained(folder, local_files_only=True)
        if file.endswith(".gguf"):
            return backend.from_pretrained(folder, gguf_file=file, local_files_only=True)
        return backend(tokenizer_file=str(place.folder / file))
    except Exception as error:
        # The library underneath raises bare exceptions; whatever it is, this tokenizer cannot be read.
        raise EngineLoadError(
            f"it does not load ({error}); a fast one is needed (a tokenizer.json as transformers writes it)"
        ) from error


class _Generation(msgspec.Struct):
    """Of a model's ``generation_config.json``."""

    eos_token_id: int | list[int] | None = None


def _ends(folder: Path) -> list[int]:
    """The model's own end tokens, where its generation settings are beside its tokenizer."""
    try:
        ends = msgspec.json.decode((folder / "generation_config.json").read_bytes(), type=_Generation).eos_token_id
    except (OSError, ValueError):  # none, or another's
        return []
    return [] if ends is None else [ends] if isinstance(ends, int) else ends


def _lacking(error: ImportError) -> EngineLoadError:
    return EngineLoadError(
        f"tokenizers are read with transformers ({error.name} is missing): pip install transformers jinja2"
    )
