"""``playhead import``: sessions of trace files and other stores into a store, with the bytes of their ids joined."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click
import msgspec

from pipeline import shadow
from pipeline.cli.sessions import unreadable
from pipeline.engines.base import EngineLoadError
from pipeline.vocabulary import Vocabulary
from replay import ReplayError, resolve
from replay.corpus import read
from replay.report import Unreadable
from stages import catalog
from stages.events import Layer
from stages.opening import Opening
from store import MemoryStore, open_store
from store.api import SHADOW, EventStore, Record, SequenceConflict, StoreError, Trace


@click.command()
@click.argument("source", nargs=-1, required=True, type=click.Path())
@click.option("--store", default="playhead.db", show_default=True, help="The SQLite file; made if absent.")
@click.option("--tokenizer", default=None, metavar="T",
              help="Join the bytes of token ids that came from another server: a folder, a tokenizer.json, a .gguf "
              "file, or a Hugging Face name.")  # fmt: skip
@click.option("--parser", default=None, metavar="P",
              help="The parser of sessions of another server, instead of the one that was found when they were "
              "recorded: a name, file.py:Attr or package.module:Attr.")  # fmt: skip
@click.option("--model", default=None, metavar="M", help="Only sessions of this model: a name, or a pattern with *.")
def import_(
    source: tuple[str, ...], store: str, tokenizer: str | None, parser: str | None, model: str | None
) -> None:  # fmt: skip
    """Copy sessions into a store. SOURCE: a trace file, a store, or a folder of them.

    What is already there is left alone; a session that is there with other records is named. Sources are never
    changed: with --tokenizer or --parser the copies say more than what they were made of. Exit code: 0 done, 2 usage,
    3 something could not be read, or is there with other records.
    """
    if (tokenizer or parser) and any(_same(each, store) for each in source):
        raise click.UsageError(f"{store} is also a source, and what it has is never changed: name another --store")
    changes = _changes(tokenizer, parser, any_model=model is not None)
    try:
        target = open_store(store)
    except StoreError as error:
        unreadable(error)
    try:
        counts = Counter(_outcome(found, target, changes, model or "*") for _, found in read(source))
        target.close()
    except StoreError as error:
        unreadable(error)
    _tell(counts, store, changes)
    sys.exit(3 if counts["failed"] else 0)


def _tell(counts: Counter[str], store: str, changes: Changes | None) -> None:
    new = counts["new"] + counts["changed"]
    outcomes = ("already there", "still being recorded", "of other models")
    more = [f"{counts[what]} {what}" for what in outcomes if counts[what]]
    click.echo(", ".join([f"{new} new session{'' if new == 1 else 's'} in {store}", *more]))
    if changes is None or changes.vocabulary is None:
        return
    click.echo(f"the ids of {changes.joined} have their bytes now")
    if changes.others:
        click.echo(f"Note: {changes.others} had been read with another tokenizer, and stay as they are", err=True)
    if changes.vocabulary.unknown:
        lacking = f"{changes.vocabulary.unknown} ids are not in this tokenizer, and their steps have no bytes"
        click.echo(f"Note: {lacking}: is it the model's own?", err=True)


def _same(source: str, store: str) -> bool:
    path, target = Path(source), Path(store)
    return target.exists() and path.exists() and (path.samefile(target) or path.resolve() in target.resolve().parents)


def _outcome(found: Trace | Unreadable, target: EventStore, changes: Changes | None, model: str) -> str:
    if isinstance(found, Unreadable):
        return _failed(f"{found.source}: {found.error}")
    if found.info.state == "open":
        return "still being recorded"
    if not fnmatchcase(found.opening.model, model):
        return "of other models"
    try:
        made = found if changes is None else changes.made(found)
        new = target.save([made])
    except (SequenceConflict, _AnotherModel) as error:
        return _failed(str(error))
    if not new:
        return "already there"
    return "new" if made is found else "changed"


def _failed(why: str) -> str:
    click.echo(f"Error: {why}", err=True)
    return "failed"


# --- what is joined -------------------------------------------------------------------------------------------------


class _AnotherModel(Exception):
    """The tokenizer is likely not this model's."""


