"""``playhead play``: a recorded response once more, as its protocol has it or as another would."""

from __future__ import annotations

import sys
import time

import click

from pipeline.cli.sessions import unreadable
from replay.corpus import read
from replay.errors import ReplayError
from replay.played import played
from replay.report import Unreadable
from stages.catalog import PROTOCOLS
from stages.errors import StagesError
from stages.events import Frame, Head
from store.api import StoreError, Trace


@click.command()
@click.argument("session", required=False)
@click.option("--store", default="playhead.db", show_default=True, metavar="PATH",
              help="The store, or a trace file.")  # fmt: skip
@click.option("--as", "protocol", type=click.Choice([*PROTOCOLS]), default=None,
              help="The protocol to write; its own by default.")  # fmt: skip
@click.option("--choice", type=click.IntRange(0), default=None, metavar="K",
              help="Which choice, for a protocol that has one only; the first by default.")  # fmt: skip
@click.option("--speed", type=click.FloatRange(0), default=0.0, show_default=True, metavar="N",
              help="0: at once; 1: as fast as it was; 2: twice as fast.")  # fmt: skip
@click.option("--head", is_flag=True, help="The status and the headers too, before the body.")
def play(
    session: str | None, store: str, protocol: str | None, choice: int | None, speed: float, head: bool
) -> None:  # fmt: skip
    """Write a recorded response again, to standard output: its bytes, or those of another protocol.

    SESSION is an id or the start of one; of a trace file with one session it may be left out. In its own protocol it is
    what the client got. In another it is what the session meant: docs/play.md tells what that protocol has no words
    for.
    """
    try:
        found = played(_found(session, store), protocol, choice)
    except (ReplayError, StagesError, StoreError) as error:
        unreadable(error)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    begun = time.monotonic()
    for frame, at in zip(found.frames, found.ats, strict=True):
        if speed:
            time.sleep(max(begun + at / 1e9 / speed - time.monotonic(), 0))
        data = _data(frame, head)
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _found(session: str | None, source: str) -> Trace:
    found: list[Trace] = []
    for _, one in read([source], [session] if session else []):
        if isinstance(one, Unreadable):
            raise ReplayError(one.error if one.source in one.error else f"{one.source}: {one.error}")
        found.append(one)
        if len(found) > 1:
            raise click.UsageError(
                f"{source} has several sessions{f' that begin with {session}' if session else ''}: name one of them"
            )
    return found[0]


def _data(frame: Frame, head: bool) -> bytes:
    if not isinstance(frame, Head):
        return frame.data
    if not head:
        return b""
    lines = (f"HTTP/1.1 {frame.status}", *(f"{name}: {value}" for name, value in frame.headers), "")
    return "".join(f"{line}\r\n" for line in lines).encode()
