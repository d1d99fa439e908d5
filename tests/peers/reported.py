"""``make peers``'s check of what a report says of an engine: its version, with each session and in the totals."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from replay import foreign, run_replay
from store import trace
from tests.peers import setup
from tests.support.captures import captures
from tests.support.upstream_traces import relayed

PARSERS = {"vllm": "vllm:hermes", "sglang": "sglang:qwen25"}
_VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


def main(engine: str) -> int:
    """Print it; 1 where it is not the one that is installed."""
    python, parser = str(setup.python()), PARSERS[engine]
    done = subprocess.run([python, "-c", _VERSION, engine], check=True, capture_output=True, text=True)
    wanted = f"{parser}@{done.stdout.strip()}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "session.jsonl")
        trace.write(relayed(captures()["vllm_hermes-tool_then_content"]), path)
        results = str(Path(folder, "results.jsonl"))
        report = run_replay([str(path)], parser, peer_python=[python], resume=results, layer="message")
        told = {*(each.parser for each in report.sessions), *(family.parser for family in report.families)}
        kept = wanted in Path(results).read_text(encoding="utf-8").splitlines()[0]
    foreign.close()
    fine = told == {wanted} and kept
    sys.stdout.write(f"{parser}: the report says {', '.join(sorted(told))}{'' if fine else f', not {wanted}'}\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(max(main(engine) for engine in PARSERS))
