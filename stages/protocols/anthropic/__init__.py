"""The messages protocol: requests, chunks, encoder, accumulator, errors; and how other servers' messages are read.

Nobody outside this folder imports its modules directly.
"""

from stages.protocols.anthropic.accumulate import Accumulator
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
from stages.protocols.anthropic.decode import MessagesReader
from stages.protocols.anthropic.encoder import ENCODER, ChunkLayer
from stages.protocols.anthropic.hub import chat_of, decode_request, unknown_fields
from stages.protocols.anthropic.partial import beginning
from stages.protocols.anthropic.request import MessagesRequest

__all__ = [
    "ENCODER",
    "Accumulator",
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "Chunk",
    "ChunkLayer",
    "MessageBody",
    "MessagesReader",
    "MessagesRequest",
    "beginning",
    "body_of",
    "chat_of",
    "decode_request",
    "error_body",
    "error_chunk",
    "error_type",
    "rewritten",
    "unknown_fields",
]
