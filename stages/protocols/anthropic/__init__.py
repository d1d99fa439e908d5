"""The messages protocol: a lenient reader of what its servers send. Nobody outside this folder imports its modules."""

from stages.protocols.anthropic.decode import MessagesReader, MessagesState, failure_of

__all__ = ["MessagesReader", "MessagesState", "failure_of"]
