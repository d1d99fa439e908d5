"""Who an upstream is: what servers tell of themselves, read for the facts that a session keeps.

    /version               vLLM: {"version"}
    /server_info           SGLang (``/get_server_info`` before): how it was started, and its version; vLLM in dev mode
    /props                 llama.cpp: the context length, the chat template, the build
    /v1/models             all of them: owned_by, root, max_model_len
    /health                Playhead: sessions, record

What they tell is kept by a list of names: server arguments have keys among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pipeline.engines.prompt import short_hash
from pipeline.upstream.loose import count, table, tables, text
from stages.opening import EngineFacts

PATHS: Final = ("/version", "/server_info", "/get_server_info", "/get_model_info", "/props", "/v1/models", "/health")
"""What is asked with GET, all at once."""
UNKNOWN: Final = EngineFacts(kind="unknown", model="")
_OWNERS: Final = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "playhead": "playhead"}
_ARGUMENTS: Final = frozenset({
    "model", "model_path", "served_model_name", "tokenizer", "tokenizer_path", "tokenizer_mode", "revision", "dtype",
    "kv_cache_dtype", "cache_dtype", "quantization", "reasoning_parser", "tool_call_parser", "tool_parser",
    "enable_auto_tool_choice", "chat_template", "chat_template_content_format", "max_model_len", "context_length",
    "stream_interval", "incremental_streaming_output", "skip_tokenizer_init", "grammar_backend",
    "speculative_algorithm", "speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk",
    "speculative_draft_model_path", "num_speculative_tokens", "method", "tp_size", "tensor_parallel_size",
    "load_format", "model_impl", "weight_version", "total_slots", "model_alias", "build_info",
})  # fmt: skip
_SLOT: Final = "default_generation_settings"
_LONGEST: Final = 200
_DEEPEST: Final = 3


class Identity(NamedTuple):
    """``template``: the chat template's text, where it is told."""

    engine: EngineFacts
    template: str | None = None


class _Told(NamedTuple):
    """What was told, by where; empty where it was not. ``entry``: the model's, in the list of models."""

    version: dict[str, Any]
    info: dict[str, Any]
    model_info: dict[str, Any]
    props: dict[str, Any]
    entry: dict[str, Any]
    health: dict[str, Any]


def identity(told: Mapping[str, Any], model: str | None) -> Identity:
    """Who answered this: JSON values by path, of those that answered with one. ``model``: the name that was asked."""
    found = _Told(
        table(told.get("/version")),
        table(told.get("/server_info")) or table(told.get("/get_server_info")),
        table(told.get("/get_model_info")),
        table(told.get("/props")),
        _entry(tables(table(told.get("/v1/models")).get("data")), model),
        table(told.get("/health")),
    )
    kind = _kind(found)
    template = text(found.props.get("chat_template"))
    props = {name: value for name, value in found.props.items() if name != "chat_template"}
    arguments = {name: value for part in (found.model_info, found.info, props) for name, value in _arguments(part)}
    if template is not None:
        arguments["chat_template"] = short_hash(template)
    versions = (found.version.get("version"), found.info.get("version"), props.get("build_info"))
    version = next(filter(None, map(_short, versions)), None)
    names = (_short(found.entry.get("root")), _short(found.entry.get("id")), arguments.get("model_path"), model)
    length = count(found.entry.get("max_model_len")) or count(table(props.get(_SLOT)).get("n_ctx"))
    engine = EngineFacts(
        kind=kind,
        model=next(filter(None, names), ""),
        max_tokens=length,
        versions={} if version is None else {kind: version},
        arguments=arguments,
    )
    return Identity(engine, template)


def _kind(found: _Told) -> str:
    owner = _OWNERS.get(text(found.entry.get("owned_by")) or "")
    if owner is not None:
        return owner
    signs = (
        ("playhead", {"sessions", "record"} <= found.health.keys()),
        ("llama.cpp", _SLOT in found.props),
        ("vllm", "vllm_config" in found.info),
        ("sglang", "model_path" in found.info or "model_path" in found.model_info),
        ("transformers", found.entry.get("status") in ("loaded", "unloaded")),
    )
    return next((kind for kind, sign in signs if sign), "unknown")


def _entry(entries: list[dict[str, Any]], model: str | None) -> dict[str, Any]:
    """The model's entry in a list of models; the only one there is."""
    named = next((entry for entry in entries if entry.get("id") == model), None)
    return named or (entries[0] if len(entries) == 1 else {})


def _arguments(found: Mapping[str, Any], depth: int = 1) -> Iterator[tuple[str, str]]:
    """The arguments that are kept, wherever they are: vLLM nests them by topic."""
    for name, value in found.items():
        if value.__class__ is dict and depth < _DEEPEST:
            yield from _arguments(table(value), depth + 1)
        elif name in _ARGUMENTS and isinstance(value, str | int | float):
            shown = text(str(value))
            if shown is not None:
                yield name, short_hash(shown) if len(shown) > _LONGEST or "\n" in shown else shown


def _short(found: Any) -> str | None:
    """A name or a version: of what is longer nothing is kept."""
    told = text(found)
    return told if told is not None and len(told) <= _LONGEST else None
