"""The completions protocol: requests, chunks, encoder, accumulator, and the decoders of its streams. Its error object
is chat's.

Nobody outside this folder imports its modules.
"""

from stages.protocols.openai_completions.accumulate import Accumulator
from stages.protocols.openai_completions.asking import ask_of, decode_request, prompts_of, unknown_fields
from stages.protocols.openai_completions.back import opening_of, rewritten, semantic_of
from stages.protocols.openai_completions.chunks import Chunk, CompletionChunk, TextCompletion
from stages.protocols.openai_completions.decode import chunk_of, text_chunk_of
from stages.protocols.openai_completions.encoder import ENCODER, ChunkLayer
from stages.protocols.openai_completions.request import CAP, CompletionsRequest
from stages.protocols.openai_completions.semantic import DECODER

__all__ = [
    "CAP",
    "DECODER",
    "ENCODER",
    "Accumulator",
    "Chunk",
    "ChunkLayer",
    "CompletionChunk",
    "CompletionsRequest",
    "TextCompletion",
    "ask_of",
    "chunk_of",
    "decode_request",
    "opening_of",
    "prompts_of",
    "rewritten",
    "semantic_of",
    "text_chunk_of",
    "unknown_fields",
]
