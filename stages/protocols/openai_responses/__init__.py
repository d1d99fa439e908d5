"""The responses protocol: requests, events, encoder, accumulator; and its client's side: a lenient reader of what
another server sends (``ResponsesReader``).

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.openai_responses.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_responses.ask import body_of
from stages.protocols.openai_responses.back import rewritten
from stages.protocols.openai_responses.base import base_of
from stages.protocols.openai_responses.check import decode_request, unknown_fields
from stages.protocols.openai_responses.chunks import Chunk, ErrorEvent, chunk_of
from stages.protocols.openai_responses.decode import ResponsesReader, ResponsesState, failure_of
from stages.protocols.openai_responses.encoder import ENCODER, ChunkLayer, ResponsesEncoder, ResponsesSnapshot
from stages.protocols.openai_responses.hub import chat_of
from stages.protocols.openai_responses.items import input_items, kind_of, references, resolved
from stages.protocols.openai_responses.objects import Response, ResponseError
from stages.protocols.openai_responses.request import Includable, Metadata, ResponsesRequest
from stages.protocols.openai_responses.sofar import cancelled, failed, so_far

__all__ = [
    "ENCODER",
    "Accumulator",
    "AccumulatorState",
    "Chunk",
    "ChunkLayer",
    "ErrorEvent",
    "Includable",
    "Metadata",
    "Response",
    "ResponseError",
    "ResponsesEncoder",
    "ResponsesReader",
    "ResponsesRequest",
    "ResponsesSnapshot",
    "ResponsesState",
    "base_of",
    "body_of",
    "cancelled",
    "chat_of",
    "chunk_of",
    "decode_request",
    "failed",
    "failure_of",
    "input_items",
    "kind_of",
    "references",
    "resolved",
    "rewritten",
    "so_far",
    "unknown_fields",
]
