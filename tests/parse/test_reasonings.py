"""Every reasoning variant: how it opens, closes, begins in the prompt and is trimmed; all under every split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from stages import catalog
from stages.events import FinishReason
from stages.opening import TokenizerFacts
from stages.parse.reasonings import REASONINGS
from tests.support.parse import (
    check_partition,
    check_resume,
    check_stream,
    merged,
    message,
    opening,
    semantic,
    session,
    splits,
    tokens,
)


class Kind(NamedTuple):
    """How a family frames its turns, and its literals. ``special``: its literals are special tokens."""

    names: tuple[str, ...]
    opener: str
    closer: str
    turn: str
    """The end of a prompt that neither opens nor closes reasoning."""
    on: str
    """What the prompt adds to open it; "" where the model opens it."""
    off: str
    """What the prompt adds to switch it off; "" where it cannot."""
    special: bool = False
    before: str = ""
    """What the template writes before the closer."""
    after: str = "\n\n"
    """What the template writes behind it."""
    first: str = "\n"
    """What the template writes behind the opener."""


CHATML = "<|im_start|>assistant\n"
GLM = "<|user|>\nhi<|assistant|>"
DEEPSEEK = "<｜User｜>hi<｜Assistant｜>"
KINDS = (
    Kind(("deepseek_r1", "step5"), "<think>", "</think>", DEEPSEEK, "<think>\n", "", before="\n"),
    Kind(("deepseek_v3", "holo2"), "<think>", "</think>", DEEPSEEK, "<think>", "</think>", after="", first=""),
    Kind(
        ("qwen3", "qwen3-thinking", "dots", "interns1", "nanbeige", "exaone4", "smollm3", "step3p5", "lfm2", "hy_v3"),
        "<think>", "</think>", CHATML, "<think>\n", "<think>\n\n</think>\n\n", before="\n",
    ),
    Kind(("nemotron_v3", "nemotron_nano_v2"), "<think>", "</think>", CHATML, "<think>\n", "<think></think>",
         before="\n"),
    Kind(("glm45",), "<think>", "</think>", GLM, "", "\n<think></think>", after="\n", first=""),
    Kind(("glm47", "ling3", "poolside_v1"), "<think>", "</think>", GLM, "<think>", "</think>", after="", first=""),
    Kind(("kimi_k2", "kimi_k25", "mimo"), "<think>", "</think>", "<|im_assistant|>assistant<|im_middle|>", "<think>",
         "<think></think>", after="", first=""),
    Kind(("kimi",), "◁think▷", "◁/think▷", "<|im_assistant|>assistant<|im_middle|>", "", "", after="\n"),
    Kind(("minimax_m2",), "<think>", "</think>", "]~b]ai\n", "<think>\n", "", before="\n"),
    Kind(("minimax_m3",), "<mm:think>", "</mm:think>", "]~b]ai\n", "<mm:think>", "</mm:think>", after="", first=""),
    Kind(("mistral",), "[THINK]", "[/THINK]", "<s>[INST]hi[/INST]", "", "", special=True, after="", first=""),
    Kind(("magistral",), "<think>", "</think>", "<s>[INST]hi[/INST]", "", "", before="\n", after="\n"),
    Kind(("gemma4",), "<|channel>", "<channel|>", "<|turn>model\n", "", "<|channel>thought\n<channel|>", special=True,
         after="", first="thought\n"),
    Kind(("granite_thinking",), "<think>", "</think>", "<|start_of_role|>assistant<|end_of_role|>", "<think>\n",
         "<think>\n\n</think>\n", before="\n", after="\n"),
    Kind(("granite33",), "<think>", "</think>", "<|start_of_role|>assistant<|end_of_role|>", "", "", first="",
         after=""),
    Kind(("ernie45",), "<think>", "</think>", "Assistant: ", "<think>\n", "", before="\n"),
    Kind(("hunyuan_a13b",), "<think>", "</think>", "", "", "<think>\n\n</think>\n", before="\n", after="\n"),
    Kind(("olmo3",), "<think>", "</think>", CHATML, "<think>", "", first="", after=""),
    Kind(("seed_oss",), "<seed:think>", "</seed:think>", "<seed:bos>assistant\n", "<seed:think>", "", first="",
         after=""),
    Kind(("cohere_command3", "cohere_command4"), "<|START_THINKING|>", "<|END_THINKING|>", "<|START_OF_TURN_TOKEN|>",
         "<|START_THINKING|>", "<|START_THINKING|><|END_THINKING|>", special=True, first="", after=""),
    Kind(("apertus",), "<|inner_prefix|>", "<|inner_suffix|>", "<|assistant_start|>", "", "", special=True, first="",
         after=""),
    Kind(("longcat",), "<longcat_think>", "</longcat_think>", "<longcat_assistant>", "<longcat_think>\n", "",
         after="\n"),
    Kind(("plamo3",), "<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>", "<|plamo:tag|>",
         "<|plamo:begin_think:plamo|>", "", first="", after=""),
    Kind(("k2_horizon",), "<ifm|think_fast>", "</ifm|think_fast>", CHATML, "<ifm|think_fast>", "", first="", after=""),
)  # fmt: skip


def variants(kinds: Iterable[Kind] = KINDS) -> pytest.MarkDecorator:
    """Parametrizes by kind and name."""
    pairs = [pytest.param(kind, name, id=name) for kind in kinds for name in kind.names]
    return pytest.mark.parametrize(("kind", "name"), pairs)


def facts(kind: Kind) -> TokenizerFacts:
    """A vocabulary in which the kind's literals are one token each."""
    ids = {kind.opener: 90001, kind.closer: 90002}
    other = {"<|im_end|>": 90003}
    return TokenizerFacts(
        special=ids | other if kind.special else other, added={} if kind.special else ids, eos=(90003,)
    )


