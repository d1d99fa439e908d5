"""Every capture through a real proxy, byte for byte, and what is recorded of it."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from tests.support.captures import PATHS, Capture, captures
from tests.support.playback import Playback, playback
from tests.support.proxies import Got, bytes_of, post, proxied, session_of
from tests.support.server import Running

NAMES = sorted(name for name, capture in captures().items() if capture.marked is None)
"""Those whose client stayed to the end."""


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback(NAMES[0]) as running:
        yield running


@pytest.fixture(scope="module")
def verbatim(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    with proxied(tmp_path_factory.mktemp("verbatim"), upstream.address, "--depth", "verbatim") as running:
        yield running


def asked(running: Running, capture: Capture) -> Got:
    return post(running.address, PATHS[capture.protocol], json.dumps(capture.request).encode())


@pytest.mark.parametrize("name", NAMES)
def test_verbatim_is_byte_exact(upstream: Playback, verbatim: Running, name: str) -> None:
    """The client gets the bytes, in the writes in which they came; the record has them; nothing was added."""
    capture = captures()[name]
    upstream.play(name)
    got = asked(verbatim, capture)
    assert (got.status, got.body) == (capture.http.status, capture.data)
    assert got.whole
    assert upstream.asked[-1].json == capture.request
    trace = session_of(verbatim, got)
    assert bytes_of(trace, "upstream") == capture.data
    assert bytes_of(trace, "served") == capture.data
    assert trace.info.state == "closed"
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.depth, facts.relayed, facts.taken_out) == ("verbatim", True, "")
    assert trace.events("input", "engine") == []
