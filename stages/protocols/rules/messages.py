"""Rules: messages."""

from stages.protocols.rules.rule import Rules

RULES = Rules("messages")
