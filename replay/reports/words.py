"""What the reports say, in words: headline, kinds, marks, statistics, lag, the command that replays one session."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from replay.foreign import is_foreign_name
from replay.report import RunReport
from replay.reports.align import Aligned, Row
from replay.result import SessionResult, SplitPair
from replay.text import first_difference, sound
from replay.totals import Paired, Unreadable
from replay.verdict import MESSAGE_KINDS, VERDICTS, Mark, Verdict

QUIET: tuple[Verdict, ...] = ("same", "uncompared", "restyled")
"""Sessions that are counted, not shown."""
RARE: tuple[Verdict, ...] = ("uncompared", "restyled")
"""Verdicts of which a table says nothing where there are none."""
STYLES: dict[Verdict, str] = {
    "same": "green", "uncompared": "bold yellow",
    "rechunked": "cyan", "moved": "yellow", "restyled": "cyan", "changed": "bold red", "failed": "bold magenta",
}  # fmt: skip
"""Colours of a terminal."""
MEANS: dict[Verdict, str] = {
    "same": "equal",
    "uncompared": "nothing could be compared",
    "rechunked": "the same, cut into other pieces within the same steps",
    "moved": "the same message, parts of it sent earlier or later",
    "restyled": "another server's message, equal but for white space and how JSON is written",
    "changed": "the message, or anything else that was compared, differs",
    "failed": "the parser raised, hung, or cannot run on it",
}
MARKED: dict[Mark, str] = {
    "failed": "the parser fails",
    "differs": "the message is not the recorded one",
    "split": "the message depends on how tokens are grouped",
    "one_shot": "streaming says something else than parsing the whole text at once",
    "retracted": "something that was sent is taken back or contradicted",
    "leaked": "markup is in the text",
    "arguments": "the arguments of a complete call are no JSON object",
    "rule": "a rule of the protocol is broken",
    "fault": "a fault: the model wrote something malformed, says the parser",
}
CHANCE = 0.05
"""Above this p, two parsers are not told apart."""
_ID = 12
"""Characters of an id that are shown at least; ``--session`` takes the start of one."""
_LONG = 48


def counted(number: int, what: str) -> str:
    """``1 session``, ``2,000 sessions``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def spaced(name: str) -> str:
    """A name of the code as words."""
    return name.replace("_", " ")


def not_same(report: RunReport) -> int:
    """Sessions that are shown: neither the same nor only counted."""
    return sum(report.summary.count(verdict) for verdict in VERDICTS if verdict not in QUIET)


def severity(kind: str) -> int:
    """The place of a kind among those of a message, the most telling first; one that is none of them is last."""
    kinds: Sequence[str] = MESSAGE_KINDS
    return kinds.index(kind) if kind in kinds else len(kinds)


def shares(counts: Mapping[str, int]) -> str:
    """``qwen3 12, hermes 3``: the most frequent first, five at most."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name or 'unnamed'} {count:,}" for name, count in most[:5]]
    return ", ".join([*told, *([f"{len(most) - 5:,} more"] if len(most) > 5 else [])])


def percent(rate: float) -> str:
    """``0.12 %``; never 0 or 100 where it is not."""
    value = 100 * rate
    digits = 2 if 0 < value < 1 or 99 < value < 100 else 1
    told = f"{value:.{digits}f}"
    if 0 < value < 0.005:
        return "< 0.01 %"
    if value < 100 and float(told) == 100:
        return "> 99.99 %"
    return f"{told} %"


def p_value(p: float) -> str:
    """``p = 0.031``, ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.995 else "p = 1"


def rate(of: tuple[float, float, float]) -> str:
    """``1.2 % (0.9 to 1.6 %)``."""
    return f"{percent(of[0])} ({percent(of[1]).removesuffix(' %')} to {percent(of[2])})"


def judged(item: Paired) -> str:
    """What a row of the paired statistics means: of these sessions it is exact, of others like them perhaps more."""
    if not item.before and not item.after:
        return "the same sessions on both sides"
    told = f"new in {item.after:,}, gone in {item.before:,}"
    if item.p >= CHANCE:
        return f"{told}: too few to generalise"
    return f"{told}: likely {'more' if item.after > item.before else 'fewer'} in other sessions, too"


PAIRED_MEANS = (
    "new: only the second side has it; gone: only the first. These counts are exact: replayed again, these sessions"
    " give the same. p and the ranges in brackets are about other sessions like these: p is how likely counts at least"
    " this uneven would be by the choice of sessions alone, if both sides were equally good (exact McNemar test,"
    f" two-sided; below {CHANCE} we generalise); the range is where the rate among all such sessions is, in 95 of 100"
    " corpora (Wilson's interval)."
)


