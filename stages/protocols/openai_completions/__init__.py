"""The completions protocol: a lenient reader of its chunks. Nobody outside this folder imports its modules."""

from stages.protocols.openai_completions.decode import chunk_of

__all__ = ["chunk_of"]
