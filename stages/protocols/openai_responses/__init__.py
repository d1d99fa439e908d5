"""The responses protocol: a lenient reader of what its servers send. Nobody outside this folder imports its modules."""

from stages.protocols.openai_responses.decode import ResponsesReader, ResponsesState, failure_of

__all__ = ["ResponsesReader", "ResponsesState", "failure_of"]