def shortened(ids: Iterable[str]) -> dict[str, str]:
    """Ids, each as long as it takes to tell it from the others, and 12 characters at least."""
    ordered = sorted(set(ids))
    alike = [0, *map(_common, ordered, ordered[1:]), 0]
    return {each: _cut(each, max(_ID, 1 + max(alike[place], alike[place + 1]))) for place, each in enumerate(ordered)}


def _common(one: str, other: str) -> int:
    return first_difference(one, other)


def _cut(text: str, size: int) -> str:
    return text[:size] if size <= _LONG else text if len(text) <= _LONG else f"{text[:_LONG]}…"


def unread(item: Unreadable) -> str:
    """What cannot be read, and why, with its path once."""
    path, colon, why = item.error.partition(": ")
    again = colon and item.source and path.endswith(item.source.removeprefix("./"))
    session = f" session {item.session}" if item.session else ""
    return f"{item.source}{session}: {why if again else item.error}"


def sides(report: RunReport) -> tuple[str, str]:
    """What the two sides of a comparison are called."""
    if report.baseline:
        return str(report.baseline), report.parser or "the recorded parser"
    return (str(report.track) if report.track else "recorded"), "replayed"


def shown_sides(report: RunReport) -> tuple[str, str]:
    """What the two sides of an example are called: of an earlier report no events are there, but the record's."""
    before, after = sides(report)
    return ("recorded" if is_earlier(report) else before), after


def is_earlier(report: RunReport) -> bool:
    """The baseline is an earlier report."""
    return isinstance(report.baseline, str) and report.baseline.endswith(".json")


def pair_in_words(pair: SplitPair) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both groupings of the smallest pair of splits: what each is, and its tokens."""
    one, other = pair.splits
    if not one:  # of a report from before they were told
        return ("one way", pair.shown[0]), ("another way", pair.shown[1])
    like = f"like `{one}`, but with {_joined(pair)} as `{other}` has it"
    return (f"`{one}`", pair.shown[0]), (like, pair.shown[1])


def _joined(pair: SplitPair) -> str:
    apart = {*pair.groups} ^ {*pair.other}
    return f"{len(apart)} {'group' if len(apart) == 1 else 'groups'} of tokens"


def source_of(report: RunReport) -> str:
    """What was replayed through what, against what."""
    parser = report.parser or "each session's own parser"
    before = f"what {report.baseline} makes of it" if report.baseline else "the record"
    if is_earlier(report):
        before = f"the run that {report.baseline} is of"
    if report.track:
        before = f"track {report.track}"
    return f"{parser}, compared with {before}, {depth_of(report)}"


def depth_of(report: RunReport) -> str:
    """How deep was compared: another engine's parser has no layers like ours."""
    names = (report.parser, report.baseline)
    if any(isinstance(name, str) and is_foreign_name(name) for name in names):
        return "by message, and by when its text is visible"
    return "by message" if report.layer == "message" else f"to the {report.layer} layer"


def paired_of(report: RunReport) -> list[Paired]:
    """The statistics that say something: the record does not differ from itself."""
    return [item for item in report.paired if item.mark != "differs" or report.baseline or report.track]


def command(report: RunReport, source: str, session: str) -> str:
    """The command line that replays one session as this run did."""
    # What begins with a dash would be an option.
    words = ["playhead", "replay", f"./{source}" if source.startswith("-") else source, *_option("session", session)]
    given = (
        ("parser", report.parser), ("baseline", report.baseline), ("track", report.track), ("compare", report.compare),
        *(("ignore", rule) for rule in report.ignore), *(("peer-python", path) for path in report.peer_python),
        ("tokenizer", report.tokenizer),
    )  # fmt: skip
    for option, value in given:
        if value is not None and value is not msgspec.UNSET:
            words += _option(option, str(value))
    if report.splits != ("recorded",):
        words += ["--splits", ",".join(report.splits)]
    if report.layer != "frame":
        words += ["--layer", report.layer]
    if report.cut:
        words.append("--cut")
    return sound(shlex.join(words))


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def cuts_in_words(places: int, sessions: int, broken: int) -> str:
    """What it showed that sessions were cut short."""
    if not places:
        return "No session has tokens to be cut short at."
    held = "what must hold without a record did" if not broken else f"broken in {counted(broken, 'session')}"
    return f"Cut short at {counted(places, 'place')} of {counted(sessions, 'session')}: {held}."


