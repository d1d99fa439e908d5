"""What is known to be lost: sessions of which vLLM's, SGLang's and transformers' own parsers lose something, and what
they then say. ``make peers`` holds what they say here against it. docs/peers.md tells what is measured over groupings.

Each was seen on the engine's own server (vLLM 0.33.0, SGLang 0.5.23, transformers 5.24.0). The sessions are captures
(tests/data/captures); where the one of that server is not among them, one of the same output stands in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from replay import foreign
from replay.derive import run
from replay.resolve import resolve
from replay.split import regroup
from stages.events import FinishInput, Input, TokensInput
from stages.message import Message, collect
from tests.peers import setup
from tests.support.captures import captures
from tests.support.upstream_traces import relayed


class Said(NamedTuple):
    """A message: reasoning, content, calls. ``raised``: the type of the exception that ended it."""

    reasoning: str | None = None
    content: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    raised: str = ""

    def __str__(self) -> str:
        parts = [f"reasoning {self.reasoning!r}"] if self.reasoning else []
        parts += [f"content {self.content!r}"] if self.content else []
        parts += [f"call {name} {arguments!r}" for name, arguments in self.calls]
        return ", ".join([*parts, *([self.raised] if self.raised else [])]) or "nothing"


class Truth(NamedTuple):
    """``number``: of the list of what is known; ``capture``: its tokens, ``cut`` (whole, in one step, or ended by the
    limit behind this text); ``streamed``, ``at_once``: what the parser is known to say; None: that is not
    known."""

    number: int
    what: str
    parser: str
    capture: str
    streamed: Said
    at_once: Said | None
    cut: str = "recorded"


_PARIS = ("get_weather", '{"city": "Paris", "unit": "celsius"}')
_TOKYO = ("get_weather", '{"city": "Tokyo"}')
_FLIGHT = (
    '{"from": "CDG", "to": "HND", "passengers": 2, "flexible": false, "filters": {"max_price": 1200.5, "airlines": '
)
_FLIGHTS = ("search_flights", _FLIGHT + '["AF", "JL"]}}')
_MALFORMED = '{"city": "Paris", unit: celsius}}'
_BEGUN = '<tool_call>\n{"name": "search_fl'
_CUT = '{"from": "CDG", "to": "HND", "passengers": 2, "flexible": false, "filters": {"max_price":'
_PARAMETERS = '<tool_call>\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n</tool_call>'
_CLOSELY = ("<tool_call>", '{"name":"get_weather","arguments":{"city":"Paris"}}', '{"name":"get_time","arguments":{}}')
_ASKS = "User asks for weather. Use the function."
_THOUGHT = "\nThe user wants the weather, so I should call the tool.\n"
_DEEPSEEK, _DEEPSEEK_S = "vllm:deepseek_v3+deepseek_v31", "sglang:deepseek-v3+deepseekv31"
_NAMED = f"get_weather<｜tool▁sep｜>{_PARIS[1]}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather"
_LEAKED = f"{_PARIS[1]}{_TOKYO[1]}"

TRUTHS: tuple[Truth, ...] = (
    Truth(1, "the end of the arguments", _DEEPSEEK, "vllm_dsv31-tool_multitoken",
          Said(calls=((_PARIS[0], _PARIS[1][:-2]), _TOKYO)), Said(calls=(_PARIS, _TOKYO))),
    Truth(2, "the text, a call, the end of the other one", _DEEPSEEK, "vllm_dsv31-tool_multitoken_b",
          Said(calls=(("search_flights", _FLIGHT + '["AF", "JL'),)),
          Said(None, "Let me check.", (_FLIGHTS, _TOKYO))),
    Truth(3, "both calls of one step", _DEEPSEEK, "vllm_dsv31-tool_multitoken",
          Said(), Said(calls=(_PARIS, _TOKYO)), "one"),
    Truth(3, "the call of one step", "vllm:llama3_json", "vllm_llama3_json-tool_single_delta",
          Said(), Said(calls=(_PARIS,))),
    Truth(4, "all behind a marker in prose", "vllm:hermes", "vllm_hermes-marker_as_text_tools",
          Said(None, "The tag is `"), Said(None, "The tag is `<tool_call>` in hermes.")),
    Truth(5, "an answer in JSON", "vllm:llama3_json", "vllm_llama3_json-json_content_not_tool",
          Said(), Said(None, '{"answer": "Paris"}')),
    Truth(5, "an answer in JSON, both ways", "sglang:llama3", "vllm_llama3_json-json_content_not_tool",
          Said(), Said()),
    Truth(6, "text behind a call, both ways", "vllm:hermes", "vllm_hermes-tool_then_content",
          Said(calls=(_PARIS,)), Said(calls=(_PARIS,))),
    Truth(6, "text behind a call, both ways", "vllm:kimi_k2+kimi_k2", "vllm_kimik2-text_after_section",
          Said(calls=(_PARIS,)), Said(calls=(_PARIS,))),
    Truth(6, "text behind a call, at once", "vllm:qwen3_coder", "vllm_qwen3_coder-tool_then_content",
          Said(None, "Done.", (_PARIS,)), Said(calls=(_PARIS,))),
    Truth(7, "valid arguments, where the name comes last", "vllm:qwen3+hermes", "vllm_qwen3_hermes-tool_name_last",
          Said(_THOUGHT, "\n\n", (("get_weather", '{"city": "Paris"}, "name": "get_weather"'),)),
          Said(_THOUGHT, None, (("get_weather", '{"city": "Paris"}'),))),
    Truth(8, "arguments under another key", "vllm:hermes", "vllm_hermes-tool_parameters_key",
          Said(calls=(("get_weather", ""),)), Said(None, _PARAMETERS)),
    Truth(9, "agreement on a call that is no JSON", "vllm:hermes", "vllm_hermes-tool_malformed_json",
          Said(calls=(("get_weather", _MALFORMED),)),
          Said(None, f'<tool_call>\n{{"name": "get_weather", "arguments": {_MALFORMED}\n</tool_call>')),
    Truth(10, "agreement on a name that is cut", "vllm:hermes", "vllm_hermes-tool_truncated_name",
          Said(), Said(None, _BEGUN)),
    Truth(10, "agreement on arguments that are cut", "vllm:hermes", "vllm_hermes-tool_truncated_args",
          Said(calls=(("search_flights", _CUT),)), Said(None, f'{_BEGUN}ights", "arguments": {_CUT}')),
    Truth(11, "that a name was cut: a call is invented", "vllm:qwen3_coder", "vllm_qwen3_coder-tool_multitoken",
          Said(calls=(("get", "{}"),)), None, "<function=get"),
    Truth(12, "that an answer is no reasoning", "vllm:qwen3+hermes", "vllm_qwen3_hermes-reasoning_not_emitted",
          Said("Paris is the capital."), Said("Paris is the capital.")),
    Truth(12, "that an answer is no reasoning", "vllm:kimi_k2+kimi_k2", "vllm_kimik2-plain",
          Said("Paris."), Said("Paris.")),
    Truth(12, "that an answer is no reasoning", "sglang:kimi_k2+kimi_k2", "vllm_kimik2-plain",
          Said("Paris."), Said("Paris.")),
    Truth(13, "names and arguments of one step", _DEEPSEEK_S, "vllm_dsv31-tool_multitoken",
          Said(calls=((_NAMED, "{}"),)),
          None, "one"),
    Truth(14, "that a text was sent", "sglang:gpt-oss", "sglang_gptoss-commentary_preamble_tool",
          Said(_ASKS, "I will check the weather." * 2, (_PARIS,)),
          Said(_ASKS, "I will check the weather.", (_PARIS,))),
    Truth(14, "two calls of three, which leak as text", "sglang:gpt-oss", "sglang_gptoss-tool_parallel",
          Said(_ASKS, _LEAKED * 2, (("get_time", "{}"),)), Said(_ASKS, _LEAKED, (("get_time", "{}"),))),
    Truth(15, "text in the marker's step", "sglang:qwen25", "sglang_qwen25-tool_multitoken_b",
          Said(calls=(_FLIGHTS,)), Said(None, "Sure.", (_FLIGHTS,))),
    Truth(15, "text in the marker's step", "sglang:glm45+glm45", "sglang_glm45-tool_multitoken",
          Said("Call.", "Sure", (("get_weather", '{"city": "Paris"}'), _TOKYO)),
          Said("Call.", "Sure.", (("get_weather", '{"city": "Paris"}'), _TOKYO))),
    Truth(16, "a call of an unknown tool; its arguments leak", "sglang:qwen25", "sglang_qwen25-tool_unknown_function",
          Said(None, ' "arguments": {"path": "/"}}\n'), Said()),
    Truth(17, "calls without line breaks, and their closers", "sglang:qwen25", "sglang_qwen25-tool_no_newlines",
          Said(None, f"{_CLOSELY[0]}{_CLOSELY[1]}{_CLOSELY[0]}{_CLOSELY[2]}"),
          Said(None, f"{_CLOSELY[0]}{_CLOSELY[1]}</tool_call>{_CLOSELY[0]}{_CLOSELY[2]}</tool_call>")),
    Truth(18, "arguments that are null", "sglang:qwen25", "sglang_qwen25-tool_args_null",
          Said(calls=(("get_time", ""),)), Said(calls=(("get_time", "null"),))),
    Truth(18, "arguments, and a call, of one step", "sglang:qwen25", "sglang_qwen25-tool_single_delta",
          Said(calls=(("get_weather", ""),)), Said(calls=(_PARIS, _TOKYO))),
    Truth(18, "arguments of one step", "sglang:llama3", "vllm_llama3_json-tool_single_delta",
          Said(calls=(("get_weather", ""),)), None),
    Truth(19, "the answer, where a call stands in the thought", "sglang:qwen3+qwen25",
          "sglang_qwen3_qwen25-reasoning_tool_inside_think",
          Said("\nI call ", " now.\n</think>", (_PARIS,)),
          Said(f'\nI call <tool_call>\n{{"name": "get_weather", "arguments": {_PARIS[1]}}}\n</tool_call> now.\n',
               "\n\nDone.")),
    Truth(20, "that arguments were cut: they are closed", "sglang:qwen25", "sglang_qwen25-tool_stop_string",
          Said(calls=(("get_weather", '{"city": "Paris", "unit": ""}'),)), Said()),
    Truth(20, "that arguments are no JSON: they are closed", "sglang:qwen25", "vllm_hermes-tool_malformed_json",
          Said(calls=(("get_weather", '{"city": "Paris"}'),)), Said()),
    Truth(21, "a call that is cut", "template:qwen3", "vllm_hermes-tool_truncated_args",
          Said(), Said(raised="ValueError")),
    Truth(21, "a call that is not closed", "template:qwen3", "transformers_qwen3stub-tool_missing_close",
          Said(), Said(raised="ValueError")),
    Truth(22, "the stream, by an error in a call", "template:qwen3", "transformers_qwen3stub-tool_malformed_json",
          Said(raised="ValueError"), Said()),
)  # fmt: skip


def found(truth: Truth) -> tuple[Said, Said]:
    """What the parser says, streamed and at once."""
    opening, inputs = relayed(captures()[truth.capture]).opening, inputs_of(truth)
    stage: Any = resolve(truth.parser, opening)
    ready = stage.prepared(opening, inputs)
    track, failed = run(ready, "semantic", opening, inputs, range(len(inputs)))
    streamed = _said(collect(track.events))._replace(raised=failed.type if failed is not None else "")
    at_once = Said() if ready.one_shot is None else _said(ready.one_shot)
    return streamed, at_once._replace(raised=ready.one_shot_error.partition(":")[0])


def _said(messages: Sequence[Message]) -> Said:
    one = messages[0] if messages else Message(0)
    return Said(one.reasoning, one.content, tuple((call.name, call.arguments) for call in one.tool_calls))


def inputs_of(truth: Truth) -> Sequence[Input]:
    """The session's inputs."""
    trace = relayed(captures()[truth.capture])
    inputs: list[Input] = trace.events("input", "engine")
    if truth.cut == "recorded":
        return inputs
    if truth.cut == "one":
        return regroup(inputs, "one", trace.opening.tokenizer)
    made: list[Input] = []
    wrote = b""
    for event in regroup(inputs, "token", trace.opening.tokenizer):
        if isinstance(event, TokensInput):
            if wrote.endswith(truth.cut.encode()):
                continue
            wrote += b"".join(event.pieces)
        elif isinstance(event, FinishInput):
            event = msgspec.structs.replace(event, reason="length", stop=None)
        made.append(event)
    return made


def lines(tell: Callable[[Truth], tuple[Said, Said]], engines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """A line for each side of each truth of these engines, and whether it is as expected."""
    for truth in TRUTHS:
        if truth.parser.partition(":")[0] in engines:
            yield f"{truth.number:2} {truth.parser}: {truth.what} ({truth.capture}, {truth.cut})", True
            for how, wanted, got in zip(
                ("streamed", "at once"), (truth.streamed, truth.at_once), tell(truth), strict=True
            ):
                same = wanted is None or wanted == got
                told = "the same" if wanted == got else str(got)
                yield f"   {how}: expected {'is not known' if wanted is None else wanted}; found {told}", same


def main(engines: Sequence[str] = ("vllm", "sglang", "template")) -> int:
    """Print them; 1 where something else is found."""
    foreign.configure(str(setup.python()))
    wrong = 0
    for line, fine in lines(found, engines):
        wrong += not fine
        sys.stdout.write(f"{line}{'' if fine else '   <-- DIFFERS'}\n")
    sys.stdout.write(f"what is known to be lost: {wrong} differ\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
