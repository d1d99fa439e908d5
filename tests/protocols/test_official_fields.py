"""Every field of a request that the official SDKs know is served, accepted or refused by name: none is overlooked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from anthropic.types import message_count_tokens_params, message_create_params, output_config_param
from anthropic.types.beta import message_create_params as beta_create_params
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params, response_text_config_param
from openai.types.shared_params import reasoning

from stages.protocols.anthropic import MessagesRequest
from stages.protocols.anthropic.request import OutputConfig
from stages.protocols.openai_chat import ChatRequest
from stages.protocols.openai_completions import CompletionsRequest
from stages.protocols.openai_responses import ResponsesRequest
from stages.protocols.openai_responses.request import Reasoning, TextConfig

HEADERS = {"user_profile_id", "workspace_id"}
"""What the SDK sends as headers, though its types have them among the fields."""


@pytest.mark.parametrize(
    ("official", "ours"),
    [
        (chat_create_params.CompletionCreateParamsBase, ChatRequest),
        (completion_create_params.CompletionCreateParamsBase, CompletionsRequest),
        (response_create_params.ResponseCreateParamsBase, ResponsesRequest),
        (message_create_params.MessageCreateParamsBase, MessagesRequest),
        (beta_create_params.MessageCreateParamsBase, MessagesRequest),
        (message_count_tokens_params.MessageCountTokensParams, MessagesRequest),
        (reasoning.Reasoning, Reasoning),
        (response_text_config_param.ResponseTextConfigParam, TextConfig),
        (output_config_param.OutputConfigParam, OutputConfig),
    ],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)  # fmt: skip
def test_no_official_field_is_overlooked(official: Any, ours: type[msgspec.Struct]) -> None:
    fields = set(official.__annotations__)
    assert len(fields) > 1
    assert fields - HEADERS <= set(ours.__struct_fields__)
