"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class Range(click.FloatRange):
    """A number within bounds. The bounds alone would let ``nan`` pass, of which nothing is less and nothing more."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
