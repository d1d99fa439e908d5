"""``playhead validate``: the numbered rules of the protocols over recorded responses, whoever made them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from pipeline.cli.bodies import BadResponse, protocol_in, read_response
from pipeline.cli.validate_view import (
    Found,
    Judged,
    Tally,
    Unfinished,
    lines_of,
    show_rules,
    show_stream,
    show_summary,
)
from pipeline.cli.view import console
from replay import ReplayError, Unreadable
from replay.corpus import STORES, read
from replay.evidence import evidence_of
from stages.errors import StagesError
from stages.protocols.rules import PROTOCOLS, Evidence, Protocol, check
from store import open_store, trace
from store.api import StoreError, Trace

_SQLITE = b"SQLite format 3\0"
_BODIES = (".sse", ".http")
"""How the names of responses end, in a folder."""
_KEPT = 1000
"""Breaches of a rule that are told of one stream."""


class Options(msgspec.Struct, frozen=True):
    """What is known of a response beside its body."""

    protocol: Protocol | None = None
    request: dict[str, Any] | None = None
    whole: bytes | None = None
    own: bool = False
    sessions: tuple[str, ...] = ()
    effort: Literal[True] | None = True


@click.command()
@click.argument("source", nargs=-1)
@click.option("--protocol", type=click.Choice(PROTOCOLS), default=None, help="Default: what the body tells.")
@click.option("--request", type=click.Path(exists=True, dir_okay=False), metavar="F",
              help="The request's body: many rules need it.")  # fmt: skip
@click.option("--whole", type=click.Path(exists=True, dir_okay=False), metavar="F",
              help="The body of the same answer without streaming, to compare with.")  # fmt: skip
@click.option("--own", is_flag=True, help="The response is Playhead's: what others may do differently is an error too.")
@click.option("--quick", is_flag=True,
              help="Leave out what takes long: decoding at every cut, regrouping, encoding again.")  # fmt: skip
@click.option("--session", multiple=True, help="Only this session (an id or the start of one); may be repeated.")
@click.option("--save", is_flag=True, help="Note in the store, for each of its sessions, what the rules found.")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True,
              help="The least breach that makes the exit code 1.")  # fmt: skip
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0),
              help="Responses shown, and places shown of a broken rule.")  # fmt: skip
@click.option("--json", "json_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write JSON lines (- is standard output, which then holds nothing else).")  # fmt: skip
@click.option("--rules", is_flag=True, help="List the rules.")
def validate(
    source: tuple[str, ...], protocol: Protocol | None, request: str | None, whole: str | None, own: bool,
    quick: bool, session: tuple[str, ...], save: bool, fail_on: Literal["error", "warning"], limit: int,
    json_file: str | None, rules: bool,
) -> None:  # fmt: skip
    """Hold recorded responses to the numbered rules of their protocols, and show what breaks them, and where.

    SOURCE: an event stream's bytes (- is standard input), alone or behind an HTTP head; a store; a trace file; or a
    folder of these (names in .sse and .http, .jsonl, .db). A rule that needs what is not there is not checked, and says
    so. Exit code: 0 nothing broken, 1 something broken, 2 usage, 3 something could not be read.
    """
    to = console()
    if rules:
        show_rules(to)
        return
    options = _options(source, protocol, request, whole, own, session, save)
    options = msgspec.structs.replace(options, effort=None if quick else True)
    quiet = json_file == "-"
    tally = Tally()
    noted: dict[str, list[Judged]] = {}
    with _written(json_file) as write:
        for one in _judged(source, options):
            write(one)
            tally.add(one)
            if not isinstance(one, Judged):
                continue
            if save:
                noted.setdefault(one.source, []).append(one)
            if one.report.counts and not quiet and tally.broken <= limit:
                show_stream(to, one, limit)
    for one in _save(noted):
        tally.add(one)
    if not quiet:
        show_summary(to, tally, limit)
    sys.exit(3 if tally.unreadable else int(tally.failing(fail_on)))


@contextmanager
def _written(path: str | None) -> Generator[Callable[[Found], None]]:
    """What writes JSON lines."""
    if path is None:
        yield lambda one: None
        return
    if path == "-":
        yield lambda one: click.echo(b"".join(lines_of(one)), nl=False)
        return
    try:
        with open(path, "wb") as file:
            yield lambda one: file.writelines(lines_of(one))
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error


def _options(
    source: Sequence[str], protocol: Protocol | None, request: str | None, whole: str | None, own: bool,
    sessions: tuple[str, ...], save: bool,
) -> Options:  # fmt: skip
    """Raises UsageError, also for options that would have no effect."""
    if not source:
        raise click.UsageError("name a source, or --rules")
    bodies = [one for one in source if one == "-" or (not Path(one).is_dir() and _is_body(one))]
    others = [one for one in source if one not in bodies]
    given = {"--protocol": protocol, "--request": request, "--whole": whole, "--own": own or None}
    for name, value in given.items():
        if value is not None and others:
            raise click.UsageError(f"{name} is for a response; {others[0]} holds sessions, which tell it themselves")
    if (request or whole) and len(bodies) > 1:
        raise click.UsageError(f"{'--request' if request else '--whole'} belongs to one response; name one")
    for name, of_stores in (("--session", bool(sessions)), ("--save", save)):
        if of_stores and bodies:
            raise click.UsageError(f"{name} is for stores; {bodies[0]} is a response")
    if save and not all(_is_store(one) for one in others):
        raise click.UsageError("--save is for stores")
    return Options(protocol, _request(request), Path(whole).read_bytes() if whole else None, own, sessions)


def _request(file: str | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(f"--request {file}: no JSON object ({error})") from error


def _is_store(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _is_body(path: str) -> bool:
    return not path.endswith(trace.SUFFIXES) and not path.endswith(STORES) and not _is_store(path)


# --- reading ----------------------------------------------------------------------------------------------------------


def _judged(sources: Sequence[str], options: Options) -> Iterator[Found]:
    for source in sources:
        path = Path(source)
        if source == "-":
            yield _body(source, sys.stdin.buffer.read(), options)
        elif path.is_dir():
            yield from _folder(path, options)
        elif _is_body(source):
            yield _file(source, options)
        else:
            yield from _sessions(source, options)


def _folder(path: Path, options: Options) -> Iterator[Found]:
    empty = True
    for file in sorted(path.rglob("*")):
        name = str(file)
        if name.endswith(_BODIES) and not options.sessions and file.is_file():
            empty = False
            yield _file(name, options)
        elif name.endswith((*trace.SUFFIXES, *STORES)) and file.is_file():
            empty = False
            yield from _sessions(name, options)
    if empty:
        yield Unreadable(str(path), "no session and no response in it")


def _file(source: str, options: Options) -> Found:
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        return Unreadable(source, error.strerror or str(error))
    return _body(source, data, options)


def _body(source: str, data: bytes, options: Options) -> Found:
    try:
        response = read_response(data)
    except BadResponse as error:
        return Unreadable(source, str(error))
    protocol = options.protocol or protocol_in(response.body, options.request)
    if protocol is None and response.http is not None and response.http.status != 200:
        # What is no body of any protocol is judged as an error of the one that most servers speak.
        protocol = "chat"
    if protocol is None:
        return Unreadable(source, f"nothing in it tells its protocol; give --protocol ({', '.join(PROTOCOLS)})")
    evidence = Evidence(
        body=response.body,
        protocol=protocol,
        own=options.own,
        marked="truncated" if response.cut else None,
        request=options.request,
        http=response.http,
        whole=options.whole,
        effort=options.effort,
    )
    return Judged(source, protocol, len(response.body), check(evidence, keep=_KEPT))


def _sessions(source: str, options: Options) -> Iterator[Found]:
    seen: set[str] = set()
    for name, found in read([source], options.sessions):
        if isinstance(found, Unreadable):
            yield found
        elif found.info.state == "open":
            yield Unfinished(name, found.opening.session)
        else:
            yield _session(name, found, seen, options)


def _session(source: str, found: Trace, seen: set[str], options: Options) -> Found:
    opening = found.opening
    again = frozenset({opening.response_id}) if opening.response_id in seen else frozenset[str]()
    seen.add(opening.response_id)
    try:
        evidence = evidence_of(found, effort=options.effort is True, seen=again)
    except (ReplayError, StagesError) as error:
        return Unreadable(source, str(error), opening.session)
    report = check(evidence, keep=_KEPT)
    return Judged(source, evidence.protocol, len(evidence.body), report, opening.session, found.info.state)


def _save(noted: dict[str, list[Judged]]) -> Iterator[Unreadable]:
    """Note what was found in each store; gives what could not be noted."""
    for source, judged in noted.items():
        try:
            store = open_store(source, create=False)
        except StoreError as error:
            yield Unreadable(source, str(error))
            continue
        try:
            for one in judged:
                store.note_rules(one.session, one.report.counts, one.errors)
        except StoreError as error:
            yield Unreadable(source, str(error))
        finally:
            store.close()
