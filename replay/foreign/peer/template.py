"""template: Hugging Face response templates, parsed as ``transformers serve`` does it (5.24).

``template`` takes the template of ``--tokenizer PATH`` (its ``tokenizer_config.json``, else the one that transformers
has for the model type of its ``config.json``), or ``response_template`` of the request's body. ``template:qwen3`` takes
the one that transformers has for that model type.
"""

from __future__ import annotations

import codecs
import importlib
import json
import os
import time
from importlib.metadata import version as version_of
from typing import Any

from .worker import Absent, Missing, Unsupported, described


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
    folder = facts.get("tokenizer")
    return Adapter(_of_folder(folder) if folder else None)


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
    """A response template, or none where the request must bring it."""

    def __init__(self, template: Any) -> None:
        self.template = template

    def session(self, session: dict[str, Any]) -> dict[str, Any]:
        """See ``worker``."""
        template = self.template or session["request"].get("response_template")
        if template is None:
            raise Unsupported(
                "the response template is not recorded: give --tokenizer PATH, a folder whose tokenizer_config.json "
                "has response_template, or template:MODEL_TYPE"
            )
        try:
            template = importlib.import_module(
                "transformers.utils.chat_parsing.response_templates"
            ).load_response_template(template)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"transformers refuses the response template: {error}") from error
        return _streamed(template, session) | _whole(template, session)


def _streamed(template: Any, session: dict[str, Any]) -> dict[str, Any]:
    """What it streams: each token is fed by itself."""
    steps: list[dict[str, Any]] = session["steps"]
    last = {step["choice"]: at for at, step in enumerate(steps)}
    choices: dict[int, _Choice] = {}
    out: list[list[Any]] = []
    flush: dict[str, list[Any]] = {}
    error: dict[str, str] | None = None
    ns = 0
    for at, step in enumerate(steps):
        number = step["choice"]
        begun = time.perf_counter_ns()
        try:
            if number not in choices:
                choices[number] = _Choice(template, session)
            out.append(choices[number].step(step))
            if last[number] == at and str(number) in session["finish"]:
                flush[str(number)] = choices[number].end()
        except Exception as raised:  # the template's parser: the stream ends with an error
            error = described(raised)
            break
        ns += time.perf_counter_ns() - begun
    return {"steps": out, "flush": flush, "error": error, "ns": ns}


class _Choice:
    def __init__(self, template: Any, session: dict[str, Any]) -> None:
        self._parser = _parsing().ResponseParser(
            template, prefix=session["prompt_tail"], tools=session["request"].get("tools")
        )
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._calls = 0
        self._first: list[Any] = list(self._parser.initial_events)

    def step(self, step: dict[str, Any]) -> list[Any]:
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


def _whole(template: Any, session: dict[str, Any]) -> dict[str, Any]:
    """What it answers without streaming; None where a choice did not end."""
    texts: dict[int, list[bytes]] = {}
    for step in session["steps"]:
        pieces = [piece.encode("latin-1") for piece in step["pieces"]] or [step["text"].encode("utf-8", "replace")]
        texts.setdefault(step["choice"], []).extend(pieces)
    if not all(str(number) in session["finish"] for number in texts):
        return {"one_shot": None, "one_shot_error": None}
    try:
        found = [
            _message(template, session, number, b"".join(texts[number]).decode("utf-8", "replace"))
            for number in sorted(texts)
        ]
    except Exception as raised:  # the template's parser: status 500
        return {"one_shot": None, "one_shot_error": described(raised)}
    return {"one_shot": found, "one_shot_error": None}


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
