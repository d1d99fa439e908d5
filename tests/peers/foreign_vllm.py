"""``make peers``'s check of ``vllm:…``: what the real server sent is what its parsers give here, from the same tokens.

Each capture of a chat that vLLM parsed (data/captures, and more where CAPTURES names a folder) goes through the parsers
that its server had: the message that is streamed must be that of the recorded stream, and the one made at once that of
the server's answer without streaming; both to the letter, call ids aside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from replay import foreign
from replay.derive import run
from replay.errors import PeerError
from replay.resolve import resolve
from stages.message import Message, collect
from tests.peers import setup
from tests.support.captures import Capture, captures
from tests.support.upstream_traces import relayed

PARSERS: dict[str, str] = {
    "hermes": "hermes", "qwen3_hermes": "qwen3+hermes", "qwen3_hermes_si5": "qwen3+hermes",
    "qwen3_coder": "qwen3_coder", "qwen3_qwen3coder": "qwen3+qwen3_coder", "dsv31": "deepseek_v3+deepseek_v31",
    "dsv4": "deepseek_v4+deepseek_v4", "gptoss": "openai_gptoss+openai", "llama3_json": "llama3_json",
    "pythonic": "pythonic", "mistral": "mistral", "glm45": "glm45+glm45", "kimik2": "kimi_k2+kimi_k2",
    "kimik2_norp": "kimi_k2",
}  # fmt: skip
"""Group of captures → the parsers of their server."""

Said: TypeAlias = tuple[str | None, str | None, list[tuple[str, str]]]
SAME, NONE = "same", "-"


def parsed() -> Iterator[tuple[Capture, str]]:
    """The captures of chats whose server had a parser, and its name here."""
    for name, capture in captures().items():
        server, _, rest = name.partition("_")
        group = rest.partition("-")[0]
        if server == "vllm" and capture.protocol == "chat" and capture.script is not None and group in PARSERS:
            yield capture, f"vllm:{PARSERS[group]}"


def said(messages: Iterable[Message]) -> list[Said]:
    """What messages say."""
    return [(one.reasoning, one.content, [(call.name, call.arguments) for call in one.tool_calls]) for one in messages]


def whole(capture: Capture) -> list[Said] | None:
    """What the server answered without streaming; None where it refused, or was not asked."""
    answer: dict[str, Any] = json.loads(capture.whole or "{}")
    if "choices" not in answer:
        return None
    told: list[Said] = []
    for choice in answer["choices"]:
        message = choice["message"]
        listed: list[Any] = message.get("tool_calls") or []
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in listed]
        told.append((message.get("reasoning") or None, message.get("content") or None, calls))
    return told


def compared(capture: Capture, parser: str) -> tuple[str, str]:
    """What is streamed, and what is made at once: ``same``, or both sides."""
    trace = relayed(capture)
    events = trace.events("input", "engine")
    stage: Any = resolve(parser, trace.opening)
    try:
        ready = stage.prepared(trace.opening, events)
    except PeerError as error:
        return f"{error.kind}: {error}", NONE
    track, failed = run(ready, "semantic", trace.opening, events, range(len(events)))
    if failed is not None:
        return f"{failed.type}: {failed.message}", NONE
    sent, got = said(collect(trace.events("upstream", "semantic"))), said(collect(track.events))
    streamed = SAME if sent == got else f"{sent} → {got}"
    wanted = whole(capture)
    if wanted is None or ready.one_shot is None:
        return streamed, NONE
    found = said(ready.one_shot)
    return streamed, SAME if found == wanted else f"{wanted} → {found}"


def main() -> int:
    """Print a line for each capture; 1 where one differs."""
    foreign.configure(str(setup.python()))
    wrong = 0
    with setup.harmony_words():
        for capture, parser in parsed():
            streamed, at_once = compared(capture, parser)
            wrong += streamed != SAME or at_once not in (SAME, NONE)
            sys.stdout.write(f"{capture.name:56} {parser:32} streamed {streamed}, at once {at_once}\n")
    foreign.close()
    sys.stdout.write(f"vllm: {wrong} differ\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
