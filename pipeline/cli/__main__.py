"""``python -m pipeline.cli``: the command, where it is not on the path."""

from pipeline.cli import main

main()
