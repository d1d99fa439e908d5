"""What the servers of the captures answer, as ``playback`` plays it: which bytes, in which chunks, with which head."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.captures import Capture, captures, twin, without_ids
from tests.support.vocabularies import vocabulary

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class How:
    """How a capture is played; without any, at once and as it was."""

    pace: float = 0
    """The recorded times are taken so many times; 0: no waiting."""
    cut: int | None = None
    """After so many bytes of the body the connection ends, in the middle of a chunk if it is there."""
    reset: bool = False
    """A cut resets the connection; else it is closed in order."""
    stall: int | None = None
    """After so many bytes of the body nothing more comes, until the client leaves."""
    silent: bool = False
    """Not even the head comes, until the client leaves."""
    gone: bool = False
    """The connection is closed in place of an answer."""
    newline: bytes = b"\n"
    """What stands for each line feed of the body."""
    bom: bool = False
    """A byte order mark is in front of the body."""
    size: int | None = None
    """HTTP chunks of so many bytes, instead of the recorded ones."""
    keep_alive: bool = False
    """The connection stays for another request."""
    instead: bytes | None = None
    """These bytes are the whole response, head and all; then the connection is closed."""
    refuses_ids: bool = False
    """A request with ``return_token_ids`` is refused, though the server that was captured takes it."""


PLAIN = How()


class Asked(NamedTuple):
    """A request as it came. ``headers``: lower-case names, in order."""

    method: str
    path: str
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The first of this name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True)
class Response:
    """``chunks``: bytes of the body, and the seconds after the request at which they came; ``capture``: whose they
    are, None where it is none's."""

    status: int
    headers: Headers
    chunks: list[tuple[bytes, float]]
    capture: Capture | None = None

    @property
    def chunked(self) -> bool:
        return ("transfer-encoding", "chunked") in self.headers


def _json(status: int, value: Any) -> Response:
    body = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    headers = [("server", "uvicorn"), ("content-type", "application/json"), ("content-length", str(len(body)))]
    return Response(status, headers, [(body, 0)])


def model_of(capture: Capture) -> str:
    """What the server calls its model."""
    return str(capture.request.get("model", "model"))


def looked_up(capture: Capture, pages: dict[str, Any], path: str) -> Response:
    """What a GET is told: who it is, and how it is."""
    path, model = path.partition("?")[0], model_of(capture)
    server, version = capture.server.rsplit(" ", 1)
    if path in pages:
        return _json(200, pages[path])
    if path == "/health":
        return _json(200, {"status": "ok"} if server.startswith("transformers") else b"")
    if path == "/version" and server == "vLLM":
        return _json(200, {"version": version})
    if path in ("/server_info", "/get_server_info") and server == "SGLang":
        return _json(200, {"version": version, "model_path": model})
    if path == "/v1/models":
        card: dict[str, Any] = {
            "id": model,
            "object": "model",
            "created": 1795963524,
            "owned_by": server.lower(),
        }
        if server.startswith("transformers"):
            card["owned_by"] = ""
        else:
            card |= {"root": model, "parent": None, "max_model_len": 4096}
        return _json(200, {"object": "list", "data": [card]})
    return _json(404, {"detail": "Not Found"})


def response(asked: Asked, capture: Capture, how: How) -> Response:
    """What a POST is told."""
    body: Any = asked.json
    if asked.path == "/generate":
        if not capture.server.startswith("SGLang") or capture.script is None:
            return _json(404, {"detail": "Not Found"})
        return _played(capture, generated(capture, body), how)
    refused = None
    if body.get("return_token_ids") is True:
        refused = _refusal(capture, how, stream=body.get("stream") is True)
    if refused is not None:
        return refused
    if body.get("stream") is not True and capture.whole is not None and capture.request.get("stream"):
        return _json(200, capture.whole.encode())
    if _wants_ids(body) or not _wants_ids(capture.request):
        return _played(capture, capture.chunks(), how)
    other = twin(capture.name)
    if other is not None:
        return _played(other, other.chunks(), how)
    return _played(capture, without_ids(capture), how)


def _wants_ids(body: dict[str, Any]) -> bool:
    fields = ("return_token_ids", "return_output_ids_in_sglext", "return_input_ids_in_sglext")
    return any(body.get(field) is True for field in fields)


def generated(capture: Capture, body: dict[str, Any]) -> list[bytes]:
    """The events of SGLang's own ``/generate`` for the same steps: all ids and all text so far in each. Put together
    from what the capture's meta says the engine was given; no capture has them."""
    assert capture.script is not None
    assert capture.engine is not None
    kept, sampling = vocabulary(capture.script.vocabulary), body.get("sampling_params", {})
    skipped = set(kept.special.values()) if sampling.get("skip_special_tokens", True) else set[int]()
    steps = {choice: iter(capture.steps_of(choice)) for choice in capture.engine.choices}
    said: dict[int, list[int]] = {choice: [] for choice in steps}
    events: list[bytes] = []
    for choice, _ in capture.script.steps:
        ids, whole = said[choice], capture.engine.choices[choice]
        ids += next(steps[choice])
        over = len(ids) == len(whole.ids)
        ended = over and whole.reason == "eos"
        pieces = [kept.piece(token) for token in ids[: len(ids) - ended] if token not in skipped]
        event = {
            "index": choice,
            "text": b"".join(pieces).decode("utf-8", "ignore"),
            "output_ids": ids,
            "meta_info": {
                "id": "0" * 32,
                "finish_reason": _finish(whole.reason, ids) if over else None,
                "prompt_tokens": len(body.get("input_ids", ())),
                "completion_tokens": len(ids),
                "cached_tokens": 0,
            },
        }
        events.append(b"data: %b\n\n" % json.dumps(event, ensure_ascii=False).encode())
    return [*events, b"data: [DONE]\n\n"]


def _finish(reason: str | None, ids: list[int]) -> dict[str, Any] | None:
    if reason == "length":
        return {"type": "length", "length": len(ids)}
    return None if reason is None else {"type": "stop", "matched": ids[-1]}


def _refusal(capture: Capture, how: How, *, stream: bool) -> Response | None:
    """What a server says that does not take ``return_token_ids``; None for one that does."""
    if capture.server.startswith("SGLang") and stream:
        refused = captures()["sglang_plain-rejected_return_token_ids"]
        return _json(refused.http.status, refused.data)
    if capture.server.startswith("transformers"):
        return _json(422, {"detail": "Unexpected fields in the request: {'return_token_ids'}"})
    if how.refuses_ids:
        error = {"message": "Extra inputs are not permitted", "type": "Bad Request", "param": None, "code": 400}
        return _json(400, {"error": error})
    return None


def _played(capture: Capture, chunks: list[bytes], how: How) -> Response:
    headers = [
        (name, value)
        for name, value in capture.http.headers
        if not (how.keep_alive and name == "connection") and name != "content-length"
    ]
    times = [at / 1e6 for at, _ in capture.writes or ()] or [0.0]
    times += [times[-1]] * (len(chunks) - len(times))
    data = [chunk.replace(b"\n", how.newline) for chunk in chunks]
    if how.bom and data:
        data[0] = b"\xef\xbb\xbf" + data[0]
    timed = list(zip(data, times, strict=False))
    if how.size is not None:
        whole = b"".join(data)
        timed = [(whole[at : at + how.size], 0.0) for at in range(0, len(whole), how.size)]
    if ("transfer-encoding", "chunked") not in headers:
        headers.append(("content-length", str(sum(map(len, data)))))
    return Response(capture.http.status, headers, timed, capture)
