"""mistral-common encodes, we read; and its own decoder reads the same ids beside us. Versions v2 to v15.

The library ships the vocabularies of v2, v3 and v7 and of tekken. Later versions have the tekken vocabulary with more
control tokens; no package has their files, so their ids are the documented ones.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stages.opening import TokenizerFacts
from tests.support.format_checks import same_value
from tests.support.generate import header_json as ours
from tests.support.generate.message import Limits, Meant, tools_for
from tests.support.oracle_losses import BLANK_FIRST, EITHER, MISTRAL, Loss, after
from tests.support.oracles import Output, check_output, drawn, packaged, vendor

SEEDS = 10
_LATE = {"[ARGS]": 32, "[CALL_ID]": 33, "[THINK]": 34, "[/THINK]": 35, "[MODEL_SETTINGS]": 36, "[/MODEL_SETTINGS]": 37}
_MARKERS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "[INST]", "</s>")
_NAMES = string.ascii_letters + string.digits + "_-"


# --- versions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """How one version of the library writes an assistant's message."""

    name: str
    instruct: Callable[[], Any]
    reasons: bool = False
    """It writes reasoning."""
    expected: TokenizerFacts = ours.TEKKEN13
    """What our generator takes for its control tokens."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        return MISTRAL[self.name]


def _instruct(number: int, tokenizer: Callable[[], Any]) -> Callable[[], Any]:
    name = f"InstructTokenizerV{number}"
    return lambda: getattr(vendor("mistral_common.tokens.tokenizers.instruct"), name)(tokenizer())


@functools.cache
def spm(file: str) -> Any:
    """A SentencePiece vocabulary of the library."""
    path = packaged("mistral-common", f"mistral_common/data/{file}")
    return vendor("mistral_common.tokens.tokenizers.sentencepiece").SentencePieceTokenizer(str(path))


@functools.cache
def tekken() -> Any:
    """The tekken vocabulary with the control tokens up to v13; versions differ only in which of them they write."""
    lib: Any = vendor("mistral_common.tokens.tokenizers.tekken")
    base: Any = vendor("mistral_common.tokens.tokenizers.base")
    data = json.loads(packaged("mistral-common", "mistral_common/data/tekken_240911.json").read_bytes())
    special = list(lib.Tekkenizer.DEPRECATED_SPECIAL_TOKENS)
    late = {number: text for text, number in _LATE.items()}
    for rank in range(len(special), max(late) + 1):
        text = late.get(rank, f"<SPECIAL_{rank}>")
        special.append(lib.SpecialTokenInfo(rank=rank, token_str=text, is_control=True))
    config = data["config"]
    return lib.Tekkenizer(
        data["vocab"], special, config["pattern"], config["default_vocab_size"], config["default_num_special_tokens"],
        base.TokenizerVersion.v13,
    )  # fmt: skip


def _spm(file: str) -> Callable[[], Any]:
    return lambda: spm(f"mistral_instruct_tokenizer_{file}")


VERSIONS = (
    Version("v2", _instruct(2, _spm("240216.model.v2")), expected=ours.SPM),
    Version("v3", _instruct(3, _spm("240323.model.v3")), expected=ours.SPM),
    Version("v3-tekken", _instruct(3, tekken)),
    Version("v7", _instruct(7, _spm("241114.model.v7")), expected=ours.SPM),
    Version("v7-tekken", _instruct(7, tekken)),
    Version("v11", _instruct(11, tekken)),
    Version("v13", _instruct(13, tekken), reasons=True),
    Version("v15", _instruct(15, tekken), reasons=True),
)


def facts(tokenizer: Any, expected: TokenizerFacts) -> TokenizerFacts:
    """The control tokens of the vocabulary, as far as our generator names them."""
    special = {text: tokenizer.get_special_token(text) for text in expected.special if text != "<unk>"}
    return TokenizerFacts(special=special | {"<unk>": tokenizer.unk_id}, eos=(tokenizer.eos_id,))


def pieces(tokenizer: Any, ids: list[int]) -> list[bytes]:
    """The bytes of each id, as the engine's piece table has them."""
    if hasattr(tokenizer, "id_to_byte_piece"):
        keep = vendor("mistral_common.tokens.tokenizers.base").SpecialTokenPolicy.KEEP
        return [tokenizer.id_to_byte_piece(number, keep) for number in ids]
    found: list[bytes] = []
    for number in ids:
        text: str = tokenizer.id_to_piece(number)
        byte = re.fullmatch("<0x([0-9A-F]{2})>", text)
        found.append(bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode())
    return found


