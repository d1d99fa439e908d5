"""The numbered rules of the streaming protocols, as a validator: ``check(Evidence(body=…, protocol=…))``.

The numbers are those of the protocol texts: 1-9 transport, 10-25 event stream framing, 26-43 content in all protocols,
44-79 chat completions, 80-89 completions, 90-115 responses, 116-131 messages, 132-137 recording and equivalence.
"""

from stages.protocols.rules.check import RULES, Report, Violation, check
from stages.protocols.rules.evidence import (
    PROTOCOLS,
    EngineChoice,
    EngineFacts,
    Evidence,
    Http,
    Need,
    Protocol,
    Sent,
    Write,
    Writes,
)
from stages.protocols.rules.rule import Rule

__all__ = [
    "PROTOCOLS",
    "RULES",
    "EngineChoice",
    "EngineFacts",
    "Evidence",
    "Http",
    "Need",
    "Protocol",
    "Report",
    "Rule",
    "Sent",
    "Violation",
    "Write",
    "Writes",
    "check",
]
