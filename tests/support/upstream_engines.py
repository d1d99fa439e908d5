"""Servers that speak as the real ones do: the routes of vLLM, SGLang and others, for ``upstreams.routes``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tests.support.upstreams import STREAM, Asked, chunked, value

CHAT, GENERATE, COMPLETION, COMPLETIONS = "/v1/chat/completions", "/generate", "/completion", "/v1/completions"
MODEL = "Qwen/Qwen3-8B"
Route: TypeAlias = bytes | Callable[[Asked], bytes]


def sse(*events: Any, done: bool = True) -> bytes:
    """A stream of these events."""
    data = [json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() for event in events]
    return STREAM + chunked(*(b"data: " + one + b"\n\n" for one in (*data, *((b"[DONE]",) if done else ()))))


def error(status: int, message: str = "no") -> bytes:
    """A refusal."""
    return value({"error": {"message": message, "type": "x", "param": None, "code": status}}, status)


def listed(owner: str, **more: Any) -> bytes:
    """A list of the one model."""
    entry = {"id": MODEL, "object": "model", "created": 1, "owned_by": owner, **more}
    return value({"object": "list", "data": [entry]})


class Vllm:
    """Chat as vLLM 0.33 streams it: with ``return_token_ids`` an id list on each choice, and a chunk also for a step
    whose text is withheld; without, the keys are there and null. The id of a response changes, as its text may."""

    def __init__(
        self, *, texts: Sequence[tuple[str, str]] = (("", "<think>"), ("Hi", "Hi")), nulls: bool = True
    ) -> None:
        self.texts = texts
        self.nulls = nulls
        self.count = 0

    def __call__(self, asked: Asked) -> bytes:
        self.count += 1
        ids: bool = asked.json.get("return_token_ids", False)
        chunks = [self.chunk({"role": "assistant", "content": ""}, None, [1, 2, 3] if ids else None, first=True)]
        for number, (shown, _) in enumerate(self.texts):
            told = [100 + number] if ids else None
            last = number == len(self.texts) - 1
            if shown or ids or last:
                delta = {"content": shown} if shown else {}
                chunks.append(self.chunk(delta, "length" if last else None, told))
        return sse(*chunks)

    def chunk(self, delta: Any, finish: str | None, ids: list[int] | None, *, first: bool = False) -> Any:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        made: dict[str, Any] = {
            "id": f"chatcmpl-{self.count}", "object": "chat.completion.chunk", "created": 1000 + self.count,
            "model": MODEL, "choices": [choice],
        }  # fmt: skip
        if finish is not None:
            choice["stop_reason"] = None
        key = "prompt_token_ids" if first else "token_ids"
        place = made if first else choice
        if ids is not None or self.nulls:
            place[key] = ids
        return made


def vllm(chat: Route, **more: Route) -> dict[str, Route]:
    """vLLM."""
    return {
        "/version": value({"version": "0.33.0"}),
        "/v1/models": listed("vllm", root="/models/qwen3", max_model_len=40960),
        CHAT: chat,
        **more,
    }


def refuses_ids(status: int, plainly: bytes) -> Callable[[Asked], bytes]:
    """A server that does not know the field."""

    def answer(asked: Asked) -> bytes:
        return error(status) if "return_token_ids" in asked.json else plainly

    return answer


CONTENT = sse({"id": "x", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "length"}]})


SGLANG = {
    "model_path": "/models/qwen3", "tokenizer_path": "/models/qwen3", "tool_call_parser": "qwen25",
    "reasoning_parser": "qwen3", "stream_interval": 1, "quantization": None, "dtype": "auto", "api_key": "sk-secret",
    "admin_api_key": "sk-secret", "ssl_keyfile_password": "secret", "version": "0.5.23", "tp_size": 1,
    "chat_template": "{{ secret }}\n" * 50, "internal_states": [{"api_key": "sk-secret"}], "context_length": None,
}  # fmt: skip


def sglang(**more: Route) -> dict[str, Route]:
    """SGLang, which has keys among what it tells of itself."""
    ids = sse({"text": "H", "output_ids": [1]}, {"text": "Hi", "output_ids": [1, 2]})
    return {
        "/get_server_info": value(SGLANG),
        "/v1/models": listed("sglang", root=MODEL, max_model_len=32768),
        CHAT: refuses_ids(400, CONTENT),
        GENERATE: ids,
        **more,
    }
