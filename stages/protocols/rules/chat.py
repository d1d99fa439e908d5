"""Rules: chat."""

from stages.protocols.rules.rule import Rules

RULES = Rules("chat")
