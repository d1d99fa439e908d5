"""How an upstream was asked → the stage that reads what the model wrote from its response."""

from __future__ import annotations

from typing import Final

from stages.events import Input
from stages.stage import Stage
from stages.upstream.chat import CHAT
from stages.upstream.completion import COMPLETION
from stages.upstream.completions import COMPLETIONS
from stages.upstream.generate import GENERATE
from stages.upstream.machine import Wire
from stages.upstream.told import TOLD

INPUTS: Final[dict[str, Stage[Wire, Input]]] = {
    "chat": CHAT,
    "generate": GENERATE,
    "completion": COMPLETION,
    "completions": COMPLETIONS,
    "told": TOLD,
}
"""``chat``: chat completions with token ids; ``generate``: SGLang's own; ``completion``: llama.cpp's own;
``completions``: OpenAI's older protocol, as text; ``told``: any protocol, for what the upstream says that it means."""
