"""vllm: vLLM's parsers, run as its chat endpoint runs them: ``vllm:REASONING+TOOLS``.

Names are those of ``--reasoning-parser`` and ``--tool-call-parser``. One name alone, or ``+NAME``, is a tool parser;
``NAME+`` a reasoning parser. The parser is composed by vLLM's ParserManager, and a choice's steps go through its
ChatStreamProcessor; without streaming its ``parse`` and ``assemble_chat_message_fields`` make the message. The request
is the recorded one, read and adjusted by vLLM. What stands in for the server is the tokenizer (see ``tokenizer``), the
detokenizer, and a model's configuration of which only the type is known.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import time
from types import SimpleNamespace
from typing import Any, Final

from .choices import at_once, ended
from .tokenizer import NEEDED, Detokenizer, Shim, real
from .worker import Absent, Missing, Unsupported, described

_HARMONY: Final = frozenset(("openai", "openai_gptoss"))
"""Parsers of gpt-oss: the server takes its harmony parser for that model, whatever the flags."""
_SETTINGS: Final = {
    "VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
}  # fmt: skip
_ENDS: Final = {"length": "length", "context": "length"}
"""Finish reasons of the engine; the others are ``stop``."""


def version() -> str:
    """vLLM's version. Raises Missing where it is not there, or has no such parts."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        found = str(importlib.import_module("vllm").__version__)
    except ModuleNotFoundError as error:
        raise Missing(f"there is no vLLM here ({error}); pip install vllm==0.33.0") from error
    try:
        _parts()
    except (ImportError, AttributeError) as error:
        raise Missing(f"vLLM {found} has other parts than 0.33, which is what is known here: {error}") from error
    return found


def _parts() -> SimpleNamespace:
    """What is used of vLLM."""
    chat = "vllm.entrypoints.openai.chat_completion"
    return SimpleNamespace(
        Request=importlib.import_module(f"{chat}.protocol").ChatCompletionRequest,
        Processor=importlib.import_module(f"{chat}.stream_processor").ChatStreamProcessor,
        assemble=importlib.import_module(f"{chat}.message_assembly").assemble_chat_message_fields,
        manager=importlib.import_module("vllm.parser").ParserManager,
        tools=importlib.import_module("vllm.tool_parsers").ToolParserManager,
        reasoning=importlib.import_module("vllm.reasoning").ReasoningParserManager,
    )


def make(name: str, facts: dict[str, Any]) -> Adapter:
    """The parser of this name. Raises Absent, Unsupported."""
    first, plus, second = name.partition("+")
    reasoning, tools = (first, second) if plus else ("", first)
    parts = _parts()
    plugin = facts.get("plugin")
    if plugin:
        _plugin(plugin)
    for kind, one, known in (
        ("reasoning parser", reasoning, parts.reasoning), ("tool parser", tools, parts.tools),
    ):  # fmt: skip
        names: list[str] = known.list_registered()
        if one and one not in names:
            where = f"neither {plugin} nor vLLM has a" if plugin else "vLLM has no"
            near = difflib.get_close_matches(one, names, n=1)
            meant = f"; did you mean {near[0]}?" if near else "."
            raise Absent(f"{where} {kind} {one!r}{meant} There are {', '.join(names)}")
    if not reasoning and not tools:
        raise Absent("name a parser: vllm:REASONING+TOOLS, vllm:TOOLS or vllm:REASONING+")
    path = facts.get("tokenizer")
    return Adapter(parts, reasoning, tools, path)


def _plugin(path: str) -> None:
    """Run the file; it registers its parsers."""
    name = "playhead_plugin_" + re.sub(r"\W", "_", os.path.basename(path).removesuffix(".py"))
    try:
        importlib.import_module("vllm.utils.import_utils").import_from_path(name, path)
    except Exception as error:  # whatever the file does
        raise Absent(f"plugin {path} does not load: {described(error)}") from error


