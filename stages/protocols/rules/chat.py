"""Rules 44-79: chat completions, by what they are about."""

from __future__ import annotations

from stages.protocols.rules import chat_calls, chat_choices, chat_deltas, chat_envelope, chat_logprobs, chat_usage
from stages.protocols.rules.rule import Rules

RULES = Rules("chat")
for _room in (chat_envelope, chat_choices, chat_deltas, chat_calls, chat_usage, chat_logprobs):
    RULES.all += _room.RULES.all
