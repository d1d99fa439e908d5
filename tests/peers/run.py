"""``make peers``: Playhead in front of the real vLLM and SGLang, on a CPU, with their engines scripted.

Each scenario is asked of the server itself and through two proxies. The first passes on: the bytes must be the same,
but for ids and times; what was recorded must be the script; the shadow's parse must be what the script means. The
second has a parser of ours: the client must get what the script means. What the server's own parser made of the script
is told, not judged. Then both engines' parsers, as replay runs them, are held against what the servers sent (captures),
and against what is known to be lost (``truths``), expected and found side by side; and reports must say their version.
``table`` as the first argument writes the table of docs/peers.md instead.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stages.events import TokensInput
from store.api import Trace
from tests.peers import foreign_sglang, foreign_vllm, models, reported, setup, table, truths
from tests.peers.scenarios import SCENARIOS, Meant, Scenario
from tests.peers.servers import MODEL, Kind, Peer, chosen, peer
from tests.support.parse import message
from tests.support.proxies import Got, bytes_of, ended, latest, post, proxied
from tests.support.server import PATIENCE, Running, eventually

_NEW_EACH_TIME = re.compile(rb'"((?:item_|call_)?id|(?:created|completed)(?:_at)?|signature)": ?("[^"]*"|[0-9.]+)')
SAME, NONE = "same", "-"
TRIES = 4
"""SGLang merges steps that wait for a busy machine, so that two answers to one request may be cut differently."""


def _timeless(body: bytes) -> bytes:
    """Without what differs between two answers to one request: ids and times."""
    return _NEW_EACH_TIME.sub(rb'"\1":0', body)


def _differ(direct: Got, relayed: Got) -> str:
    """Where two answers differ, or SAME."""
    if direct.status != relayed.status:
        return f"STATUS {relayed.status}"
    one, other = _timeless(direct.body), _timeless(relayed.body)
    if one == other:
        return SAME
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"DIFFER at {at}: {one[at - 20 : at + 60]!r} {other[at - 20 : at + 60]!r}"


def _said(events: list[Any], count: int) -> list[Meant]:
    """What each choice says, white space at the edges aside: servers keep it or not."""
    found = [message(events, choice) for choice in range(count)]
    return [
        Meant(
            (one.reasoning or "").strip(), (one.content or "").strip(),
            tuple((call.name, _value(call.arguments)) for call in one.calls),
        )
        for one in found
    ]  # fmt: skip


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _compared(found: list[Meant], scenario: Scenario) -> str:
    meant = [one.meant for one in scenario.written]
    return SAME if found == meant else f"DIFFERS: {found}"


class Trial:
    """One server with two proxies in front of it, and a row for every scenario."""

    def __init__(self, server: Peer, relaying: Running, parsing: Running) -> None:
        self.server = server
        self.relaying = relaying
        self.parsing = parsing

    def row(self, scenario: Scenario) -> list[str]:
        """Bytes, ids, the shadow's parse, the server's parse, our parser's response."""
        self.server.play(scenario.script())
        if scenario.leaves:
            return [self._leaves(scenario), NONE, NONE, NONE, NONE]
        tries = TRIES
        while True:
            direct = self._ask(self.server.address, scenario)
            count = ended(self.relaying) + 1
            relayed = self._ask(self.relaying.address, scenario)
            trace = latest(self.relaying, count)
            exact = _differ(direct, relayed)
            tries -= 1
            if exact == SAME or tries == 0:
                break
        if bytes_of(trace, "served") != relayed.body:
            exact = "RECORDED OTHERWISE"
        if not scenario.chat or relayed.status != 200:
            return [f"{exact} ({relayed.status})", NONE, NONE, NONE, NONE]
        ids, shadow = (self._ids(trace, scenario), self._shadow(count, scenario)) if self.ids else (NONE, NONE)
        own = _compared(_said(trace.events("upstream", "semantic"), len(scenario.written)), scenario)
        return [exact, ids, shadow, own, self._parsed(scenario)]

    @property
    def ids(self) -> bool:
        """Its chat tells ids."""
        return self.server.kind.relays_ids

    def _ask(self, address: str, scenario: Scenario) -> Got:
        return post(address, scenario.path, json.dumps(scenario.request(MODEL)).encode())

    def _ids(self, trace: Trace, scenario: Scenario, merged: bool = False) -> str:
        """The steps that were recorded are those of the script, one by one, unless they may be ``merged``."""
        for choice, one in enumerate(scenario.written):
            events = trace.events("input", "engine")
            steps = [list(e.ids) for e in events if isinstance(e, TokensInput) and e.choice == choice and e.ids]
            meant = one.steps()[: scenario.body.get("max_tokens")]  # which is asked for with one token a step
            if merged or not scenario.body.get("stream", True):
                steps, meant = [list(chain(*steps))], [list(chain(*meant))]
            if steps != meant:
                return f"DIFFER: {steps} {meant}"
        return SAME

    def _shadow(self, count: int, scenario: Scenario) -> str:
        """The format of the model, found by its template, looks at the session when it has ended."""

        def looked() -> Trace | None:
            trace = latest(self.relaying, count)
            return trace if trace.info.shadows else None

        trace = eventually(looked)
        (name,) = trace.info.shadows
        return _compared(_said(trace.events(f"shadow:{name}", "semantic"), len(scenario.written)), scenario)

    def _parsed(self, scenario: Scenario) -> str:
        before = ended(self.parsing)
        got = self._ask(self.parsing.address, scenario)
        if got.status != 200:
            return f"STATUS {got.status}: {got.body!r}"
        trace = latest(self.parsing, before + 1)
        facts = trace.opening.upstream
        if facts is None or facts.relayed or facts.path != self.server.kind.way:
            return f"NOT PARSED: {facts}"
        if facts.lost or (scenario.body.get("tool_choice") and not self._held()):
            return f"NOT HELD: {facts.lost}"
        if facts.depth != "tokens" or self._ids(trace, scenario, merged=True) != SAME:
            return f"IDS: {facts.depth}, {self._ids(trace, scenario, merged=True)}"
        return _compared(_said(trace.events("served", "semantic"), len(scenario.written)), scenario)

    def _held(self) -> bool:
        """The engine was told, by whom its server is asked natively, what its whole output is."""
        return self.server.kind.way != "/generate" or any(self.server.told("held"))

    def _leaves(self, scenario: Scenario) -> str:
        """The engine is told that the client left."""
        before = ended(self.relaying)
        host, _, port = self.relaying.address.removeprefix("http://").partition(":")
        data = json.dumps(scenario.request(MODEL)).encode()
        head = f"POST {scenario.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        with socket.create_connection((host, int(port)), PATIENCE) as client:
            client.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            read = b""
            while read.count(b"tick") < 3:
                read += client.recv(1 << 16)
        eventually(lambda: self.server.told("aborted") or None)
        state = latest(self.relaying, before + 1).info.state
        return "the engine stops" if state == "aborted" else f"STATE {state}"


