"""Rules: completions."""

from stages.protocols.rules.rule import Rules

RULES = Rules("completions")
