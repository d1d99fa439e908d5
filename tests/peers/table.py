"""The published table: our parsers, vLLM's and SGLang's over one corpus. ``make peers ARGS=table``.

Writes it between the marks of docs/peers.md. ``--sessions N`` of each family and corpus; ``--only FAMILY``; ``--show``
prints the table and writes nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version

import msgspec

from replay import Replayer, foreign
from replay.resolve import resolve
from replay.result import SessionResult
from stages.events import Input, TokensInput
from store.api import Trace
from tests.peers import setup
from tests.peers.table_corpus import CALLS_ALONE, KINDS, Kind, recorded, sessions
from tests.peers.table_write import written
from tests.support.generate import families
from tests.support.generate.message import Invocation, Meant
from tests.support.replay import record
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "peers.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
SPLITS = ("recorded", "one", "token", "marker", "rand:1:5", "rand:2:8")
CORPORA = ("ordinary", "hard")
GROUPINGS = 300
TEXTS = ("Let me check the weather for you.", "Let me check the weather for you: \n")
"""Before the calls. Behind the second one, a token has white space only: a step may end on either side of it, and
nothing that counts is lost."""
_TWO = (
    Invocation("get_weather", {"city": "Paris", "unit": "celsius"}),
    Invocation("get_weather", {"city": "Tokyo", "unit": "celsius"}),
)


class Row(msgspec.Struct):
    """What is told of a parser on a corpus. ``why``: what stands in the way of ``unsupported`` ones."""

    parser: str = ""
    sessions: int = 0
    tokens: int = 0
    right: int = 0
    restyled: int = 0
    differs: int = 0
    failed: int = 0
    split: int = 0
    one_shot: int = 0
    ns: int = 0
    lag: Counter[int] = msgspec.field(default_factory=Counter[int])
    kinds: Counter[str] = msgspec.field(default_factory=Counter[str])

    def take(self, result: SessionResult) -> None:
        """The next session."""
        self.parser = result.parser or self.parser
        self.sessions += 1
        self.tokens += result.tokens
        verdict = "failed" if result.unreplayed else result.splits.get("recorded", result.verdict)
        self.failed += verdict == "failed"
        self.differs += verdict in ("changed", "uncompared")
        self.restyled += verdict == "restyled"
        self.right += verdict in ("same", "rechunked", "moved")
        broken = {breach.oracle for breach in result.breaches}
        self.split += "split" in broken
        self.one_shot += "one_shot" in broken
        self.ns += result.ns
        self.lag.update(result.lag)
        if verdict == "changed":
            self.kinds.update({item.kind for item in result.differences})
        elif result.error is not None:
            self.kinds.update((result.error.type,))

    @property
    def late(self) -> str:
        """Tokens that text comes later than ours, mean and 99th percentile over characters."""
        total = sum(self.lag.values())
        if not total:
            return "0 / 0"
        mean = sum(tokens * count for tokens, count in self.lag.items()) / total
        seen = 0
        for tokens in sorted(self.lag):
            seen += self.lag[tokens]
            if seen >= 0.99 * total:
                return f"{mean:.1f} / {tokens}"
        raise AssertionError("it adds up")


def run(parser: str, traces: Iterable[Trace], splits: Sequence[str] = SPLITS) -> Row:
    """A parser over these sessions."""
    row = Row()
    replayer = Replayer(parser, splits=splits, layer="message")
    for trace in traces:
        row.take(replayer.replay(trace))
    return row


def parsers(kind: Kind) -> Iterator[tuple[str, str]]:
    """(engine, parser) of a family's row."""
    yield "ours", kind.parser
    yield "vLLM", f"vllm:{kind.vllm}"
    yield "SGLang", f"sglang:{kind.sglang}"


def table(kinds: Sequence[Kind], count: int) -> Iterator[str]:
    """The lines of the large table."""
    yield "| family | corpus | parser | right | style | differs | failed | split | one-shot | lag | µs/token | what |"
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for kind in kinds:
        for corpus in CORPORA:
            traces = list(sessions(kind, corpus, count))
            for engine, parser in parsers(kind):
                row = run(parser, traces)
                sys.stderr.write(f"{kind.name}, {corpus}, {engine}: {row.right} of {row.sessions}\n")
                most = ", ".join(f"{name} {times}" for name, times in row.kinds.most_common(3))
                yield (
                    f"| {kind.name} | {corpus} | {engine} `{parser.partition(':')[2] or parser}` | {row.right} "
                    f"| {row.restyled} | {row.differs} | {row.failed} | {row.split} | {row.one_shot} | {row.late} "
                    f"| {row.ns / max(row.tokens, 1) / 1000:.1f} | {most} |"
                )


def groupings(kind: Kind, text: str) -> Iterator[Trace]:
    """A text and two calls, in ``GROUPINGS`` random groupings of 3 to 7 tokens."""
    family = next(one for one in families() if one.name == kind.family)
    calls = _TWO[:1] if family.name == "harmony" else _TWO
    meant = Meant("The user asks for weather." if kind.thinks else None, (text, *calls))
    raw = written(kind.family, meant, kind.kind)
    whole = recorded(kind, family, meant, raw, "f" * 32)
    return (_grouped(whole, seed) for seed in range(1, GROUPINGS + 1))


def _grouped(trace: Trace, seed: int) -> Trace:
    dice = random.Random(seed)
    inputs: list[Input] = []
    left = 0
    for event in trace.events("input", "engine"):
        last = inputs[-1] if inputs else None
        if isinstance(event, TokensInput) and isinstance(last, TokensInput) and left > 0:
            inputs[-1] = TokensInput(0, last.ids + event.ids, last.pieces + event.pieces, last.text + event.text)
            left -= 1
            continue
        left = dice.randint(3, 7) - 1 if isinstance(event, TokensInput) else 0
        inputs.append(event)
    opening = msgspec.structs.replace(trace.opening, session=f"{seed:032x}")
    return record(opening, inputs)


def intact(kinds: Sequence[Kind]) -> Iterator[str]:
    """The lines of the small table."""
    yield "| family | ours | vLLM | SGLang | ours, white space | vLLM, white space | SGLang, white space |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for kind in kinds:
        if kind.family in CALLS_ALONE:
            continue
        cells: list[str] = []
        for text in TEXTS:
            for _, parser in parsers(kind):
                row = run(parser, groupings(kind, text), ("recorded",))
                cells.append(f"{100 * (row.right + row.restyled) / row.sessions:.0f} %")
        yield f"| {kind.name} | {' | '.join(cells)} |"


def versions(count: int) -> str:
    """What was compared, and over how much."""
    engines = (resolve(f"{engine}:hermes") for engine in ("vllm", "sglang"))
    told = ", ".join(stage.id.replace(":hermes@", " ") for stage in engines)
    return f"Playhead {version('playhead')}, {told}; {count} sessions of each family and corpus."


def page(text: str, made: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sessions", type=int, default=50)
    options.add_argument("--only", default="")
    options.add_argument("--show", action="store_true")
    asked = options.parse_args(arguments)
    foreign.configure(str(setup.python()))
    kinds = [kind for kind in KINDS if asked.only in kind.name]
    with setup.harmony_words():
        told = [versions(asked.sessions), "", *table(kinds, asked.sessions)]
        told += ["", f"Messages intact, of {GROUPINGS} groupings of each text:", "", *intact(kinds), ""]
    made = "\n".join(told)
    if asked.show or asked.only:
        sys.stdout.write(made)
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
