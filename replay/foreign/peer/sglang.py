"""sglang: SGLang's parsers, run as its chat endpoint runs them: ``sglang:REASONING+TOOLS``.

What happens to a step is what ``serving_chat.py`` of 0.5.23 does with it: the detokenizer's text goes through the
reasoning parser, what is left through the tool parser, and at the finish both are flushed and arguments that were held
back are sent. Names are those of ``--reasoning-parser`` and ``--tool-call-parser``. One name alone, or ``+NAME``, is a
tool parser; ``NAME+`` a reasoning parser. ``gpt-oss`` alone is both: its text is of no use to one of them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from importlib.metadata import version as version_of
from typing import Any

from .choices import at_once, ended, streamed
from .sglang_text import Text
from .sglang_thinking import chat_template, forced
from .tokenizer import Shim, real
from .worker import Absent, Missing, Unsupported

_BY_ITS_OWN_DECODER = ("inkling", "deepseekv4", "deepseekv41", "deepseek-v4", "deepseek-v41")
"""SGLang reads these models' token ids itself, outside of its parsers."""
_HARMONY = "gpt-oss"
_KEEP_SPECIAL = ("gpt-oss", "gemma4", "apertus2509", "kimi_k3", "muse")
"""Parsers for which it keeps special tokens in the text, whatever the request says."""


def version() -> str:
    """SGLang's version."""
    try:
        _tool_names()
        _reasoning_names()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "sglang":
            raise Missing(
                f"this Python has no SGLang that is known here ({error}): pip install sglang==0.5.23"
            ) from None
        raise
    return version_of("sglang")


def _module(name: str) -> Any:
    return importlib.import_module(f"sglang.srt.{name}")


def _reasoning_names() -> dict[str, Any]:
    found: dict[str, Any] = _module("parser.reasoning_parser").ReasoningParser.DetectorMap
    return found


def _tool_names() -> dict[str, Any]:
    found: dict[str, Any] = _module("function_call.function_call_parser").FunctionCallParser.ToolCallParserEnum
    return found


def make(name: str, facts: dict[str, Any]) -> Adapter:
    """The parser of this name."""
    before, plus, behind = name.partition("+")
    reasoning, tools = (before, behind) if plus else (name if name == _HARMONY else "", name)
    known = {"reasoning": sorted(_reasoning_names()), "tool": sorted(_tool_names())}
    for kind, one in (("reasoning", reasoning), ("tool", tools)):
        if one and one not in known[kind]:
            raise Absent(f"SGLang has no {kind} parser {one!r}; it has {', '.join(known[kind])}")
    if not reasoning and not tools:
        raise Absent("name a parser: sglang:REASONING+TOOLS, sglang:TOOLS or sglang:REASONING+")
    own = next((one for one in (reasoning, tools) if one in _BY_ITS_OWN_DECODER), None)
    if own is not None:
        raise Unsupported(f"SGLang reads the output of {own} from its token ids, not with a parser")
    if facts.get("plugin"):
        raise Unsupported("SGLang loads no parser from a file; give --peer-python an environment with a changed SGLang")
    return Adapter(reasoning, tools, facts.get("tokenizer"))


class Adapter:
    """A pair of parsers, either of which may be missing. ``template``: the chat template, where it is known."""

    def __init__(self, reasoning: str, tools: str, tokenizer: str | None) -> None:
        self.reasoning = reasoning
        self.tools = tools
        self.template = chat_template(tokenizer) if tokenizer else None
        self.tokenizer = real(tokenizer) if tokenizer else None

    def session(self, session: dict[str, Any]) -> dict[str, Any]:
        """See ``worker``."""
        turn = _Turn(self, session)
        texts = iter(turn.texts())  # by another process there, whose time is not the parser's
        answer = streamed(session, lambda: _Choice(turn, texts), Exception) | at_once(session, turn.whole, Exception)
        wanted: str = getattr(turn.tokenizer, "wanted", "")
        return {"unsupported": wanted} if wanted else answer


