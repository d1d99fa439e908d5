"""Parsers of other engines as stages: each runs in a worker process, under the Python that has that engine.

``configure`` says which Python that is, and how long a session may take; ``replay.resolve`` makes the stages.
"""

from replay.foreign.client import close
from replay.foreign.settings import Settings, configure, current
from replay.foreign.stage import ForeignStage, foreign, is_foreign_name

__all__ = ["ForeignStage", "Settings", "close", "configure", "current", "foreign", "is_foreign_name"]
