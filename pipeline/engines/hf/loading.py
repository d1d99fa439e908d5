"""From what a model is called to the model and its tokenizer."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import transformers
from transformers import GgufConfig

from pipeline.engines.base import EngineLoadError
from pipeline.engines.weights import Source, converted

Progress: TypeAlias = Callable[[str], object]
"""Gets lines for people."""

# What transformers does not tell a type checker.
_auto_model: Any = transformers.AutoModelForCausalLM
_auto_tokenizer: Any = transformers.AutoTokenizer
_transformers_logging: Any = transformers.logging


def load(source: Source, dtype: str, progress: Progress) -> tuple[Any, Any]:
    """The model and its tokenizer. Raises EngineLoadError."""
    _transformers_logging.disable_progress_bar()
    try:
        place = source.place if source.gguf is None else _plain(source, progress)
        progress(f"{source.name}: reading the tokenizer and the weights as {dtype}")
        tokenizer = _auto_tokenizer.from_pretrained(place)
        model = _auto_model.from_pretrained(place, dtype=dtype)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise EngineLoadError(f"cannot load the model {source.name}: {error}") from error
    return model.eval(), tokenizer


def _plain(source: Source, progress: Progress) -> str:
    """A GGUF file as a folder of float32 safetensors. Read as it is, it costs 20 s at every start instead of 2 s."""

    def convert(folder: Path) -> None:
        kinds: dict[str, Any] = {"dtype": "float32", "quantization_config": GgufConfig(dequantize=True)}
        # The reader draws a progress bar of its own; there is no other way to keep it off.
        with contextlib.redirect_stderr(io.StringIO()):
            _auto_tokenizer.from_pretrained(source.place, gguf_file=source.gguf).save_pretrained(folder)
            model = _auto_model.from_pretrained(source.place, gguf_file=source.gguf, **kinds)
            model.save_pretrained(folder)

    return str(converted(Path(source.place, source.gguf or ""), transformers.__version__, convert, progress))
