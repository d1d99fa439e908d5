"""From conversations and raw prompts to prompt ids; and what a tokenizer is made of: facts, and every token's bytes.

This module imports neither transformers nor torch.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from pipeline.engines.base import Conversation, EngineLoadError, EngineRequest
from stages.errors import RequestError
from stages.opening import TokenizerFacts

TAIL = 200
"""The prompt's tail holds at least so many characters."""

_RENDER_ARGUMENTS = frozenset(
    "self conversation messages tools chat_template add_generation_prompt continue_final_message tokenize padding "
    "truncation max_length return_tensors return_dict return_assistant_tokens_mask tokenizer_kwargs".split()
)
"""Names that belong to the renderer; a request may not set them through ``chat_template_kwargs``."""


ChatTokenizer: TypeAlias = Any
"""A Hugging Face fast tokenizer (PreTrainedTokenizerFast); its own types say little."""


class Prompt(NamedTuple):
    """A prompt, ready. ``tail``: its end as text, from the last turn opener on, at least ``TAIL`` characters; ``text``:
    all of it."""

    ids: tuple[int, ...]
    tail: str
    text: str = ""


class Prepared(NamedTuple):
    """A prompt of an admitted request. ``choices``: their numbers; ``forced``: the ids that must be produced, or None;
    ``held``: makes what holds one choice to the request's constraint (``constrained.Held``), where the engine does."""

    prompt: Prompt
    choices: range
    forced: tuple[int, ...] | None = None
    held: Callable[[], Any] | None = None


class Reader(NamedTuple):
    """What raw prompts need of a tokenizer. ``encode``: text → ids; ``piece``: the bytes of an id; ``size``: ids are
    below it."""

    encode: Callable[[str], Sequence[int]]
    piece: Callable[[int], bytes]
    size: int
    facts: TokenizerFacts


def prepare(
    tokenizer: ChatTokenizer,
    request: EngineRequest,
    facts: TokenizerFacts,
    *,
    pieces: Sequence[bytes],
    vocabulary: int,
    context: int,
) -> list[Prepared]:
    """Render, tokenise and check a request. ``pieces``: the bytes of every id; ``vocabulary``: ids the model knows;
    ``context``: tokens it holds.

    Raises RequestError."""
    sampling = request.sampling
    check_ids(sampling.logit_bias, vocabulary, "logit_bias")
    forced: tuple[int, ...] | None = sampling.forced_ids or None
    if sampling.forced_text is not None:
        forced = encode(tokenizer, sampling.forced_text)
    check_ids(forced or (), vocabulary, "forced_ids")
    if request.conversation is not None:
        prompt = render(tokenizer, request.conversation, facts)
        check_length(len(prompt.ids), context, request.conversation.field)
        return [Prepared(prompt, range(request.n), forced)]

    encoded = partial(encode, tokenizer, special=request.special)
    reader = Reader(encoded, pieces.__getitem__, vocabulary, facts)
    return [Prepared(*each, forced) for each in raw_prompts(request, reader, context)]


# --- raw prompts ----------------------------------------------------------------------------------------------------


def raw_prompts(request: EngineRequest, reader: Reader, context: int) -> list[tuple[Prompt, range]]:
    """The prompts of a request that has no conversation, and the choices of each. The text of token ids is their bytes,
    special tokens too. Raises RequestError that names the prompt."""
    prompts = request.prompts
    each = request.n // len(prompts)
    room = 0 if request.sampling.max_tokens == 0 else 1  # for what is written
    made: list[tuple[Prompt, range]] = []
    for number, raw in enumerate(prompts):
        param = "prompt" if len(prompts) == 1 else f"prompt[{number}]"
        if isinstance(raw, str):
            ids, text = tuple(reader.encode(raw)), raw
        else:
            check_ids(raw, reader.size, param)
            ids, text = raw, b"".join(map(reader.piece, raw)).decode("utf-8", "replace")
        if not ids:
            raise RequestError(f"{param}: the tokenizer makes no tokens of it", param=param)
        _check_room(len(ids), context, param, room)
        made.append((Prompt(ids, tail_of(text, reader.facts), text), range(number * each, (number + 1) * each)))
    return made


# --- rendering ------------------------------------------------------------------------------------------------------


def render(tokenizer: ChatTokenizer, conversation: Conversation, facts: TokenizerFacts) -> Prompt:
    """Render and tokenise. Raises RequestError where the template rejects the conversation."""
    if template_text(tokenizer) is None:
        raise RequestError("this model has no chat template", param=conversation.field, code="no_chat_template")
    for name in conversation.template_kwargs:
        if name in _RENDER_ARGUMENTS:
            raise RequestError(f"chat_template_kwargs may not set {name!r}", param=f"chat_template_kwargs.{name}")
    text = _rendered(tokenizer, conversation)
    return Prompt(encode(tokenizer, text), tail_of(text, facts), text)


def _rendered(tokenizer: ChatTokenizer, conversation: Conversation) -> str:
    try:
        text = tokenizer.apply_chat_template(
            list(conversation.messages),
            tools=list(conversation.tools) or None,
            add_generation_prompt=conversation.add_generation_prompt and not conversation.continue_final_message,
            continue_final_message=conversation.continue_final_message,
            tokenize=False,
            **conversation.template_kwargs,
        )
    except Exception as error:  # a template is a program on the client's data: whatever it raises, it rejects that
        message = f"the chat template rejected the request: {error}"
        raise RequestError(message, param=conversation.field, code="chat_template_error") from error
    return str(text)


def encode(tokenizer: ChatTokenizer, text: str, *, special: bool = False) -> tuple[int, ...]:
    """Token ids of a text, markers recognised. ``special``: with what the tokenizer itself puts before and behind."""
    return tuple(tokenizer(text, add_special_tokens=special)["input_ids"])


