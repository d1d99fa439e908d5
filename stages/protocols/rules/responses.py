"""Rules: responses."""

from stages.protocols.rules.rule import Rules

RULES = Rules("responses")
