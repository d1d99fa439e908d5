"""``--parser``, whatever protocol the client speaks: the upstream is asked for token ids in chat, our stages make the
response, and the official SDKs get what they get without anything between."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support import letters
from tests.support.answers import Way
from tests.support.proxies import proxied
from tests.support.sdks import CASES
from tests.support.server import Running, replayed, serve
from tests.support.validated import assert_clean
from tests.upstream.test_translate import SPOKEN, Spoken, said


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """Tells token ids, as vLLM does."""
    folder = tmp_path_factory.mktemp("inner")
    with serve(folder, "--parser", "hermes", module="tests.support.letters", allow={"INV-038"}) as running:
        yield running


@pytest.fixture(scope="module")
def outer(inner: Running, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("outer")
    where = letters.tokenizer(folder / "tokenizer")
    with proxied(folder, inner.address, "--parser", "hermes", "--tokenizer", str(where)) as running:
        running.model = inner.model
        yield running
    assert_clean(running.store, {"INV-038"})
    assert {result.session: result.verdict for result in replayed(running.store) if result.verdict != "same"} == {}


@pytest.mark.parametrize("way", ["plain", "helper", "whole"])
@pytest.mark.parametrize("protocol", SPOKEN)
@pytest.mark.parametrize("name", CASES)
def test_the_same_as_asked_directly(inner: Running, outer: Running, name: str, protocol: Spoken, way: Way) -> None:
    asked = CASES[name][0]
    here, there = said(outer, protocol, way, asked), said(inner, protocol, way, asked)
    assert here._replace(parts=()) == there._replace(parts=())