def check_length(count: int, context: int | None, field: str = "messages") -> None:
    """Raise RequestError where a prompt is empty, or of so many tokens that not one of an answer has room.
    ``field``: of the request, which it is made of."""
    if count == 0:
        raise RequestError("the chat template makes an empty prompt of these messages", param=field)
    _check_room(count, context, field)


def _check_room(count: int, context: int | None, param: str, answer: int = 1) -> None:
    if context is not None and count + answer > context:
        message = f"the prompt has {count} tokens, but this model holds {context}, prompt and answer together"
        raise RequestError(message, param=param, code="context_length_exceeded")


def check_ids(ids: Iterable[int], size: int, param: str) -> None:
    """Raise RequestError where an id is outside the vocabulary of ``size`` tokens."""
    for token in ids:
        if not 0 <= token < size:
            raise RequestError(f"{param}: token id {token} is outside the vocabulary of {size}", param=param)


def tail_of(text: str, facts: TokenizerFacts) -> str:
    """The end of a prompt from the last turn opener on, at least ``TAIL`` characters (or all of it).

    A turn opener is a special token that does not end a turn: ``<|im_start|>`` and the like.
    """
    openers = [marker for marker, token in facts.special.items() if token not in facts.eos]
    start = max((text.rfind(marker) for marker in openers), default=-1)
    floor = max(len(text) - TAIL, 0)
    return text[min(start, floor) if start >= 0 else floor :]


# --- the tokenizer --------------------------------------------------------------------------------------------------


def template_text(tokenizer: ChatTokenizer) -> str | None:
    """The default chat template's text."""
    template: str | dict[str, str] | None = tokenizer.chat_template
    if isinstance(template, dict):
        return template.get("default") or next(iter(template.values()), None)
    return template or None


def short_hash(text: str) -> str:
    """16 hex digits that tell two texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def number_of(text: str) -> int:
    """63 bits that depend on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _backend(tokenizer: ChatTokenizer) -> Any:
    """The Rust tokenizer inside. Raises EngineLoadError."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise EngineLoadError(f"a fast tokenizer is needed; this one is {type(tokenizer).__name__}")
    return backend


def tokenizer_facts(tokenizer: ChatTokenizer, eos: Iterable[int] = ()) -> TokenizerFacts:
    """What the stages need of a tokenizer. ``eos``: the model's own end tokens, the tokenizer's is added to them.

    Raises EngineLoadError where it is not a fast one."""
    backend = _backend(tokenizer)
    special: dict[str, int] = {}
    added: dict[str, int] = {}
    for token, entry in sorted(tokenizer.added_tokens_decoder.items()):
        (special if entry.special else added)[str(entry.content)] = int(token)
    ends = dict.fromkeys(eos)
    if tokenizer.eos_token_id is not None:
        ends[int(tokenizer.eos_token_id)] = None
    template = template_text(tokenizer)
    return TokenizerFacts(
        hash=short_hash(backend.to_str()),
        special=special,
        added=added,
        eos=tuple(ends),
        template=None if template is None else short_hash(template),
    )


def bytes_of_unicode() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level BPE vocabulary (GPT-2's table), inverted.

    Printable Latin-1 bytes stand for themselves; the other 68, in order, for U+0100 and on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level(token: str, table: dict[str, int]) -> bytes:
    try:
        return bytes([table[char] for char in token])
    except KeyError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()


def piece_table(tokenizer: ChatTokenizer) -> list[bytes]:
    """The exact bytes of every token id; their concatenation is the UTF-8 of the generated text.

    Added tokens (special or not) are their text. Ids without a token have no bytes. A first ``▁`` of a SentencePiece
    text is a space here: what is generated continues the prompt. Raises EngineLoadError for other kinds of tokenizer.
    """
    spec: dict[str, Any] = json.loads(_backend(tokenizer).to_str())
    kinds = set(_decoder_kinds(spec.get("decoder")))
    byte_level = "ByteLevel" in kinds
    if not byte_level and not kinds & {"ByteFallback", "Metaspace"}:
        what = ", ".join(sorted(kinds)) or "none"
        raise EngineLoadError(f"a byte-level or SentencePiece tokenizer is needed; this one's decoder is: {what}")
    table = bytes_of_unicode()
    vocabulary: dict[str, int] = _backend(tokenizer).get_vocab(with_added_tokens=False)
    pieces = [b""] * (max(max(vocabulary.values(), default=-1) + 1, len(tokenizer)))
    for token, index in vocabulary.items():
        pieces[index] = _byte_level(token, table) if byte_level else _sentencepiece(token)
    for index, entry in tokenizer.added_tokens_decoder.items():
        if index >= len(pieces):
            pieces += [b""] * (index + 1 - len(pieces))
        pieces[index] = str(entry.content).encode()
    return pieces


def _decoder_kinds(decoder: Any) -> Iterable[str]:
    if decoder is not None:
        yield str(decoder["type"])
        for part in decoder.get("decoders", ()):
            yield from _decoder_kinds(part)


class Detokenizer:
    """The text an engine releases for one choice: whole characters only, special tokens left out.

    Bytes that cannot be part of a character become U+FFFD; so does an unfinished character at the end.
    """

    def __init__(self, special: Collection[int] = ()) -> None:
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, ids: Iterable[int], pieces: Iterable[bytes], *, last: bool = False) -> str:
        """What can be released after these tokens. ``last``: nothing follows."""
        data = b"".join(piece for token, piece in zip(ids, pieces, strict=True) if token not in self._special)
        return self._decoder.decode(data, last)
