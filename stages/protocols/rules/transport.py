"""Rules: transport."""

from stages.protocols.rules.rule import Rules

RULES = Rules()
