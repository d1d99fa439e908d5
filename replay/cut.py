"""cut: a session ended early, at each of its tokens, as by a limit of tokens: what must hold there without any record.

At a cut all choices stop at the same input; those that had not ended are finished for their length. There the parser
does not raise, the oracles hold (``replay.oracles``), nothing that was sent before depends on what would have come, and
the message is the same with the tokens one by one and many in one step.

One run of the parser serves all cuts: at each token a machine is resumed from a snapshot, and ended (and another, from
an older snapshot, gets the tokens since then in one step: at token k as many as twice the largest power of two that
divides k). What looks wrong there is run again from the start, and counts if it is wrong then, too. A parser that
cannot be resumed, and another engine's, is run from the start for each cut, at fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from replay import loose
from replay.derive import SEMANTIC, StageFailure, Track, failure, run
from replay.diff import Session
from replay.message_diff import in_words
from replay.oracles import breaches
from replay.pair import ENDED, apart
from replay.place import place
from replay.result import Breach, Finding
from replay.said import Saying, said
from replay.split import joined_as, regroup, tokens
from replay.verdict import ORACLES, Oracle, worst
from stages.events import FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.opening import Ask
from stages.stage import Machine

CUT_SHORT = "cut short at "
"""How a note begins that says at how many places something is wrong."""
FOREIGN_CUTS = 64
"""Places at which a session is cut for another engine's parser, evenly spaced."""
VISITS = 1_000_000
"""Tokens that a parser without snapshots may be given over all cuts; for a long session, that makes fewer of them."""
_FEWEST = 16
ORACLE_VISITS = 4_000_000
"""Likewise, tokens that the oracles look at: of a session of more than 2,800 tokens, not at every cut."""
_TRIES = 16
"""Cuts of one kind that are run again from the start, until one of them shows what it seemed to."""


class Cuts(msgspec.Struct):
    """What cutting a session shows. ``count``: places at which it was cut; ``breaches``: the first of each oracle;
    ``failed``: the first cut at which the parser raised; ``notes``: how often, and what was left out."""

    count: int = 0
    breaches: tuple[Breach, ...] = ()
    failed: StageFailure | None = None
    notes: tuple[str, ...] = ()


def under_cuts(found: Finding, session: Session) -> None:
    """Cut a session at each of its tokens, and put what it shows into ``found``. A breach leaves the verdict as it is;
    a parser that raises at a cut has failed."""
    made = cuts(session)
    found.cuts = made.count
    found.breaches += made.breaches
    found.notes += made.notes
    if made.failed is not None:
        found.verdict = worst(found.verdict, "failed")
        found.error = found.error or made.failed


def cuts(session: Session) -> Cuts:
    """Cut a session at each of its tokens. Raises nothing for what a stage does."""
    lab = _Lab(session)
    if not lab.count:
        return Cuts()
    if not lab.foreign:
        try:
            return _Walk(lab).all()
        except _NoResumeError:
            lab.notes = ("its machine does not resume from a snapshot: each cut was run from the start",)
            lab.report = _Report()
    return lab.each()


class _NoResumeError(Exception):
    """A resumed machine does not go on as the first one did."""


def _kind(wrong: StageFailure | Breach) -> str:
    return "failed" if isinstance(wrong, StageFailure) else wrong.oracle


class _Report:
    """The first breach of each oracle, and how many cuts show it."""

    def __init__(self) -> None:
        self.first: dict[Oracle, Breach] = {}
        self.failed: StageFailure | None = None
        self.times: dict[str, int] = {}

    def add(self, *found: StageFailure | Breach) -> None:
        """What is wrong at one cut."""
        for kind in {_kind(wrong): None for wrong in found}:
            self.times[kind] = self.times.get(kind, 0) + 1
        for wrong in found:
            if isinstance(wrong, Breach):
                self.first.setdefault(wrong.oracle, wrong)
            else:
                self.failed = self.failed or wrong

    def made(self, count: int, notes: tuple[str, ...]) -> Cuts:
        """All of it."""
        told = tuple(
            f"{CUT_SHORT}{count} places: {'the parser fails' if kind == 'failed' else f'`{kind}` is broken'} at {times}"
            for kind, times in self.times.items()
        )
        order = sorted(self.first.values(), key=lambda breach: ORACLES.index(breach.oracle))
        return Cuts(count, tuple(order), self.failed, told + notes)


