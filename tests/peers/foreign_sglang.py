"""What SGLang's own server sent is what ``sglang:…`` gives of the same tokens: ``python -m tests.peers.foreign_sglang``

Each capture of a chat that SGLang parsed (data/captures, and more where CAPTURES names a folder) is replayed through
the parsers that its server had, and must be ``same``, streamed and at once. ``tests.peers.table`` has the groupings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from replay import Replayer, foreign
from replay.resolve import resolve
from stages.message import Message
from tests.peers import setup
from tests.support.captures import Capture, captures
from tests.support.upstream_traces import relayed

PARSERS: dict[str, str] = {
    "qwen25": "qwen25", "qwen25_incr": "qwen3+qwen25", "qwen3_qwen25": "qwen3+qwen25", "qwen3_coder": "qwen3_coder",
    "dsv31": "deepseek-v3+deepseekv31", "glm45": "glm45+glm45", "gptoss": "gpt-oss", "kimik2": "kimi_k2",
    "llama3": "llama3",
}  # fmt: skip
"""Group of captures → the parsers of their server."""


def parsed() -> Iterator[tuple[Capture, str]]:
    """The captures of chats whose server had a parser, and its name here."""
    for name, capture in captures().items():
        server, _, rest = name.partition("_")
        group = rest.partition("-")[0]
        if server == "sglang" and capture.protocol == "chat" and capture.script is not None and group in PARSERS:
            yield capture, f"sglang:{PARSERS[group]}"


def streamed(capture: Capture, parser: str) -> str:
    """The verdict on what is streamed, and where it differs."""
    result = Replayer(parser, layer="message").replay(relayed(capture))
    told = [f"{item.field}: {item.recorded!r} → {item.replayed!r}" for item in result.differences]
    return result.splits.get("recorded", result.verdict) + "".join(f"\n    {line}" for line in told)


def at_once(capture: Capture, parser: str) -> str:
    """``same``, where the parser's one-shot message is the server's answer without streaming; ``-``: there is none."""
    answer: dict[str, Any] = json.loads(capture.whole or "{}")
    if "choices" not in answer:
        return "-"
    trace = relayed(capture)
    stage: Any = resolve(parser, trace.opening)
    found: list[Message] | None = stage.prepared(trace.opening, trace.events("input", "engine")).one_shot
    wanted: list[Any] = []
    for choice in answer["choices"]:
        said = choice["message"]
        called: list[Any] = said.get("tool_calls") or []
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in called]
        wanted.append((said.get("reasoning_content") or None, said.get("content") or None, calls))
    got = [
        (one.reasoning, one.content, [(call.name, call.arguments) for call in one.tool_calls]) for one in found or []
    ]
    return "same" if got == wanted else f"{wanted} → {got}"


def main() -> int:
    """Print a line for each capture; 1 where one differs."""
    foreign.configure(str(setup.python()))
    wrong = 0
    for capture, parser in parsed():
        verdicts = streamed(capture, parser), at_once(capture, parser)
        wrong += verdicts[0] != "same" or verdicts[1] not in ("same", "-")
        sys.stdout.write(f"{capture.name:56} {parser:32} streamed {verdicts[0]}, at once {verdicts[1]}\n")
    sys.stdout.write(f"sglang: {wrong} differ\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
