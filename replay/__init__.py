"""Replay: derive recorded sessions again, through the same parser or another, and tell what differs."""

from replay.corpus import run_replay, traces
from replay.custom import Comparer, Ignore
from replay.derive import Derived, StageFailure, Track, derive, derive_layers
from replay.errors import BadSplit, NotAvailable, ParserFailed, ParserNotFound, ReplayError
from replay.parse import parse_text
from replay.relayed import against_served
from replay.report import RunReport, Summary, Unreadable, exit_code, from_json, to_json
from replay.resolve import Parser, resolve
from replay.result import SessionResult
from replay.run import Replayer
from replay.sides import Both
from replay.split import parse_splits, regroup
from replay.terminal import print_report
from replay.upstream_diff import Told
from replay.verdict import DEPTHS, VERDICTS, Depth, Difference, Divergence, Side, Verdict
from stages.message import Message, ToolCall, collect

__all__ = [
    "DEPTHS",
    "VERDICTS",
    "BadSplit",
    "Both",
    "Comparer",
    "Depth",
    "Derived",
    "Difference",
    "Divergence",
    "Ignore",
    "Message",
    "NotAvailable",
    "Parser",
    "ParserFailed",
    "ParserNotFound",
    "ReplayError",
    "Replayer",
    "RunReport",
    "SessionResult",
    "Side",
    "StageFailure",
    "Summary",
    "Told",
    "ToolCall",
    "Track",
    "Unreadable",
    "Verdict",
    "against_served",
    "collect",
    "derive",
    "derive_layers",
    "exit_code",
    "from_json",
    "parse_splits",
    "parse_text",
    "print_report",
    "regroup",
    "resolve",
    "run_replay",
    "to_json",
    "traces",
]
