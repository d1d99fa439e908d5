"""All formats, in the order in which lists show them. One import and one line a family."""

from typing import Final

from stages.parse.format import Format
from stages.parse.formats.harmony import HARMONY
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.plain import PLAIN

FORMATS: Final[tuple[Format, ...]] = (
    PLAIN,
    HERMES,
    HARMONY,
)
