"""What a model wrote, read off its raw text with regular expressions: a second opinion on the formats of the captures,
for text that is as short and plain as theirs. None of our parsers is in it.

What breaks off, or is not as it should be, is told as it was written: a call whose name is whole has as its arguments
what there is of them, which is then no JSON; a call whose name is not whole is none. Nothing is told of what readers of
the format take in more than one way: elements that break off, a call inside the reasoning, a JSON call behind text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.captures import Wrote

Calls = list[tuple[str, str]]
Schemas = Mapping[str, Mapping[str, Any]]
"""Of each tool, its parameters' schemas."""

_ENDS = re.compile(r"(<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<｜end▁of▁sentence｜>|</s>)$")


class _Unsaid(Exception):
    """It can be read in more than one way."""


def wrote(parser: str | None, text: str, tail: str, schemas: Schemas) -> Wrote | None:
    """``parser``: the format, None for none; ``tail``: the end of the prompt, which may have begun the reasoning;
    ``schemas``: of the tools that may be called; without any, nothing is a call."""
    text = _ENDS.sub("", text)
    if parser is None:
        return Wrote(content=text or None)
    if parser == "harmony":
        return _harmony(text)
    first, _, second = parser.rpartition("+")
    reasoning = None
    if first or second in ("glm45", "kimi_k2", "deepseek_v4", "qwen3", "qwen3_coder"):
        reasoning, text = _thought(text, opened=tail.rstrip().endswith("<think>"))
    if schemas and "<tool_call>" in (reasoning or ""):
        return None
    calls: Calls = []
    if schemas:
        try:
            text = _READERS["hermes" if second == "qwen3" else second](text, calls, schemas)
        except _Unsaid:
            return None
    return Wrote(_said(reasoning), _said(text), tuple(calls))


def _said(text: str | None) -> str | None:
    return (text or "").strip() or None


def _thought(text: str, *, opened: bool) -> tuple[str | None, str]:
    begun = re.match(r"\s*<think>", text)
    if begun is None and not opened:
        return None, text
    thought, _, rest = text[begun.end() if begun else 0 :].partition("</think>")
    return thought, rest


# --- one JSON object a call -----------------------------------------------------------------------------------------

_NAMED = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"]+)"')


def _hermes(text: str, calls: Calls, _schemas: Schemas) -> str:
    def call(found: re.Match[str]) -> str:
        body = found[1]
        try:
            value: Any = json.loads(body)
        except ValueError:
            named = _NAMED.match(body)
            if named is not None:
                calls.append((named[1], body[named.end() :].partition('"arguments":')[2].strip()))
            return ""
        # Null, and no arguments at all, are none; "parameters" is another word for them.
        given: Any = value.get("arguments", value.get("parameters")) or {}
        calls.append((value["name"], json.dumps(given, ensure_ascii=False)))
        return ""

    # A marker that no object follows is text.
    return re.sub(r"<tool_call>(?=\s*(?:\{|$))(.*?)(?:</tool_call>|$)", call, text, flags=re.S)


def _json_calls(text: str, calls: Calls, key: str) -> bool:
    """The text is a call, or a list of calls, and nothing else."""
    try:
        value: Any = json.loads(text if text.startswith("[") else f"[{text}]")
    except ValueError:
        return False
    entries: list[Any] = value
    if not all(isinstance(entry, dict) and "name" in entry for entry in entries):
        return False
    calls += [(entry["name"], json.dumps(entry.get(key, {}), ensure_ascii=False)) for entry in entries]
    return True


def _llama(text: str, calls: Calls, _schemas: Schemas) -> str:
    text = text.removeprefix("<|python_tag|>")
    if '{"name"' in text[1:] and not text.startswith(("{", "[")):
        raise _Unsaid
    found: Calls = []
    if all(_json_calls(part, found, "parameters") for part in _split(text)):
        calls += found
        return ""
    named = _NAMED.match(text)
    if named is None:
        return text
    calls.append((named[1], text[named.end() :].partition('"parameters":')[2].strip()))
    return ""


def _split(text: str) -> list[str]:
    return [part for part in re.split(r";\s*", text) if part]


def _mistral(text: str, calls: Calls, _schemas: Schemas) -> str:
    content, _, body = text.partition("[TOOL_CALLS]")
    if body and not _json_calls(body, calls, "arguments"):
        raise NotImplementedError(body)
    return content


# --- markers of their own -------------------------------------------------------------------------------------------


def _deepseek(text: str, calls: Calls, _schemas: Schemas) -> str:
    content, _, section = text.partition("<｜tool▁calls▁begin｜>")
    pattern = r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)(?:<｜tool▁call▁end｜>|$)"
    calls += re.findall(pattern, section, re.S)
    return content + section.partition("<｜tool▁calls▁end｜>")[2]


