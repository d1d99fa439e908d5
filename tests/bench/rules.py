"""What judging a recorded stream costs, a frame."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Finish,
    Head,
    Reasoning,
    Semantic,
    Start,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.message import collect
from stages.opening import Ask
from stages.protocols.rules import EngineChoice, EngineFacts, Evidence, Http, Write, Writes, check
from stages.protocols.rules.reading import Reading
from tests.bench.measure import Rows, per_token, pieces
from tests.support.chat import TOOLS, body_of, frames_of

FRAMES = 600


def evidence(ask: Ask, events: list[Semantic], request: dict[str, Any]) -> tuple[Evidence, int]:
    """A clean stream of ours with everything that is known of it but what takes effort; and its frames."""
    frames = frames_of(ask, events)
    head = frames[0]
    assert isinstance(head, Head)
    ends: list[Write] = []
    end = 0
    for number, frame in enumerate(frames[1:]):
        end += len(body_of([frame]))
        ends.append(Write(number * 10_000_000, end))
    ids = [one for event in events if isinstance(event, Tokens) for one in event.ids]
    made = Evidence(
        body=body_of(frames),
        own=True,
        first=1,
        marked="complete",
        request={"stream": True, **request},
        http=Http(200, (*head.headers, ("transfer-encoding", "chunked"))),
        writes=Writes(ends, begun=0, ended=ends[-1].at, keep_alive=15 * 10**9),
        engine=EngineFacts({0: EngineChoice(tuple(ids), "eos", 4096)}, prompt=9, markers=("<tool_call>", "<think>")),
        meant=collect(events),
    )
    return made, len(frames) - 1


def told(texts: list[str], kind: type[Content] | type[Reasoning], *, logprobs: bool = False) -> list[Semantic]:
    """A step a text."""
    events: list[Semantic] = []
    for number, text in enumerate(texts):
        entry = TokenLogprob(number, text.encode(), -0.25 - number / 1024)
        events += (Tokens(0, (number,), (entry,) if logprobs else ()), kind(0, text, (0, 0)))
    return events


def streams() -> dict[str, tuple[Evidence, int]]:
    """Typical streams."""
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    tools: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": tool.name, "parameters": {}}} for tool in TOOLS]
    }
    last = Tokens(0, (1,))
    content = [Start(0, 9), *told(pieces(FRAMES), Content), last, Finish(0, "eos"), Usage(9, FRAMES + 1), End()]
    arguments = json.dumps({"port": "".join(pieces(FRAMES // 4))})
    parts = [arguments[at : at + 4] for at in range(0, len(arguments), 4)]
    call: list[Semantic] = [CallStart(0, 0, "call_1", "get_tide", (0, 0))]
    for part in parts:
        call += (Tokens(0, (1,)), CallArguments(0, 0, part, (0, 0)))
    called = [
        Start(0, 9), *told(pieces(FRAMES // 2), Reasoning), *call, CallEnd(0, 0, True), last, Finish(0, "eos"),
        Usage(9, FRAMES // 2 + len(parts) + 1, reasoning=FRAMES // 2), End(),
    ]  # fmt: skip
    entries = told(pieces(FRAMES // 2), Content, logprobs=True)
    closing = Tokens(0, (1,), (TokenLogprob(1, b"", -0.5),))
    weighed = [Start(0, 9), *entries, closing, Finish(0, "eos"), Usage(9, FRAMES // 2 + 1), End()]
    return {
        "content": evidence(Ask(stream=True, include_usage=True), content, usage),
        "reasoning and a call": evidence(Ask(stream=True, include_usage=True, tools=TOOLS), called, usage | tools),
        "logprobs": evidence(Ask(stream=True, include_usage=True, logprobs=True), weighed, usage | {"logprobs": True}),
    }


def bench_rules(rows: Rows) -> None:
    """Reading, and all rules with it."""
    for name, (given, frames) in streams().items():
        assert not check(given).violations, check(given).violations[:3]
        rows.append((f"rules, reading {name}", per_token(partial(Reading, given.body), frames), "µs/frame"))
        rows.append((f"rules, {name}", per_token(partial(check, given), frames), "µs/frame"))
