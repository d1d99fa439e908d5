"""How models write a message: the spelling of each family's own template, without the variations that it allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.generate.message import Invocation, Meant

Write = Callable[[str, Sequence[Invocation]], str]


def written(family: str, meant: Meant, kind: str) -> str:
    """The output that means ``meant``, without the end token. ``kind``: of the prompt, as the generators have it."""
    if family == "harmony":
        return _harmony(meant)
    body = _WRITERS[family](meant.content or "", meant.calls)
    if meant.reasoning is None:
        return body
    before, after = _THINKING[family]
    return f"{'' if kind == 'thinking' else before}{meant.reasoning}{after}{body}"


_THINKING: dict[str, tuple[str, str]] = {
    "hermes": ("<think>\n", "\n</think>\n\n"),
    "glm": ("<think>", "</think>\n"),
    "deepseek_v31": ("<think>", "</think>"),
}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _lines(content: str, calls: list[str]) -> str:
    return "\n".join(([content] if content else []) + calls)


def _hermes(content: str, calls: Sequence[Invocation]) -> str:
    told = [_json({"name": call.name, "arguments": call.arguments}) for call in calls]
    return _lines(content, [f"<tool_call>\n{one}\n</tool_call>" for one in told])


def _qwen3_coder(content: str, calls: Sequence[Invocation]) -> str:
    told = [
        "".join(f"<parameter={key}>\n{_plain(value)}\n</parameter>\n" for key, value in call.arguments.items())
        for call in calls
    ]
    named = zip(calls, told, strict=True)
    return _lines(
        content, [f"<tool_call>\n<function={call.name}>\n{one}</function>\n</tool_call>" for call, one in named]
    )


def _glm(content: str, calls: Sequence[Invocation]) -> str:
    told = [
        "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_plain(value)}</arg_value>\n"
            for key, value in call.arguments.items()
        )
        for call in calls
    ]
    named = zip(calls, told, strict=True)
    return _lines(content, [f"<tool_call>{call.name}\n{one}</tool_call>" for call, one in named])


def _deepseek(content: str, calls: Sequence[Invocation]) -> str:
    told = "".join(
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{_json(call.arguments)}<｜tool▁call▁end｜>" for call in calls
    )
    return content + (f"<｜tool▁calls▁begin｜>{told}<｜tool▁calls▁end｜>" if told else "")


def _kimi(content: str, calls: Sequence[Invocation]) -> str:
    told = "".join(
        f"<|tool_call_begin|>functions.{call.name}:{at}<|tool_call_argument_begin|>{_json(call.arguments)}<|tool_call_end|>"
        for at, call in enumerate(calls)
    )
    return content + (f"<|tool_calls_section_begin|>{told}<|tool_calls_section_end|>" if told else "")


def _llama(content: str, calls: Sequence[Invocation]) -> str:
    return "; ".join(_json({"name": call.name, "parameters": call.arguments}) for call in calls) or content


def _pythonic(content: str, calls: Sequence[Invocation]) -> str:
    told = [f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})" for call in calls]
    return f"[{', '.join(told)}]" if told else content


def _mistral(content: str, calls: Sequence[Invocation]) -> str:
    return content + "".join(f"[TOOL_CALLS]{call.name}[ARGS]{_json(call.arguments)}" for call in calls)


def _harmony(meant: Meant) -> str:
    """A turn ends with its first call: that is one of gpt-oss's end tokens."""
    told = [] if meant.reasoning is None else [f"<|channel|>analysis<|message|>{meant.reasoning}"]
    if meant.content:
        told.append(f"<|channel|>{'commentary' if meant.calls else 'final'}<|message|>{meant.content}")
    told += [
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{_json(call.arguments)}"
        for call in meant.calls
    ]
    return "<|end|><|start|>assistant".join(told) + ("<|call|>" if meant.calls else "<|return|>")


_WRITERS: dict[str, Write] = {
    "hermes": _hermes, "qwen3-xml": _qwen3_coder, "glm": _glm, "deepseek_v31": _deepseek, "kimi_k2": _kimi,
    "llama3_json": _llama, "pythonic": _pythonic, "mistral": _mistral,
}  # fmt: skip
