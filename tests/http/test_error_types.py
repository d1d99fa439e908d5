"""The types by which the messages protocol calls refusals, by their status: those that the official SDK knows."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from anthropic.types.shared.error_type import ErrorType

from pipeline.http.host import error_response, failure_response
from stages.errors import RequestError
from stages.events import FailureKind
from stages.protocols.anthropic import error_chunk, error_type

KNOWN = {*get_args(ErrorType), "request_too_large"}
"""The SDK's list lacks the last one, which the protocol has."""


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "timeout_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (431, "invalid_request_error"),
    ],
)
def test_refusals(status: int, want: str) -> None:
    response = error_response(RequestError("No.", code="c", param="p", status=status), "messages")
    body = json.loads(bytes(response.body))
    number = response.headers["request-id"]
    assert body == {"type": "error", "error": {"type": want, "message": "No."}, "request_id": number}
    assert response.status_code == status
    assert want in KNOWN
    for protocol in ("chat", "completions", "responses"):
        error = json.loads(bytes(error_response(RequestError("No.", status=status), protocol).body))["error"]
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_failures(kind: FailureKind) -> None:
    """A kind of failure has one type, in an answer and in a stream."""
    body = json.loads(bytes(failure_response(kind, "", protocol="messages").body))
    chunk = error_chunk(kind, "")
    assert body["error"]["type"] == chunk.body["error"]["type"] == error_type(kind, chunk.status)
    assert body["error"]["type"] in KNOWN
