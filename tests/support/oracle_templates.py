"""The vendors' chat templates as oracles: which file writes which family, in which vocabulary, and what is lost."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from stages.opening import TokenizerFacts
from tests.support.generate import brace, hermes, json_bare, kv_tags, xml_schema, xml_typed
from tests.support.generate import harmony as gpt_oss
from tests.support.generate.family import Family, spelled
from tests.support.generate.message import WORD_CHARS, Limits, Meant, tools_for
from tests.support.oracle_losses import (
    CALLS_ONLY,
    CONTENT_BEHIND,
    CONTENT_END,
    CONTENT_ENDS,
    CONTENT_SPACE,
    CONTENT_START,
    HARMONY,
    MISTRAL,
    NFC,
    THOUGHT_BESIDE_CALLS,
    THOUGHT_ENDS,
    THOUGHT_NEWLINE,
    THOUGHT_NEWLINES,
    THOUGHT_SPACE,
    Loss,
    after,
)
from tests.support.oracle_vocabularies import Vocabulary, borrowed, deepseek, qwen3, qwen35
from tests.support.oracles import Output, drawn, packaged, vendor

Messages = list[dict[str, Any]]
Render = Callable[[Messages, bool, dict[str, Any]], str]
"""(messages, whether the prompt for the next answer follows, the template's switches) → text."""


# --- who writes ------------------------------------------------------------------------------------------------------


def jinja(name: str) -> Render:
    """A chat template that TRL ships as the vendor's repository has it."""

    @functools.cache
    def source() -> str:
        return packaged("trl", f"trl/chat_templates/{name}.jinja").read_text()

    def render(messages: Messages, prompts: bool, switches: dict[str, Any]) -> str:
        lib: Any = vendor("transformers.utils.chat_template_utils")
        texts, _ = lib.render_jinja_template(
            [messages], chat_template=source(), add_generation_prompt=prompts, bos_token="", eos_token="", **switches
        )
        return str(texts[0])

    return render


@functools.cache
def _dsml() -> Any:
    path = packaged("mlx-lm", "mlx_lm/chat_templates/deepseek_v32.py")
    spec = importlib.util.spec_from_file_location("oracle_deepseek_v32", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dsml(messages: Messages, prompts: bool, switches: dict[str, Any]) -> str:
    """DeepSeek V3.2's encoder, as mlx-lm ships it."""
    del prompts
    return str(_dsml().encode_messages(messages, **switches))


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A vendor's template (or encoder) of one family."""

    name: str
    parser: str
    render: Render
    vocabulary: Callable[[], Vocabulary]
    opener: str = ""
    """What begins the assistant's turn, where the template writes the turn otherwise than its prompt begins it."""
    ends: tuple[str, ...] = ()
    """What ends generation; behind it the template writes what the engine never sees."""
    losses: tuple[Loss, ...] = ()
    limits: Limits = field(default_factory=Limits)
    markers: tuple[str, ...] = ()
    kinds: dict[str, dict[str, Any]] = field(default_factory=lambda: {"plain": dict[str, Any]()})
    """Switches of the template by kind of prompt; ``off`` has no reasoning."""
    thought: str = "reasoning_content"
    """The message's field for reasoning."""
    thinks: bool = False
    """The template refuses an answer without reasoning, where it is on."""
    unthinking: bool = False
    """The template knows no reasoning."""
    text_arguments: bool = False
    """Arguments are given as JSON text, not as an object."""

    def message(self, seed: int) -> tuple[Meant, str]:
        """A seeded message, and the kind of its prompt."""
        kind = list(self.kinds)[seed % len(self.kinds)]
        thinks = kind != "off" and not self.unthinking
        meant, _ = drawn(f"{self.name} {kind}", seed, self.limits, self.markers, thinks=thinks)
        if self.thinks and kind != "off" and meant.reasoning is None:
            meant = replace(meant, reasoning="tide?")
        return meant, kind

    def written(self, meant: Meant, kind: str, *, spell: bool) -> Output:
        """The assistant's turn as the template writes it. The letters of special tokens in the message are spelled,
        and with ``spell`` those of added tokens too."""
        vocab = self.vocabulary()
        tools = tools_for(meant)
        answer = self._answer(spelled(meant, (*vocab.facts.special, *(vocab.facts.added if spell else ()))))
        ask: Messages = [{"role": "user", "content": "hello"}]
        switches = self.kinds[kind]
        whole = self.render([*ask, answer], False, switches)
        tail = self.render(ask, True, switches)
        if not whole.startswith(tail):
            tail = self.render(ask, False, switches) + self.opener
            assert whole.startswith(tail), (whole, tail)
        raw = whole[len(tail) :]
        raw = raw[: min([raw.index(end) + len(end) for end in self.ends if end in raw], default=None)]
        return Output(self.parser, vocab.facts, vocab.tokens(raw), tail, tools)

    def _answer(self, meant: Meant) -> dict[str, Any]:
        calls: list[dict[str, Any]] = []
        for i, call in enumerate(meant.calls):
            arguments: Any = json.dumps(call.arguments, ensure_ascii=False) if self.text_arguments else call.arguments
            function = {"name": call.name, "arguments": arguments}
            calls.append({"type": "function", "id": f"call_{i}", "function": function})
        answer: dict[str, Any] = {"role": "assistant", "content": meant.content or ""}
        if meant.reasoning is not None:
            answer[self.thought] = meant.reasoning
        if calls:
            answer["tool_calls"] = calls
        return answer

    def left(self, meant: Meant) -> Meant:
        """What of the message comes back."""
        return after(meant, self.losses)


# --- the table -------------------------------------------------------------------------------------------------------

_THINKING: dict[str, dict[str, Any]] = {"thinking": {}, "off": {"enable_thinking": False}}
_PLAIN: dict[str, dict[str, Any]] = {"plain": {}, "off": {"enable_thinking": False}}
_SENTENCE_END = ("<｜end▁of▁sentence｜>",)


def _from(module: Any, name: str) -> Family:
    """The generator whose limits, markers and vocabulary a template shares."""
    families: tuple[Family, ...] = module.FAMILIES
    return next(family for family in families if family.name == name)


def _of(family: Family, name: str, parser: str, *losses: Loss, limits: Limits | None = None, **fields: Any) -> Template:
    """A row. Templates write content before calls only. Without ``vocabulary``: the generator's tokens in o200k."""
    base = replace(limits or family.limits, between=False, after=False)
    fields.setdefault("vocabulary", functools.cache(lambda: borrowed(family.tokenizer)))
    fields.setdefault("render", jinja(name))
    return Template(name, parser, losses=losses, limits=base, markers=family.markers, **fields)


def _hermes(name: str, parser: str, *losses: Loss, **fields: Any) -> Template:
    return _of(
        _from(hermes, "hermes"), name, parser, *losses, vocabulary=qwen3, opener="<|im_start|>assistant\n",
        ends=("<|im_end|>",), **fields,
    )  # fmt: skip


def _xml(name: str, parser: str, *losses: Loss) -> Template:
    return _of(
        _from(xml_schema, "qwen3.5"), name, parser, *losses, vocabulary=qwen35, opener="<|im_start|>assistant\n",
        ends=("<|im_end|>",), kinds=_THINKING,
    )  # fmt: skip


def _gemma(name: str, *losses: Loss) -> Template:
    return _of(
        _from(brace, "gemma4"), name, "gemma4", *losses, THOUGHT_NEWLINE, CONTENT_SPACE, opener="<|turn>model\n",
        ends=("<turn|>", "<|tool_response>"), kinds={"plain": {}, "thinking": {"enable_thinking": True}},
    )  # fmt: skip


def _lfm(name: str, *losses: Loss) -> Template:
    limits = Limits(
        between=False, after=False, reasoning=bool(losses), names=WORD_CHARS, keys=WORD_CHARS,
        prose_never=("<think>", "</think>"),
        strings_never=("'", "\\"),  # the template writes strings as they are, between single quotes
    )  # fmt: skip
    return Template(
        name, "lfm2", jinja(name), functools.cache(lambda: borrowed(_LFM)), "", ("<|im_end|>",), (*losses, CONTENT_END),
        limits, ("<|tool_call_end|>", "<think>"), thought="thinking",
    )  # fmt: skip


def _llama(name: str) -> Template:
    family = _from(json_bare, "llama3_json")
    limits = replace(family.limits, calls=1)
    return _of(family, name, "llama3.1", CALLS_ONLY, CONTENT_SPACE, limits=limits, ends=("<|eot_id|>",))


_LFM = TokenizerFacts(
    special={
        "<|startoftext|>": 1, "<|im_start|>": 6, "<|im_end|>": 7, "<|tool_call_start|>": 10, "<|tool_call_end|>": 11,
    },
    eos=(7,),
)  # fmt: skip
_DSML = _from(xml_typed, "deepseek_v32")
_GPT_OSS = gpt_oss.FAMILIES[0]

TEMPLATES: tuple[Template, ...] = (
    _hermes("qwen2_5", "qwen2.5", NFC, CONTENT_END, unthinking=True),
    _hermes("qwen3", "qwen3", NFC, THOUGHT_NEWLINES, CONTENT_START, CONTENT_END, kinds=_PLAIN),
    _hermes("qwen3_instruct_2507", "qwen3", NFC, CONTENT_END, unthinking=True),
    _xml("qwen3_5_think", "qwen3.5", NFC, THOUGHT_SPACE, CONTENT_SPACE),
    _xml("qwen3_6", "qwen3.6", NFC, THOUGHT_SPACE, CONTENT_SPACE),
    _xml("qwen3_8", "qwen3.8", NFC, THOUGHT_SPACE, CONTENT_SPACE),
    _xml("nemotron_3_nano", "nemotron3", NFC, THOUGHT_ENDS, CONTENT_ENDS),
    _xml("nemotron_3_super", "nemotron3", NFC, THOUGHT_ENDS, CONTENT_ENDS),
    _xml("nemotron_3_ultra", "nemotron3", NFC, THOUGHT_ENDS, CONTENT_ENDS),
    _xml("nemotron_3_5_lightning", "nemotron3", NFC, THOUGHT_ENDS, CONTENT_ENDS),
    _of(_from(kv_tags, "glm"), "glm4moe", "glm45", THOUGHT_SPACE, CONTENT_SPACE, opener="<|assistant|>", kinds=_PLAIN),
    _of(
        _from(xml_typed, "deepseek_v32"), "deepseekv3", "deepseek_v3", CONTENT_END, vocabulary=deepseek,
        opener="<｜Assistant｜>", ends=_SENTENCE_END, limits=Limits(), unthinking=True, text_arguments=True,
    ),
    _of(
        _DSML, "deepseek_v32", "deepseek_v32", THOUGHT_NEWLINE, CONTENT_START, CONTENT_END, render=dsml,
        vocabulary=deepseek, ends=_SENTENCE_END, thinks=True, text_arguments=True,
        kinds={"thinking": {"thinking_mode": "thinking"}, "off": {"thinking_mode": "chat"}},
    ),
    _gemma("gemma4_v4", THOUGHT_BESIDE_CALLS),
    _gemma("gemma4_v5"),
    _lfm("lfm2_v2"),
    _lfm("lfm2_2_5", THOUGHT_NEWLINE, CONTENT_BEHIND),
    _lfm("lfm2_2_5_v2", THOUGHT_NEWLINE, CONTENT_BEHIND),
    _llama("llama3_1"),
    _llama("llama3_2"),
    _of(
        _GPT_OSS, "gptoss", "gpt-oss", limits=Limits(calls=1, before=False), ends=("<|return|>",), thought="thinking",
    ),
)  # fmt: skip


def losses() -> list[tuple[str, str, tuple[Loss, ...]]]:
    """(oracle, format, losses) of all oracles, in the order in which they apply."""
    return [
        ("openai-harmony", "harmony", HARMONY),
        *((f"mistral-common {version}", "mistral", listed) for version, listed in MISTRAL.items()),
        *((f"template {template.name}", template.parser, template.losses) for template in TEMPLATES),
    ]