class _Ends:
    """What has come of a session, and how it ends here."""

    def __init__(self, ask: Ask) -> None:
        self._each = max(ask.n // ask.prompts, 1)
        self._prompts: list[PromptInput] = []
        self._most = ask.prompts
        self._open: set[int] = set()
        self._made = 0

    def take(self, event: Input) -> None:
        """The next input."""
        if isinstance(event, TokensInput):
            self._made += len(event.ids) or 1
        elif isinstance(event, FinishInput):
            self._open.discard(event.choice)
        elif isinstance(event, PromptInput) and len(self._prompts) < self._most:
            first = len(self._prompts) * self._each
            self._prompts.append(event)
            self._open.update(range(first, first + self._each))

    def inputs(self) -> list[Input]:
        """The inputs that end it."""
        prompt, cached = (sum(getattr(each, name) for each in self._prompts) for name in ("count", "cached"))
        ends: list[Input] = [FinishInput(choice, "length") for choice in sorted(self._open)]
        return [*ends, UsageInput(prompt, self._made, cached)]


class _Lab:
    """A session's tokens, and its cuts run from the start. Cut k is behind k tokens."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stage = session.layers.semantic
        self.foreign = loose.is_foreign(session.layers.parts["parser"])
        self.atoms = joined_as(session.inputs, {})
        self.seqs = [
            seq for seq, event in enumerate(session.inputs)
            for _ in (tokens(event) if isinstance(event, TokensInput) else (event,))
        ]  # fmt: skip
        places = [at for at, event in enumerate(self.atoms) if isinstance(event, TokensInput)]
        self.ends_at = [places[0], *(at + 1 for at in places)] if places else []
        """Of each cut, how many inputs come before it."""
        self.count = len(self.ends_at)
        self.report = _Report()
        self.notes: tuple[str, ...] = ()
        self._whole: Track | None = None

    def end(self, cut: int) -> str:
        """A cut in words."""
        return f"ended after token {cut} of {self.count - 1}" if cut else "ended before its first token"

    def step(self, cut: int) -> int:
        """The recorded input behind which a cut is."""
        return self.seqs[self.ends_at[cut] - 1] if self.ends_at[cut] else -1

    def inputs(self, cut: int) -> list[Input]:
        """A session that is cut there."""
        before = self.atoms[: self.ends_at[cut]]
        ends = _Ends(self.session.opening.ask)
        for event in before:
            ends.take(event)
        return [*before, *ends.inputs()]

    def run(self, inputs: Sequence[Input]) -> tuple[Track, StageFailure | None]:
        """Run the semantic stages from the start."""
        return run(self.stage, "semantic", self.session.opening, inputs, range(len(inputs)))

    def whole(self) -> Track:
        """What comes out without a cut."""
        if self._whole is None:
            self._whole, _ = self.run(self.atoms)
        return self._whole

    def each(self) -> Cuts:
        """Cut it, each time from the start."""
        most = FOREIGN_CUTS if self.foreign else max(_FEWEST, VISITS // self.count)
        chosen = list(range(self.count))
        if self.count > most:
            chosen = sorted({at * (self.count - 1) // (most - 1) for at in chosen[:most]})
            self.notes += (f"only {len(chosen)} of {self.count} places were tried: every cut takes a run of its own",)
        for done, cut in enumerate(chosen, 1):
            inputs = self.inputs(cut)
            self.report.add(*self.wrong(cut, inputs, [regroup(inputs, "one", self.session.opening.tokenizer)]))
            failed = self.report.failed
            if self.foreign and failed is not None and failed.type in ENDED and done < len(chosen):
                # Each such cut may take as long as a session.
                self.notes += (f"{len(chosen) - done} more places were not tried: its worker ended",)
                return self.report.made(done, self.notes)
        return self.report.made(len(chosen), self.notes)

    def wrong(
        self, cut: int, inputs: Sequence[Input], others: Iterable[Sequence[Input]]
    ) -> list[StageFailure | Breach]:
        """What is wrong at a cut. ``inputs``: the session that is cut there, token by token; ``others``: the same in
        other steps."""
        track, failed = self.run(inputs)
        if failed is not None:
            return [self._placed(cut, failed)]
        found: list[StageFailure | Breach] = [*self.broken(cut, inputs, track.events, track.steps)]
        if not self._causal(cut, track):
            detail = f"{self.end(cut)}: what is sent before that depends on what would have come"
            found.append(Breach("retracted", detail, step=self.step(cut), split=f"cut:{cut}"))
        for other in others:
            second, failed = self.run(other)
            if failed is not None:
                found.append(self._placed(cut, failed))
            elif told := apart(self.session, track, second):
                detail = f"{self.end(cut)}: the message depends on the split: {in_words(told[0])}"
                found.append(Breach("split", detail, told[0].choice, self.step(cut), f"cut:{cut}"))
        return found

    def broken(self, cut: int, inputs: Sequence[Input], events: list[Any], steps: list[int]) -> list[Breach]:
        """The oracles that the events break."""
        opening = self.session.opening
        messages = Track(events, steps, steps).messages(named=opening.ask.named)
        found = breaches(opening, inputs, events, steps, messages)
        return [
            msgspec.structs.replace(
                item, detail=f"{self.end(cut)}: {item.detail}", step=self.step(cut), split=f"cut:{cut}"
            )
            for item in found
        ]

    def _placed(self, cut: int, failed: StageFailure) -> StageFailure:
        """A failure, told by the record's seqs."""
        step = self.seqs[failed.step] if 0 <= failed.step < self.ends_at[cut] else self.step(cut)
        return msgspec.structs.replace(failed, step=step, input=f"{failed.input} ({self.end(cut)})".lstrip())

    def _causal(self, cut: int, track: Track) -> bool:
        """What was sent before the cut is what is sent there without one."""
        behind = self.ends_at[cut]
        ends: dict[int, int] = {}
        if self.foreign:
            # Another engine gives its parser the finish together with a choice's last tokens.
            made = enumerate(self.atoms[:behind])
            ends = {event.choice: at for at, event in made if isinstance(event, TokensInput)}

        def sent(track: Track) -> Iterator[Any]:
            for event, step in zip(track.events, track.steps, strict=True):
                if step < ends.get(getattr(event, "choice", -1), behind):
                    yield event

        return said(sent(track), ids=False) == said(sent(self.whole()), ids=False)


class _Spot(msgspec.Struct):
    """A machine's snapshot: how many inputs it has seen, and how many events it has made."""

    snapshot: Any
    inputs: int
    events: int


class _Walk:
    """All cuts with one run, a machine resumed at each."""

    def __init__(self, lab: _Lab) -> None:
        self._lab = lab
        self._opening = lab.session.opening
        self._ends = _Ends(self._opening.ask)
        self._saying = Saying()
        self._every = -(-lab.count * lab.count // (2 * ORACLE_VISITS))
        self._events: list[Any] = []
        self._old: dict[int, _Spot] = {}
        """The last cut that this power of two is the largest to divide."""
        self._probed = {lab.count // 4, lab.count // 2, 3 * lab.count // 4}
        self._probes: list[_Spot] = []
        self._tries: dict[str, int] = {}

    def all(self) -> Cuts:
        """Cut it everywhere. Raises _NoResumeError."""
        lab = self._lab
        cut = seen = 0
        try:
            machine = lab.stage.start(self._opening)
            for event in lab.atoms:
                if isinstance(event, TokensInput) and cut == 0:
                    self._cut(machine, cut)
                machine.step(event, self._events)
                seen += 1
                self._ends.take(event)
                self._saying.take(event, self._events)
                if isinstance(event, TokensInput):
                    cut += 1
                    self._cut(machine, cut)
        except _NoResumeError:
            raise
        except (Exception, SystemExit) as error:  # a user's parser may raise anything
            if lab.run(lab.atoms)[1] is None:
                raise _NoResumeError from error  # those that were resumed disturbed it
            parser = lab.session.layers.parts["parser"].id
            lab.report.add(failure(error, parser, "semantic", seen, lab.atoms, lab.seqs, place(error)))
            return lab.report.made(cut, lab.notes)
        self._resumes()
        if self._every > 1:
            lab.notes += (f"the oracles were checked at one in {self._every} of {lab.count} cuts",)
        return lab.report.made(lab.count, lab.notes)

    def _cut(self, machine: Machine[Any, Any], cut: int) -> None:
        lab = self._lab
        try:
            here = _Spot(machine.snapshot(), lab.ends_at[cut], len(self._events))
        except (Exception, SystemExit) as error:  # a user's stage need not have it
            raise _NoResumeError from error
        if cut in self._probed:
            self._probes.append(here)
        ends = self._ends.inputs()
        made = self._resumed(here, ends)
        if made is None:
            self._again(cut, "failed", [])
            return
        self._split(cut, here, ends, made)
        if cut % self._every == 0 or cut == lab.count - 1:
            events, steps = self._saying.all(made, len(lab.atoms))
            for kind in sorted({item.oracle for item in lab.broken(cut, self._saying.wrote(), events, steps)}):
                self._again(cut, kind, [])

    def _split(self, cut: int, here: _Spot, ends: list[Input], made: list[Any]) -> None:
        """Compare with the last tokens in one step."""
        if cut == 0:
            return
        lab = self._lab
        power = cut & -cut
        old = self._old.get(power)
        self._old[power] = here
        start, events = (old.inputs, old.events) if old else (0, 0)
        joined = regroup([*lab.atoms[start : here.inputs], *ends], "one", self._opening.tokenizer)
        other = self._resumed(old, joined)
        if other is None or said(other) != said([*self._events[events:], *made]):
            self._again(cut, "split", [*lab.atoms[:start], *joined])

    def _again(self, cut: int, kind: str, other: Sequence[Input]) -> None:
        """Run a cut from the start, unless it is known by now that this kind of thing goes wrong."""
        lab = self._lab
        if kind in lab.report.times:
            lab.report.times[kind] += 1
        elif self._tries.setdefault(kind, 0) < _TRIES:
            self._tries[kind] += 1
            wrong = lab.wrong(cut, lab.inputs(cut), [other] if other else [])
            lab.report.add(*[item for item in wrong if _kind(item) == kind][:1])

    def _resumed(self, spot: _Spot | None, inputs: Sequence[Input]) -> list[Any] | None:
        """What a machine makes of more inputs; None where it raises, or makes what is no event: a run from the start
        tells what. ``spot``: where it goes on; None: one that has seen nothing."""
        stage = self._lab.stage
        out: list[Any] = []
        try:
            machine = stage.start(self._opening) if spot is None else stage.resume(self._opening, spot.snapshot)
            for event in inputs:
                machine.step(event, out)
        except (Exception, SystemExit):  # a user's parser may raise anything
            return None
        return out if SEMANTIC.issuperset(map(type, out)) else None

    def _resumes(self) -> None:
        """See that the first machine was not disturbed by those that were resumed, and at some places that these go on
        as it did."""
        if self._lab.whole().events != self._events:
            raise _NoResumeError
        for spot in self._probes:
            if self._resumed(spot, self._lab.atoms[spot.inputs :]) != self._events[spot.events :]:
                raise _NoResumeError
