"""Replay recorded sessions from a program of your own: what would another parser have made of them?

    python examples/replay_sessions.py playhead.db
    python examples/replay_sessions.py traces examples/modified_parser.py:Parser

The source is a store, a trace file or a folder of them. ``playhead replay`` does the same, and tells more.

Commands are in ``.venv/bin``: ``. .venv/bin/activate``, or write ``.venv/bin/python``.
"""

import sys

from replay import Replayer, ReplayError, traces


def main(source: str, parser: str | None = None) -> None:
    """A line per session: the verdict, the session, and where it first differs."""
    replayer = Replayer(parser)
    for result in replayer.replay_many(traces(source)):
        where = f"  {result.first.kind} at {result.first.layer} {result.first.seq}" if result.first else ""
        print(f"{result.verdict:10} {result.session}{where}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python examples/replay_sessions.py SOURCE [PARSER]")
    try:
        main(*sys.argv[1:])
    except ReplayError as error:
        sys.exit(str(error))
