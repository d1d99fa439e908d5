"""template: Hugging Face response templates, parsed as ``transformers serve`` does it (5.24).

``template`` takes the template of ``--tokenizer PATH`` (its ``tokenizer_config.json``, else the one that transformers
has for the model type of its ``config.json``). ``template:qwen3`` takes the one that transformers has for that model
type.
"""

from __future__ import annotations

import codecs
import importlib
import json
import os
from importlib.metadata import version as version_of
from typing import Any

from .choices import at_once, streamed
from .worker import Absent, Missing, Unsupported


def version() -> str:
    """The version of transformers."""
    try:
        _serving()
        _parsing()
    except ModuleNotFoundError as error:
        raise Missing(
            f"{error}; response templates need transformers 5.24 or later: pip install transformers"
        ) from None
    return version_of("transformers")


def _serving() -> Any:
    return importlib.import_module("transformers.cli.serving.utils")


def _parsing() -> Any:
    return importlib.import_module("transformers.utils.chat_parsing")


def make(name: str, facts: dict[str, Any]) -> Adapter:
    """The parser; ``name``: a model type, or nothing."""
    if facts.get("plugin"):
        raise Unsupported("a response template is no Python file: put it into the tokenizer_config.json of --tokenizer")
    if name:
        found = _of_model_type(name)
        if found is None:
            known = sorted(one for types in _serving()._RESPONSE_TEMPLATE_FALLBACKS for one in types)
            raise Absent(f"transformers has no response template for {name!r}; it has {', '.join(known)}")
        return Adapter(found)
    path = facts.get("tokenizer")
    if not path:
        raise Unsupported(
            "which response template? Give --tokenizer PATH, the model's folder, whose tokenizer_config.json has it, "
            "or name the one that transformers has for a model type: template:MODEL_TYPE, as in template:qwen3"
        )
    return Adapter(_of_folder(path if os.path.isdir(path) else os.path.dirname(path)))


def _of_model_type(model_type: str) -> Any:
    fallbacks: dict[tuple[str, ...], Any] = _serving()._RESPONSE_TEMPLATE_FALLBACKS
    return next((template for types, template in fallbacks.items() if model_type in types), None)


def _of_folder(folder: str) -> Any:
    """As ``transformers serve`` finds it."""
    own = _read(folder, "tokenizer_config.json").get("response_template")
    if own is not None:
        return own
    model_type = _read(folder, "config.json").get("model_type")
    found = None if model_type is None else _of_model_type(model_type)
    if found is None:
        raise Unsupported(
            f"--tokenizer {folder}: its tokenizer_config.json has no response_template, and transformers has none for "
            f"the model type {model_type!r} of its config.json"
        )
    return found


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found: Any = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Unsupported(f"--tokenizer {folder}: {name}: {error}") from error
    content: dict[str, Any] = found if hasattr(found, "get") else {}
    return content


class Adapter:
    """A response template."""

    def __init__(self, template: Any) -> None:
        responses = importlib.import_module("transformers.utils.chat_parsing.response_templates")
        try:
            self.template = responses.load_response_template(template)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"transformers refuses the response template: {error}") from error

    def session(self, session: dict[str, Any]) -> dict[str, Any]:
        """See ``worker``. Each token is fed by itself. Whatever the template's parser raises ends the stream with an
        error there, and is status 500 without streaming."""
        texts: dict[int, list[bytes]] = {}
        for step in session["steps"]:
            pieces = [piece.encode("latin-1") for piece in step["pieces"]] or [step["text"].encode("utf-8", "replace")]
            texts.setdefault(step["choice"], []).extend(pieces)

        def message(number: int) -> dict[str, Any]:
            return _message(self.template, session, number, b"".join(texts[number]).decode("utf-8", "replace"))

        made = streamed(session, lambda: _Choice(self.template, session), Exception)
        return made | at_once(session, message, Exception)


class _Choice:
    def __init__(self, template: Any, session: dict[str, Any]) -> None:
        self._parser = _parsing().ResponseParser(
            template, prefix=session["prompt_tail"], tools=session["request"].get("tools")
        )
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._calls = 0
        self._first: list[Any] = list(self._parser.initial_events)

    def step(self, step: dict[str, Any], end: dict[str, Any] | None) -> list[Any]:
        """What is sent for a step."""
        out = self._told(self._first)
        self._first = []
        texts = [self._decoder.decode(piece.encode("latin-1")) for piece in step["pieces"]] or [step["text"]]
        for text in texts:
            if text:
                out += self._told(self._parser.feed(text))
        return out

    def end(self) -> list[Any]:
        """What is sent at the end. A region that cannot be closed is dropped, as there."""
        try:
            _, events = self._parser.finalize()
        except (ValueError, RuntimeError):
            return []
        return self._told(events)

    def _told(self, events: list[dict[str, Any]]) -> list[Any]:
        serving = _serving()
        out: list[Any] = []
        for item in serving.response_events_to_chunks(events):
            if isinstance(item, serving.ToolCall):
                out += [["call", self._calls, None, item.name], ["arguments", self._calls, item.arguments]]
                self._calls += 1
            else:
                out.append(["reasoning" if isinstance(item, serving.ReasoningText) else "content", str(item)])
        return out


def _message(template: Any, session: dict[str, Any], number: int, text: str) -> dict[str, Any]:
    serving = _serving()
    parsed: dict[str, Any] = _parsing().parse_response(
        text, template, prefix=session["prompt_tail"], tools=session["request"].get("tools")
    )
    fields = importlib.import_module("transformers.utils.chat_template_utils")._REASONING_FIELDS
    reasoning = next((parsed[field] for field in fields if parsed.get(field) is not None), None)
    values: list[Any] = parsed.get("tool_calls") or []
    calls = [serving._normalize_tool_call(value) for value in values]
    return {
        "choice": number, "reasoning": reasoning or None, "content": parsed.get("content") or None,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in calls],
    }  # fmt: skip