def said(kind: Kind, name: str, text: str, tail: str, finish: FinishReason = "eos") -> tuple[Any, ...]:
    """(reasoning, content, faults): the same under every split."""
    opened = opening(f"{name}+plain", tokenizer=facts(kind), tools=())
    first: Any = None
    for split, steps in splits(text, facts(kind), seeds=2):
        inputs = session(steps, tail=tail, finish=finish)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = merged(events)
        first = first or (got, message(events))
        assert got == first[0], split
    return first[1].reasoning, first[1].content, first[1].faults


def test_every_variant_is_here() -> None:
    apart = {"step3", "minimax_m2_append_think", "granite"}
    assert {name for kind in KINDS for name in kind.names} | apart == set(REASONINGS)


@variants()
def test_the_model_opens_it(kind: Kind, name: str) -> None:
    text = f"{kind.opener}{kind.first}low?\n\nor not{kind.before}{kind.closer}{kind.after}Yes.\n"
    assert said(kind, name, text, kind.turn or "x") == ("low?\n\nor not", "Yes.\n", [])


@variants()
def test_no_reasoning(kind: Kind, name: str) -> None:
    text = f"Yes, {kind.opener} is a tag"
    if REASONINGS[name].again:
        text = "Yes, it is a tag"
    faults = ["stray_marker"] if kind.opener in text else []
    assert said(kind, name, text, kind.turn or "x") == (None, text, faults)


@variants()
def test_an_empty_block_is_no_reasoning(kind: Kind, name: str) -> None:
    first = kind.first if kind.first != "\n" else "\n\n"
    assert said(kind, name, f"{kind.opener}{first}{kind.closer}{kind.after}Hi", kind.turn or "x") == (None, "Hi", [])


@variants(kind for kind in KINDS if kind.on)
def test_the_prompt_opens_it(kind: Kind, name: str) -> None:
    tail = kind.turn + kind.on
    text = f"low?{kind.before}{kind.closer}{kind.after}Yes."
    assert said(kind, name, text, tail) == ("low?", "Yes.", [])
    # Many models write the opener once more.
    assert said(kind, name, kind.opener + kind.first + text, tail) == ("low?", "Yes.", [])
    assert said(kind, name, "low? or", tail, "length") == ("low? or", None, ["unclosed_reasoning"])


@variants(kind for kind in KINDS if kind.off)
def test_it_is_off(kind: Kind, name: str) -> None:
    assert said(kind, name, "Yes.", kind.turn + kind.off) == (None, "Yes.", [])


@variants(kind for kind in KINDS if kind.off)
def test_it_is_off_and_the_model_opens_it_all_the_same(kind: Kind, name: str) -> None:
    text = f"{kind.opener}{kind.first}low?{kind.before}{kind.closer}{kind.after}Yes."
    if REASONINGS[name].stray == "always" and kind.off == kind.closer:
        # DeepSeek: behind a closer an opener is text, and the stray closer is swallowed.
        assert said(kind, name, text, kind.turn + kind.off) == (None, f"{kind.opener}low?Yes.", ["stray_marker"] * 2)
    else:
        assert said(kind, name, text, kind.turn + kind.off) == ("low?", "Yes.", [])
        again = f"Yes {kind.opener} no"
        if not REASONINGS[name].again:
            assert said(kind, name, again, kind.turn + kind.off) == (None, again, ["stray_marker"])


@variants()
def test_an_earlier_turn_does_not_count(kind: Kind, name: str) -> None:
    if kind.turn:
        assert said(kind, name, "Yes.", kind.turn + kind.opener + "mm" + kind.turn) == (None, "Yes.", [])