def _try(kind: Kind, python: Path, only: str, folder: Path) -> tuple[Table, list[str]]:
    """All scenarios on one server: the table, and what failed."""
    table = Table(title=f"Playhead in front of {kind.name}", box=None, header_style="dim")
    for column in ("scenario", "bytes", "ids", "our shadow", "its own parse", f"ours ({kind.way})"):
        table.add_column(column)
    models.write(folder / "model")
    failed: list[str] = []
    tokenizer = ("--tokenizer", str(folder / "model"))
    (folder / "relaying").mkdir()
    (folder / "parsing").mkdir()
    with (
        peer(kind, python, folder / "model", folder) as server,
        proxied(folder / "relaying", server.address, *tokenizer) as relaying,
        proxied(folder / "parsing", server.address, "--parser", "hermes", *tokenizer) as parsing,
    ):
        trial = Trial(server, relaying, parsing)
        for scenario in SCENARIOS:
            if only not in scenario.name:
                continue
            try:
                row = trial.row(scenario)
            except (
                AssertionError
            ) as error:  # what was waited for did not come: the other scenarios are tried all the same
                row = [f"FAILED: {error}", *[NONE] * 4]
            table.add_row(scenario.name, *(cell[:60] for cell in row))
            judged = row[:3] + row[4:]
            failed += [f"{kind.name}, {scenario.name}: {cell}" for cell in judged if cell[0].isupper()]
    return table, failed


PARSERS: dict[str, Callable[[], int]] = {"vllm": foreign_vllm.main, "sglang": foreign_sglang.main}
"""What holds the engines' parsers, as replay runs them, against what their servers sent."""


def _parsers(kind: str, engines: Sequence[str]) -> Iterator[str]:
    """What is wrong with an engine's parsers. ``engines``: whose known losses are looked at with it."""
    for what, main in (
        ("parsers", PARSERS[kind]), ("versions", lambda: reported.main(kind)), ("losses", lambda: truths.main(engines)),
    ):  # fmt: skip
        if main():
            yield f"{kind}: {what}"


def main() -> int:
    """Install, try, and print; 1 where something that is judged is wrong."""
    if sys.argv[1:2] == ["table"]:
        return table.main(sys.argv[2:])
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", action="append", default=[], help="vllm or sglang; both")
    options.add_argument("--scenario", default="", help="those with this in their name")
    asked = options.parse_args()
    console = Console()
    try:
        python = setup.python()
    except setup.NotInstalled as error:
        console.print(f"peers: skipped. {error}")
        return 0
    failed: list[str] = []
    for kind in chosen(asked.only):
        with tempfile.TemporaryDirectory() as folder:
            shown, wrong = _try(kind, python, asked.scenario, Path(folder))
        console.print(shown)
        failed += wrong
    for kind in chosen(asked.only) if not asked.scenario else ():
        name = kind.name.lower()
        failed += _parsers(name, (name, "template") if name == "vllm" else (name,))
    for line in failed:
        console.print(line, markup=False)
    console.print(f"peers: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
