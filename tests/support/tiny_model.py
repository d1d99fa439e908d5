"""A real Qwen3 model of 1 MB that answers with known texts: weights made by hand, so that greedy decoding spells them.

Its vocabulary is byte-level, with the words of the texts and Qwen's own special tokens; its chat template is Qwen3's.
A cue anywhere in the prompt (``EBB``) picks a text. Every token stands once in all texts, so that a token tells what
comes next: the one layer's attention finds the cue, the rest is a table from token to token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.oracles import packaged

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
END = "<|im_end|>"
TEXTS: dict[str, tuple[str | bytes, ...]] = {
    "EBB": ("It", " ebbs", " twice", " a day", "\u2014", "\u6f6e", b"\xf0", b"\x9f\x8c", b"\x8a", ".", END),
    "FLOW": ("<think>", "\nWhich", " port?\n", "</think>", "\n\n", "Brest", "!", END),
    "CALL": ("Let me", " look", ".\n", "<tool_call>", '\n{"name": "', "tide", '", "argu', 'ments": {"po',
             'rt": "Bré', 'st"}}\n', "</tool_call>", END),
    # A name without quotes, in a call whose marker is spelled.
    "BREAK": ("<tool", "_call>\n", '{"name":', " tide", "}\n", "</tool", "_call>", END),
    # It never ends.
    "TICK": (" tick", " tock"),
}  # fmt: skip
"""By cue: the pieces of a text. Where no cue is, it is the first."""

_HEADS = 8


def text(cue: str) -> bytes:
    """What the model writes, its end of turn left out."""
    return b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in TEXTS[cue] if piece != END)


def write(folder: Path) -> None:
    """Write the model's folder."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    folder.mkdir(parents=True)
    tokenizer = _tokenizer()
    ids = {piece: _id(tokenizer, piece) for pieces in (*TEXTS.values(), tuple(TEXTS)) for piece in pieces}
    with torch.no_grad():
        _model(torch, transformers, tokenizer.get_vocab_size(), ids).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = packaged("trl", "trl/chat_templates/qwen3.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template)
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": SPECIAL[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, "model_max_length": 4096}))


def _tokenizer() -> Any:
    made: Any = import_module("tokenizers")
    letters = import_module("transformers.convert_slow_tokenizer").bytes_to_unicode()
    words = [bytes([byte]) for byte in range(256)]
    words += [piece if isinstance(piece, bytes) else piece.encode() for piece in _words()]
    spelled = {"".join(letters[byte] for byte in word): number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = made.Tokenizer(made.models.BPE(spelled, [], ignore_merges=True))
    tokenizer.pre_tokenizer = made.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = made.decoders.ByteLevel()
    for name in (*SPECIAL, *ADDED):
        tokenizer.add_tokens([made.AddedToken(name, special=name in SPECIAL, normalized=False)])
    return tokenizer


def _words() -> Iterator[str | bytes]:
    for cue, pieces in TEXTS.items():
        yield cue
        yield from (piece for piece in pieces if piece not in (*SPECIAL, *ADDED))


def _id(tokenizer: Any, piece: str | bytes) -> int:
    letters = import_module("transformers.convert_slow_tokenizer").bytes_to_unicode()
    data = piece if isinstance(piece, bytes) else piece.encode()
    found: int | None = tokenizer.token_to_id(piece) if piece in (*SPECIAL, *ADDED) else None
    return found if found is not None else tokenizer.token_to_id("".join(letters[byte] for byte in data))


def _model(torch: Any, transformers: Any, words: int, ids: dict[str | bytes, int]) -> Any:
    """Each token of the texts, and each cue, has a dimension of its own; all others share the first."""
    place = {number: at for at, number in enumerate(dict.fromkeys(ids.values()), 1)}
    width = -(-(len(place) + 1) // _HEADS) * _HEADS
    config = transformers.Qwen3Config(
        vocab_size=words, hidden_size=width, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=_HEADS, max_position_embeddings=4096, tie_word_embeddings=False,
        eos_token_id=ids[END], pad_token_id=None, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    model.generation_config.update(max_new_tokens=4096, do_sample=False, eos_token_id=ids[END])
    layer = model.model.layers[0]
    for weights in (model.model.embed_tokens, model.lm_head, *_linear(layer)):
        weights.weight.zero_()
    for number in range(words):
        model.model.embed_tokens.weight[number, place.get(number, 0)] = 1
    _attend(layer.self_attn, [place[ids[cue]] for cue in TEXTS])
    for cue, pieces in TEXTS.items():
        chain = [ids[piece] for piece in pieces]
        loops = [] if END in pieces else chain[:1]
        model.lm_head.weight[chain[0], place[ids[cue]]] = 20
        for here, following in zip(chain, [*chain[1:], *loops], strict=False):
            model.lm_head.weight[following, place[here]] = 80
    model.lm_head.weight[ids[TEXTS["EBB"][0]], 0] += 10
    return model


def _linear(layer: Any) -> Iterator[Any]:
    yield from (getattr(layer.self_attn, f"{name}_proj") for name in "qkvo")
    yield from (getattr(layer.mlp, f"{name}_proj") for name in ("gate", "up", "down"))


def _attend(attention: Any, cues: list[int]) -> None:
    """Every token looks for cues, and takes along which it found. The dimension that it looks in is the one that
    positions turn least."""
    slowest = _HEADS // 2 - 1
    found = attention.config.hidden_size**-0.5  # what comes in is normed to this length
    attention.q_proj.weight[slowest, :] = 1
    attention.k_norm.weight.fill_(20)
    for at, cue in enumerate(cues):
        attention.k_proj.weight[slowest, cue] = 1
        attention.v_proj.weight[at, cue] = 1
        attention.o_proj.weight[cue, at] = found