@variants()
def test_cut_inside_the_closer(kind: Kind, name: str) -> None:
    if not kind.special:
        half = kind.closer[: len(kind.closer) // 2]
        text = f"{kind.opener}{kind.first}foo{half}"
        assert said(kind, name, text, kind.turn or "x", "length") == (f"foo{half}", None, ["unclosed_reasoning"])


@variants()
def test_it_resumes_after_every_token(kind: Kind, name: str) -> None:
    opened = opening(f"{name}+plain", tokenizer=facts(kind), tools=())
    text = f"{kind.opener}{kind.first}a\n\nb{kind.before}{kind.closer}{kind.after}Yes\n"
    check_resume(catalog.parser(opened.parser), opened, session(tokens(text, facts(kind)), tail=kind.turn or "x"))


# --- what only one family does ----------------------------------------------------------------------------------------

PLAIN = Kind((), "<think>", "</think>", "", "", "")


@pytest.mark.parametrize("tail", ["", "<|im_start|>assistant\n"])
def test_step3_has_no_opener(tail: str) -> None:
    assert said(PLAIN, "step3", "low?</think>\nYes", tail) == ("low?", "Yes", [])
    assert said(PLAIN, "step3", "low?", tail, "length") == ("low?", None, ["unclosed_reasoning"])


@pytest.mark.parametrize(
    "name", ["deepseek_r1", "qwen3-thinking", "minimax_m2", "kimi_k25", "glm47", "ernie45", "plamo3", "k2_horizon"]
)
def test_without_a_prompt_the_family_decides(name: str) -> None:
    closer = REASONINGS[name].closers[0]
    assert said(PLAIN._replace(closer=closer), name, f"low?{closer}Yes", "") == ("low?", "Yes", [])


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("Here's my thought process: a+b Here is my response: 7", "a+b", "7"),
        ("Here is my thought process:\n\na+b\n\nHere's my response:\n\n7\n", "a+b", "7\n"),
        (" Here is my thought process: a Here is my resp: b Here is my response: 7 ", "a Here is my resp: b", "7 "),
        ("Here is my recipe: salt", None, "Here is my recipe: salt"),
        ("Here is my response: 7", None, "Here is my response: 7"),
        (
            "Here is my thought process: a Here is my response: b Here is my response: c",
            "a",
            "b Here is my response: c",
        ),
        ("No: Here is my thought process: a", None, "No: Here is my thought process: a"),
    ],
)
def test_granite_thinks_in_phrases(text: str, reasoning: str | None, content: str | None) -> None:
    assert said(PLAIN, "granite", text, "<|start_of_role|>assistant<|end_of_role|>") == (reasoning, content, [])


def test_granite_phrases_cut() -> None:
    text = "Here is my thought process: a+b Here is my"
    assert said(PLAIN, "granite", text, "", "length") == ("a+b Here is my", None, ["unclosed_reasoning"])
    assert said(PLAIN, "granite", "Here is my tho", "", "length") == (None, "Here is my tho", [])


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n<answer>\nok\n</answer>", "hm", "ok"),
        ("<think>\nhm\n</think>\n<answer>\nok\n</answer>\n ", "hm", "ok"),
        ("<think>\nhm\n</think>\nok</answer>", "hm", "ok</answer>"),
        ("<think>\nhm\n</think>\n<answer>\na\n</answer>\nb", "hm", "a\n</answer>\nb"),
        ("<think>\nhm\n</think>\n<answer>\na</answer>b</answer>", "hm", "a</answer>b"),
        ("<think>\nhm\n</think>\n<answer>\nok\n", "hm", "ok\n"),
        ("<think>\nhm\n</think>\nuse <answer> here", "hm", "use <answer> here"),
    ],
)
def test_a_wrapped_answer(text: str, reasoning: str | None, content: str | None) -> None:
    assert said(PLAIN, "hunyuan_a13b", text, "x") == (reasoning, content, [])
    text, content = text.replace("answer>", "response>"), content and content.replace("answer>", "response>")
    assert said(PLAIN, "granite33", text, "x") == (reasoning, content, [])


def test_append_think_splits_nothing() -> None:
    got = said(PLAIN, "minimax_m2_append_think", "\nlow?\n</think>\n\nYes", "]~b]ai\n<think>\n")
    assert got == (None, "<think>\nlow?\n</think>\n\nYes", [])


def test_mistral_may_think_again() -> None:
    kind = next(kind for kind in KINDS if "mistral" in kind.names)
    got = said(kind, "mistral", "[THINK]a[/THINK]One. [THINK]b[/THINK] Two.", kind.turn)
    assert got == ("a\nb", "One.  Two.", [])


def test_apertus_goes_on_with_its_content() -> None:
    kind = next(kind for kind in KINDS if "apertus" in kind.names)
    assert said(kind, "apertus", "Hi<|inner_prefix|>x<|inner_suffix|> there", kind.turn) == ("x", "Hi there", [])


def test_deepseek_swallows_a_closer_anywhere() -> None:
    kind = KINDS[1]
    got = said(kind, "deepseek_v3", "Use </think> as closer", kind.turn + "</think>")
    assert got == (None, "Use  as closer", ["stray_marker"])


def test_gemma_labels_its_channel() -> None:
    kind = next(kind for kind in KINDS if "gemma4" in kind.names)
    assert said(kind, "gemma4", "<|channel>plan\nebb<channel|>Done.", kind.turn) == ("ebb", "Done.", [])
    assert said(kind, "gemma4", "<|channel><channel|>Done.", kind.turn) == (None, "Done.", [])
    cut = said(kind, "gemma4", "<|channel>thou", kind.turn, "length")
    assert cut == (None, None, ["unclosed_reasoning"])
