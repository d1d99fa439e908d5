"""What messages says."""

from __future__ import annotations

from typing import Any

from stages.protocols.rules.reading import Reading
from stages.protocols.rules.said import Said


def of_stream(reading: Reading) -> Said:
    """The stream."""
    return Said()


def of_whole(body: dict[str, Any]) -> Said:
    """The whole body."""
    return Said()
