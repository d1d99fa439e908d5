"""Reasoning and nothing else: content behind it is content, whatever it holds.

output ::= [ "<think>" reasoning "</think>" ] content                    (the prompt may have opened or closed it)
"""

from typing import Final

from stages.parse.format import Format
from stages.parse.reasonings import THINK as REASONING

THINK: Final = Format(
    name="think",
    version=2,
    grammar="reasoning tags",
    summary="<think> reasoning; calls stay in the text",
    aliases=("think-tags", "reasoning-think"),
    models=("any model that reasons inside <think> tags, calls left in the text",),
    reasoning=REASONING,
    enders=("<|im_end|>", "<|endoftext|>"),
)
