"""The messages protocol: requests, chunks, encoder, accumulator, errors; and how other servers' messages are read.

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.anthropic.accumulate import Accumulator, AccumulatorState
from stages.protocols.anthropic.ask import body_of
from stages.protocols.anthropic.back import rewritten
from stages.protocols.anthropic.chunks import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Chunk,
    MessageBody,
    error_body,
    error_chunk,
    error_type,
)
from stages.protocols.anthropic.decode import MessagesReader, MessagesState, failure_of
from stages.protocols.anthropic.encoder import ENCODER, ChunkLayer, MessagesEncoder, MessagesSnapshot
from stages.protocols.anthropic.hub import chat_of, decode_request, unknown_fields
from stages.protocols.anthropic.partial import beginning
from stages.protocols.anthropic.request import MessagesRequest

__all__ = [
    "ENCODER",
    "Accumulator",
    "AccumulatorState",
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "Chunk",
    "ChunkLayer",
    "MessageBody",
    "MessagesEncoder",
    "MessagesReader",
    "MessagesRequest",
    "MessagesSnapshot",
    "MessagesState",
    "beginning",
    "body_of",
    "chat_of",
    "decode_request",
    "error_body",
    "error_chunk",
    "error_type",
    "failure_of",
    "rewritten",
    "unknown_fields",
]
