"""sglang_thinking: does a model's output begin inside its reasoning? SGLang decides it before the first token."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any


def forced(name: str, detector: Any, request: Any, template: str | None, tail: str) -> bool:
    """What SGLang gives its reasoning parser ``name`` as ``force_reasoning``.

    It looks at the chat template, which no session has: with --tokenizer it is known. Without, the end of the prompt
    says what the template wrote, and else the parser's own default holds, as with a template that tells nothing.
    """
    arguments: dict[str, Any] = request.chat_template_kwargs or {}
    if name == "iquest_q1":
        return bool(detector.thinking_enabled(arguments))
    if name == "minimax-m3":
        return arguments.get("thinking_mode") == "enabled"
    if name == "hunyuan":
        return request.reasoning_effort not in (None, "none", "no_think")
    toggle = _toggle(template)
    if toggle is not None:
        return _toggled(toggle, arguments, request)
    written = _written(detector, tail)
    return _by_default(detector, arguments, request) if written is None else written


def _written(detector: Any, tail: str) -> bool | None:
    """What the prompt's end says; None where it says nothing."""
    ends = tail.rstrip()
    if detector.think_start_token and ends.endswith(detector.think_start_token):
        return True
    if detector.think_end_token and ends.endswith(detector.think_end_token):
        return False
    return None


def _by_default(detector: Any, arguments: dict[str, Any], request: Any) -> bool:
    mode: str | None = detector.reasoning_default
    if mode == "always":
        return True
    if mode == "mistral":
        return request.reasoning_effort not in (None, "none")
    if mode in ("thinking", "enable_thinking"):
        return arguments.get(mode) is not False
    return mode is not None and arguments.get(mode.removeprefix("explicit_")) is True


def _toggled(toggle: Any, arguments: dict[str, Any], request: Any) -> bool:
    if toggle.special_case == "always":
        return True
    if toggle.special_case == "mistral":
        return request.reasoning_effort not in (None, "none")
    if toggle.toggle_param is None or toggle.default_enabled is None:
        return False
    asked = arguments.get(toggle.toggle_param)
    return asked is not False if toggle.default_enabled else asked is True


def _toggle(template: str | None) -> Any:
    """How a chat template turns thinking on and off, in SGLang's words; None where it does not say."""
    if template is None:
        return None
    try:
        detection: Any = importlib.import_module("sglang.srt.parser.template_detection")
    except ImportError:
        return None  # it imports kernels and torchvision, which an environment without a GPU may not have
    return detection.detect_reasoning_pattern(template)[1]


def chat_template(folder: str) -> str | None:
    """The chat template in a tokenizer's folder; None where there is none."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            return file.read()
    path = os.path.join(folder, "tokenizer_config.json")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        found = json.load(file).get("chat_template")
    return found if isinstance(found, str) else None