class Adapter:
    """Parsers by name. ``path``: of a real tokenizer."""

    def __init__(self, parts: SimpleNamespace, reasoning: str, tools: str, path: str | None) -> None:
        self.parts = parts
        self.auto = bool(tools)
        self.harmony = not _HARMONY.isdisjoint((reasoning, tools))
        if self.harmony:
            _vocabulary(path)
        self.tokenizer = real(path) if path and not self.harmony else None
        self.kind = "gpt_oss" if self.harmony else "kimi_k2" if "kimi_k2" in (reasoning, tools) else ""
        self.cls = parts.manager.get_parser(
            tool_parser_name=tools or None, reasoning_parser_name=reasoning or None, enable_auto_tools=self.auto,
            model_name="", is_harmony=self.harmony,
        )  # fmt: skip

    def session(self, session: dict[str, Any]) -> dict[str, Any]:
        """See ``worker``."""
        return _Session(self, session).answer()


def _vocabulary(path: str | None) -> None:
    """Harmony has a tokenizer of its own, whose file it would fetch."""
    if path:
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        importlib.import_module("vllm.entrypoints.openai.parser.harmony_utils").get_encoding()
    except Exception as error:  # of openai-harmony
        raise Unsupported(
            "openai-harmony has no vocabulary: give --tokenizer FOLDER, or TIKTOKEN_ENCODINGS_BASE, a folder with "
            f"o200k_base.tiktoken ({error})"
        ) from error


