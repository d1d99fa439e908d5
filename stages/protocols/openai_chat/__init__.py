"""The chat completions protocol: requests, chunks, encoder, accumulator, errors.

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.openai_chat.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_chat.chunks import (
    ChatChunk,
    ChatCompletion,
    Chunk,
    Model,
    ModelList,
    error_chunk,
    model_list,
)
from stages.protocols.openai_chat.decode import ask_of, decode_request, unknown_fields
from stages.protocols.openai_chat.encoder import ENCODER, ChatEncoder, ChatSnapshot, ChunkLayer
from stages.protocols.openai_chat.prompt import messages_of, tools_of
from stages.protocols.openai_chat.request import ChatRequest

__all__ = [
    "ENCODER",
    "Accumulator",
    "AccumulatorState",
    "ChatChunk",
    "ChatCompletion",
    "ChatEncoder",
    "ChatRequest",
    "ChatSnapshot",
    "Chunk",
    "ChunkLayer",
    "Model",
    "ModelList",
    "ask_of",
    "decode_request",
    "error_chunk",
    "messages_of",
    "model_list",
    "tools_of",
    "unknown_fields",
]
