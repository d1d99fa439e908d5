"""The responses protocol: requests, events, encoder, accumulator; and its client's side: a lenient reader of what
another server sends (``ResponsesReader``).

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.openai_responses.accumulate import Accumulator
from stages.protocols.openai_responses.ask import body_of
from stages.protocols.openai_responses.back import rewritten
from stages.protocols.openai_responses.base import base_of
from stages.protocols.openai_responses.check import decode_request, unknown_fields
from stages.protocols.openai_responses.chunks import Chunk, chunk_of, error_event
from stages.protocols.openai_responses.decode import ResponsesReader
from stages.protocols.openai_responses.encoder import ENCODER, ChunkLayer
from stages.protocols.openai_responses.hub import chat_of
from stages.protocols.openai_responses.items import input_items, kind_of, references, resolved
from stages.protocols.openai_responses.objects import Response
from stages.protocols.openai_responses.request import Includable, Metadata, ResponsesRequest
from stages.protocols.openai_responses.sofar import cancelled, failed, so_far

__all__ = [
    "ENCODER",
    "Accumulator",
    "Chunk",
    "ChunkLayer",
    "Includable",
    "Metadata",
    "Response",
    "ResponsesReader",
    "ResponsesRequest",
    "base_of",
    "body_of",
    "cancelled",
    "chat_of",
    "chunk_of",
    "decode_request",
    "error_event",
    "failed",
    "input_items",
    "kind_of",
    "references",
    "resolved",
    "rewritten",
    "so_far",
    "unknown_fields",
]
