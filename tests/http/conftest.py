"""Servers that several tests ask: real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Running, serve

CUT = ["Où ", {"hex": ["f09f"]}, {"hex": ["8c"]}, {"hex": ["8a20e6bd"]}, {"hex": ["ae"]}, "."]
"""Characters cut over tokens and steps: "Où 🌊 潮."."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Says CUT, or what a request forces; reads hermes."""
    folder = tmp_path_factory.mktemp("scripted")
    # It says what it says, whatever tool_choice wants.
    options = ("--allow-forced", "--parser", "hermes", "--max-body", "20000")
    with serve(folder, *options, script=CUT, allow={"INV-038"}) as running:
        yield running


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Its engine fails in the middle of every answer."""
    folder = tmp_path_factory.mktemp("failing")
    with serve(
        folder, script=["Two ", "a ", ["error", "engine", "The engine lost its memory.", None, None]]
    ) as running:
        yield running


@pytest.fixture(scope="session")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Admits at once, then takes an hour a token."""
    folder = tmp_path_factory.mktemp("still")
    with serve(folder, "--pace", "3600", "--keep-alive", "0") as running:
        yield running


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """SmolLM2 on torch, which may be forced; reads hermes."""
    folder = tmp_path_factory.mktemp("model")
    with serve(folder, "--allow-forced", "--parser", "hermes", engine="hf") as running:
        yield running
