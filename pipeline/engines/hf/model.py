"""A causal language model and what its tokenizer says about it."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import tokenizers
import torch
import transformers
from transformers import DynamicCache

from pipeline.engines.constrained import VERSION, Grammars
from pipeline.engines.prompt import piece_table, template_text, tokenizer_facts
from pipeline.engines.weights import fingerprint
from stages.opening import EngineFacts


class Model:
    """The model and its tokenizer, as the loop sees them. Whoever uses the tokenizer holds ``tokenizing`` meanwhile: it
    takes one thread at a time."""

    def __init__(self, name: str, model: Any, tokenizer: Any, dtype: str, threads: int, context: int | None) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self.tokenizing = Lock()
        self.threads = threads
        config = model.config.get_text_config()
        self.facts = tokenizer_facts(tokenizer, _eos(model))
        self.eos_ids = self.facts.eos
        self.eos = frozenset(self.facts.eos)
        self.special = frozenset(self.facts.special.values())
        self._vocabulary = int(config.vocab_size)
        self.pieces = piece_table(tokenizer)
        self.pieces += [b""] * (self._vocabulary - len(self.pieces))
        longest = int(getattr(config, "max_position_embeddings", 0) or min(tokenizer.model_max_length, 1 << 20))
        self.context = longest if context is None else min(context, longest)
        self.template = template_text(tokenizer)
        self.grammars = Grammars(self.pieces, self.facts)
        modules: list[Any] = [torch, transformers, tokenizers]
        versions = {module.__name__: str(module.__version__) for module in modules}
        versions["llguidance"] = VERSION  # its masks decide what a request that is held gets for its seed
        self.engine = EngineFacts(
            kind="hf",
            model=name,
            fingerprint=fingerprint(_contents(model), versions),
            dtype=dtype,
            max_tokens=self.context,
            versions=versions,
            constrains=True,
        )

    def cache(self) -> Any:
        """An empty key-value cache."""
        return DynamicCache(config=self._model.config)

    def forward(self, ids: torch.Tensor, cache: Any, keep: int = 1) -> torch.Tensor:
        """Logits, float32, [keep, vocabulary], after the last ones of ``ids`` [1, tokens]; the cache grows by them."""
        logits: torch.Tensor = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=keep).logits
        return logits[0].float()


def _eos(model: Any) -> list[int]:
    ends: int | list[int] | None = getattr(model.generation_config, "eos_token_id", None)
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


def _contents(model: Any) -> Iterable[tuple[str, memoryview]]:
    """Every parameter: a line that tells name, type and shape, and its bytes."""
    for name, part in sorted(model.named_parameters()):
        values = part.detach().contiguous().view(-1).view(torch.uint8)
        yield f"{name} {part.dtype} {tuple(part.shape)}", memoryview(values.numpy())
