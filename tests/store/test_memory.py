"""The store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store import open_store
from store.api import EventStore
from tests.store.contract import StoreContract
from tests.store.contract_attach import AttachContract
from tests.store.contract_finding import FindingContract
from tests.store.contract_reading import ReadingContract


class TestMemory(StoreContract, FindingContract, AttachContract, ReadingContract):
    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        made = open_store("memory:")
        yield made
        made.close()
