"""The completions protocol: requests, chunks, encoder, accumulator, and the decoders of its streams. Its error object
is chat's.

Nobody outside this folder imports its modules.
"""

from stages.protocols.openai_completions.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_completions.asking import ask_of, decode_request, prompts_of, unknown_fields
from stages.protocols.openai_completions.back import opening_of, reencoded, rewritten, semantic_of
from stages.protocols.openai_completions.chunks import Chunk, CompletionChunk, TextChoice, TextCompletion, TextLogprobs
from stages.protocols.openai_completions.decode import chunk_of, text_chunk_of
from stages.protocols.openai_completions.encoder import ENCODER, ChunkLayer, CompletionsEncoder, CompletionsSnapshot
from stages.protocols.openai_completions.request import CAP, CompletionsRequest
from stages.protocols.openai_completions.semantic import DECODER, CompletionsDecoder, DecoderState

__all__ = [
    "CAP",
    "DECODER",
    "ENCODER",
    "Accumulator",
    "AccumulatorState",
    "Chunk",
    "ChunkLayer",
    "CompletionChunk",
    "CompletionsDecoder",
    "CompletionsEncoder",
    "CompletionsRequest",
    "CompletionsSnapshot",
    "DecoderState",
    "TextChoice",
    "TextCompletion",
    "TextLogprobs",
    "ask_of",
    "chunk_of",
    "decode_request",
    "opening_of",
    "prompts_of",
    "reencoded",
    "rewritten",
    "semantic_of",
    "text_chunk_of",
    "unknown_fields",
]
