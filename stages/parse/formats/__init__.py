"""All formats, in the order in which lists show them. One import and one line a family."""

from typing import Final

from stages.parse.format import Format
from stages.parse.formats.apertus import APERTUS
from stages.parse.formats.cohere import COHERE_COMMAND3, COHERE_COMMAND4
from stages.parse.formats.cohere_command5 import COHERE_COMMAND5
from stages.parse.formats.deepseek import DEEPSEEK_R1, DEEPSEEK_V3, DEEPSEEK_V31
from stages.parse.formats.deepseek_dsml import DEEPSEEK_V4, DEEPSEEK_V32
from stages.parse.formats.dots import DOTS
from stages.parse.formats.ernie45 import ERNIE45
from stages.parse.formats.functiongemma import FUNCTIONGEMMA
from stages.parse.formats.gemma3 import GEMMA3
from stages.parse.formats.gemma4 import GEMMA4
from stages.parse.formats.gigachat3 import GIGACHAT3
from stages.parse.formats.gigachat35 import GIGACHAT35
from stages.parse.formats.glm import GLM, GLM47, LAGUNA, LING3
from stages.parse.formats.granite import GRANITE3
from stages.parse.formats.granite4 import GRANITE4
from stages.parse.formats.granite20b import GRANITE20B
from stages.parse.formats.harmony import HARMONY
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.hunyuan_a13b import HUNYUAN_A13B
from stages.parse.formats.hy import HY_V3, HY_V4
from stages.parse.formats.inkling import INKLING
from stages.parse.formats.internlm2 import INTERNLM2
from stages.parse.formats.iquest import IQUEST
from stages.parse.formats.jamba import JAMBA
from stages.parse.formats.k2_horizon import K2_HORIZON
from stages.parse.formats.kimi_k2 import KIMI_K2, KIMI_K25
from stages.parse.formats.kimi_k3 import KIMI_K3
from stages.parse.formats.lfm2 import LFM2
from stages.parse.formats.llama4 import LLAMA4
from stages.parse.formats.llama_function import LLAMA_FUNCTION
from stages.parse.formats.llama_json import LLAMA_JSON
from stages.parse.formats.longcat import LONGCAT
from stages.parse.formats.minicpm5 import MINICPM5
from stages.parse.formats.minimax_m2 import MINIMAX_M2, MINIMAX_M2_APPEND_THINK
from stages.parse.formats.minimax_m3 import MINIMAX_M3
from stages.parse.formats.mistral import MAGISTRAL, MISTRAL
from stages.parse.formats.muse import MUSE, MUSE_GLIMMER
from stages.parse.formats.nemotron_nano import NEMOTRON_NANO
from stages.parse.formats.olmo3 import OLMO3
from stages.parse.formats.phi4_mini import PHI4_MINI
from stages.parse.formats.plain import PLAIN
from stages.parse.formats.plamo3 import PLAMO3
from stages.parse.formats.pythonic import PYTHONIC
from stages.parse.formats.qwen3_xml import MIMO, MINICPMV, NEMOTRON3, QWEN3_5, QWEN3_XML, STEP3P5, STEP5
from stages.parse.formats.seed_oss import SEED_OSS
from stages.parse.formats.spark import SPARK
from stages.parse.formats.step3 import STEP3
from stages.parse.formats.think import THINK
from stages.parse.formats.trinity import TRINITY
from stages.parse.formats.xlam import XLAM

FORMATS: Final[tuple[Format, ...]] = (
    PLAIN,
    THINK,
    HERMES,
    QWEN3_XML,
    QWEN3_5,
    NEMOTRON3,
    STEP3P5,
    STEP5,
    MIMO,
    MINICPMV,
    MINIMAX_M2,
    MINIMAX_M2_APPEND_THINK,
    SEED_OSS,
    DOTS,
    STEP3,
    MINICPM5,
    LLAMA_JSON,
    GRANITE3,
    GRANITE4,
    GRANITE20B,
    INTERNLM2,
    JAMBA,
    PHI4_MINI,
    XLAM,
    HUNYUAN_A13B,
    NEMOTRON_NANO,
    ERNIE45,
    GIGACHAT3,
    APERTUS,
    COHERE_COMMAND3,
    COHERE_COMMAND4,
    COHERE_COMMAND5,
    TRINITY,
    HARMONY,
    INKLING,
    MUSE,
    MUSE_GLIMMER,
    DEEPSEEK_V3,
    DEEPSEEK_R1,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    GIGACHAT35,
    KIMI_K2,
    KIMI_K25,
    KIMI_K3,
    MISTRAL,
    MAGISTRAL,
    PLAMO3,
    LLAMA_FUNCTION,
    GLM,
    GLM47,
    LING3,
    LAGUNA,
    SPARK,
    IQUEST,
    LONGCAT,
    HY_V3,
    HY_V4,
    K2_HORIZON,
    MINIMAX_M3,
    PYTHONIC,
    LLAMA4,
    OLMO3,
    LFM2,
    GEMMA3,
    GEMMA4,
    FUNCTIONGEMMA,
)
