"""The chat completions protocol: requests, chunks, encoder, accumulator, errors; and its client's side: a lenient
reader of event texts (``event_of``, ``chunks_in``), and a decoder from chunks to semantic events (``semantic_of``).

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.openai_chat.accumulate import Accumulator, AccumulatorState, Ending
from stages.protocols.openai_chat.back import opening_of, reencoded, semantic_of
from stages.protocols.openai_chat.chunks import (
    ChatChunk,
    ChatCompletion,
    Chunk,
    Model,
    ModelList,
    error_chunk,
    failure_of,
    model_list,
)
from stages.protocols.openai_chat.decode import ask_of, decode_request, unknown_fields
from stages.protocols.openai_chat.encoder import ENCODER, ChatEncoder, ChatSnapshot, ChunkLayer
from stages.protocols.openai_chat.foreign import chunk_of, chunks_in, event_of
from stages.protocols.openai_chat.prompt import messages_of, tools_of
from stages.protocols.openai_chat.request import ChatRequest
from stages.protocols.openai_chat.semantic import DECODER, OWN_DECODER, ChatDecoder, DecoderState

__all__ = [
    "DECODER",
    "ENCODER",
    "OWN_DECODER",
    "Accumulator",
    "AccumulatorState",
    "ChatChunk",
    "ChatCompletion",
    "ChatDecoder",
    "ChatEncoder",
    "ChatRequest",
    "ChatSnapshot",
    "Chunk",
    "ChunkLayer",
    "DecoderState",
    "Ending",
    "Model",
    "ModelList",
    "ask_of",
    "chunk_of",
    "chunks_in",
    "decode_request",
    "error_chunk",
    "event_of",
    "failure_of",
    "messages_of",
    "model_list",
    "opening_of",
    "reencoded",
    "semantic_of",
    "tools_of",
    "unknown_fields",
]
