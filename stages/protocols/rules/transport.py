"""Rules 1-9: HTTP, and when the bytes went out.

What is a stream is decided by the body: its first line that is not empty starts as a line of an event stream does, or
there is none and the media type says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import UnsetType

from stages.protocols.rules.case import Case, nowhere, shown
from stages.protocols.rules.evidence import Evidence, Http, Need
from stages.protocols.rules.reading import opens
from stages.protocols.rules.rule import Finding, Rules
from stages.strict import Json, parse

RULES = Rules()
_STREAM = "text/event-stream"
_UTF8 = re.compile(r"""\s*charset\s*=\s*(["']?)utf-8\1\s*""", re.IGNORECASE)
_CHARSET = re.compile(r"\s*charset\s*=", re.IGNORECASE)
# Of 600 s, clients give up.
_LONGEST = 600 * 10**9 - 1


def _values(http: Http, name: str) -> list[str]:
    return [value for key, value in http.headers if key.lower() == name]


def _tokens(http: Http, name: str) -> set[str]:
    return {token.strip().lower() for value in _values(http, name) for token in value.split(",")}


def _media(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _streamed(evidence: Evidence, http: Http) -> bool:
    opened = opens(evidence.body)
    return opened is True or (opened is None and _STREAM in map(_media, _values(http, "content-type")))


@RULES(1, "h_status", "E", Need.HTTP)
def h_status(case: Case) -> Iterator[Finding]:
    """A stream has the status 200 and the media type ``text/event-stream``; a charset is utf-8."""
    http = case.evidence.http
    if http is None or not _streamed(case.evidence, http):
        return
    if http.status != 200:
        yield nowhere(f"a stream with the status {http.status}")
    types = _values(http, "content-type")
    if not types:
        yield nowhere("no content-type")
    for value in types:
        charsets = [part for part in value.split(";")[1:] if _CHARSET.match(part)]
        if _media(value) != _STREAM or not all(map(_UTF8.fullmatch, charsets)):
            yield nowhere(f"content-type {shown(value)}")


@RULES(2, "h_errjson", "E", Need.HTTP)
def h_errjson(case: Case) -> Iterator[Finding]:
    """A status other than 200 has the media type ``application/json`` and the protocol's error object as its body."""
    http = case.evidence.http
    if http is None or http.status == 200:
        return
    types = _values(http, "content-type")
    if not types or any(_media(value) != "application/json" for value in types):
        yield nowhere(f"status {http.status}, content-type {shown(types)}")
    body = case.evidence.body
    if opens(body):
        yield nowhere(f"status {http.status} with an event stream")
        return
    try:
        value, problem = parse(body.decode())
    except UnicodeDecodeError:
        yield nowhere(f"status {http.status} with a body that is no UTF-8")
        return
    if problem:
        yield nowhere(f"status {http.status}, and in the body {problem}")
    elif not _is_error(case.evidence, value):
        yield nowhere(f"status {http.status} with {shown(value)}")


def _is_error(evidence: Evidence, value: Json | UnsetType) -> bool:
    if not isinstance(value, dict):
        return False
    error: Json = value.get("error")
    if evidence.protocol == "messages":
        return value.get("type") == "error" and isinstance(error, dict) and _texts(error, "type", "message")
    if not evidence.own and "error" not in value:
        # Servers send it without the outer object too; clients take it.
        error = value
    if not isinstance(error, dict):
        return False
    if not evidence.own:
        return _texts(error, "message")
    rest = all(key in error and (error[key] is None or isinstance(error[key], str)) for key in ("param", "code"))
    return rest and _texts(error, "message", "type")


def _texts(error: dict[str, Any], *keys: str) -> bool:
    return all(isinstance(error.get(key), str) and error[key] for key in keys)


@RULES(3, "h_notjson", "E", Need.REQUEST)
def h_notjson(case: Case) -> Iterator[Finding]:
    """With ``stream: true`` and status 200, the body's first line is a comment or a field of an event stream."""
    if case.request.get("stream") is True and _ok(case.evidence) and opens(case.evidence.body) is False:
        yield nowhere(f"a body that begins with {_beginning(case.evidence.body)}")


def _ok(evidence: Evidence) -> bool:
    return evidence.http is None or evidence.http.status == 200


def _beginning(body: bytes) -> str:
    return shown(body[:60].decode("utf-8", "replace"))


@RULES(4, "h_noenc", "O", Need.HTTP)
def h_noenc(case: Case) -> Iterator[Finding]:
    """A stream has no ``Content-Length`` and no ``Content-Encoding``; on HTTP/1.1 it is chunked."""
    http = case.evidence.http
    if http is None or not _streamed(case.evidence, http):
        return
    for value in _values(http, "content-length"):
        yield nowhere(f"content-length {shown(value)}")
    for value in _values(http, "content-encoding"):
        if value.strip().lower() != "identity":
            yield nowhere(f"content-encoding {shown(value)}")
    if http.version == "1.1" and "chunked" not in _tokens(http, "transfer-encoding"):
        yield nowhere("HTTP/1.1 without transfer-encoding: chunked")


@RULES(5, "h_cache", "O", Need.HTTP)
def h_cache(case: Case) -> Iterator[Finding]:
    """A stream has ``Cache-Control`` with ``no-cache`` or ``no-store``, and ``X-Accel-Buffering: no``."""
    http = case.evidence.http
    if http is None or not _streamed(case.evidence, http):
        return
    if not _tokens(http, "cache-control") & {"no-cache", "no-store"}:
        yield nowhere(f"cache-control {shown(_values(http, 'cache-control'))}")
    if _tokens(http, "x-accel-buffering") != {"no"}:
        yield nowhere(f"x-accel-buffering {shown(_values(http, 'x-accel-buffering'))}")


@RULES(6, "h_reqid", "O", Need.HTTP)
def h_reqid(case: Case) -> Iterator[Finding]:
    """The response has a request id (``x-request-id`` or ``request-id``) that no other response has."""
    http = case.evidence.http
    if http is None:
        return
    ids = [value for name in ("x-request-id", "request-id") for value in _values(http, name) if value.strip()]
    if not ids:
        yield nowhere("no request id")
    for value in dict.fromkeys(ids):
        if value in http.seen_ids:
            yield nowhere(f"the request id {shown(value)} a second time")


@RULES(7, "h_accept", "E", Need.REQUEST)
def h_accept(case: Case) -> Iterator[Finding]:
    """The body is an event stream exactly if the request has ``stream: true``, whatever its Accept header says."""
    stream = case.request.get("stream") is True
    opened = opens(case.evidence.body)
    if opened is None or opened is stream or not _ok(case.evidence):
        return
    http = case.evidence.http
    known = () if http is None or http.request_headers is None else http.request_headers
    accept = "".join(f", Accept {shown(value)}" for key, value in known if key.lower() == "accept")
    what = "an event stream" if opened else f"a body that begins with {_beginning(case.evidence.body)}"
    yield nowhere(f"stream {shown(case.request.get('stream'))}{accept}, but {what}")


@RULES(8, "h_gap", "O", Need.WRITES)
def h_gap(case: Case) -> Iterator[Finding]:
    """No silence is longer than 1.5 times the keep-alive period, nor than 600 s."""
    writes = case.evidence.writes
    if writes is None:
        return
    most = min(writes.keep_alive * 3 // 2, _LONGEST) if writes.keep_alive > 0 else _LONGEST
    last = writes.begun
    out = 0
    for write in writes.items:
        # What adds no byte breaks no silence.
        if write.end <= out:
            continue
        if last is not None and write.at - last > most:
            yield _silence(case, write.at - last, most, out)
        last, out = write.at, write.end
    if last is not None and writes.ended is not None and writes.ended - last > most:
        yield _silence(case, writes.ended - last, most, out)


def _silence(case: Case, ns: int, most: int, before: int) -> Finding:
    return _behind(case, before, f"{_seconds(ns)} s of silence", f"at most {_seconds(most)} s without a byte")


def _behind(case: Case, out: int, seen: str, want: str | None = None) -> Finding:
    """A finding at what came when so many bytes were out."""
    byte = min(out, len(case.evidence.body))
    return Finding(case.reading.around(byte).number, byte, seen, want)


def _seconds(ns: int) -> str:
    return f"{ns / 10**9:.3f}".rstrip("0").rstrip(".")


@RULES(9, "h_mono", "E", Need.WRITES)
def h_mono(case: Case) -> Iterator[Finding]:
    """Recorded times never decrease."""
    writes = case.evidence.writes
    if writes is None:
        return
    out = 0
    last = writes.begun
    for write in writes.items:
        if last is not None and write.at < last:
            yield _early(case, last - write.at, out)
        last, out = write.at, max(write.end, out)
    if last is not None and writes.ended is not None and writes.ended < last:
        yield _early(case, last - writes.ended, out)


def _early(case: Case, ns: int, out: int) -> Finding:
    return _behind(case, out, f"a time {ns} ns before the one in front of it")
