"""Rules: common."""

from stages.protocols.rules.rule import Rules

RULES = Rules()