def written(version: Version, meant: Meant, numbers: list[str]) -> tuple[Output, list[int]]:
    """The assistant's turn as the library encodes it."""
    lib: Any = vendor("mistral_common.protocol.instruct.messages")
    chunks: Any = vendor("mistral_common.protocol.instruct.chunk")
    tools: Any = vendor("mistral_common.protocol.instruct.tool_calls")
    instruct = version.instruct()
    content: Any = meant.content
    if meant.reasoning is not None:
        content = [chunks.ThinkChunk(thinking=meant.reasoning, closed=True)]
        content += [chunks.TextChunk(text=meant.content)] if meant.content else []
    calls = [
        tools.ToolCall(
            id=number,
            function=tools.FunctionCall(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False)),
        )
        for call, number in zip(meant.calls, numbers, strict=True)
    ]
    spoken = lib.AssistantMessage(content=content, tool_calls=calls or None)
    ids = instruct.encode_assistant_message(spoken, False)
    tokenizer = instruct.tokenizer
    tokens = list(zip(ids, pieces(tokenizer, ids), strict=True))
    known = facts(tokenizer, version.expected)
    return Output("mistral", known, tokens, "[INST]hello[/INST]", tools_for(meant)), ids


def message(version: Version, seed: int) -> tuple[Meant, list[str]]:
    """A message that the library accepts, and ids for its calls."""
    limits = Limits(reasoning=version.reasons, between=False, after=False, names=_NAMES)
    meant, dice = drawn(f"mistral {version.name}", seed, limits, _MARKERS, thinks=True)
    if EITHER in version.losses:
        meant = EITHER.apply(meant)  # the library refuses both
    return meant, ["".join(dice.choice(string.ascii_letters) for _ in range(9)) for _ in meant.calls]


each = pytest.mark.parametrize("version", VERSIONS, ids=[version.name for version in VERSIONS])


@each
def test_the_ids_of_our_generator_are_the_library_s(version: Version) -> None:
    assert facts(version.instruct().tokenizer, version.expected).special == version.expected.special


@each
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_the_library_encodes_comes_back(version: Version, seed: int) -> None:
    meant, numbers = message(version, seed)
    output, ids = written(version, meant, numbers)
    check_output(output, after(meant, version.losses))
    got = output.read("incremental", ("one",))
    reasoning, content, calls = theirs(version, ids)
    blank = " " if BLANK_FIRST in version.losses and content else ""
    assert (got.reasoning, got.content) == (reasoning, blank + content if content else None)
    assert [call.name for call in got.calls] == [name for name, _, _ in calls]
    assert all(same_value(call.value(), value) for call, (_, value, _) in zip(got.calls, calls, strict=True))
    if version.name == "v11":
        assert output.ids() == numbers == [number for _, _, number in calls]


def theirs(version: Version, ids: list[int]) -> tuple[str | None, str | None, list[tuple[str, Any, str]]]:
    """Reasoning, content and calls (name, arguments, id) as the library's own decoder has them."""
    lib: Any = vendor("mistral_common.experimental.tools")
    think: Any = vendor("mistral_common.experimental.think")
    tokenizer = version.instruct().tokenizer
    content, runs = lib._split_content_and_tool_calls(ids, tokenizer.get_special_token("[TOOL_CALLS]"))
    parts = [(content, False)]
    if version.reasons:
        parts = think._split_content_and_think_chunks(content, _LATE["[THINK]"], _LATE["[/THINK]"])
    texts = ["".join(tokenizer.decode(part) for part, thought in parts if thought is kind) for kind in (True, False)]
    calls: list[Any] = []
    for run in runs:
        if version.name == "v11":
            calls.append(lib._decode_tool_call_v11_with_call_id(run, tokenizer))
        elif version.reasons:
            calls.append(lib._decode_tool_call_v11(run, tokenizer))
        else:
            calls += lib._decode_tool_calls_v2_up_to_v7(run, tokenizer)
    found = [(call.function.name, json.loads(call.function.arguments), call.id) for call in calls]
    return texts[0] or None, texts[1] or None, found
