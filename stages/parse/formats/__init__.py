"""All formats, in the order in which lists show them. One import and one line a family."""

from typing import Final

from stages.parse.format import Format
from stages.parse.formats.deepseek import DEEPSEEK_R1, DEEPSEEK_V3, DEEPSEEK_V31
from stages.parse.formats.harmony import HARMONY
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.kimi_k2 import KIMI_K2, KIMI_K25
from stages.parse.formats.llama_function import LLAMA_FUNCTION
from stages.parse.formats.mistral import MAGISTRAL, MISTRAL
from stages.parse.formats.plain import PLAIN
from stages.parse.formats.think import THINK
from stages.parse.formats.plamo3 import PLAMO3

FORMATS: Final[tuple[Format, ...]] = (
    PLAIN,
    THINK,
    HERMES,
    HARMONY,
    DEEPSEEK_V3,
    DEEPSEEK_R1,
    DEEPSEEK_V31,
    KIMI_K2,
    KIMI_K25,
    MISTRAL,
    MAGISTRAL,
    PLAMO3,
    LLAMA_FUNCTION,
)
