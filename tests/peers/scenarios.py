"""What the scripted engines write, what a client asks, and what the answer means."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.peers.script import EOS
from tests.support.oracle_vocabularies import qwen3

CHAT = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"port": {"type": "string"}, "day": {"type": "integer"}}},
        },
    }
    for name in ("tide", "moon")
]


class Meant(NamedTuple):
    """What one choice says. ``calls``: names and arguments."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Written:
    """One choice: its text, tokens per step (None: random, 3 to 7), and how it ends where no end of turn is."""

    text: str
    meant: Meant
    step: int | None = 1
    end: str | None = None

    def steps(self) -> list[list[int]]:
        """The ids of every step, with the end of turn, unless something else ends it."""
        ids = qwen3().ids(self.text) + ([] if self.end else [EOS[0]])
        rng = random.Random(7)
        steps: list[list[int]] = []
        while ids:
            size = self.step or rng.randint(3, 7)
            steps.append(ids[:size])
            ids = ids[size:]
        return steps


@dataclass(frozen=True)
class Scenario:
    """A request and what the engine plays to it. ``leaves``: the client does, in the middle."""

    name: str
    written: tuple[Written, ...]
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    path: str = CHAT
    status: int = 200
    leaves: bool = False

    @property
    def chat(self) -> bool:
        """It is a chat that is answered."""
        return self.path == CHAT and self.status == 200

    def script(self) -> dict[str, Any]:
        """What the engine reads."""
        choices = [{"steps": one.steps(), "end": one.end} for one in self.written]
        return {"choices": choices, "delay": 0.02}

    def request(self, model: str) -> dict[str, Any]:
        """The body; it streams unless it says otherwise."""
        said = {"messages": [{"role": "user", "content": "When is high tide?"}]} if self.path == CHAT else {}
        return {"model": model, "stream": True, "temperature": 0, **said, **self.body}


def call(name: str, arguments: str) -> str:
    """A call as Qwen3 writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


_NO_THOUGHT = "<think>\n\n</think>\n\n"
"""What the model writes before an answer that it does not think about. Without it both servers' own parsers take the
whole answer for reasoning."""
_TEXT = "High tide is at six \u2014 \u6f6e\U0001f30a."
_BARE = Written(_TEXT, Meant(content=_TEXT))
_PLAIN = Written(_NO_THOUGHT + _TEXT, Meant(content=_TEXT))
_THOUGHT = "Two a day,\n\nso one in twelve hours."
_THINKS = Written(f"<think>\n{_THOUGHT}\n</think>\n\nAt six.", Meant(_THOUGHT, "At six."))
_ONE = Meant(content="Let me look.", calls=(("tide", {"port": "Br\u00e9st", "day": 3}),))
_TWO = Meant(content="Let me look.", calls=(("tide", {"port": "Brest"}), ("moon", {})))
_CALL = Written(_NO_THOUGHT + "Let me look.\n" + call("tide", '{"port": "Br\u00e9st", "day": 3}'), _ONE)
_CALLS = Written(_NO_THOUGHT + "Let me look.\n" + call("tide", '{"port": "Brest"}') + "\n" + call("moon", "{}"), _TWO)
_CALL_ALONE = Written(_NO_THOUGHT + call("moon", "{}"), Meant(calls=(("moon", {}),)))
_AFTER = Meant("So.", "Let me look.", (("moon", {}),))
_ALL = Written("<think>\nSo.\n</think>\n\nLet me look.\n" + call("moon", "{}"), _AFTER)
_LONG = Written(" ".join(["tick tock"] * 400), Meant())
_FAILS = Written(_NO_THOUGHT + "High tide is", Meant(content="High tide is"), end="error")


def _several(one: Written, step: int | None) -> Written:
    return Written(one.text, one.meant, step)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("no thought at all", (_BARE,)),
    Scenario("content", (_PLAIN,)),
    Scenario("content whole", (_PLAIN,), {"stream": False}),
    Scenario("content multi-token", (_several(_PLAIN, None),)),
    Scenario("usage", (_PLAIN,), {"stream_options": {"include_usage": True}}),
    Scenario("reasoning", (_THINKS,)),
    Scenario("reasoning whole", (_THINKS,), {"stream": False}),
    Scenario("tool", (_CALL,), {"tools": TOOLS}),
    Scenario("tool whole", (_CALL,), {"tools": TOOLS, "stream": False}),
    Scenario("tool multi-token", (_several(_CALL, None),), {"tools": TOOLS}),
    Scenario("parallel", (_CALLS,), {"tools": TOOLS}),
    Scenario("parallel multi-token", (_several(_CALLS, None),), {"tools": TOOLS}),
    Scenario("required", (_CALL_ALONE,), {"tools": TOOLS, "tool_choice": "required"}),
    Scenario("one step", (_several(_CALLS, 1000),), {"tools": TOOLS}),
    Scenario("reasoning and tool", (_ALL,), {"tools": TOOLS}),
    # vLLM refuses several choices of the likeliest.
    Scenario("n2", (_PLAIN, _THINKS), {"n": 2, "temperature": 1}),
    Scenario(
        "n2 multi-token", (_several(_CALL, None), _several(_ALL, 5)), {"n": 2, "temperature": 1, "tools": TOOLS}
    ),
    Scenario("logprobs", (_PLAIN,), {"logprobs": True, "top_logprobs": 2}),
    Scenario("length", (Written(_PLAIN.text, Meant(content="High tide is at")),), {"max_tokens": 8}),
    Scenario("ids asked for", (_CALL,), {"tools": TOOLS, "return_token_ids": True}),
    Scenario("error midway", (_FAILS,)),
    Scenario("client leaves", (_LONG,), leaves=True),
    Scenario("bad request", (_PLAIN,), {"temperature": "hot"}, status=400),
    Scenario("unknown model", (_PLAIN,), {"model": "nobody"}, status=404),
    Scenario("completions", (_PLAIN,), {"prompt": "High tide", "max_tokens": 64}, "/v1/completions"),
    Scenario("responses", (_THINKS,), {"input": "When is high tide?"}, "/v1/responses"),
    Scenario(
        "messages", (_CALL,),
        {
            "messages": [{"role": "user", "content": "When is high tide?"}], "max_tokens": 64,
            "tools": [{"name": "tide", "input_schema": {"type": "object", "properties": {}}}],
        },
        "/v1/messages",
    ),
)  # fmt: skip
