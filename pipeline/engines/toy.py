"""The scripted engine's tokenizer and chat template: small, fixed, and needing no model."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from pipeline.engines.base import Conversation
from stages.opening import TokenizerFacts

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_FIRST_MARKER = 256
_FIRST_WORD = 1024
_WORDS = 1 << 16
_WORD = 4

VOCABULARY = _FIRST_WORD + _WORDS
"""Ids are below it: 0 to 255 are bytes, then the markers, from 1024 on words by their hash."""

CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\\nTools, called as <tool_call>{...}</tool_call>:\\n' }}"
    "{%- for tool in tools %}{{- tool.function.name ~ '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') ~ '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"
)
"""The chat template that ``rendered`` follows, for those who look at templates."""


class ToyTokenizer:
    """A token is a marker, or any other text of at most four characters: bytes by value, words by hash.

    Ids of words may collide; the bytes that go with them are exact.
    """

    def __init__(self, special: Iterable[str] = SPECIAL, added: Iterable[str] = ADDED, eos: str = "<|im_end|>") -> None:
        self.special = {marker: _FIRST_MARKER + index for index, marker in enumerate(special)}
        start = _FIRST_MARKER + len(self.special)
        self.added = {marker: start + index for index, marker in enumerate(added)}
        self.markers = self.special | self.added
        self.eos = self.markers[eos]
        self._split = re.compile(f"({'|'.join(map(re.escape, sorted(self.markers, key=len, reverse=True)))})")
        self._texts = {token: marker.encode() for marker, token in self.markers.items()}

    def facts(self, template: str | None) -> TokenizerFacts:
        """What the stages need of it."""
        names = ",".join(self.markers)
        return TokenizerFacts(
            hash=f"toy-{zlib.crc32(names.encode()):08x}",
            special=self.special,
            added=self.added,
            eos=(self.eos,),
            template=None if template is None else f"toy-{zlib.crc32(template.encode()):08x}",
        )

    def token(self, piece: bytes) -> int:
        """The id of one token's bytes; markers are not recognised."""
        return piece[0] if len(piece) == 1 else _FIRST_WORD + zlib.crc32(piece) % _WORDS

    def encode(self, text: str, longest: int = _WORD) -> list[tuple[int, bytes]]:
        """The tokens of a text: markers, and what is between them in words of ``longest`` characters (0: undivided)."""
        tokens: list[tuple[int, bytes]] = []
        for index, part in enumerate(self._split.split(text)):
            if index % 2:
                tokens.append((self.markers[part], part.encode()))
                continue
            size = longest or len(part)
            for at in range(0, len(part), size or 1):
                piece = part[at : at + size].encode()
                tokens.append((self.token(piece), piece))
        return tokens

    def piece(self, token: int) -> bytes:
        """The bytes of a byte or a marker; of a word, which has none without its text, a readable name."""
        if token < _FIRST_MARKER:
            return bytes([token])
        return self._texts.get(token) or f"<{token}>".encode()


def rendered(conversation: Conversation) -> str:
    """A conversation as ChatML, with ``<think>`` opened where ``enable_thinking`` asks for it."""
    parts: list[str] = []
    if conversation.tools:
        names = "".join(f"{tool.get('function', tool).get('name')}\n" for tool in conversation.tools)
        parts.append(f"<|im_start|>system\nTools, called as <tool_call>{{...}}</tool_call>:\n{names}<|im_end|>\n")
    messages = conversation.messages
    for index, message in enumerate(messages):
        is_open = conversation.continue_final_message and index == len(messages) - 1
        content = message.get("content") or ""
        parts.append(f"<|im_start|>{message.get('role')}\n{content}" + ("" if is_open else "<|im_end|>\n"))
    if conversation.add_generation_prompt and not conversation.continue_final_message:
        parts.append("<|im_start|>assistant\n")
        if conversation.template_kwargs.get("enable_thinking"):
            parts.append("<think>\n")
    return "".join(parts)