class _Session:
    """One session: its request, and a parser for each choice."""

    def __init__(self, adapter: Adapter, session: dict[str, Any]) -> None:
        self.adapter = adapter
        self.session = session
        self.steps: list[dict[str, Any]] = session["steps"]
        self.special: dict[str, int] = session["special"]
        # Where the end tokens are not known, any special one that comes last is taken for one.
        self.eos = frozenset(session["eos"] or self.special.values())
        self.shim = None if adapter.tokenizer is not None else Shim.of(session)
        self.tokenizer = adapter.tokenizer if self.shim is None else self.shim
        self.prompt: list[int] = session["prompt_ids"] or marked(
            session["prompt_tail"], {**session["special"], **session["added"]}
        )
        self.model = SimpleNamespace(
            model="", hf_config=SimpleNamespace(model_type=adapter.kind), hf_text_config=None, hf_overrides=None,
            architecture=None,
        )  # fmt: skip
        body = {**session["request"]}
        if not body.get("tools"):
            # The server refuses these; they say nothing.
            body = {name: value for name, value in body.items() if name not in ("tools", "tool_choice")}
        try:
            self.request = adapter.parts.Request(**body)
        except Exception as error:  # vLLM's own validation
            raise Unsupported(f"vLLM refuses the recorded request: {error}") from error
        self.kwargs = self.request.build_chat_params(None, "auto").chat_template_kwargs
        self._adjust()
        self.texts = {
            choice: Detokenizer(
                self.special.values(), skip_special=self.request.skip_special_tokens,
                stop=_stops(self.request.stop), include_stop=self.request.include_stop_str_in_output,
            )
            for choice in {step["choice"] for step in self.steps}
        }  # fmt: skip

    def _adjust(self) -> None:
        """What the parser changes in the request before the engine sees it."""
        cls = self.adapter.cls
        if not (
            self.adapter.harmony
            or cls.always_adjust_request
            or cls.reasoning_parser_cls is not None
            or self.request.tool_choice != "none"
        ):
            return
        parser = self._parser()
        if not self.adapter.harmony:
            parser.set_prompt_token_ids(self.prompt)
        self.request = parser.adjust_request(self.request)

    def _parser(self) -> Any:
        try:
            return self.adapter.cls(
                self.tokenizer, self.request.tools, chat_template_kwargs=self.kwargs, model_config=self.model
            )
        except Unsupported:
            raise
        except Exception as error:  # vLLM's server checks this when it starts
            why = f"vLLM's parser does not take the session's tokenizer: {error}"
            raise Unsupported(why if self.shim is None else f"{why}; {NEEDED}") from error

    def _check(self) -> None:
        """A parser may have swallowed that the tokenizer could not answer."""
        if self.shim is not None and self.shim.wanted:
            raise Unsupported(self.shim.wanted)

    def answer(self) -> dict[str, Any]:
        """Both paths."""
        began = time.thread_time_ns()
        steps: list[list[list[Any]]] = []
        error = self._stream(steps)
        ns = time.thread_time_ns() - began
        self._check()
        whole = at_once(self.session, self._whole, Exception) if error is None and self.texts else {}
        self._check()
        return {"steps": steps, "flush": {}, "error": error, "ns": ns, **whole}

    # --- streaming

    def _stream(self, out: list[list[list[Any]]]) -> dict[str, str] | None:
        """Fill ``out``; the error of a step that raised."""
        adapter = self.adapter
        processors: dict[int, Any] = {}
        for step, end in ended(self.session):
            choice = step["choice"]
            if choice not in processors:
                processors[choice] = adapter.parts.Processor(
                    self.request, self._parser(), enable_auto_tools=adapter.auto, parser_cls=adapter.cls
                )
            text = self._text(step, end)
            reason = None if end is None else _ENDS.get(end["reason"], "stop")
            try:
                delta = processors[choice].step(text, step["ids"], reason, self.prompt).delta
            except Unsupported:
                raise
            except Exception as error:  # vLLM's code
                self._check()
                return described(error)
            out.append([] if delta is None else list(_deltas(delta)))
        return None

    def _text(self, step: dict[str, Any], end: dict[str, Any] | None) -> str:
        """The text that the detokenizer releases with a step."""
        ids, wrote = step["ids"], [piece.encode("latin-1") for piece in step["pieces"]]
        stop: Any = None if end is None else end["stop"]
        if end is not None and end["reason"] in ("eos", "stop_token") and ids and len(wrote) == len(ids):
            # The token that ended the output has no text.
            if not self.request.include_stop_str_in_output and (ids[-1] == stop or (not stop and ids[-1] in self.eos)):
                ids, wrote = ids[:-1], wrote[:-1]
        return self.texts[step["choice"]].step(
            ids, wrote, "" if step["pieces"] else step["text"], finished=end is not None,
            stopped=stop if isinstance(stop, str) else "",
        )  # fmt: skip

    # --- at once

    def _whole(self, choice: int) -> dict[str, Any]:
        """The message of a choice without streaming."""
        adapter, ids = (
            self.adapter,
            [number for step in self.steps if step["choice"] == choice for number in step["ids"]],
        )
        parser = self._parser()
        parser.set_prompt_token_ids(self.prompt)
        reasoning, content, calls = parser.parse(
            self.texts[choice].text, self.request, enable_auto_tools=adapter.auto, model_output_token_ids=ids
        )
        fields = adapter.parts.assemble(
            self.request, reasoning, content, calls, enable_auto_tools=adapter.auto, parser_cls=adapter.cls
        )
        return {
            "choice": choice, "reasoning": fields.reasoning or None, "content": fields.content or None,
            "tool_calls": [
                {"name": call.function.name, "arguments": call.function.arguments} for call in fields.tool_calls
            ],
        }  # fmt: skip


def marked(text: str, known: dict[str, int]) -> list[int]:
    """The ids of the special and added tokens of a text: all that is known of a prompt without ids."""
    texts = sorted((name for name in known if name), key=len, reverse=True)
    if not texts:
        return []
    return [known[found] for found in re.findall("|".join(map(re.escape, texts)), text)]


def _stops(stop: Any) -> list[str]:
    if not stop:
        return []
    return [stop] if isinstance(stop, str) else list(stop)


def _deltas(delta: Any) -> Any:
    """A DeltaMessage, as the protocol has it."""
    if delta.reasoning:
        yield ["reasoning", delta.reasoning]
    if delta.content:
        yield ["content", delta.content]
    for call in delta.tool_calls or ():
        function = call.function
        if call.id or (function is not None and function.name):
            yield ["call", call.index, call.id, (function.name if function is not None else None) or ""]
        if function is not None and function.arguments:
            yield ["arguments", call.index, function.arguments]
