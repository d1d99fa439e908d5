"""What the server was told: one Struct, filled by the command line, read by the composition root."""

from __future__ import annotations

from typing import Literal

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of ``playhead serve``. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    engine: Literal["hf", "scripted", "upstream"] = "hf"
    model: str = "smollm2"
    script: str | None = None
    """Scripted engine: a JSON file of scripts; None: a canned answer."""
    pace: float = 0.0
    """Scripted engine: seconds per step."""
    served_name: str | None = None
    """The model name that clients use; None: the engine's own."""
    parser: str | None = None
    """None: ``auto``; with upstreams: none, the client gets what they answer."""
    upstream: str | None = None
    """A URL, or a TOML file that names several upstreams."""
    depth: Literal["auto", "tokens", "text", "verbatim"] = "auto"
    """The most that is asked for of what the model wrote, where ``upstream`` is a URL; so are the next seven."""
    upstream_protocol: Literal["all", "chat", "completions", "responses", "messages"] = "all"
    """What it speaks."""
    tokenizer: str | None = None
    key_env: str | None = None
    connect_timeout: float = 5.0
    first_token_timeout: float = 300.0
    token_timeout: float = 120.0
    retries: int = 2
    shadow: tuple[str, ...] = ()
    """Parsers that look at sessions once they have ended."""
    calls: Literal["incremental", "whole"] = "incremental"
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "both"
    store: str = "playhead.db"
    record: Literal["full", "lean", "off"] = "full"
    sample: float = 1.0
    durability: Literal["default", "strict"] = "default"
    validate: float = 0.0
    """The share of recorded sessions that is held to the protocol rules."""
    keys: tuple[bytes, ...] = ()
    """Digests of the API keys that requests may carry; none: anybody may ask."""
    allow_origins: tuple[str, ...] = ()
    """Origins whose pages a browser lets ask; ``*``: all."""
    max_body: int = 8 << 20
    body_timeout: float = 60.0
    """How long a client may take to send a request body."""
    commit_after: float = 10.0
    """When the status of a stream is sent, if admission takes longer than this or ``keep_alive``."""
    keep_alive: float = 15.0
    """Silence after which a stream gets a comment; 0: never. Requests may ask for another."""
    stall: Literal["wait", "detach", "abort"] = "abort"
    """What becomes of a client that takes nothing of what is written to it for ``stall_after``."""
    stall_after: float = 60.0
    resume: float = 0.0
    """How long a recorded stream goes on, after its client has left, for whoever takes it up again; 0: it is aborted at
    once. Requests may ask for another."""
    max_resume: float = 600.0
    """The most that a request may ask for; 0: nothing."""
    shutdown_grace: float = 5.0
    """How long running sessions may finish after a stop signal before they are aborted."""
    allow_forced: bool = False
    """Testing: requests may carry ``forced_text``/``forced_ids``, which the sampler must then produce."""