def _kimi(text: str, calls: Calls, _schemas: Schemas) -> str:
    content, _, section = text.partition("<|tool_calls_section_begin|>")
    pattern = r"<\|tool_call_begin\|>functions\.(\w+):\d+<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|$)"
    calls += re.findall(pattern, section, re.S)
    return content + section.partition("<|tool_calls_section_end|>")[2]


def _typed(name: str, value: str, of: str, schemas: Schemas) -> Any:
    """A value written as text, as the schema has it."""
    kind = schemas.get(of, {}).get(name, {}).get("type", "string")
    try:
        return value if kind == "string" else json.loads(value)
    except ValueError:
        return value


def _elements(text: str, calls: Calls, schemas: Schemas, patterns: tuple[str, str, str]) -> str:
    """``patterns``: a whole call; of it the name; in it one argument, name and value."""
    whole, head, argument = patterns

    def call(found: re.Match[str]) -> str:
        named = re.search(head, found[0])
        if named is None:
            return ""
        name = named[1]
        pairs = re.findall(argument, found[0], re.S)
        calls.append((name, json.dumps({key: _typed(key, value, name, schemas) for key, value in pairs})))
        return ""

    left = re.sub(whole, call, text, flags=re.S)
    if re.search(r"<tool_call>|<function=", left):
        raise _Unsaid
    return left


def _qwen3_coder(text: str, calls: Calls, schemas: Schemas) -> str:
    patterns = (
        r"<tool_call>\s*<function=.*?</function>\s*</tool_call>", r"<function=(\w+)>",
        r"<parameter=(\w+)>\n(.*?)\n(?=</parameter>|<parameter=|</function>)",
    )  # fmt: skip
    return _elements(text, calls, schemas, patterns)


def _glm(text: str, calls: Calls, schemas: Schemas) -> str:
    patterns = (
        r"<tool_call>.*?</tool_call>", r"<tool_call>(\w+)",
        r"<arg_key>(\w+)</arg_key>\s*<arg_value>(.*?)</arg_value>",
    )  # fmt: skip
    return _elements(text, calls, schemas, patterns)


def _dsml(text: str, calls: Calls, _schemas: Schemas) -> str:
    content, _, section = text.partition("<｜DSML｜tool_calls>")
    if section and not section.endswith("</｜DSML｜tool_calls>"):
        raise _Unsaid
    for name, body in re.findall(r'<｜DSML｜invoke name="(\w+)">(.*?)</｜DSML｜invoke>', section, re.S):
        pattern = r'<｜DSML｜parameter name="(\w+)" string="(true|false)">(.*?)</｜DSML｜parameter>'
        values = re.findall(pattern, body, re.S)
        calls.append((name, json.dumps({key: v if text == "true" else json.loads(v) for key, text, v in values})))
    return content


# --- the others -----------------------------------------------------------------------------------------------------


def _pythonic(text: str, calls: Calls, _schemas: Schemas) -> str:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return text
    if not isinstance(tree, ast.List) or not all(isinstance(call, ast.Call) for call in tree.elts):
        return text
    for call in tree.elts:
        assert isinstance(call, ast.Call)
        values = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        calls.append((ast.unparse(call.func), json.dumps(values)))
    return ""


def _harmony(text: str) -> Wrote:
    """The prompt ends with the first message's ``<|start|>assistant``."""
    said: dict[str, list[str]] = {"reasoning": [], "content": []}
    calls: Calls = []
    for message in text.split("<|start|>assistant"):
        head, _, body = message.partition("<|message|>")
        body = re.sub(r"<\|(end|call|return)\|>$", "", body)
        to = re.search(r"to=functions\.(\w+)", head)
        if to is not None:
            calls.append((to[1], body))
        else:
            said["reasoning" if "<|channel|>analysis" in head else "content"].append(body)
    reasoning, content = ("\n".join(each for each in texts if each) for texts in said.values())
    return Wrote(_said(reasoning), _said(content), tuple(calls))


_READERS: dict[str, Callable[[str, Calls, Schemas], str]] = {
    "hermes": _hermes,
    "qwen25": _hermes,
    "qwen3_coder": _qwen3_coder,
    "deepseek_v31": _deepseek,
    "deepseekv31": _deepseek,
    "deepseek_v4": _dsml,
    "llama3_json": _llama,
    "llama3": _llama,
    "pythonic": _pythonic,
    "mistral": _mistral,
    "glm45": _glm,
    "kimi_k2": _kimi,
}
