"""Rules: recording."""

from stages.protocols.rules.rule import Rules

RULES = Rules()
