"""Stored responses are for whoever has a key, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.server import serve


def refusal(answer: httpx2.Response) -> tuple[int, Any, Any]:
    """(status, code, param) of an error in the protocol's object."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_keys_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYHEAD_API_KEYS", "sk-first-0001,sk-second-0002")
    with serve(tmp_path) as running:
        first, second = ({"authorization": f"Bearer sk-{name}"} for name in ("first-0001", "second-0002"))
        made = running.http.post("/v1/responses", json={"input": "Hi"}, headers=first).json()
        path = f"/v1/responses/{made['id']}"
        for method, where in (
            ("GET", path), ("DELETE", path), ("POST", f"{path}/cancel"), ("GET", f"{path}/input_items"),
            ("POST", "/v1/conversations"), ("GET", "/v1/conversations/conv_1"), ("POST", "/v1/responses/input_tokens"),
        ):  # fmt: skip
            assert refusal(running.http.request(method, where)) == (401, "invalid_api_key", None)
        # Who has a key sees what is stored.
        assert running.http.get(path, headers=second).json() == made
