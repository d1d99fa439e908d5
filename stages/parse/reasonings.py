"""How model families write reasoning: the tables, by the names under which their users know them.

    output    ::= [ opener ] reasoning closer sep content | [ opener ] reasoning | content
    reasoning ::= TEXT-until(closer | call)

The scanner reads them all; formats refer to them, and a pair ``reasoning+tools`` takes one by name.
"""

from dataclasses import replace
from typing import Final

from stages.parse.format import Reasoning

VERSION: Final = 1
"""Rises when any of these tables changes what comes out."""
TURNS: Final = (
    "<|im_start|>", "<|start_header_id|>", "<|header_start|>", "<|eot_id|>", "<｜Assistant｜>", "<｜User｜>",
    "<|assistant|>", "<|user|>", "<|observation|>", "<|im_assistant|>", "<|im_user|>", "<|im_system|>", "[INST]",
    "[/INST]", "<start_of_turn>", "<|turn>", "]~b]", "<seed:bos>", "<longcat_assistant>", "<longcat_user>",
    "<|start_of_role|>", "<|START_OF_TURN_TOKEN|>", "<|assistant_start|>", "<|user_start|>", "<|plamo:tag|>",
    "<｜hy_Assistant｜>", "<｜hy_User｜>", "<|message_sep|>",
)  # fmt: skip
"""What opens a turn in the prompts of all families: only the last turn's reasoning counts."""

THINK: Final = Reasoning(openers=("<think>",), closers=("</think>",), turns=TURNS)
INSIDE: Final = replace(THINK, inside=True)
"""The prompt opens reasoning, or the model always does."""
DEEPSEEK: Final = replace(THINK, stray="always")
R1: Final = replace(DEEPSEEK, inside=True)
CLOSER: Final = Reasoning(openers=(), closers=("</think>",), turns=TURNS, inside=True)
"""No opener: all up to the closer is reasoning."""
KIMI: Final = replace(THINK, trim="none")
MISTRAL: Final = Reasoning(openers=("[THINK]",), closers=("[/THINK]",), turns=TURNS, trim="none", again=True,
                           stray="always")  # fmt: skip
GEMMA4: Final = Reasoning(openers=("<|channel>",), closers=("<channel|>",), turns=TURNS, label=True, again=True)
GRANITE: Final = Reasoning(
    openers=("Here is my thought process:", "Here's my thought process:"),
    closers=("Here is my response:", "Here's my response:"),
    trim="space", calls="text", stray="never",
)  # fmt: skip
RESPONSE: Final = replace(THINK, wrapper=("<response>", "</response>"))
M3: Final = Reasoning(openers=("<mm:think>",), closers=("</mm:think>",), turns=TURNS)
SEED: Final = Reasoning(openers=("<seed:think>",), closers=("</seed:think>",), turns=TURNS)
HUNYUAN: Final = replace(THINK, calls="text", wrapper=("<answer>", "</answer>"))
COHERE: Final = Reasoning(openers=("<|START_THINKING|>",), closers=("<|END_THINKING|>",), turns=TURNS)
APERTUS: Final = Reasoning(openers=("<|inner_prefix|>",), closers=("<|inner_suffix|>",), turns=TURNS, trim="none",
                           again=True, calls="inside")  # fmt: skip
LONGCAT: Final = Reasoning(openers=("<longcat_think>",), closers=("</longcat_think>",), turns=TURNS)
PLAMO: Final = Reasoning(openers=("<|plamo:begin_think:plamo|>",), closers=("<|plamo:end_think:plamo|>",), turns=TURNS,
                         inside=True, trim="none")  # fmt: skip
HORIZON: Final = Reasoning(
    openers=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
    closers=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    turns=TURNS, inside=True, trim="none",
)  # fmt: skip

REASONINGS: Final[dict[str, Reasoning]] = {
    "deepseek_r1": R1, "deepseek_v3": DEEPSEEK, "holo2": DEEPSEEK, "qwen3": THINK, "qwen3-thinking": INSIDE,
    "exaone4": THINK, "smollm3": THINK, "interns1": THINK, "nanbeige": THINK, "dots": THINK, "minimax_m2": INSIDE,
    "nemotron_v3": replace(INSIDE, trim="space"), "nemotron_nano_v2": INSIDE, "step3": CLOSER, "step3p5": INSIDE,
    "step5": R1, "glm45": THINK, "glm47": INSIDE, "ling3": INSIDE, "poolside_v1": THINK, "kimi_k2": KIMI,
    "kimi_k25": replace(KIMI, inside=True),
    "kimi": Reasoning(openers=("◁think▷",), closers=("◁/think▷",), turns=TURNS),
    "minimax_m2_append_think": Reasoning((), (), prefix="<think>"), "minimax_m3": M3, "mistral": MISTRAL,
    "magistral": THINK, "gemma4": GEMMA4, "granite": GRANITE, "granite33": RESPONSE, "granite_thinking": INSIDE,
    "olmo3": replace(THINK, trim="none"), "seed_oss": SEED,
    "ernie45": replace(RESPONSE, turns=(*TURNS, "Assistant:"), inside=True), "hunyuan_a13b": HUNYUAN, "hy_v3": THINK,
    "cohere_command3": COHERE, "cohere_command4": replace(COHERE, inside=True), "apertus": APERTUS,
    "longcat": LONGCAT, "lfm2": THINK, "plamo3": PLAMO, "k2_horizon": HORIZON, "mimo": replace(THINK, trim="none"),
}  # fmt: skip
"""Name → table, for pairs. A format's own name stands for its reasoning too."""
