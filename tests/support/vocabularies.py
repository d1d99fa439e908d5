"""The vocabularies of the captures (data/vocabularies): real ids and bytes, of them those that the captures use. A
folder made of one is a tokenizer that transformers loads, with these ids."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pipeline.engines.prompt import bytes_of_unicode
from tests.support.tree import ROOT

VOCABULARIES = ROOT / "tests" / "data" / "vocabularies"

_CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TOOLS = "{{%- if tools %}}{{{{ 'Call a tool as {}\n' }}}}{{% endif %}}"
_DEEPSEEK = (
    "{{ '<｜begin▁of▁sentence｜>' }}{%- for m in messages %}{{ '<｜User｜>' + (m.content or '') }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}{% endif %}"
)
TEMPLATES: dict[str, str] = {
    "qwen3": _TOOLS.format("<tool_call>{}</tool_call>") + _CHATML,
    "glm45": _TOOLS.format("<tool_call>NAME<arg_key></arg_key><arg_value></arg_value></tool_call>") + _CHATML,
    "kimik2": _TOOLS.format("<|tool_calls_section_begin|>") + _CHATML,
    "dsv31": _TOOLS.format("<｜tool▁calls▁begin｜>") + _DEEPSEEK,
    "dsv4": _TOOLS.format("<｜DSML｜tool_calls> and <｜latest_reminder｜>") + _DEEPSEEK,
    "gptoss": _TOOLS.format("<|channel|>commentary to=functions.NAME<|message|>")
    + "{%- for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + (m.content or '') + '<|end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
    "llama31": _TOOLS.format("<|python_tag|>")
    + "{%- for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content or '') }}"
    "{{ '<|eot_id|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "mistral": _TOOLS.format("[TOOL_CALLS]")
    + "{{ '<s>' }}{%- for m in messages %}{{ '[INST]' + (m.content or '') + '[/INST]' }}{% endfor %}",
}  # fmt: skip
"""By vocabulary: chat templates that are as short as can be, and name the family's marker of calls."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a vocabulary. ``size``: one more than its last id; ``special``, ``added``: text → id; ``pieces``:
    id → text; ``parts``: id → hex, of what is no whole character."""

    size: int
    eos: tuple[int, ...]
    special: dict[str, int]
    added: dict[str, int]
    pieces: dict[int, str]
    parts: dict[int, str]

    def piece(self, token: int) -> bytes:
        """The bytes of an id; raises KeyError for one that no capture has."""
        if token in self.pieces:
            return self.pieces[token].encode()
        if token in self.parts:
            return bytes.fromhex(self.parts[token])
        return self._marked[token]

    @property
    def _marked(self) -> dict[int, bytes]:
        return {token: text.encode() for text, token in {**self.special, **self.added}.items()}


@cache
def vocabulary(name: str) -> Kept:
    """By name; that of all captures, where CAPTURES has them (see ``captures``)."""
    more = Path(os.environ.get("CAPTURES", VOCABULARIES), "vocabularies", f"{name}.json")
    path = more if more.exists() else VOCABULARIES / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Kept)


def tokenizer_folder(name: str, to: Path, template: str | None = None) -> Path:
    """A folder with a byte-level BPE tokenizer without merges, whose ids and bytes are those of the vocabulary. It is
    as large; ids that no capture has are holes. ``template``: in place of the vocabulary's; empty: none."""
    kept = vocabulary(name)
    chars = {byte: char for char, byte in bytes_of_unicode().items()}
    marked = {**kept.special, **kept.added}
    known = {token: "".join(chars[byte] for byte in kept.piece(token)) for token in (*kept.pieces, *kept.parts)}
    known |= {token: text for text, token in marked.items()}
    known.setdefault(kept.size - 1, "<last>")
    vocab = {text: token for token, text in sorted(known.items())}
    assert len(vocab) == len(known)
    added = [
        {"id": token, "content": text, "special": text in kept.special, "normalized": False, "single_word": False,
         "lstrip": False, "rstrip": False}
        for text, token in sorted(marked.items(), key=lambda item: item[1])
    ]  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model: dict[str, Any] = {"type": "BPE", "vocab": vocab, "merges": []}
    (to / "tokenizer.json").write_text(
        json.dumps({
            "version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model,
        })
    )  # fmt: skip
    ends = {token: text for text, token in kept.special.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ends[kept.eos[0]] if kept.eos else None}
    (to / "tokenizer_config.json").write_text(json.dumps(settings))
    (to / "generation_config.json").write_text(json.dumps({"eos_token_id": list(kept.eos)}))
    text = TEMPLATES[name] if template is None else template
    if text:
        (to / "chat_template.jinja").write_text(text)
    return to