class _Turn:
    """What the choices of a request share."""

    def __init__(self, adapter: Adapter, session: dict[str, Any]) -> None:
        self.adapter = adapter
        self.session = session
        self.tokenizer = adapter.tokenizer or Shim.of(session)
        self.request = _request(session["request"])
        self.request._response_parser_prefix = session["prompt_tail"]
        self.tools = list(self.request.tools or ())
        for message in self.request.messages:
            if getattr(message, "role", "") in ("root", "system", "developer"):
                self.tools += getattr(message, "tools", None) or ()
        self.required = self.request.tool_choice == "required" or not isinstance(self.request.tool_choice, str)
        self.parses_reasoning = bool(adapter.reasoning) and bool(self.request.separate_reasoning)
        self.parses_tools = self._parses_tools()

    def finish(self, choice: int) -> dict[str, Any] | None:
        """How a choice ended."""
        found: dict[str, Any] | None = self.session["finish"].get(str(choice))
        return found

    def _parses_tools(self) -> bool:
        if not self.adapter.tools:
            return False
        if not self.tools:
            return bool(_tool_names()[self.adapter.tools].parses_without_tools())
        return bool(self.request.tool_choice != "none")

    def text(self) -> Text:
        """A choice's text."""
        request, adapter = self.request, self.adapter
        keep = not request.skip_special_tokens or (bool(self.tools) and request.tool_choice != "none")
        keep |= adapter.reasoning in _KEEP_SPECIAL or adapter.tools in ("gpt-oss", "gemma4")
        keep |= adapter.reasoning == "mistral" and request.reasoning_effort not in (None, "none")
        return Text(
            self.session, keep_special=keep, keep_call=adapter.tools == "gpt-oss", keep_stop=bool(request.no_stop_trim)
        )

    def texts(self) -> list[str]:
        """The text that each step brings."""
        made: dict[int, Text] = {}
        told: list[str] = []
        for step, end in ended(self.session):
            if step["choice"] not in made:
                made[step["choice"]] = self.text()
            told.append(made[step["choice"]].step(step, end))
        return told

    def reasoning_parser(self, *, stream: bool) -> Any:
        """A new one. ``stream``: it gives reasoning as it comes."""
        made = _module("parser.reasoning_parser").ReasoningParser
        name, request, tokenizer = self.adapter.reasoning, self.request, self.tokenizer
        detector = made(model_type=name, stream_reasoning=True, tokenizer=tokenizer).detector
        begins = forced(name, detector, request, self.adapter.template, self.session["prompt_tail"])
        active = self.parses_tools
        return made(name, stream, begins, request, tokenizer=tokenizer, tool_call_parser_active=active)

    def tool_parser(self, *, choosing: bool) -> Any:
        """A new one. ``choosing``: it is told the tool choice."""
        made = _module("function_call.function_call_parser").FunctionCallParser
        name, prefix = self.adapter.tools, self.request._response_parser_prefix
        choice = {"tool_choice": self.request.tool_choice} if choosing else {}
        try:
            return made(tools=self.tools, tool_call_parser=name, tokenizer=self.tokenizer, prefix=prefix, **choice)
        except ValueError as error:
            raise Unsupported(f"SGLang's parser {name}: {error}; give --tokenizer PATH") from error

    def whole(self, number: int) -> dict[str, Any]:
        """A choice, parsed at once."""
        steps = [step for step in self.session["steps"] if step["choice"] == number]
        joined = {
            "ids": [token for step in steps for token in step["ids"]],
            "pieces": [piece for step in steps for piece in step["pieces"]],
            "text": "".join(step["text"] for step in steps),
        }
        text = self.text().step(joined, self.finish(number))
        reasoning: str | None = None
        calls: list[dict[str, str]] = []
        parser: Any = None
        if self.parses_reasoning:
            parser = self.reasoning_parser(stream=False)
            reasoning, text = parser.parse_non_stream(text)
        if self.parses_tools and not _answered(parser):
            text, calls = self._calls(text)
        return {"choice": number, "reasoning": reasoning or None, "content": text or None, "tool_calls": calls}

    def _calls(self, text: str) -> tuple[str, list[dict[str, str]]]:
        """What is left of a text without its calls, and these."""
        parser = self.tool_parser(choosing=True)
        native = parser.owns_tool_format()
        try:
            if (not self.required or native) and parser.has_tool_call(text):
                text, found = parser.parse_non_stream(text)
                return text, [{"name": item.name, "arguments": item.parameters} for item in found]
            return _listed(text) if self.required and not native else (text, [])
        except Unsupported:
            raise
        except Exception:  # SGLang logs whatever was raised, and delivers the text as it is
            return text, []


