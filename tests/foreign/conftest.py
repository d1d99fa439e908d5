"""Workers end with the tests that started them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay.foreign import close, configure


@pytest.fixture(autouse=True, scope="module")
def workers() -> Iterator[None]:
    yield
    close()


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    configure()
    yield
    configure()