def missing(report: RunReport, shown: int = 5) -> str:
    """The sessions of an earlier report that were not met; "" where there are none."""
    count = report.summary.missing
    if not count:
        return ""
    ids = report.missing[:shown]
    left = f" and {count - len(ids):,} more" if count > len(ids) else ""
    verb = "is" if count == 1 else "are"
    return f"{counted(count, 'session')} of {report.baseline} {verb} not in the sources: {', '.join(ids)}{left}"


def counted_once(report: RunReport, shown: int = 5) -> str:
    """What was given more than once; "" where nothing was."""
    names = report.counted_once
    if not names:
        return ""
    left = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return f"Given more than once, counted once: {', '.join(names[:shown])}{left}."


def example(report: RunReport, result: SessionResult) -> str:
    """The command line that replays an example."""
    return command(report, result.source, result.session)


def folded(row: Row) -> str:
    """A row of which nothing is shown."""
    if row.differs:
        return f"{counted(row.steps, 'step')}, {row.differing:,} of them differ"
    return f"{counted(row.steps, 'step')} the same"


def nothing_differs(both: Aligned) -> str:
    """Why there is nothing to show of two sides."""
    seen = "what was compared is" if both.partly else "what clients see, markers and faults are"
    if both.now:
        return f"now {seen} the same as recorded at every step (the earlier report has no events to show beside it)"
    return f"{seen} the same at every step"


# --- lag --------------------------------------------------------------------------------------------------------------

_EDGES = (1, 2, 3, 5, 9, 17, 33, 65)
"""Where the ranges of tokens begin."""


class Bar(msgspec.Struct, frozen=True):
    """One range of a histogram, in words, and how many characters are in it."""

    label: str
    characters: int


def bars(lag: Mapping[int, int]) -> list[Bar]:
    """The histogram of a lag, earliest first; ranges between the first and the last that has any."""
    found: dict[int, int] = {}
    for tokens, characters in lag.items():
        place = _range(abs(tokens)) * (1 if tokens >= 0 else -1)
        found[place] = found.get(place, 0) + characters
    if not found:
        return []
    return [Bar(_label(place), found.get(place, 0)) for place in range(min(found), max(found) + 1)]


def _range(tokens: int) -> int:
    return sum(tokens >= edge for edge in _EDGES)


def _label(place: int) -> str:
    if not place:
        return "at the same token"
    first = _EDGES[abs(place) - 1]
    far = f"{first}+" if abs(place) == len(_EDGES) else f"{first}"
    last = first if abs(place) == len(_EDGES) else _EDGES[abs(place)] - 1
    span = far if last == first else f"{first} to {last}"
    return f"{span} {'token' if span == '1' else 'tokens'} {'later' if place > 0 else 'earlier'}"


def lag_in_words(report: RunReport) -> str:
    """``The replay shows 98.2 % at the same token as the record, 1.5 % later (by up to 34 tokens), 0.30 % earlier (by
    1 token).``; "" where nothing is known of it."""
    total = sum(report.lag.values())
    if not total:
        return ""
    actor = "the replay" if is_earlier(report) or not report.baseline else sides(report)[1]
    before = shown_sides(report)[0]
    told = [f"{percent(report.lag.get(0, 0) / total)} at the same token as {_record(before)}"]
    for name, sign in (("later", 1), ("earlier", -1)):
        part = {sign * tokens: count for tokens, count in report.lag.items() if tokens * sign > 0 and count}
        if part:
            most = f"by {'up to ' if max(part) > 1 else ''}{counted(max(part), 'token')}"
            told.append(f"{percent(sum(part.values()) / total)} {name} ({most})")
    return f"Of the text that both sides show, in sessions whose events differ, {actor} shows {', '.join(told)}."


def _record(side: str) -> str:
    return "the record" if side == "recorded" else side


def pace(report: RunReport) -> str:
    """How long it took, and how fast; "" where that is not known."""
    if report.seconds <= 0:
        return ""
    tokens, sessions = report.summary.tokens / report.seconds, report.summary.sessions / report.seconds
    took = f"{report.seconds:.1f} s" if report.seconds < 100 else f"{report.seconds / 60:.0f} min"
    jobs = f" with {report.jobs} processes" if report.jobs > 1 else ""
    return f"{took}{jobs}: {sessions:,.0f} sessions/s, {tokens:,.0f} tokens/s"