def _listed(text: str) -> tuple[str, list[dict[str, str]]]:
    """The calls of a text that a grammar made a JSON array. Raises on any other."""
    found: Any = json.loads(text)
    items: list[Any] = [found] if isinstance(found, dict) else list(found)
    arguments = [json.dumps(item.get("parameters", {}), ensure_ascii=False) for item in items]
    return "", [{"name": item["name"], "arguments": text} for item, text in zip(items, arguments, strict=True)]


def _request(body: dict[str, Any]) -> Any:
    """The body as SGLang reads it; of one that it refuses, what parsing needs."""
    made = _module("entrypoints.openai.protocol").ChatCompletionRequest
    try:
        return made(**body)
    except (TypeError, ValueError):
        kept = ("tools", "tool_choice", "chat_template_kwargs", "skip_special_tokens", "separate_reasoning")
        asked = {name: body[name] for name in kept if body.get(name) is not None}
        try:
            return made(**asked, model="", messages=[{"role": "user", "content": ""}])
        except (TypeError, ValueError) as error:
            raise Unsupported(f"SGLang refuses the request: {error}") from error


class _Choice:
    """The parsers of one choice. ``texts``: of all steps that are still to come."""

    def __init__(self, turn: _Turn, texts: Iterator[str]) -> None:
        self._turn = turn
        self._texts = texts
        self._reasoning: Any = None
        self._parser: Any = None
        self._array = False

    def end(self) -> list[Any]:
        """All has been sent with the last step."""
        return []

    def step(self, step: dict[str, Any], end: dict[str, Any] | None) -> list[list[Any]]:
        """What the endpoint sends for a step."""
        turn, text, ends = self._turn, next(self._texts), end is not None
        out: list[list[Any]] = []
        if turn.parses_reasoning:
            if self._reasoning is None:
                self._reasoning = turn.reasoning_parser(stream=bool(turn.request.stream_reasoning))
            thought, text = self._reasoning.parse_stream_chunk(text)
            if ends:
                more, rest = self._reasoning.parse_stream_end()
                thought, text = (thought or "") + (more or ""), (text or "") + (rest or "")
            if thought:
                out.append(["reasoning", thought])
        if turn.parses_tools and not _answered(self._reasoning):
            self._calls(text, ends, out)
        elif text:
            out.append(["content", text])
        return out

    def _calls(self, text: str, ends: bool, out: list[list[Any]]) -> None:
        if self._parser is None:
            self._choose()
        content, items = self._parsed(text, ends)
        if content:
            out.append(["content", content])
        for item in items:
            if item.name:
                out.append(["call", item.tool_index, None, item.name])
            if item.parameters:
                out.append(["arguments", item.tool_index, item.parameters])
        if ends:
            out += _held(self._parser)

    def _choose(self) -> None:
        """Its own format, or the JSON array that a grammar makes of required calls."""
        required = self._turn.required
        self._parser = self._turn.tool_parser(choosing=required)
        self._array = required and not self._parser.owns_tool_format()
        if self._array:
            self._parser = _module("function_call.json_array_parser").JsonArrayParser()

    def _parsed(self, text: str, ends: bool) -> tuple[str, list[Any]]:
        parser, tools = self._parser, self._turn.tools
        if self._array:
            told = [parser.parse_streaming_increment(text, tools)]
            told += [parser.finish(tools)] if ends else []
            return "".join(one.normal_text or "" for one in told), [call for one in told for call in one.calls]
        content, items = parser.parse_stream_chunk(text)
        if not ends:
            return content, items
        rest, more = parser.parse_stream_end()
        return (content or "") + rest, [*items, *more]


def _held(parser: Any) -> list[list[Any]]:
    """Arguments of the last call that the parser knows of and has not sent."""
    detector: Any = getattr(parser, "detector", parser)
    known: list[Any] = getattr(detector, "prev_tool_call_arr", None) or []
    sent: list[str] = getattr(detector, "streamed_args_for_tool", None) or []
    at = len(known) - 1
    if at < 0 or at >= len(sent):
        return []
    whole = known[at].get("arguments", {})
    text: str = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)
    rest = text[len(sent[at]) :] if text.startswith(sent[at]) else ""
    return [["arguments", at, rest]] if rest else []


def _answered(parser: Any) -> bool:
    """The reasoning parser says that no call can follow."""
    return parser is not None and bool(getattr(parser.detector, "answer_started", False))
