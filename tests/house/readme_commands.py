"""How the commands of the README are run by tests. A command that is in no list here is run as it stands.

test_readme.py starts SERVER, then goes through the README from top to bottom: each line of a ``sh`` block in a shell,
each ``python`` block with Python, all in one folder, against that server.
"""

from __future__ import annotations

SERVER = "make run"
"""Started once, on a free port and with a store in the test's folder; stopped at the end."""

ELSEWHERE = {
    "make test": "tests/house/test_make.py::test_make_test_runs_every_test",
}
"""Commands that cannot be run in the middle of the tests: the test that shows that they work."""

EXITS = {
    ".venv/bin/playhead replay playhead.db --parser examples/modified_parser.py:Parser --html report.html": 1,
    ".venv/bin/playhead validate examples/lost_arguments.sse --request examples/lost_arguments.request.json": 1,
}
"""Exit statuses other than 0."""

PRINTS = {
    "curl -sN http://127.0.0.1:8000/v1/chat": "data: [DONE]",
    "curl -sN http://127.0.0.1:8000/v1/messages": "event: message_stop",
    ".venv/bin/playhead sessions list": "closed",
    ".venv/bin/playhead replay": "same",
    "printf": '"name":"tide"',
    ".venv/bin/playhead check": "all hold",
    ".venv/bin/playhead validate playhead.db": "rules checked",
    ".venv/bin/playhead validate examples": "arguments that are no JSON object",
}
"""The beginning of a command, and what must be in what it prints."""