class Changes:
    """What a copy says beyond its source. Only sessions that were relayed change: what our own stages served was made
    of the inputs as they are. ``joined``: sessions so far whose ids got their bytes; ``others``: those that had another
    tokenizer already; ``any_model``: a tokenizer is for more than the model of the first that it joins."""

    def __init__(self, vocabulary: Vocabulary | None, parser: str | None, *, any_model: bool) -> None:
        self.vocabulary = vocabulary
        self.joined = self.others = 0
        self._parser = parser
        self._any_model = any_model
        self._model: str | None = None

    def made(self, found: Trace) -> Trace:
        """The session to store: the same one where nothing is to be added. Raises _AnotherModel."""
        opening = found.opening
        if opening.upstream is None or not opening.upstream.relayed:
            return found
        inputs = found.records.get(("input", "engine"), ())
        joined = self._joined(opening, inputs)
        facts = opening.tokenizer
        if self.vocabulary is not None and joined != inputs:
            self._check_model(opening)
            self.joined += 1
            facts = msgspec.structs.replace(self.vocabulary.facts, joined=True)
        parser = self._parser_of(opening)
        if joined == inputs and parser == opening.parser:
            return found
        stages = {**opening.stages, "parser": resolve(parser, opening).id}
        changed = msgspec.structs.replace(opening, parser=parser, stages=stages, tokenizer=facts)
        info = msgspec.structs.replace(found.info, parser=parser, stages=stages, shadows={})
        kept: dict[tuple[str, Layer], Sequence[Record]] = {
            key: records for key, records in found.records.items() if not key[0].startswith(SHADOW)
        }
        if inputs:
            kept["input", "engine"] = joined
        return _seen_again(Trace(opening=changed, info=info, records=kept), found.info.shadows)

    def _joined(self, opening: Opening, inputs: Sequence[Record]) -> Sequence[Record]:
        if self.vocabulary is None:
            return inputs
        if self._other(opening):
            # What has bytes of another tokenizer gets none of this one beside them.
            self.others += 1
            return inputs
        events = self.vocabulary.joined([record.event for record in inputs])
        return [msgspec.structs.replace(record, event=event) for record, event in zip(inputs, events, strict=True)]

    def _other(self, opening: Opening) -> bool:
        return self.vocabulary is not None and opening.tokenizer.hash not in (None, self.vocabulary.facts.hash)

    def _check_model(self, opening: Opening) -> None:
        if self._model is None:
            self._model = opening.model
        if not self._any_model and opening.model != self._model:
            raise _AnotherModel(
                f"session {opening.session} is of model {opening.model!r}, those before it of {self._model!r}: is this "
                "its tokenizer? Say with --model which sessions it is for ('*': all)"
            )

    def _parser_of(self, opening: Opening) -> str:
        """The format as the tokenizer tells it, where nothing but the model's name told it before."""
        if self._parser is not None and self._parser != "auto":
            return self._parser
        by_name = catalog.detect(None, opening.tokenizer, opening.model)
        if self.vocabulary is None:
            return by_name if self._parser == "auto" else opening.parser
        if self._parser is None and (opening.parser != by_name or self._other(opening)):
            return opening.parser
        return catalog.detect(self.vocabulary.template, self.vocabulary.facts, opening.model)


def _seen_again(trace: Trace, before: Iterable[str]) -> Trace:
    """The session with what other parsers make of it now: those that looked at it ``before``, as far as they can be
    had, and its own, as a server would let it."""
    store = MemoryStore()
    store.save([trace])
    session = trace.opening.session
    for name in dict.fromkeys([*before, trace.opening.parser]):
        with contextlib.suppress(ReplayError):
            resolve(name, trace.opening)
            shadow.attach(store, session, name, shadow.seen(trace, name))
    return store.load(session)


def _changes(tokenizer: str | None, parser: str | None, *, any_model: bool) -> Changes | None:
    """Raises UsageError for a tokenizer or parser that cannot be had."""
    if tokenizer is None and parser is None:
        return None
    try:
        if parser is not None and parser != "auto":
            resolve(parser)
        vocabulary = None if tokenizer is None else Vocabulary.load(tokenizer)
        return Changes(vocabulary, parser, any_model=any_model)
    except (ReplayError, EngineLoadError) as error:
        raise click.UsageError(str(error)) from error
