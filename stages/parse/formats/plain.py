"""No format: all is content.

    output ::= TEXT

Special tokens are still dropped, and an end of turn still ends the output.
"""

from typing import Final

from stages.parse.format import Format

PLAIN: Final = Format(
    name="plain",
    version=2,
    grammar="text",
    summary="everything is content; nothing is held",
    aliases=("identity", "none", "text", "generic"),
    models=("any model, reasoning and calls left in the text",),
)
